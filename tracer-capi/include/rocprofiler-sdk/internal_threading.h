/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Threads that libraries create for themselves. Source and binary compatible with the header of the same name of
 * ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_INTERNAL_THREADING_H_
#define ROCPROFILER_SDK_INTERNAL_THREADING_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* A thread that calls callbacks of buffers. */
typedef struct {
  uint64_t handle;
} rocprofiler_callback_thread_t;

typedef void (*rocprofiler_internal_thread_library_cb_t)(rocprofiler_runtime_library_t library, void* data);

/* Has functions called before and after each thread that one of these libraries creates, on the thread that creates it.
 * libs: rocprofiler_runtime_library_t, or'ed; 0 is all. They stay until their tool is
 * finalized: of those that are given after tools were initialized, the one of the same library. */
rocprofiler_status_t rocprofiler_at_internal_thread_create(rocprofiler_internal_thread_library_cb_t precreate,
                                                           rocprofiler_internal_thread_library_cb_t postcreate,
                                                           int libs, void* data) ROCPROFILER_API;

/* Starts a thread: not after tools were initialized. */
rocprofiler_status_t rocprofiler_create_callback_thread(rocprofiler_callback_thread_t* cb_thread_id) ROCPROFILER_API
    ROCPROFILER_NONNULL(1);

/* Has it call the callback of a buffer, always. */
rocprofiler_status_t rocprofiler_assign_callback_thread(rocprofiler_buffer_id_t buffer_id,
                                                        rocprofiler_callback_thread_t cb_thread_id) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_INTERNAL_THREADING_H_ */
