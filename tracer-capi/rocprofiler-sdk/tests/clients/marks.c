// Calls each function of roctx on two threads, and says how often: "count <function> <times>". What they return is what they
// return where nobody records. WITH_HSA: the HSA runtime begins behind the first calls, of which it says "early" instead.
#define _GNU_SOURCE
#include <pthread.h>
#include <rocprofiler-sdk-roctx/roctx.h>

#include "check.h"

#ifdef WITH_HSA
int hsa_init(void);
int hsa_shut_down(void);
#endif

enum { ROUNDS = 50 };

static void* run(void* argument) {
  const char* name = (const char*)argument;
  for (int round = 0; round < ROUNDS; round++) {
    CHECK(roctxRangePushA(name) == 0);
    roctxMarkA("inside");
    CHECK(roctxRangePushA("inner") == 1);
    const roctx_range_id_t id = roctxRangeStartA("handed");
    CHECK(id != 0);
    roctxRangeStop(id);
    CHECK(roctxRangePop() == 1);
    CHECK(roctxRangePop() == 0);
    CHECK(roctxRangePop() == -1);
  }
  roctx_thread_id_t thread = 0;
  CHECK(roctxGetThreadId(&thread) == 0 && thread != 0);
  CHECK(roctxProfilerPause(thread) == 0 && roctxProfilerResume(thread) == 0 && roctxProfilerPause(0) == 0);
  CHECK(roctxNameOsThread(name) == 0 && roctxNameHsaAgent("agent", (const struct hsa_agent_s*)&thread) == 0);
  CHECK(roctxNameHipDevice("device", 0) == 0 && roctxNameHipStream("stream", NULL) == 0);
  return NULL;
}

int main(void) {
#ifdef WITH_HSA
  roctxMarkA("early");
  CHECK(roctxRangePushA("early") == 0 && roctxRangePop() == 0);
  puts("early roctxMarkA 1\nearly roctxRangePushA 1\nearly roctxRangePop 1");
  CHECK(hsa_init() == 0);
#endif
  pthread_t other;
  CHECK(pthread_create(&other, NULL, run, "other") == 0);
  run("first");
  CHECK(pthread_join(other, NULL) == 0);
#ifdef WITH_HSA
  CHECK(hsa_shut_down() == 0);
#endif
  printf("count roctxMarkA %d\ncount roctxRangePushA %d\ncount roctxRangePop %d\n", 2 * ROUNDS, 4 * ROUNDS, 6 * ROUNDS);
  printf("count roctxRangeStartA %d\ncount roctxRangeStop %d\n", 2 * ROUNDS, 2 * ROUNDS);
  puts("count roctxGetThreadId 2\ncount roctxProfilerPause 4\ncount roctxProfilerResume 2");
  puts("count roctxNameOsThread 2\ncount roctxNameHsaAgent 2\ncount roctxNameHipDevice 2\ncount roctxNameHipStream 2");
  return 0;
}
