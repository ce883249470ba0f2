//! Makes each kind of record and puts it into a ring.

use aya_ebpf::helpers::generated::{bpf_ktime_get_boot_ns, bpf_probe_read_user_str};
use tracer_common::activity::{Domain, roctx};
use tracer_common::bpf::{ApiRecord, Header, MESSAGE_BYTES, MarkRecord, ProcessRecord, flag, kind};
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

/// Whether a call is one of roctx that has a message.
#[inline(always)]
pub fn has_message(operation: u32) -> bool {
    operation >> 16 == Domain::ROCTX.0 && roctx::has_message(operation & 0xffff)
}

/// Records a call of roctx with its message, which its first argument points at; null is an empty one.
#[inline(always)]
pub fn emit_mark(call: &ApiRecord) {
    let wake = wake(call.correlation_id);
    maps::emit_in_place::<MarkRecord>(BpfLoss::API_RING_FULL, wake, |entry| {
        // SAFETY: `entry` is a reserved record of the type, which nobody else has.
        let MarkRecord { call: to, message } = unsafe { &mut *entry };
        // SAFETY: both are live, and apart.
        unsafe { core::ptr::copy_nonoverlapping(call, to, 1) };
        to.header.kind = kind::MARK;
        message[0] = 0;
        let address = call.args[0];
        if address == 0 {
            return;
        }
        let into = message.as_mut_ptr().cast();
        // SAFETY: there is room for so many bytes, and the helper checks the address.
        let read =
            unsafe { bpf_probe_read_user_str(into, MESSAGE_BYTES as u32, address as *const _) };
        if read < 0 {
            // Its page may not be there yet. User space looks again, and counts it if that is in vain.
            to.header.flags |= flag::UNREADABLE;
        } else if read as usize == MESSAGE_BYTES {
            to.header.flags |= flag::CUT;
        }
    });
}

/// The owner of a child's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MemoryOwner {
    /// Its own.
    Own,
    /// Its parent's.
    Shared,
}

/// Records something in the life of a process.
#[inline(always)]
pub fn emit_life(kind: u16, pid_tgid: u64, other_id: u32, memory: MemoryOwner) {
    let record = ProcessRecord {
        header: header(kind, 0, 0, pid_tgid),
        time_ns: now(),
        other_id,
        shares_memory: u32::from(memory == MemoryOwner::Shared),
    };
    maps::emit(&record, BpfLoss::LIFE_RING_FULL, Wake::Now);
}
