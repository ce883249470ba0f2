// A program that calls each function, where nobody records them: also as C++.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <rocprofiler-sdk-roctx/api_trace.h>
#include <rocprofiler-sdk-roctx/roctx.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

static void* own_ranges(void* argument) {
  (void)argument;
  CHECK(roctxRangePop() == -1);
  CHECK(roctxRangePushA("other") == 0);
  CHECK(roctxRangePushA("other") == 1);
  CHECK(roctxRangePop() == 1);
  return NULL;
}

enum { THREADS = 8, IDS = 1000 };
static roctx_range_id_t ids[THREADS][IDS];

static void* take_ids(void* argument) {
  roctx_range_id_t* mine = (roctx_range_id_t*)argument;
  for (int i = 0; i < IDS; i++) mine[i] = roctxRangeStartA("range");
  return NULL;
}

static int compare(const void* a, const void* b) {
  const roctx_range_id_t x = *(const roctx_range_id_t*)a, y = *(const roctx_range_id_t*)b;
  return (x > y) - (x < y);
}

int main(void) {
  CHECK(roctxRangePop() == -1);
  CHECK(roctxRangePush("a") == 0);
  CHECK(roctxRangePush("b") == 1);
  CHECK(roctxRangePop() == 1);
  CHECK(roctxRangePop() == 0);
  CHECK(roctxRangePop() == -1);
  CHECK(roctxRangePushA("mine") == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, own_ranges, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(roctxRangePop() == 0);

  // From 1 on, and no two threads get the same.
  CHECK(roctxRangeStart("first") == 1);
  roctxRangeStop(1);
  roctxRangeStop(12345);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, take_ids, ids[i]) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  qsort(ids, THREADS * IDS, sizeof ids[0][0], compare);
  for (int i = 0; i < THREADS * IDS; i++) CHECK(ids[i / IDS][i % IDS] == (roctx_range_id_t)i + 2);

  roctxMark("mark");
  roctx_thread_id_t id = 0;
  CHECK(roctxGetThreadId(&id) == 0 && id == (roctx_thread_id_t)syscall(SYS_gettid));
  CHECK(roctxProfilerPause(0) == 0 && roctxProfilerResume(id) == 0);
  CHECK(roctxNameOsThread("thread") == 0 && roctxNameHipDevice("device", 0) == 0);
  CHECK(roctxNameHsaAgent("agent", (const struct hsa_agent_s*)&id) == 0);
  CHECK(roctxNameHipStream("stream", NULL) == 0);
  return 0;
}
