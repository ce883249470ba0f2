// A program of HIP's that is its own tool, which finalizes itself in the callback of a buffer while the GPU is at work.
#include <hip/hip_runtime_api.h>
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>

#include <atomic>
#include <thread>

#include "check.h"

#define DONE(call) CHECK((call) == ROCPROFILER_STATUS_SUCCESS)

enum { KERNELS = 1000 };

static rocprofiler_context_id_t context = {0};
static rocprofiler_buffer_id_t calls = {0}, kernels = {0};
static rocprofiler_client_id_t* own;
static rocprofiler_client_finalize_t finalize_client;
static std::atomic<bool> is_called{false}, has_enqueued{false}, is_finalized{false};
static std::atomic<size_t> kernel_count{0};

static void take_call(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t**, size_t, void*,
                      uint64_t) {
  is_called = true;
  while (!has_enqueued) std::this_thread::yield();
  finalize_client(*own);
}

static void take_kernels(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t**, size_t count, void*,
                         uint64_t dropped) {
  CHECK(dropped == 0 && !is_finalized);
  kernel_count += count;
}

static int initialize(rocprofiler_client_finalize_t finalize, void*) {
  finalize_client = finalize;
  const auto lossless = ROCPROFILER_BUFFER_POLICY_LOSSLESS;
  const auto api = ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API;
  const rocprofiler_tracing_operation_t one = ROCPROFILER_HIP_RUNTIME_API_ID_hipGetDevice;
  rocprofiler_callback_thread_t thread = {0};
  DONE(rocprofiler_create_context(&context));
  DONE(rocprofiler_create_buffer(context, 4096, 0, lossless, take_call, nullptr, &calls));
  DONE(rocprofiler_create_buffer(context, 65536, 65536, lossless, take_kernels, nullptr, &kernels));
  DONE(rocprofiler_create_callback_thread(&thread));
  DONE(rocprofiler_assign_callback_thread(kernels, thread));
  DONE(rocprofiler_configure_buffer_tracing_service(context, api, &one, 1, calls));
  DONE(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, nullptr, 0, kernels));
  DONE(rocprofiler_start_context(context));
  return 0;
}

static void finalize(void*) { is_finalized = true; }

static rocprofiler_tool_configure_result_t* configure(uint32_t, const char*, uint32_t, rocprofiler_client_id_t* id) {
  id->name = "finalizes";
  own = id;
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, nullptr};
  return &result;
}

int main() {
  DONE(rocprofiler_force_configure(configure));
  void* area = nullptr;
  int device = -1;
  CHECK(hipMalloc(&area, 4096) == hipSuccess && hipGetDevice(&device) == hipSuccess);
  while (!is_called) std::this_thread::yield();
  for (int times = 0; times < KERNELS; times++) CHECK(hipMemsetAsync(area, 1, 4096, nullptr) == hipSuccess);
  has_enqueued = true;
  while (!is_finalized) std::this_thread::yield();
  CHECK(hipDeviceSynchronize() == hipSuccess && kernel_count == KERNELS);
  return 0;
}
