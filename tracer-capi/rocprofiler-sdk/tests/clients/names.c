// Kinds and operations by name, as the headers have them, for buffers and for callbacks.
#include <rocprofiler-sdk/rocprofiler.h>
#include <string.h>

#include "check.h"

#define IS(call, status) CHECK((call) == ROCPROFILER_STATUS_##status)

static int next_kind = 0, next_operation = 0, stop_at = -1;

static int of_buffers(rocprofiler_buffer_tracing_kind_t kind, void* data) {
  CHECK(data == &next_kind && (int)kind == next_kind);
  return next_kind++ == stop_at;
}

static int of_callbacks(rocprofiler_callback_tracing_kind_t kind, void* data) {
  CHECK(data == &next_kind && (int)kind == next_kind);
  return next_kind++ == stop_at;
}

static int operation(rocprofiler_buffer_tracing_kind_t kind, rocprofiler_tracing_operation_t number, void* data) {
  const char* name = NULL;
  uint64_t length = 0;
  CHECK(data == &next_operation && number == next_operation);
  IS(rocprofiler_query_buffer_tracing_kind_operation_name(kind, number, &name, &length), SUCCESS);
  CHECK(name != NULL && strlen(name) == length && length > 0);
  return next_operation++ == stop_at;
}

static int operation_of_callbacks(rocprofiler_callback_tracing_kind_t kind, rocprofiler_tracing_operation_t number,
                                  void* data) {
  IS(rocprofiler_query_callback_tracing_kind_operation_name(kind, number, NULL, NULL), SUCCESS);
  CHECK(data == &next_operation && number == next_operation);
  return next_operation++ == stop_at;
}

static void is_called(rocprofiler_buffer_tracing_kind_t kind, int number, const char* expected) {
  const char* name = NULL;
  IS(rocprofiler_query_buffer_tracing_kind_operation_name(kind, number, &name, NULL), SUCCESS);
  CHECK(strcmp(name, expected) == 0);
}

static void has(rocprofiler_buffer_tracing_kind_t kind, int operations) {
  next_operation = 0;
  IS(rocprofiler_iterate_buffer_tracing_kind_operations(kind, operation, &next_operation), SUCCESS);
  CHECK(next_operation == operations);
}

int main(void) {
  const char* name = "x";
  uint64_t length = 7;
  IS(rocprofiler_iterate_buffer_tracing_kinds(of_buffers, &next_kind), SUCCESS);
  CHECK(next_kind == ROCPROFILER_BUFFER_TRACING_LAST);
  next_kind = 0;
  IS(rocprofiler_iterate_callback_tracing_kinds(of_callbacks, &next_kind), SUCCESS);
  CHECK(next_kind == ROCPROFILER_CALLBACK_TRACING_LAST);
  IS(rocprofiler_query_buffer_tracing_kind_name(ROCPROFILER_BUFFER_TRACING_NONE, &name, &length), SUCCESS);
  CHECK(strcmp(name, "NONE") == 0 && length == 4);
  IS(rocprofiler_query_buffer_tracing_kind_name(ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT, &name, &length),
     SUCCESS);
  CHECK(strcmp(name, "CORRELATION_ID_RETIREMENT") == 0);
  IS(rocprofiler_query_callback_tracing_kind_name(ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, &name, NULL), SUCCESS);
  CHECK(strcmp(name, "CODE_OBJECT") == 0);
  IS(rocprofiler_query_buffer_tracing_kind_name(ROCPROFILER_BUFFER_TRACING_LAST, &name, &length), ERROR_KIND_NOT_FOUND);
  CHECK(name == NULL && length == 0);
  has(ROCPROFILER_BUFFER_TRACING_HSA_CORE_API, ROCPROFILER_HSA_CORE_API_ID_LAST);
  has(ROCPROFILER_BUFFER_TRACING_HSA_AMD_EXT_API, ROCPROFILER_HSA_AMD_EXT_API_ID_LAST);
  has(ROCPROFILER_BUFFER_TRACING_HSA_IMAGE_EXT_API, ROCPROFILER_HSA_IMAGE_EXT_API_ID_LAST);
  has(ROCPROFILER_BUFFER_TRACING_HSA_FINALIZE_EXT_API, ROCPROFILER_HSA_FINALIZE_EXT_API_ID_LAST);
  has(ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API, ROCPROFILER_HIP_RUNTIME_API_ID_LAST);
  has(ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API, ROCPROFILER_HIP_COMPILER_API_ID_LAST);
  has(ROCPROFILER_BUFFER_TRACING_MARKER_CORE_API, ROCPROFILER_MARKER_CORE_API_ID_LAST);
  has(ROCPROFILER_BUFFER_TRACING_MARKER_CONTROL_API, ROCPROFILER_MARKER_CONTROL_API_ID_LAST);
  has(ROCPROFILER_BUFFER_TRACING_MARKER_NAME_API, ROCPROFILER_MARKER_NAME_API_ID_LAST);
  has(ROCPROFILER_BUFFER_TRACING_MEMORY_COPY, ROCPROFILER_MEMORY_COPY_LAST);
  has(ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, ROCPROFILER_KERNEL_DISPATCH_LAST);
#if ROCPROFILER_SDK_INTERFACE >= 1
  has(ROCPROFILER_BUFFER_TRACING_MEMORY_ALLOCATION, ROCPROFILER_MEMORY_ALLOCATION_LAST);
  has(ROCPROFILER_BUFFER_TRACING_RUNTIME_INITIALIZATION, ROCPROFILER_RUNTIME_INITIALIZATION_LAST);
  has(ROCPROFILER_BUFFER_TRACING_HIP_STREAM, ROCPROFILER_HIP_STREAM_LAST);
  has(ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT, ROCPROFILER_HIP_RUNTIME_API_ID_LAST);
  has(ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API_EXT, ROCPROFILER_HIP_COMPILER_API_ID_LAST);
  is_called(ROCPROFILER_BUFFER_TRACING_MARKER_CORE_RANGE_API, 1, "roctxThreadRangeA");
  IS(rocprofiler_query_buffer_tracing_kind_name(ROCPROFILER_BUFFER_TRACING_KFD_EVENT_UNMAP_FROM_GPU, &name, NULL), SUCCESS);
  CHECK(strcmp(name, "KFD_EVENT_UNMAP_FROM_GPU") == 0);
  const rocprofiler_external_correlation_id_request_kind_t range = ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MARKER_CORE_RANGE_API;
  IS(rocprofiler_query_external_correlation_id_request_kind_name(range, &name, &length), SUCCESS);
  CHECK(strcmp(name, "MARKER_CORE_RANGE_API") == 0 && length == strlen(name));
#else
  has(ROCPROFILER_BUFFER_TRACING_PAGE_MIGRATION, ROCPROFILER_PAGE_MIGRATION_LAST);
#endif
  has(ROCPROFILER_BUFFER_TRACING_SCRATCH_MEMORY, ROCPROFILER_SCRATCH_MEMORY_LAST);
  is_called(ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API, ROCPROFILER_HIP_RUNTIME_API_ID_hipLaunchKernel, "hipLaunchKernel");
  is_called(ROCPROFILER_BUFFER_TRACING_HSA_CORE_API, ROCPROFILER_HSA_CORE_API_ID_hsa_queue_create, "hsa_queue_create");
  is_called(ROCPROFILER_BUFFER_TRACING_MARKER_CORE_API, ROCPROFILER_MARKER_CORE_API_ID_roctxRangePop, "roctxRangePop");
  is_called(ROCPROFILER_BUFFER_TRACING_MEMORY_COPY, ROCPROFILER_MEMORY_COPY_DEVICE_TO_HOST, "MEMORY_COPY_DEVICE_TO_HOST");
  next_operation = 0;
  IS(rocprofiler_iterate_callback_tracing_kind_operations(ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, operation_of_callbacks,
                                                          &next_operation),
     SUCCESS);
  CHECK(next_operation == ROCPROFILER_CODE_OBJECT_LAST);
  // Not 0 ends it.
  next_operation = 0;
  stop_at = 3;
  IS(rocprofiler_iterate_callback_tracing_kind_operations(ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API,
                                                          operation_of_callbacks, &next_operation),
     SUCCESS);
  CHECK(next_operation == 4);
  const rocprofiler_buffer_tracing_kind_t last = ROCPROFILER_BUFFER_TRACING_LAST;
  IS(rocprofiler_iterate_buffer_tracing_kind_operations(ROCPROFILER_BUFFER_TRACING_NONE, operation, NULL),
     ERROR_INVALID_ARGUMENT);
  IS(rocprofiler_iterate_buffer_tracing_kind_operations(last, operation, NULL), ERROR_INVALID_ARGUMENT);
  const rocprofiler_buffer_tracing_kind_t retirement = ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT;
  IS(rocprofiler_iterate_buffer_tracing_kind_operations(retirement, operation, NULL), ERROR_NOT_IMPLEMENTED);
  IS(rocprofiler_query_buffer_tracing_kind_operation_name(retirement, 0, &name, NULL), ERROR_NOT_IMPLEMENTED);
  IS(rocprofiler_query_buffer_tracing_kind_operation_name(last, 0, &name, NULL), ERROR_KIND_NOT_FOUND);
  IS(rocprofiler_query_buffer_tracing_kind_operation_name(ROCPROFILER_BUFFER_TRACING_NONE, 0, &name, NULL),
     ERROR_INVALID_ARGUMENT);
  name = "x";
  for (int number = -1; number < 500; number += 500) {
    IS(rocprofiler_query_buffer_tracing_kind_operation_name(ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API, number, &name,
                                                            &length),
       ERROR_OPERATION_NOT_FOUND);
    CHECK(name == NULL && length == 0);
  }
  return 0;
}
