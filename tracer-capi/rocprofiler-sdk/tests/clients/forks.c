// A program that is its own tool, and makes a callback thread before it forks: that is not in the child, which has what it
// records delivered all the same, as has its parent.
#include <rocprofiler-sdk-roctx/roctx.h>
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define DONE(call) CHECK((call) == ROCPROFILER_STATUS_SUCCESS)

static rocprofiler_context_id_t context = {0};
static rocprofiler_callback_thread_t thread = {0};
static rocprofiler_buffer_id_t buffers[2];
static int delivered[2];

static void take(rocprofiler_context_id_t of, rocprofiler_buffer_id_t buffer, rocprofiler_record_header_t** headers,
                 size_t count, void* data, uint64_t dropped) {
  (void)of, (void)buffer, (void)headers;
  CHECK(dropped == 0);
  *(int*)data += (int)count;
}

static int initialize(rocprofiler_client_finalize_t finalize, void* data) {
  (void)finalize, (void)data;
  const rocprofiler_buffer_tracing_kind_t kinds[] = {ROCPROFILER_BUFFER_TRACING_MARKER_CORE_API,
                                                     ROCPROFILER_BUFFER_TRACING_MARKER_NAME_API};
  DONE(rocprofiler_create_context(&context));
  for (int at = 0; at < 2; at++) {
    DONE(rocprofiler_create_buffer(context, 4096, 4096, ROCPROFILER_BUFFER_POLICY_LOSSLESS, take, &delivered[at],
                                   &buffers[at]));
    DONE(rocprofiler_configure_buffer_tracing_service(context, kinds[at], NULL, 0, buffers[at]));
  }
  // The other one has the first thread, which was made with this one.
  DONE(rocprofiler_assign_callback_thread(buffers[1], thread));
  DONE(rocprofiler_start_context(context));
  return 0;
}

static rocprofiler_tool_configure_result_t* configure(uint32_t version, const char* text, uint32_t priority,
                                                      rocprofiler_client_id_t* id) {
  (void)version, (void)text, (void)priority;
  id->name = "forks";
  static rocprofiler_tool_configure_result_t result = {sizeof(result), initialize, NULL, NULL};
  return &result;
}

static void record(void) {
  DONE(rocprofiler_force_configure(configure));
  roctxMarkA("recorded");
  CHECK(roctxNameOsThread("recorded") == 0);
  for (int at = 0; at < 2; at++) DONE(rocprofiler_flush_buffer(buffers[at]));
  CHECK(delivered[0] == 1 && delivered[1] == 1);
}

int main(void) {
  DONE(rocprofiler_create_callback_thread(&thread));
  pid_t child = fork();
  CHECK(child >= 0);
  // Who waits for a thread that is not there waits for ever.
  alarm(60);
  record();
  if (child == 0) return 0;
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return 0;
}
