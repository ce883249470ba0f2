/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * All of the interface. Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5. */

#ifndef ROCPROFILER_SDK_ROCPROFILER_H_
#define ROCPROFILER_SDK_ROCPROFILER_H_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/buffer.h>
#include <rocprofiler-sdk/buffer_tracing.h>
#include <rocprofiler-sdk/callback_tracing.h>
#include <rocprofiler-sdk/context.h>
#include <rocprofiler-sdk/counters.h>
#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/external_correlation.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hip.h>
#include <rocprofiler-sdk/hsa.h>
#include <rocprofiler-sdk/intercept_table.h>
#include <rocprofiler-sdk/internal_threading.h>
#include <rocprofiler-sdk/marker.h>
#include <rocprofiler-sdk/pc_sampling.h>
#include <rocprofiler-sdk/version.h>
#if ROCPROFILER_SDK_INTERFACE >= 1
#include <rocprofiler-sdk/counter_config.h>
#include <rocprofiler-sdk/deprecated/profile_config.h>
#include <rocprofiler-sdk/device_counting_service.h>
#include <rocprofiler-sdk/dispatch_counting_service.h>
#include <rocprofiler-sdk/rccl.h>
#else
#include <rocprofiler-sdk/agent_profile.h>
#include <rocprofiler-sdk/dispatch_profile.h>
#include <rocprofiler-sdk/profile_config.h>
#endif

ROCPROFILER_EXTERN_C_INIT

/* The version of the library; each place may be null. */
rocprofiler_status_t rocprofiler_get_version(uint32_t* major, uint32_t* minor, uint32_t* patch) ROCPROFILER_API;

#if ROCPROFILER_SDK_INTERFACE >= 1
/* The same. */
rocprofiler_status_t rocprofiler_get_version_triplet(rocprofiler_version_triplet_t* info) ROCPROFILER_API
    ROCPROFILER_NONNULL(1);
#endif

/* Now, as in all records. */
rocprofiler_status_t rocprofiler_get_timestamp(rocprofiler_timestamp_t* ts) ROCPROFILER_API ROCPROFILER_NONNULL(1);

/* The number of the calling thread, as in all records. */
rocprofiler_status_t rocprofiler_get_thread_id(rocprofiler_thread_id_t* tid) ROCPROFILER_API ROCPROFILER_NONNULL(1);

/* The name of a status, and what it means; null if there is none of this number. */
const char* rocprofiler_get_status_name(rocprofiler_status_t status) ROCPROFILER_API;
const char* rocprofiler_get_status_string(rocprofiler_status_t status) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif /* ROCPROFILER_SDK_ROCPROFILER_H_ */
