//! AQL packets, seen from outside when a doorbell rings: for processes without the shim.
//!
//! The function that rings a doorbell is probed. Its first argument is the doorbell signal, which leads
//! to the queue, and its second the index of the last packet that it announces. Every packet from the
//! last doorbell's on is copied as it is in the queue; user space makes sense of it. Two threads that
//! ring at the same time may both send a packet; its own doorbell's record has `flag::OWN`.

use aya_ebpf::{
    bindings::pt_regs,
    helpers::{bpf_get_current_pid_tgid, bpf_probe_read_user},
};
use core::ffi::c_void;
use tracer_common::bpf::{Loss, MAX_PACKETS, PacketRecord, SignalRecord, flag, kind};

use crate::{
    api,
    maps::{self, QueueKey, Wake},
};

/// The beginning of `amd_signal_t` (`amd_hsa_signal.h`). A doorbell has a queue, others have times.
#[repr(C)]
struct Signal {
    kind: i64,
    value: u64,
    event: [u64; 2],
    ticks: [u64; 2],
    queue: u64,
}

/// The beginning of `hsa_queue_t`, which `amd_queue_t` begins with (`hsa.h`).
#[repr(C)]
struct Queue {
    kind_and_features: u64,
    packets: u64,
    doorbell: u64,
    size: u64,
    id: u64,
}

/// `AMD_SIGNAL_KIND_DOORBELL` and `AMD_SIGNAL_KIND_LEGACY_DOORBELL`.
const DOORBELLS: core::ops::RangeInclusive<i64> = -2..=-1;
/// Low byte of a packet's header: its type.
const INVALID: u64 = 1;
/// Where the word of a packet is that holds its completion signal.
const COMPLETION_SIGNAL: usize = 7;

/// Reads from the traced process.
#[inline(always)]
fn read<T>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}

/// Entry of a function that stores into a signal: rings a doorbell, perhaps.
#[unsafe(link_section = "uprobe.multi")]
#[unsafe(no_mangle)]
extern "C" fn doorbell(ctx: *mut c_void) -> u32 {
    // SAFETY: the kernel hands a uprobe program a pointer to the registers.
    let regs = unsafe { &*ctx.cast::<pt_regs>() };
    let Some(signal) = read::<Signal>(regs.rdi) else { return 0 };
    if DOORBELLS.contains(&signal.kind)
        && let Some(queue) = read::<Queue>(signal.queue)
    {
        ring(signal.queue, &queue, regs.rsi);
    }
    0
}

/// Entry of a function that destroys a signal.
#[unsafe(link_section = "uprobe.multi")]
#[unsafe(no_mangle)]
extern "C" fn signal_end(ctx: *mut c_void) -> u32 {
    // SAFETY: the kernel hands a uprobe program a pointer to the registers.
    let regs = unsafe { &*ctx.cast::<pt_regs>() };
    let Some(signal) = read::<Signal>(regs.rdi) else { return 0 };
    let record = SignalRecord {
        header: api::header(kind::SIGNAL, 0, 0, bpf_get_current_pid_tgid()),
        signal: regs.rdi,
        time_ns: api::now(),
        ticks: signal.ticks,
    };
    if signal.ticks[1] != 0 {
        maps::emit::<SignalRecord>(Loss::PACKET_RING_FULL, Wake::AboveMark, |entry| {
            // SAFETY: `entry` is a reserved record of the type.
            unsafe { entry.write(record) }
        });
    }
    0
}

/// A doorbell announces the packets up to `last`.
#[inline(always)]
fn ring(address: u64, queue: &Queue, last: u64) {
    let pid_tgid = bpf_get_current_pid_tgid();
    let (correlation_id, operation) = match maps::known_thread(pid_tgid as u32) {
        Some(thread) => api::launching_call(thread, (0, 0)),
        None => (0, 0),
    };
    let (behind, wake) = announced(QueueKey { queue: address, pid: pid_tgid >> 32 }, last);
    let mask = u64::from(queue.size as u32).wrapping_sub(1);
    let mut back = behind;
    while back < MAX_PACKETS {
        let index = last.wrapping_sub(back);
        let own = if back == 0 { flag::OWN } else { 0 };
        let record = PacketRecord {
            header: api::header(kind::PACKET, own, operation, pid_tgid),
            correlation_id,
            time_ns: api::now(),
            queue: address,
            queue_id: queue.id,
            index,
            earlier_ticks: [0; 2],
            packet: [0; 8],
        };
        send(record, queue.packets + (index & mask) * 64, wake);
        if back == 0 {
            break;
        }
        back -= 1;
    }
}

/// How many packets before `last` no doorbell has announced; remembers that they are now. At a queue's
/// first doorbell the reader is woken: it looks into the process, which may not live for long.
#[inline(always)]
fn announced(key: QueueKey, last: u64) -> (u64, Wake) {
    // Another CPU may change the value as well: a packet is then sent twice.
    let Some(next) = maps::QUEUES.get_ptr_mut(&key) else {
        let _ = maps::QUEUES.insert(&key, &(last + 1), 0);
        // Of a new queue all; of others what is before was there before we looked.
        return (if last < MAX_PACKETS { last } else { 0 }, Wake::Now);
    };
    // SAFETY: map values stay live while the program runs.
    let before = unsafe { *next };
    let behind = last.wrapping_sub(before);
    // A doorbell of an earlier packet than another thread's, or of another queue at the address.
    if behind > u64::MAX / 2 {
        return (0, Wake::AboveMark);
    }
    // SAFETY: as above.
    unsafe { *next = last + 1 };
    if behind >= MAX_PACKETS {
        maps::lost_many(Loss::PACKET_MISSED, behind - MAX_PACKETS + 1);
    }
    (behind.min(MAX_PACKETS - 1), Wake::AboveMark)
}

/// Sends the packet at `address` if it is one.
#[inline(always)]
fn send(mut record: PacketRecord, address: u64, wake: Wake) {
    let Some(packet) = read::<[u64; 8]>(address) else { return maps::lost(Loss::UNREADABLE) };
    // One that is not valid has been consumed already, because another doorbell announced it; or it has not
    // been written, and its own doorbell is still to come.
    if packet[0] & 0xff == INVALID && record.header.flags & flag::OWN == 0 {
        return;
    }
    let signal = packet[COMPLETION_SIGNAL];
    if signal != 0
        && let Some(signal) = read::<Signal>(signal)
    {
        record.earlier_ticks = signal.ticks;
    }
    record.packet = packet;
    maps::emit::<PacketRecord>(Loss::PACKET_RING_FULL, wake, |entry| {
        // SAFETY: `entry` is a reserved record of the type.
        unsafe { entry.write(record) }
    });
}
