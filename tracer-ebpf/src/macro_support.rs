//! The items to which the macros of aya-log expand. This replaces the crate `aya-log-ebpf`, whose map is defined in a
//! way that libbpf 1 refuses: this one is defined by BTF, has the same name, and is found by the same reader.

use aya_ebpf::{btf_maps::RingBuf, macros::btf_map};
pub use aya_log_common::{
    Argument, DefaultFormatter, DisplayHint, Field, Header, Level, LogValueLength,
};

/// The map for log lines. Lines that do not fit are lost.
#[btf_map]
pub static AYA_LOGS: RingBuf<(), { 128 << 10 }> = RingBuf::new();

/// All levels are logged: the reader chooses what it shows.
#[inline(always)]
pub fn level_enabled(_level: Level) -> bool {
    true
}
