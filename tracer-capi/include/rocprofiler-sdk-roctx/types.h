/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_ROCTX_TYPES_H_
#define ROCPROFILER_SDK_ROCTX_TYPES_H_

#include <rocprofiler-sdk-roctx/defines.h>

#include <stdint.h>

/* A range of the process, from 1 on. */
typedef uint64_t roctx_range_id_t;
/* A thread, as gettid() has it. */
typedef uint64_t roctx_thread_id_t;

#endif /* ROCPROFILER_SDK_ROCTX_TYPES_H_ */
