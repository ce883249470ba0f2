// A program of HIP's that is its own tool, which starts and stops a context in callbacks of another one.
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>
#include <rocprofiler-sdk-roctx/roctx.h>
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>

#include <atomic>
#include <set>

#include "check.h"

#define DONE(call) CHECK((call) == ROCPROFILER_STATUS_SUCCESS)

using Record = rocprofiler_callback_tracing_record_t;

static const auto CODE_OBJECTS = ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT;

static rocprofiler_context_id_t control = {0}, context = {0};
static rocprofiler_buffer_id_t buffer = {0};
static std::atomic<int> calls{0}, objects{0};
static std::set<uint64_t> symbols, ran;

static void turn(Record record, rocprofiler_user_data_t*, void*) {
  if (record.phase != ROCPROFILER_CALLBACK_PHASE_ENTER) return;
  const bool resumes = record.operation == ROCPROFILER_MARKER_CONTROL_API_ID_roctxProfilerResume;
  DONE(resumes ? rocprofiler_start_context(context) : rocprofiler_stop_context(context));
}

static void tell(Record record, rocprofiler_user_data_t*, void*) {
  CHECK(record.context_id.handle == context.handle);
  if (record.kind != CODE_OBJECTS) {
    calls++;
  } else if (record.operation == ROCPROFILER_CODE_OBJECT_LOAD) {
    objects += record.phase == ROCPROFILER_CALLBACK_PHASE_LOAD ? 1 : -1;
  } else if (record.phase == ROCPROFILER_CALLBACK_PHASE_LOAD) {
    auto* kernel = static_cast<rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t*>(record.payload);
    CHECK(symbols.insert(kernel->kernel_id).second);
  }
}

static void take(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count,
                 void*, uint64_t) {
  for (size_t at = 0; at < count; at++) {
    ran.insert(static_cast<rocprofiler_buffer_tracing_kernel_dispatch_record_t*>(headers[at]->payload)->dispatch_info.kernel_id);
  }
}

static int initialize(rocprofiler_client_finalize_t, void*) {
  DONE(rocprofiler_create_context(&control));
  DONE(rocprofiler_configure_callback_tracing_service(control, ROCPROFILER_CALLBACK_TRACING_MARKER_CONTROL_API, nullptr, 0,
                                                      turn, nullptr));
  DONE(rocprofiler_create_context(&context));
  DONE(rocprofiler_create_buffer(context, 65536, 65536, ROCPROFILER_BUFFER_POLICY_LOSSLESS, take, nullptr, &buffer));
  for (auto kind : {ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API, CODE_OBJECTS}) {
    DONE(rocprofiler_configure_callback_tracing_service(context, kind, nullptr, 0, tell, nullptr));
  }
  DONE(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, nullptr, 0, buffer));
  return 0;
}

static void finalize(void*) { CHECK(objects == 0); }

static rocprofiler_tool_configure_result_t* configure(uint32_t, const char*, uint32_t, rocprofiler_client_id_t* id) {
  id->name = "resumes";
  static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, nullptr};
  return &result;
}

static void call_hip() {
  int device = -1;
  CHECK(hipGetDevice(&device) == hipSuccess && device == 0);
}

int main() {
  DONE(rocprofiler_force_configure(configure));
  void* area = nullptr;
  CHECK(hipMalloc(&area, 4096) == hipSuccess && hipMemset(area, 1, 4096) == hipSuccess);
  CHECK(hipDeviceSynchronize() == hipSuccess);
  DONE(rocprofiler_start_context(control));
  for (int round = 0; round < 3; round++) {
    CHECK(calls == 0);
    CHECK(roctxProfilerResume(0) == 0);
    CHECK(objects > 0 && !symbols.empty());
#if HIP_VERSION < 50300001
    // Another thread follows: calls that are under way are waited for.
    while (calls == 0) call_hip();
#else
    call_hip();
    CHECK(calls == 2);
#endif
    CHECK(hipMemset(area, 1, 4096) == hipSuccess && hipDeviceSynchronize() == hipSuccess);
    CHECK(roctxProfilerPause(0) == 0);
    calls = 0;
    call_hip();
    DONE(rocprofiler_flush_buffer(buffer));
    CHECK(ran.size() == 1 && symbols.count(*ran.begin()) == 1);
  }
  CHECK(hipFree(area) == hipSuccess);
  return 0;
}
