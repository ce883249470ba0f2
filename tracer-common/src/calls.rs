//! HSA calls that the shim records by itself: which functions of the runtime's tables it can record
//! ([`SLOTS`]), which it is to record ([`Wanted`]), and what it writes of a call ([`Call`]).
//!
//! A call's record is a frame of kind [`crate::shim::kind::CALL`] in the ring of the calling thread,
//! written when the call is over. While it is open, it stands in the header of that ring, from
//! [`crate::shim::ring_word::OPEN_CALLS`] on, [`OPEN_WORDS`] a call; a call whose first word is 0 is
//! none.

use core::ops::Range;

/// A function of the HSA runtime's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The function, as the table's header calls it.
    pub name: &'static str,
    /// How many words of its arguments are on the stack.
    pub stack_words: usize,
}

/// Correlation ids of calls that the shim records begin here: those of the BPF programs stay below.
/// All are below 2^53, where numbers of JSON are exact.
pub const FIRST_ID: u64 = 1 << 52;
/// How many ids each process has: the shared memory's index << this is where its ids begin.
pub const ID_BITS: u32 = 36;

/// Slots of `CoreApiTable`.
pub const CORE: Range<usize> = 0..125;
/// Slots of `AmdExtTable`, which is shorter in some releases and longer in others.
pub const AMD_EXT: Range<usize> = 125..173;
/// Slots of `ImageExtTable`.
pub const IMAGE: Range<usize> = 173..186;
/// How many slots there are.
pub const SLOT_COUNT: usize = IMAGE.end;

/// The one function of the tables that the shim does not record: it is loaded inside of it.
pub const LEFT_OUT: &str = "hsa_init";

/// Which tables a shim records the calls of: bits.
pub mod tables {
    /// `CoreApiTable` and `AmdExtTable`.
    pub const CORE: u8 = 1 << 0;
    /// `ImageExtTable`.
    pub const IMAGE: u8 = 1 << 1;

    /// The bit of a slot's table.
    pub const fn of_slot(slot: usize) -> u8 {
        if slot < super::IMAGE.start { CORE } else { IMAGE }
    }
}

/// Most words of a call's frame: six before the arguments, six registers, three of `extra`.
pub const MAX_CALL_WORDS: usize = 15;
/// Open calls of a thread that are kept in its ring's header.
pub const OPEN_CALLS: usize = 16;
/// Words of an open call.
pub const OPEN_WORDS: usize = 16;

const _: () = assert!(MAX_CALL_WORDS <= OPEN_WORDS);

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

/// What is to be recorded of a slot's calls; as a word, 0 is nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Operation id in the domain `HSA_API`.
    pub operation: u16,
    /// How many register arguments, 0 to 6.
    pub args: u8,
    /// How many words from the stack, 0 to 3.
    pub stack_args: u8,
    /// Index of the register argument that points at an 8-byte output value, plus 1; 0 for none.
    pub out_arg: u8,
}

impl Wanted {
    const ON: u64 = 1 << 63;

    /// The word.
    pub const fn to_word(self) -> u64 {
        Self::ON
            | self.operation as u64
            | (self.args as u64) << 16
            | (self.stack_args as u64) << 24
            | (self.out_arg as u64) << 32
    }

    /// What the word says; none for 0, and for what no tracer of ours writes.
    pub const fn from_word(word: u64) -> Option<Self> {
        let wanted = Self {
            operation: word as u16,
            args: (word >> 16) as u8,
            stack_args: (word >> 24) as u8,
            out_arg: (word >> 32) as u8,
        };
        let sane = wanted.args <= 6 && wanted.stack_args <= 3 && wanted.out_arg <= wanted.args;
        if word & Self::ON != 0 && sane { Some(wanted) } else { None }
    }
}

/// One call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Call {
    /// Unique in the recording, never 0.
    pub correlation_id: u64,
    /// The call that the shim records and that this one was made in; 0 for none.
    pub parent_id: u64,
    /// Operation id in the domain `HSA_API`.
    pub operation: u16,
    /// Bits of [`crate::bpf::flag`].
    pub flags: u16,
    /// When it began, ns of CLOCK_BOOTTIME.
    pub begin_ns: u64,
    /// When it returned or an exception left it, ns of CLOCK_BOOTTIME; 0 when it is open.
    pub end_ns: u64,
    /// What it returned.
    pub ret: u64,
    /// How many of `args` the function has.
    pub arg_count: u8,
    /// Register arguments.
    pub args: [u64; 6],
    /// How many of `extra` there are.
    pub extra_count: u8,
    /// Stack arguments or an output value, as the flags tell.
    pub extra: [u64; 3],
}

impl Call {
    /// Writes the call into `words`; how many it takes.
    #[inline]
    pub fn encode(&self, words: &mut [u64; MAX_CALL_WORDS]) -> usize {
        let (args, extra) =
            (usize::from(self.arg_count).min(6), usize::from(self.extra_count).min(3));
        words[0] = self.correlation_id;
        words[1] = u64::from(self.operation)
            | u64::from(self.flags) << 16
            | (args as u64) << 32
            | (extra as u64) << 40;
        words[2] = self.parent_id;
        words[3] = self.begin_ns;
        words[4] = self.end_ns;
        words[5] = self.ret;
        words[6..6 + args].copy_from_slice(&self.args[..args]);
        words[6 + args..6 + args + extra].copy_from_slice(&self.extra[..extra]);
        6 + args + extra
    }

    /// The call in `words`, of which there may be more than it takes; none if there is none.
    pub fn decode(words: &[u64]) -> Option<Self> {
        let &[correlation_id, what, parent_id, begin_ns, end_ns, ret, ref rest @ ..] = words else {
            return None;
        };
        let (arg_count, extra_count) = ((what >> 32) as u8, (what >> 40) as u8);
        let mut call = Self {
            correlation_id,
            parent_id,
            operation: what as u16,
            flags: (what >> 16) as u16,
            begin_ns,
            end_ns,
            ret,
            arg_count,
            extra_count,
            ..Self::default()
        };
        let (args, rest) = rest.split_at_checked(arg_count.into())?;
        call.args.get_mut(..args.len())?.copy_from_slice(args);
        let extra = rest.get(..extra_count.into())?;
        call.extra.get_mut(..extra.len())?.copy_from_slice(extra);
        (correlation_id >= FIRST_ID).then_some(call)
    }
}

macro_rules! slots {
    ($($name:literal $(+ $stack:literal)?),* $(,)?) => {
        [$(Slot { name: $name, stack_words: 0 $(+ $stack)? }),*]
    };
}

/// The functions of the tables, in the order of `hsa_api_trace.h` (ROCm 5.2.3; what the other
/// releases from 4.5 to 5.5 have, they have in the same places).
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
    "hsa_amd_svm_prefetch_async", "hsa_amd_queue_cu_get_mask",
    // ImageExtTable
    "hsa_ext_image_get_capability", "hsa_ext_image_data_get_info", "hsa_ext_image_create",
    "hsa_ext_image_import", "hsa_ext_image_export", "hsa_ext_image_copy", "hsa_ext_image_clear",
    "hsa_ext_image_destroy", "hsa_ext_sampler_create", "hsa_ext_sampler_destroy",
    "hsa_ext_image_get_capability_with_layout", "hsa_ext_image_data_get_info_with_layout" + 1,
    "hsa_ext_image_create_with_layout" + 2,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_comes_out_as_it_went_in() {
        for (arg_count, extra_count) in [(0, 0), (2, 1), (6, 3)] {
            let mut call = Call {
                correlation_id: FIRST_ID + 7,
                parent_id: FIRST_ID + 6,
                operation: 41,
                flags: 0x8001,
                begin_ns: 10,
                end_ns: 20,
                ret: u64::MAX,
                arg_count,
                extra_count,
                ..Call::default()
            };
            call.args[..usize::from(arg_count)].fill(5);
            call.extra[..usize::from(extra_count)].fill(9);
            let mut words = [0; MAX_CALL_WORDS];
            let count = call.encode(&mut words);
            assert_eq!(count, 6 + usize::from(arg_count + extra_count));
            assert_eq!(Call::decode(&words[..count]), Some(call));
            assert_eq!(Call::decode(&words[..count - 1]), None);
        }
    }

    #[test]
    fn nonsense_is_no_call() {
        let mut words = [0; OPEN_WORDS];
        assert_eq!(Call::decode(&words), None, "no id");
        words[0] = FIRST_ID;
        assert!(Call::decode(&words).is_some());
        words[1] = 7 << 32;
        assert_eq!(Call::decode(&words), None, "seven registers");
        words[1] = 4 << 40;
        assert_eq!(Call::decode(&words), None, "four further words");
    }

    #[test]
    fn words_say_what_is_wanted() {
        let wanted = Wanted { operation: 0x1234, args: 6, stack_args: 3, out_arg: 4 };
        assert_eq!(Wanted::from_word(wanted.to_word()), Some(wanted));
        assert_eq!(Wanted::from_word(0), None);
        assert_eq!(Wanted::from_word(Wanted { args: 7, ..wanted }.to_word()), None);
        assert_eq!(Wanted::from_word(Wanted { args: 1, out_arg: 2, ..wanted }.to_word()), None);
    }

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
        assert_eq!(tables::of_slot(IMAGE.start), tables::IMAGE);
        assert_eq!(tables::of_slot(AMD_EXT.end - 1), tables::CORE);
    }
}
