/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Counters of each kernel. Counters are not read: each function returns NOT_IMPLEMENTED, and calls no callback. Source and
 * binary compatible with the header of the same name of ROCprofiler-SDK 1.0; 0.5 has dispatch_profile.h in its place. */

#ifndef ROCPROFILER_SDK_DISPATCH_COUNTING_SERVICE_H_
#define ROCPROFILER_SDK_DISPATCH_COUNTING_SERVICE_H_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/counter_config.h>
#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hsa.h>

#if ROCPROFILER_SDK_INTERFACE >= 1

ROCPROFILER_EXTERN_C_INIT

/* What callbacks get, and what is before a kernel's values in a buffer. */
typedef struct rocprofiler_dispatch_counting_service_data_t {
  /* Bytes of this structure. */
  uint64_t size;
  rocprofiler_async_correlation_id_t correlation_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_kernel_dispatch_info_t dispatch_info;
} rocprofiler_dispatch_counting_service_data_t;

typedef struct rocprofiler_dispatch_counting_service_record_t {
  /* Bytes of this structure. */
  uint64_t size;
  /* Values behind it. */
  uint64_t num_records;
  rocprofiler_async_correlation_id_t correlation_id;
  rocprofiler_timestamp_t start_timestamp;
  rocprofiler_timestamp_t end_timestamp;
  rocprofiler_kernel_dispatch_info_t dispatch_info;
} rocprofiler_dispatch_counting_service_record_t;

/* Says which counters are to be read of a kernel. */
typedef void (*rocprofiler_dispatch_counting_service_cb_t)(
    rocprofiler_dispatch_counting_service_data_t dispatch_data, rocprofiler_counter_config_id_t* config,
    rocprofiler_user_data_t* user_data, void* callback_data_args);

/* Takes a kernel's values. */
typedef void (*rocprofiler_dispatch_counting_record_cb_t)(
    rocprofiler_dispatch_counting_service_data_t dispatch_data, rocprofiler_counter_record_t* record_data,
    size_t record_count, rocprofiler_user_data_t user_data, void* callback_data_args);

/* Has values written to a buffer. */
rocprofiler_status_t rocprofiler_configure_buffer_dispatch_counting_service(
    rocprofiler_context_id_t context_id, rocprofiler_buffer_id_t buffer_id,
    rocprofiler_dispatch_counting_service_cb_t callback, void* callback_data_args) ROCPROFILER_API;

/* Has a callback called with values. */
rocprofiler_status_t rocprofiler_configure_callback_dispatch_counting_service(
    rocprofiler_context_id_t context_id, rocprofiler_dispatch_counting_service_cb_t dispatch_callback,
    void* dispatch_callback_args, rocprofiler_dispatch_counting_record_cb_t record_callback,
    void* record_callback_args) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif

#endif /* ROCPROFILER_SDK_DISPATCH_COUNTING_SERVICE_H_ */
