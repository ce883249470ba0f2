// Preloaded into the program that is measured: a tool with a buffer whose callback does nothing. BENCH_KINDS says what it
// asks for, by numbers of kinds with commas between them.
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(call)                                         \
  do {                                                        \
    if ((call) == ROCPROFILER_STATUS_SUCCESS) break;          \
    fprintf(stderr, "rocprofiler-sdk: " #call " failed\n"); \
    abort();                                                  \
  } while (0)

static void discard(rocprofiler_context_id_t context, rocprofiler_buffer_id_t buffer, rocprofiler_record_header_t** headers,
                    size_t count, void* data, uint64_t dropped) {
  (void)context, (void)buffer, (void)headers, (void)count, (void)data, (void)dropped;
}

static int initialize(rocprofiler_client_finalize_t finalize, void* data) {
  (void)finalize, (void)data;
  rocprofiler_context_id_t context = {0};
  rocprofiler_buffer_id_t buffer = {0};
  REQUIRE(rocprofiler_create_context(&context));
  REQUIRE(rocprofiler_create_buffer(context, 1 << 20, 1 << 19, ROCPROFILER_BUFFER_POLICY_LOSSLESS, discard, NULL, &buffer));
  const char* asked = getenv("BENCH_KINDS");
  char kinds[64];
  snprintf(kinds, sizeof kinds, "%s", asked ? asked : "");
  for (char* kind = strtok(kinds, ","); kind; kind = strtok(NULL, ",")) {
    const rocprofiler_buffer_tracing_kind_t number = (rocprofiler_buffer_tracing_kind_t)atoi(kind);
    REQUIRE(rocprofiler_configure_buffer_tracing_service(context, number, NULL, 0, buffer));
  }
  REQUIRE(rocprofiler_start_context(context));
  return 0;
}

rocprofiler_tool_configure_result_t* rocprofiler_configure(uint32_t version, const char* text, uint32_t priority,
                                                           rocprofiler_client_id_t* id) {
  (void)version, (void)text, (void)priority;
  id->name = "bench";
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, NULL, NULL};
  return &result;
}
