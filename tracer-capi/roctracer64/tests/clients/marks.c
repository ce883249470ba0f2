// A client in C99 of marks and ranges: each operation's callback, and none while it is not wanted.

#include <string.h>

#include <roctracer/roctracer_ext.h>
#include <roctracer/roctracer_roctx.h>

#include "check.h"

static int calls;
static uint32_t last_operation;
static const char* last_message;
static roctx_range_id_t last_id;
static int argument;

static void on_mark(uint32_t domain, uint32_t operation, const void* data, void* arg) {
  const roctx_api_data_t* mark = (const roctx_api_data_t*)data;
  CHECK(domain == ACTIVITY_DOMAIN_ROCTX && arg == &argument);
  calls++;
  last_operation = operation;
  last_message = mark->args.message;
  last_id = mark->args.id;
}

static void on_mark_again(uint32_t domain, uint32_t operation, const void* data, void* arg) {
  (void)domain, (void)operation, (void)data;
  calls += *(int*)arg;
}

static int anothers;

static int another_tracer(activity_domain_t domain, uint32_t operation, void* data) {
  (void)domain, (void)operation, (void)data;
  anothers++;
  return 0;
}

static void expect(uint32_t operation, const char* message, roctx_range_id_t id) {
  CHECK(calls == 1 && last_operation == operation && last_id == id);
  CHECK(message == NULL ? last_message == NULL : strcmp(last_message, message) == 0);
  calls = 0;
}

#define SUCCESS ROCTRACER_STATUS_SUCCESS

int main(void) {
  roctxMark("before");
  // Who wants nothing takes nothing from another tracer.
  roctxRegisterTracerCallback(another_tracer);
  CHECK(roctracer_disable_domain_callback(ACTIVITY_DOMAIN_ROCTX) == SUCCESS);
  roctxMark("another");
  CHECK(anothers == 1);
  CHECK(roctracer_enable_domain_callback(ACTIVITY_DOMAIN_ROCTX, on_mark, &argument) == SUCCESS);
  CHECK(calls == 0);
  roctxMark("mark");
  expect(ROCTX_API_ID_roctxMarkA, "mark", 0);
  CHECK(roctxRangePush("push") == 0);
  expect(ROCTX_API_ID_roctxRangePushA, "push", 0);
  CHECK(roctxRangePop() == 0);
  expect(ROCTX_API_ID_roctxRangePop, NULL, 0);
  const roctx_range_id_t id = roctxRangeStart("start");
  expect(ROCTX_API_ID_roctxRangeStartA, "start", id);
  roctxRangeStop(id);
  expect(ROCTX_API_ID_roctxRangeStop, NULL, id);

  // They go on while the rest is stopped.
  roctracer_stop();
  roctxMark("stopped");
  expect(ROCTX_API_ID_roctxMarkA, "stopped", 0);
  roctracer_start();

  // One operation less, and another callback for one.
  CHECK(roctracer_disable_op_callback(ACTIVITY_DOMAIN_ROCTX, ROCTX_API_ID_roctxMarkA) == SUCCESS);
  roctxMark("disabled");
  CHECK(calls == 0);
  int ten = 10;
  CHECK(roctracer_enable_op_callback(ACTIVITY_DOMAIN_ROCTX, ROCTX_API_ID_roctxMarkA, on_mark_again, &ten) == SUCCESS);
  roctxMark("enabled");
  CHECK(calls == 10);
  CHECK(roctracer_disable_domain_callback(ACTIVITY_DOMAIN_ROCTX) == SUCCESS);
  roctxMark("after");
  roctxRangePop();
  CHECK(calls == 10);

  // And again.
  CHECK(roctracer_enable_op_callback(ACTIVITY_DOMAIN_ROCTX, ROCTX_API_ID_roctxRangePop, on_mark, &argument) == SUCCESS);
  calls = 0;
  CHECK(roctxRangePop() == -1);
  expect(ROCTX_API_ID_roctxRangePop, NULL, 0);
  return 0;
}
