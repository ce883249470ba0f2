/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Counters of each kernel. Counters are not read: each function returns NOT_IMPLEMENTED, and calls no callback. Source and
 * binary compatible with the header of the same name of ROCprofiler-SDK 0.5; 1.0 has dispatch_counting_service.h in its
 * place. */

#ifndef ROCPROFILER_SDK_DISPATCH_PROFILE_H_
#define ROCPROFILER_SDK_DISPATCH_PROFILE_H_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hsa.h>
#include <rocprofiler-sdk/profile_config.h>

#if ROCPROFILER_SDK_INTERFACE < 1

ROCPROFILER_EXTERN_C_INIT

/* What callbacks get, and what is before a kernel's values in a buffer. */
typedef struct rocprofiler_profile_counting_dispatch_data_t {
  /* Bytes of this structure. */
  uint64_t size;
  rocprofiler_correlation_id_t correlation_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_kernel_dispatch_info_t dispatch_info;
} rocprofiler_profile_counting_dispatch_data_t;

typedef struct rocprofiler_profile_counting_dispatch_record_t {
  /* Bytes of this structure. */
  uint64_t size;
  /* Values behind it. */
  uint64_t num_records;
  rocprofiler_correlation_id_t correlation_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_kernel_dispatch_info_t dispatch_info;
} rocprofiler_profile_counting_dispatch_record_t;

/* Says which counters are to be read of a kernel. */
typedef void (*rocprofiler_profile_counting_dispatch_callback_t)(
    rocprofiler_profile_counting_dispatch_data_t dispatch_data, rocprofiler_profile_config_id_t* config,
    rocprofiler_user_data_t* user_data, void* callback_data_args);

/* Takes a kernel's values. */
typedef void (*rocprofiler_profile_counting_record_callback_t)(
    rocprofiler_profile_counting_dispatch_data_t dispatch_data, rocprofiler_record_counter_t* record_data,
    size_t record_count, rocprofiler_user_data_t user_data, void* callback_data_args);

/* Has values written to a buffer. */
rocprofiler_status_t rocprofiler_configure_buffered_dispatch_profile_counting_service(
    rocprofiler_context_id_t context_id, rocprofiler_buffer_id_t buffer_id,
    rocprofiler_profile_counting_dispatch_callback_t callback, void* callback_data_args) ROCPROFILER_API;

/* Has a callback called with values. */
rocprofiler_status_t rocprofiler_configure_callback_dispatch_profile_counting_service(
    rocprofiler_context_id_t context_id, rocprofiler_profile_counting_dispatch_callback_t dispatch_callback,
    void* dispatch_callback_args, rocprofiler_profile_counting_record_callback_t record_callback,
    void* record_callback_args) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif

#endif /* ROCPROFILER_SDK_DISPATCH_PROFILE_H_ */
