/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Counters of an agent, read when a tool wants it. Counters are not read: each function returns NOT_IMPLEMENTED, and calls no
 * callback. Source and binary compatible with the header of the same name of ROCprofiler-SDK 1.0; 0.5 has agent_profile.h in
 * its place. */

#ifndef ROCPROFILER_SDK_DEVICE_COUNTING_SERVICE_H_
#define ROCPROFILER_SDK_DEVICE_COUNTING_SERVICE_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

#if ROCPROFILER_SDK_INTERFACE >= 1

ROCPROFILER_EXTERN_C_INIT

/* By which a callback says which counters are to be read. */
typedef rocprofiler_status_t (*rocprofiler_device_counting_agent_cb_t)(rocprofiler_context_id_t context_id,
                                                                       rocprofiler_counter_config_id_t config_id);
typedef void (*rocprofiler_device_counting_service_cb_t)(rocprofiler_context_id_t context_id,
                                                         rocprofiler_agent_id_t agent_id,
                                                         rocprofiler_device_counting_agent_cb_t set_config,
                                                         void* user_data);
#if ROCPROFILER_SDK_BETA_COMPAT > 0
typedef rocprofiler_device_counting_agent_cb_t rocprofiler_agent_set_profile_callback_t;
#endif

rocprofiler_status_t rocprofiler_configure_device_counting_service(
    rocprofiler_context_id_t context_id, rocprofiler_buffer_id_t buffer_id, rocprofiler_agent_id_t agent_id,
    rocprofiler_device_counting_service_cb_t cb, void* user_data) ROCPROFILER_API ROCPROFILER_NONNULL(4);

/* Reads them. rec_count: how many there is room for at output_records, which may be null, and how many there are. */
rocprofiler_status_t rocprofiler_sample_device_counting_service(rocprofiler_context_id_t context_id,
                                                                rocprofiler_user_data_t user_data,
                                                                rocprofiler_counter_flag_t flags,
                                                                rocprofiler_counter_record_t* output_records,
                                                                size_t* rec_count) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif

#endif /* ROCPROFILER_SDK_DEVICE_COUNTING_SERVICE_H_ */
