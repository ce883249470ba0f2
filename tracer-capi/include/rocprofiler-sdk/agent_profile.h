/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Counters of an agent, read when a tool wants it. Counters are not read: each function returns NOT_IMPLEMENTED, and calls no
 * callback. Source and binary compatible with the header of the same name of ROCprofiler-SDK 0.5; 1.0 has
 * device_counting_service.h in its place. */

#ifndef ROCPROFILER_SDK_AGENT_PROFILE_H_
#define ROCPROFILER_SDK_AGENT_PROFILE_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

#if ROCPROFILER_SDK_INTERFACE < 1

ROCPROFILER_EXTERN_C_INIT

/* By which a callback says which counters are to be read. */
typedef rocprofiler_status_t (*rocprofiler_agent_set_profile_callback_t)(rocprofiler_context_id_t context_id,
                                                                         rocprofiler_profile_config_id_t config_id);
typedef void (*rocprofiler_agent_profile_callback_t)(rocprofiler_context_id_t context_id, rocprofiler_agent_id_t agent_id,
                                                     rocprofiler_agent_set_profile_callback_t set_config,
                                                     void* user_data);

rocprofiler_status_t rocprofiler_configure_agent_profile_counting_service(
    rocprofiler_context_id_t context_id, rocprofiler_buffer_id_t buffer_id, rocprofiler_agent_id_t agent_id,
    rocprofiler_agent_profile_callback_t cb, void* user_data) ROCPROFILER_API ROCPROFILER_NONNULL(4);

/* Reads them. */
rocprofiler_status_t rocprofiler_sample_agent_profile_counting_service(rocprofiler_context_id_t context_id,
                                                                       rocprofiler_user_data_t user_data,
                                                                       rocprofiler_counter_flag_t flags) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif

#endif /* ROCPROFILER_SDK_AGENT_PROFILE_H_ */
