/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Counters that are read together. Counters are not read: each function returns NOT_IMPLEMENTED. Source and binary
 * compatible with the header of the same name of ROCprofiler-SDK 0.5; 1.0 has counter_config.h in its place. */

#ifndef ROCPROFILER_SDK_PROFILE_CONFIG_H_
#define ROCPROFILER_SDK_PROFILE_CONFIG_H_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

#if ROCPROFILER_SDK_INTERFACE < 1

ROCPROFILER_EXTERN_C_INIT

/* Makes one, with those that config_id has already. */
rocprofiler_status_t rocprofiler_create_profile_config(rocprofiler_agent_id_t agent_id,
                                                       rocprofiler_counter_id_t* counters_list, size_t counters_count,
                                                       rocprofiler_profile_config_id_t* config_id) ROCPROFILER_API
    ROCPROFILER_NONNULL(4);

rocprofiler_status_t rocprofiler_destroy_profile_config(rocprofiler_profile_config_id_t config_id) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif

#endif /* ROCPROFILER_SDK_PROFILE_CONFIG_H_ */
