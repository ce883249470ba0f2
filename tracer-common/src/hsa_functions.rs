//! The functions of the HSA runtime's tables whose calls the shim can record, and the number of words of their
//! arguments on the stack (those from the seventh on; the first six are in registers): [`SLOTS`], kept by hand from
//! `hsa_api_trace.h`.
//!
//! A new function is one more slot, at its place in its table. These must change with it:
//!
//! * here: the ranges [`CORE`], [`AMD_EXT`] and [`IMAGE`];
//! * [`crate::shim::VERSION`] rises: a slot's index is its word in the shared memory
//!   ([`crate::shim::control::CALLS`]);
//! * [`crate::hsa_layout`]: which positions of which release's table it is in, and the sizes known;
//! * `tracer-hooks/src/calls/thunks.rs`: one number more at the end of `all!` (HIP's slots are behind these), and if no
//!   function had as many stack words before a thunk of its own, with its arm in `of_slot`;
//! * `tracer-records/src/api/generated.rs`, for its arguments: `cargo xtask gen-api`, which takes functions from the
//!   headers of the releases in `xtask/src/gen_api/mod.rs`. Output values and callbacks are by hand, in `capture.rs`
//!   beside it;
//! * `tracer-capi/roctracer64/tests/headers.rs`: since which version of the headers it is there; with `ROCTAP_BLESS=1`
//!   that test writes the header anew;
//! * `tracer-capi/common/src/hsa.rs`, whose tests know the slots by number;
//! * `tracer-hooks/tests/calls.rs`, which calls each function of each layout, and knows how many there are.
//!
//! A function that is in none of these tables is recorded by probes, without arguments as long as `cargo xtask gen-api`
//! does not know it.

use core::ops::Range;

/// A function of the HSA runtime's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The function, as the table's header calls it.
    pub name: &'static str,
    /// The number of words of its arguments on the stack.
    pub stack_words: usize,
}

/// Slots of `CoreApiTable`.
pub const CORE: Range<usize> = 0..125;
/// Slots of `AmdExtTable`, of which earlier releases lack some: [`crate::hsa_layout::AmdExtLayout`].
pub const AMD_EXT: Range<usize> = 125..201;
/// Slots of `ImageExtTable`.
pub const IMAGE: Range<usize> = 201..215;
/// The number of slots.
pub const SLOT_COUNT: usize = IMAGE.end;

/// The one function of the tables that the shim does not record: it is loaded inside of it.
pub const LEFT_OUT: &str = "hsa_init";

/// The slot of a function of the tables, for constants.
///
/// # Panics
///
/// When there is none.
pub const fn slot(name: &str) -> usize {
    let mut slot = 0;
    while !is_same(SLOTS[slot].name.as_bytes(), name.as_bytes()) {
        slot += 1;
    }
    slot
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The slot of a function, by the name that the runtime's library exports.
///
/// HSA 1.1 renamed the memory orders; the older names are exported too and use the same slots.
pub fn slot_of(name: &str) -> Option<usize> {
    let is = |slot: &Slot| slot.name == name || is_older_name(name, slot.name);
    let slot = SLOTS.iter().position(is)?;
    (name != LEFT_OUT).then_some(slot)
}

/// Ends of names in HSA 1.0 and what they are since 1.1.
pub const RENAMED: [(&str, &str); 3] =
    [("_acq_rel", "_scacq_screl"), ("_acquire", "_scacquire"), ("_release", "_screlease")];

/// Whether `older` is what `name` was called in HSA 1.0.
fn is_older_name(older: &str, name: &str) -> bool {
    RENAMED.into_iter().any(|(old, new)| {
        older.strip_suffix(old).is_some_and(|stem| name.strip_suffix(new) == Some(stem))
    })
}

macro_rules! slots {
    ($($name:literal $(+ $stack:literal)?),* $(,)?) => {
        [$(Slot { name: $name, stack_words: 0 $(+ $stack)? }),*]
    };
}

/// The functions of the tables, in the order of `hsa_api_trace.h` (ROCm 7.2.4; earlier releases lack
/// some of them).
#[rustfmt::skip]
pub const SLOTS: [Slot; SLOT_COUNT] = slots![
    // CoreApiTable
    "hsa_init", "hsa_shut_down", "hsa_system_get_info", "hsa_system_extension_supported",
    "hsa_system_get_extension_table", "hsa_iterate_agents", "hsa_agent_get_info",
    "hsa_queue_create" + 2, "hsa_soft_queue_create", "hsa_queue_destroy", "hsa_queue_inactivate",
    "hsa_queue_load_read_index_scacquire", "hsa_queue_load_read_index_relaxed",
    "hsa_queue_load_write_index_scacquire", "hsa_queue_load_write_index_relaxed",
    "hsa_queue_store_write_index_relaxed", "hsa_queue_store_write_index_screlease",
    "hsa_queue_cas_write_index_scacq_screl", "hsa_queue_cas_write_index_scacquire",
    "hsa_queue_cas_write_index_relaxed", "hsa_queue_cas_write_index_screlease",
    "hsa_queue_add_write_index_scacq_screl", "hsa_queue_add_write_index_scacquire",
    "hsa_queue_add_write_index_relaxed", "hsa_queue_add_write_index_screlease",
    "hsa_queue_store_read_index_relaxed", "hsa_queue_store_read_index_screlease",
    "hsa_agent_iterate_regions", "hsa_region_get_info", "hsa_agent_get_exception_policies",
    "hsa_agent_extension_supported", "hsa_memory_register", "hsa_memory_deregister",
    "hsa_memory_allocate", "hsa_memory_free", "hsa_memory_copy", "hsa_memory_assign_agent",
    "hsa_signal_create", "hsa_signal_destroy", "hsa_signal_load_relaxed",
    "hsa_signal_load_scacquire", "hsa_signal_store_relaxed", "hsa_signal_store_screlease",
    "hsa_signal_wait_relaxed", "hsa_signal_wait_scacquire", "hsa_signal_and_relaxed",
    "hsa_signal_and_scacquire", "hsa_signal_and_screlease", "hsa_signal_and_scacq_screl",
    "hsa_signal_or_relaxed", "hsa_signal_or_scacquire", "hsa_signal_or_screlease",
    "hsa_signal_or_scacq_screl", "hsa_signal_xor_relaxed", "hsa_signal_xor_scacquire",
    "hsa_signal_xor_screlease", "hsa_signal_xor_scacq_screl", "hsa_signal_exchange_relaxed",
    "hsa_signal_exchange_scacquire", "hsa_signal_exchange_screlease",
    "hsa_signal_exchange_scacq_screl", "hsa_signal_add_relaxed", "hsa_signal_add_scacquire",
    "hsa_signal_add_screlease", "hsa_signal_add_scacq_screl", "hsa_signal_subtract_relaxed",
    "hsa_signal_subtract_scacquire", "hsa_signal_subtract_screlease",
    "hsa_signal_subtract_scacq_screl", "hsa_signal_cas_relaxed", "hsa_signal_cas_scacquire",
    "hsa_signal_cas_screlease", "hsa_signal_cas_scacq_screl", "hsa_isa_from_name",
    "hsa_isa_get_info", "hsa_isa_compatible", "hsa_code_object_serialize",
    "hsa_code_object_deserialize", "hsa_code_object_destroy", "hsa_code_object_get_info",
    "hsa_code_object_get_symbol", "hsa_code_symbol_get_info", "hsa_code_object_iterate_symbols",
    "hsa_executable_create", "hsa_executable_destroy", "hsa_executable_load_code_object",
    "hsa_executable_freeze", "hsa_executable_get_info", "hsa_executable_global_variable_define",
    "hsa_executable_agent_global_variable_define", "hsa_executable_readonly_variable_define",
    "hsa_executable_validate", "hsa_executable_get_symbol", "hsa_executable_symbol_get_info",
    "hsa_executable_iterate_symbols", "hsa_status_string", "hsa_extension_get_name",
    "hsa_system_major_extension_supported", "hsa_system_get_major_extension_table",
    "hsa_agent_major_extension_supported", "hsa_cache_get_info", "hsa_agent_iterate_caches",
    "hsa_signal_silent_store_relaxed", "hsa_signal_silent_store_screlease",
    "hsa_signal_group_create", "hsa_signal_group_destroy", "hsa_signal_group_wait_any_scacquire",
    "hsa_signal_group_wait_any_relaxed", "hsa_agent_iterate_isas", "hsa_isa_get_info_alt",
    "hsa_isa_get_exception_policies", "hsa_isa_get_round_method", "hsa_wavefront_get_info",
    "hsa_isa_iterate_wavefronts", "hsa_code_object_get_symbol_from_name",
    "hsa_code_object_reader_create_from_file", "hsa_code_object_reader_create_from_memory",
    "hsa_code_object_reader_destroy", "hsa_executable_create_alt",
    "hsa_executable_load_program_code_object", "hsa_executable_load_agent_code_object",
    "hsa_executable_validate_alt", "hsa_executable_get_symbol_by_name",
    "hsa_executable_iterate_agent_symbols", "hsa_executable_iterate_program_symbols",
    // AmdExtTable
    "hsa_amd_coherency_get_type", "hsa_amd_coherency_set_type",
    "hsa_amd_profiling_set_profiler_enabled", "hsa_amd_profiling_async_copy_enable",
    "hsa_amd_profiling_get_dispatch_time", "hsa_amd_profiling_get_async_copy_time",
    "hsa_amd_profiling_convert_tick_to_system_domain", "hsa_amd_signal_async_handler",
    "hsa_amd_async_function", "hsa_amd_signal_wait_any" + 1, "hsa_amd_queue_cu_set_mask",
    "hsa_amd_memory_pool_get_info", "hsa_amd_agent_iterate_memory_pools",
    "hsa_amd_memory_pool_allocate", "hsa_amd_memory_pool_free", "hsa_amd_memory_async_copy" + 2,
    "hsa_amd_memory_async_copy_on_engine" + 4, "hsa_amd_memory_copy_engine_status",
    "hsa_amd_agent_memory_pool_get_info", "hsa_amd_agents_allow_access",
    "hsa_amd_memory_pool_can_migrate", "hsa_amd_memory_migrate", "hsa_amd_memory_lock",
    "hsa_amd_memory_unlock", "hsa_amd_memory_fill", "hsa_amd_interop_map_buffer" + 2,
    "hsa_amd_interop_unmap_buffer", "hsa_amd_image_create", "hsa_amd_pointer_info",
    "hsa_amd_pointer_info_set_userdata", "hsa_amd_ipc_memory_create", "hsa_amd_ipc_memory_attach",
    "hsa_amd_ipc_memory_detach", "hsa_amd_signal_create", "hsa_amd_ipc_signal_create",
    "hsa_amd_ipc_signal_attach", "hsa_amd_register_system_event_handler",
    "hsa_amd_queue_intercept_create" + 2, "hsa_amd_queue_intercept_register",
    "hsa_amd_queue_set_priority", "hsa_amd_memory_async_copy_rect" + 4,
    "hsa_amd_runtime_queue_create_register", "hsa_amd_memory_lock_to_pool" + 1,
    "hsa_amd_register_deallocation_callback", "hsa_amd_deregister_deallocation_callback",
    "hsa_amd_signal_value_pointer", "hsa_amd_svm_attributes_set", "hsa_amd_svm_attributes_get",
    "hsa_amd_svm_prefetch_async", "hsa_amd_spm_acquire", "hsa_amd_spm_release",
    "hsa_amd_spm_set_dest_buffer", "hsa_amd_queue_cu_get_mask", "hsa_amd_portable_export_dmabuf",
    "hsa_amd_portable_close_dmabuf", "hsa_amd_vmem_address_reserve", "hsa_amd_vmem_address_free",
    "hsa_amd_vmem_handle_create", "hsa_amd_vmem_handle_release", "hsa_amd_vmem_map",
    "hsa_amd_vmem_unmap", "hsa_amd_vmem_set_access", "hsa_amd_vmem_get_access",
    "hsa_amd_vmem_export_shareable_handle", "hsa_amd_vmem_import_shareable_handle",
    "hsa_amd_vmem_retain_alloc_handle", "hsa_amd_vmem_get_alloc_properties_from_handle",
    "hsa_amd_agent_set_async_scratch_limit", "hsa_amd_queue_get_info",
    "hsa_amd_vmem_address_reserve_align", "hsa_amd_enable_logging", "hsa_amd_signal_wait_all" + 1,
    "hsa_amd_memory_get_preferred_copy_engine", "hsa_amd_portable_export_dmabuf_v2",
    "hsa_amd_ais_file_write", "hsa_amd_ais_file_read",
    // ImageExtTable
    "hsa_ext_image_get_capability", "hsa_ext_image_data_get_info", "hsa_ext_image_create",
    "hsa_ext_image_import", "hsa_ext_image_export", "hsa_ext_image_copy", "hsa_ext_image_clear",
    "hsa_ext_image_destroy", "hsa_ext_sampler_create", "hsa_ext_sampler_destroy",
    "hsa_ext_image_get_capability_with_layout", "hsa_ext_image_data_get_info_with_layout" + 1,
    "hsa_ext_image_create_with_layout" + 2, "hsa_ext_sampler_create_v2",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_names_have_the_slots_of_newer_ones() {
        for (older, name) in [
            ("hsa_signal_store_release", "hsa_signal_store_screlease"),
            ("hsa_signal_load_acquire", "hsa_signal_load_scacquire"),
            ("hsa_queue_add_write_index_acq_rel", "hsa_queue_add_write_index_scacq_screl"),
        ] {
            assert!(slot_of(older).is_some());
            assert_eq!(slot_of(older), slot_of(name));
        }
        assert_eq!(slot_of("hsa_init"), None);
        assert_eq!(slot_of("hsa_amd_memory_release"), None);
        assert_eq!(slot_of("hsa_ext_image_create"), Some(IMAGE.start + 2));
    }
}
