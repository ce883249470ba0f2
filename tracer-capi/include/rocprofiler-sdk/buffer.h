/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Buffers of records. Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_BUFFER_H_
#define ROCPROFILER_SDK_BUFFER_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* Takes records, which are there until it returns. drop_count: records that were dropped since the buffer
 * was made. */
typedef void (*rocprofiler_buffer_tracing_cb_t)(rocprofiler_context_id_t context,
                                                rocprofiler_buffer_id_t buffer_id,
                                                rocprofiler_record_header_t** headers,
                                                size_t num_headers, void* data, uint64_t drop_count);

/* Makes a buffer: only inside of a tool's initialize function. size: bytes, rounded up to pages; watermark: bytes from
 * which on it is delivered without being asked. */
rocprofiler_status_t rocprofiler_create_buffer(rocprofiler_context_id_t context, size_t size, size_t watermark,
                                               rocprofiler_buffer_policy_t policy,
                                               rocprofiler_buffer_tracing_cb_t callback, void* callback_data,
                                               rocprofiler_buffer_id_t* buffer_id) ROCPROFILER_API
    ROCPROFILER_NONNULL(5, 7);

/* Delivers what is in it, and takes nothing any more: BUFFER_BUSY while it is being delivered. */
rocprofiler_status_t rocprofiler_destroy_buffer(rocprofiler_buffer_id_t buffer_id) ROCPROFILER_API;

/* Delivers what is in it, and waits until that is done. A callback of a buffer, or of work that is done, does not wait
 * for its own thread, nor for one that waits in such a callback itself. */
rocprofiler_status_t rocprofiler_flush_buffer(rocprofiler_buffer_id_t buffer_id) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_BUFFER_H_ */
