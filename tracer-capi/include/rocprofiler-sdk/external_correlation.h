/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Correlation ids that the program gives: a stack of them for each context and thread. Source and binary compatible
 * with the header of the same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_EXTERNAL_CORRELATION_H_
#define ROCPROFILER_SDK_EXTERNAL_CORRELATION_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* What a tool can be asked for an id of. */
typedef enum {
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_NONE = 0,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HSA_CORE_API,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HSA_AMD_EXT_API,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HSA_IMAGE_EXT_API,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HSA_FINALIZE_EXT_API,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HIP_RUNTIME_API,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_HIP_COMPILER_API,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MARKER_CORE_API,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MARKER_CONTROL_API,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MARKER_NAME_API,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_COPY,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_KERNEL_DISPATCH,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_SCRATCH_MEMORY,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_RCCL_API,
#if ROCPROFILER_SDK_INTERFACE >= 1
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_OMPT,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_ALLOCATION,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_ROCDECODE_API,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_ROCJPEG_API,
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MARKER_CORE_RANGE_API,
#endif
  ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_LAST,
} rocprofiler_external_correlation_id_request_kind_t;

/* Asks a tool for the id of a call or of work that a context records, or is told of, on the thread that does it. Returns 0
 * when it has written one; else what was pushed counts. */
typedef int (*rocprofiler_external_correlation_id_request_cb_t)(
    rocprofiler_thread_id_t thread_id, rocprofiler_context_id_t context_id,
    rocprofiler_external_correlation_id_request_kind_t kind, rocprofiler_tracing_operation_t operation,
    uint64_t internal_corr_id_value, rocprofiler_user_data_t* external_corr_id_value, void* data);

/* Has a function asked, of these kinds or of all: only inside of a tool's initialize function, and once for each kind. */
rocprofiler_status_t rocprofiler_configure_external_correlation_id_request_service(
    rocprofiler_context_id_t context_id, const rocprofiler_external_correlation_id_request_kind_t* kinds,
    size_t kinds_count, rocprofiler_external_correlation_id_request_cb_t callback, void* callback_args) ROCPROFILER_API
    ROCPROFILER_NONNULL(4);

#if ROCPROFILER_SDK_INTERFACE >= 1
/* The name of a kind, and its length; each place may be null. */
rocprofiler_status_t rocprofiler_query_external_correlation_id_request_kind_name(
    rocprofiler_external_correlation_id_request_kind_t kind, const char** name, uint64_t* name_len) ROCPROFILER_API;
#endif

/* What the thread does from now on, in the context, belongs to this id. */
rocprofiler_status_t rocprofiler_push_external_correlation_id(
    rocprofiler_context_id_t context, rocprofiler_thread_id_t tid,
    rocprofiler_user_data_t external_correlation_id) ROCPROFILER_API;

/* It belongs to what it belonged to before. The id that ends is written, 0 if there was none; the place may be null. */
rocprofiler_status_t rocprofiler_pop_external_correlation_id(
    rocprofiler_context_id_t context, rocprofiler_thread_id_t tid,
    rocprofiler_user_data_t* external_correlation_id) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_EXTERNAL_CORRELATION_H_ */
