/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Contexts: what is recorded while they are started. Source and binary compatible with the header of the same name
 * of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_CONTEXT_H_
#define ROCPROFILER_SDK_CONTEXT_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

#if ROCPROFILER_SDK_INTERFACE >= 1
#define ROCPROFILER_CONTEXT_NONE ROCPROFILER_HANDLE_LITERAL(rocprofiler_context_id_t, 0)
#else
#define ROCPROFILER_CONTEXT_NONE ROCPROFILER_HANDLE_LITERAL(rocprofiler_context_id_t, UINT64_MAX)
#endif

/* Makes a context: only inside of a tool's initialize function. In the 1.0 interface the place must be ROCPROFILER_CONTEXT_NONE
 * before (CONTEXT_ID_NOT_ZERO). */
rocprofiler_status_t rocprofiler_create_context(rocprofiler_context_id_t* context_id) ROCPROFILER_API
    ROCPROFILER_NONNULL(1);

/* Starts it; one that is started already stays so. */
rocprofiler_status_t rocprofiler_start_context(rocprofiler_context_id_t context_id) ROCPROFILER_API;

/* Stops it: CONTEXT_NOT_FOUND if it is not started. In a tool's finalize function one that was active counts as
 * started. */
rocprofiler_status_t rocprofiler_stop_context(rocprofiler_context_id_t context_id) ROCPROFILER_API;

/* Writes 1 if it is started, else 0. */
rocprofiler_status_t rocprofiler_context_is_active(rocprofiler_context_id_t context_id,
                                                   int* status) ROCPROFILER_API ROCPROFILER_NONNULL(2);

/* Writes 1 if it can be started, else 0. */
rocprofiler_status_t rocprofiler_context_is_valid(rocprofiler_context_id_t context_id,
                                                  int* status) ROCPROFILER_API ROCPROFILER_NONNULL(2);

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_CONTEXT_H_ */
