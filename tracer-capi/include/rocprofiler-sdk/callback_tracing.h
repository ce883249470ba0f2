/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Names of what callbacks can be called for. Source and binary compatible with the header of the same name of
 * ROCprofiler-SDK 0.5.
 * Callbacks themselves are not implemented. */

#ifndef ROCPROFILER_SDK_CALLBACK_TRACING_H_
#define ROCPROFILER_SDK_CALLBACK_TRACING_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* Not 0 ends the iteration. */
typedef int (*rocprofiler_callback_tracing_kind_cb_t)(rocprofiler_callback_tracing_kind_t kind, void* data);
typedef int (*rocprofiler_callback_tracing_kind_operation_cb_t)(rocprofiler_callback_tracing_kind_t kind,
                                                                rocprofiler_tracing_operation_t operation,
                                                                void* data);

/* The name of a kind, and its length; each place may be null. */
rocprofiler_status_t rocprofiler_query_callback_tracing_kind_name(rocprofiler_callback_tracing_kind_t kind,
                                                                  const char** name,
                                                                  uint64_t* name_len) ROCPROFILER_API;

/* The same of an operation. */
rocprofiler_status_t rocprofiler_query_callback_tracing_kind_operation_name(
    rocprofiler_callback_tracing_kind_t kind, rocprofiler_tracing_operation_t operation, const char** name,
    uint64_t* name_len) ROCPROFILER_API;

/* Calls a function with each kind, NONE first. */
rocprofiler_status_t rocprofiler_iterate_callback_tracing_kinds(
    rocprofiler_callback_tracing_kind_cb_t callback, void* data) ROCPROFILER_API ROCPROFILER_NONNULL(1);

/* The same with each operation of a kind. */
rocprofiler_status_t rocprofiler_iterate_callback_tracing_kind_operations(
    rocprofiler_callback_tracing_kind_t kind, rocprofiler_callback_tracing_kind_operation_cb_t callback,
    void* data) ROCPROFILER_API ROCPROFILER_NONNULL(2);

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_CALLBACK_TRACING_H_ */
