/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Correlation ids that the program gives: a stack of them for each context and thread. Source and binary compatible
 * with the header of the same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_EXTERNAL_CORRELATION_H_
#define ROCPROFILER_SDK_EXTERNAL_CORRELATION_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

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
