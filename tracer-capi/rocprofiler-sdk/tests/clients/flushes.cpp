// A program that is its own tool: a flush delivers all that was launched before it, also if each callback of the buffer takes
// longer than a GPU is waited for.
#include <hip/hip_runtime_api.h>
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "check.h"

#define DONE(call) CHECK((call) == ROCPROFILER_STATUS_SUCCESS)

// More than both halves of the buffer hold.
static const size_t LAUNCHES = 70;

static rocprofiler_context_id_t context = {0};
static rocprofiler_buffer_id_t buffer = {0};
static std::atomic<size_t> delivered{0};
static size_t at_flush = 0;

static void take(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t**, size_t count, void*,
                 uint64_t dropped) {
  CHECK(dropped == 0);
  usleep(1500000);
  delivered += count;
}

static int initialize(rocprofiler_client_finalize_t, void*) {
  const auto policy = ROCPROFILER_BUFFER_POLICY_LOSSLESS;
  DONE(rocprofiler_create_context(&context));
  DONE(rocprofiler_create_buffer(context, 4096, 4096, policy, take, nullptr, &buffer));
  const auto kind = ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH;
  DONE(rocprofiler_configure_buffer_tracing_service(context, kind, nullptr, 0, buffer));
  DONE(rocprofiler_start_context(context));
  return 0;
}

static void finalize(void*) { CHECK(delivered == at_flush); }

static rocprofiler_tool_configure_result_t* configure(uint32_t, const char*, uint32_t, rocprofiler_client_id_t* id) {
  id->name = "flushes";
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, nullptr};
  return &result;
}

int main() {
  DONE(rocprofiler_force_configure(configure));
  void* area = nullptr;
  CHECK(hipMalloc(&area, 4096) == hipSuccess);
  for (size_t launched = 0; launched < LAUNCHES; launched++) CHECK(hipMemset(area, 1, 4096) == hipSuccess);
  CHECK(hipDeviceSynchronize() == hipSuccess);
  DONE(rocprofiler_flush_buffer(buffer));
  at_flush = delivered;
  CHECK(at_flush >= LAUNCHES);
  return 0;
}
