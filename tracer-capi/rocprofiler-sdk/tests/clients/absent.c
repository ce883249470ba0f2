// Functions that are not implemented, as a tool finds them that is linked against AMD's library.
#include <rocprofiler-sdk/fwd.h>

#include "check.h"

#define IS_ABSENT(function)      \
  extern uint32_t function(void); \
  CHECK(function() == ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED)

int main(void) {
#if ROCPROFILER_SDK_INTERFACE >= 1
  IS_ABSENT(rocprofiler_configure_device_counting_service);
  IS_ABSENT(rocprofiler_sample_device_counting_service);
  IS_ABSENT(rocprofiler_configure_buffer_dispatch_counting_service);
  IS_ABSENT(rocprofiler_configure_callback_dispatch_counting_service);
  IS_ABSENT(rocprofiler_create_counter_config);
  IS_ABSENT(rocprofiler_destroy_counter_config);
  IS_ABSENT(rocprofiler_create_counter);
  IS_ABSENT(rocprofiler_load_counter_definition);
#else
  IS_ABSENT(rocprofiler_configure_agent_profile_counting_service);
  IS_ABSENT(rocprofiler_sample_agent_profile_counting_service);
  IS_ABSENT(rocprofiler_configure_buffered_dispatch_profile_counting_service);
  IS_ABSENT(rocprofiler_configure_callback_dispatch_profile_counting_service);
  IS_ABSENT(rocprofiler_create_profile_config);
  IS_ABSENT(rocprofiler_destroy_profile_config);
  IS_ABSENT(rocprofiler_configure_spm_service);
#endif
  IS_ABSENT(rocprofiler_iterate_agent_supported_counters);
  IS_ABSENT(rocprofiler_iterate_counter_dimensions);
  IS_ABSENT(rocprofiler_query_counter_info);
  IS_ABSENT(rocprofiler_query_counter_instance_count);
  IS_ABSENT(rocprofiler_query_record_counter_id);
  IS_ABSENT(rocprofiler_query_record_dimension_position);
  IS_ABSENT(rocprofiler_configure_pc_sampling_service);
  IS_ABSENT(rocprofiler_query_pc_sampling_agent_configurations);
  return 0;
}
