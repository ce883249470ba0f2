// A client in C99, linked against the library: each function, without a tracer and with one.

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <roctracer/roctracer_roctx.h>

#include "check.h"

static int calls;
static activity_domain_t last_domain;
static enum roctx_api_id_t last_operation;
static char last_message[32];
static roctx_range_id_t last_id;

static int record(activity_domain_t domain, uint32_t operation, void* data) {
  const roctx_api_data_t* arguments = (const roctx_api_data_t*)data;
  calls++;
  last_domain = domain;
  last_operation = (roctx_api_id_t)operation;
  snprintf(last_message, sizeof last_message, "%s", arguments->args.message ? arguments->args.message : "(none)");
  last_id = arguments->args.id;
  return -1;  // ignored
}

static void expect(enum roctx_api_id_t operation, const char* message, roctx_range_id_t id) {
  CHECK(calls == 1);
  CHECK(last_domain == ACTIVITY_DOMAIN_ROCTX);
  CHECK(last_operation == operation);
  CHECK(strcmp(last_message, message) == 0);
  CHECK(last_id == id);
  calls = 0;
}

// Calls the function that it is called for, once, and keeps what that returned.
static int inner;

static int push_again(activity_domain_t domain, uint32_t operation, void* data) {
  (void)domain, (void)operation, (void)data;
  roctxRegisterTracerCallback(NULL);
  inner = roctxRangePushA("inner");
  return 0;
}

static int pop_again(activity_domain_t domain, uint32_t operation, void* data) {
  (void)domain, (void)operation, (void)data;
  roctxRegisterTracerCallback(NULL);
  inner = roctxRangePop();
  return 0;
}

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
  CHECK(roctx_version_major() == ROCTX_VERSION_MAJOR);
  CHECK(roctx_version_minor() == ROCTX_VERSION_MINOR);

  // Ranges of a thread: depths, and none left.
  CHECK(roctxRangePop() == -1);
  CHECK(roctxRangePush("a") == 0);
  CHECK(roctxRangePush("b") == 1);
  CHECK(roctxRangePop() == 1);
  CHECK(roctxRangePop() == 0);
  CHECK(roctxRangePop() == -1);

  // They are the thread's own.
  CHECK(roctxRangePushA("mine") == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, own_ranges, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(roctxRangePop() == 0);

  // Ids of ranges of the process: from 1 on, and no two threads get the same.
  CHECK(roctxRangeStart("first") == 1);
  roctxRangeStop(1);
  roctxRangeStop(12345);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, take_ids, ids[i]) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  qsort(ids, THREADS * IDS, sizeof ids[0][0], compare);
  for (int i = 0; i < THREADS * IDS; i++) CHECK(ids[i / IDS][i % IDS] == (roctx_range_id_t)i + 2);

  // What a tracer is told.
  roctxRegisterTracerCallback(record);
  roctxMark("mark");
  expect(ROCTX_API_ID_roctxMarkA, "mark", 0);
  CHECK(roctxRangePushA("push") == 0);
  expect(ROCTX_API_ID_roctxRangePushA, "push", 0);
  CHECK(roctxRangePop() == 0);
  expect(ROCTX_API_ID_roctxRangePop, "(none)", 0);
  CHECK(roctxRangePop() == -1);
  expect(ROCTX_API_ID_roctxRangePop, "(none)", 0);
  const roctx_range_id_t id = roctxRangeStartA("start");
  expect(ROCTX_API_ID_roctxRangeStartA, "start", id);
  roctxRangeStop(id);
  expect(ROCTX_API_ID_roctxRangeStop, "(none)", id);
  roctxMark(NULL);
  expect(ROCTX_API_ID_roctxMarkA, "(none)", 0);

  // And nothing any more.
  roctxRegisterTracerCallback(NULL);
  roctxMark("mark");
  CHECK(calls == 0);

  // It is told before the function has done what it does.
  roctxRegisterTracerCallback(push_again);
  CHECK(roctxRangePushA("outer") == 1);
  CHECK(inner == 0);
  roctxRegisterTracerCallback(pop_again);
  CHECK(roctxRangePop() == 0);
  CHECK(inner == 1);
  CHECK(roctxRangePop() == -1);
  return 0;
}
