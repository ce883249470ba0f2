//! Functions that do nothing but say so. A tool that is linked against them is loaded.

#![expect(unsafe_code, reason = "exports")]

use rocprofiler::status::Status;

use crate::answer;

/// Exports that return [`Status::NotImplemented`]. The arguments, which nobody looks at, need no names.
macro_rules! absent {
    ($($name:ident)*) => {$(
        /// It is not implemented.
        #[unsafe(no_mangle)]
        extern "C-unwind" fn $name() -> u32 {
            answer::number(Status::NotImplemented)
        }
    )*};
}

absent! {
    // Counters.
    rocprofiler_iterate_agent_supported_counters
    rocprofiler_iterate_counter_dimensions
    rocprofiler_query_counter_info
    rocprofiler_query_counter_instance_count
    rocprofiler_query_record_counter_id
    rocprofiler_query_record_dimension_position
    // Samples.
    rocprofiler_configure_pc_sampling_service
    rocprofiler_query_pc_sampling_agent_configurations
}

#[cfg(not(feature = "v1"))]
absent! {
    // Counters.
    rocprofiler_configure_agent_profile_counting_service
    rocprofiler_sample_agent_profile_counting_service
    rocprofiler_configure_buffered_dispatch_profile_counting_service
    rocprofiler_configure_callback_dispatch_profile_counting_service
    rocprofiler_create_profile_config
    rocprofiler_destroy_profile_config
    // Samples.
    rocprofiler_configure_spm_service
}

#[cfg(feature = "v1")]
absent! {
    // Counters.
    rocprofiler_configure_device_counting_service
    rocprofiler_sample_device_counting_service
    rocprofiler_configure_buffer_dispatch_counting_service
    rocprofiler_configure_callback_dispatch_counting_service
    rocprofiler_create_counter_config
    rocprofiler_destroy_counter_config
    rocprofiler_create_counter
    rocprofiler_load_counter_definition
}
