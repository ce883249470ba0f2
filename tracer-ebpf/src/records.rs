//! How each kind of record is made and put into a ring.

use aya_ebpf::helpers::generated::bpf_ktime_get_boot_ns;
use tracer_common::bpf::{ApiRecord, Header, ProcessRecord, flag};
use tracer_common::loss::BpfLoss;

use crate::maps::{self, Wake};

#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: the helper has no preconditions.
    unsafe { bpf_ktime_get_boot_ns() }
}

#[inline(always)]
pub fn header(kind: u16, flags: u16, operation: u32, pid_tgid: u64) -> Header {
    Header { kind, flags, operation, pid: (pid_tgid >> 32) as u32, tid: pid_tgid as u32 }
}

/// One call in 32, chosen by its correlation id, looks how full the ring is.
#[inline(always)]
pub fn wake(correlation_id: u64) -> Wake {
    // Fibonacci hashing: ids on one CPU are apart by the number of CPUs.
    match correlation_id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 59 {
        0 => Wake::AboveMark,
        _ => Wake::No,
    }
}

/// Records a call that ends, unless the shim made it.
#[inline(always)]
pub fn submit(record: &mut ApiRecord, end_ns: u64, ret: u64) {
    record.end_ns = end_ns;
    record.ret = ret;
    if record.header.flags & flag::SHIM == 0 {
        maps::emit(record, BpfLoss::API_RING_FULL, wake(record.correlation_id));
    }
}

/// Whose memory a child has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Its own.
    Own,
    /// Its parent's.
    Shared,
}

/// Records something in the life of a process.
#[inline(always)]
pub fn emit_life(kind: u16, pid_tgid: u64, other_id: u32, memory: Memory) {
    let record = ProcessRecord {
        header: header(kind, 0, 0, pid_tgid),
        time_ns: now(),
        other_id,
        shares_memory: u32::from(memory == Memory::Shared),
    };
    maps::emit(&record, BpfLoss::LIFE_RING_FULL, Wake::Now);
}
