//! AQL packets, seen from outside when a doorbell rings: for processes without the shim.
//!
//! The function that rings a doorbell is probed. Its first argument is the doorbell signal, which leads
//! to the queue, and its second the index of the last packet that it announces. Every packet from the
//! last doorbell's on is copied as it is in the queue; user space makes sense of it. Two threads that
//! ring at the same time may both send a packet: its own doorbell sends it as a `PacketRecord`, others'
//! in a `BatchRecord`.

use aya_ebpf::{
    bindings::{BPF_NOEXIST, pt_regs},
    helpers::{self, bpf_get_current_pid_tgid, generated::bpf_probe_read_user},
};
use core::{arch::asm, ffi::c_void};
use tracer_common::bpf::{BatchRecord, MAX_PACKETS, PacketRecord, SignalRecord, flag, kind, phase};
use tracer_common::loss::BpfLoss;

use crate::{
    api,
    maps::{self, KernelKey, QueueKey, Wake},
    records::{header, now},
    threads,
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
/// Size of a packet.
const PACKET_BYTES: u64 = 64;
/// The index of the word of a packet that holds its completion signal.
const COMPLETION_SIGNAL: usize = 7;
/// The index of the word that holds a dispatch's kernel.
const KERNEL_OBJECT: usize = 4;

/// Reads from the traced process.
#[inline(always)]
fn read<T>(address: u64) -> Option<T> {
    // SAFETY: the helper checks the address.
    unsafe { helpers::bpf_probe_read_user(address as *const T) }.ok()
}

/// Entry of a function that stores into a signal: rings a doorbell, perhaps.
#[unsafe(link_section = "uprobe.multi")]
#[unsafe(no_mangle)]
extern "C" fn doorbell(ctx: *mut c_void) -> u32 {
    // SAFETY: the kernel hands a uprobe program a pointer to the registers.
    let regs = unsafe { &*ctx.cast::<pt_regs>() };
    // When the recording ends: a packet whose call is left out belongs to no call.
    let pid_tgid = bpf_get_current_pid_tgid();
    if api::own_cookie(ctx, pid_tgid).is_none() || api::phase() == phase::DETACHING {
        return 0;
    }
    let Some(signal) = read::<Signal>(regs.rdi) else { return 0 };
    if DOORBELLS.contains(&signal.kind)
        && let Some(queue) = read::<Queue>(signal.queue)
    {
        ring(signal.queue, &queue, regs, pid_tgid);
    }
    0
}

/// Entry of a function that destroys a signal.
#[unsafe(link_section = "uprobe.multi")]
#[unsafe(no_mangle)]
extern "C" fn signal_end(ctx: *mut c_void) -> u32 {
    // SAFETY: the kernel hands a uprobe program a pointer to the registers.
    let regs = unsafe { &*ctx.cast::<pt_regs>() };
    let pid_tgid = bpf_get_current_pid_tgid();
    if api::own_cookie(ctx, pid_tgid).is_none() {
        return 0;
    }
    let Some(signal) = read::<Signal>(regs.rdi) else { return 0 };
    let record = SignalRecord {
        header: header(kind::SIGNAL, 0, 0, pid_tgid),
        signal: regs.rdi,
        time_ns: now(),
        ticks: signal.ticks,
    };
    if signal.ticks[1] != 0 {
        maps::emit(&record, BpfLoss::PACKET_RING_FULL, Wake::AboveMark);
    }
    0
}

/// A doorbell announces the packets up to the one that its second argument tells.
#[inline(always)]
fn ring(address: u64, queue: &Queue, regs: &pt_regs, pid_tgid: u64) {
    let (pid, last, sp) = (pid_tgid >> 32, regs.rsi, regs.rsp);
    let EarlierPackets { sent, unannounced, flags } =
        announced(QueueKey { queue: address, pid }, last);
    if sent > 0 {
        send_before(address, queue, last, sent, pid_tgid);
    }
    let (correlation_id, operation) = match threads::known_thread(pid_tgid as u32) {
        Some(thread) => api::launching_call(thread, sp, (0, 0)),
        None => (0, 0),
    };
    let mask = u64::from(queue.size as u32).wrapping_sub(1);
    let Some(packet) = read::<[u64; 8]>(queue.packets + (last & mask) * PACKET_BYTES) else {
        return maps::lost(BpfLoss::UNREADABLE);
    };
    let signal = packet[COMPLETION_SIGNAL];
    let used = if signal != 0 { read::<Signal>(signal) } else { None };
    let record = PacketRecord {
        header: header(kind::PACKET, flags, operation, pid_tgid),
        correlation_id,
        time_ns: now(),
        queue: address,
        queue_id: queue.id,
        index: last,
        unannounced,
        earlier_ticks: used.map_or([0; 2], |signal| signal.ticks),
        packet,
    };
    // At a kernel's first launch the reader is woken: it reads the name in the process, which may not live for long.
    let kernel = KernelKey { object: packet[KERNEL_OBJECT], pid };
    let wake = if maps::KERNELS.get_ptr(&kernel).is_some() {
        Wake::AboveMark
    } else {
        let _ = maps::KERNELS.insert(&kernel, &1, 0);
        Wake::Now
    };
    maps::emit(&record, BpfLoss::PACKET_RING_FULL, wake);
}

/// The packets before one that no doorbell has announced.
struct EarlierPackets {
    /// The number of packets that are sent.
    sent: u64,
    /// The number of packets that are not sent.
    unannounced: u64,
    /// [`flag::FIRST`] or none.
    flags: u16,
}

/// The packets before packet `last` that no doorbell has announced; remembers that they and `last` are announced now.
#[inline(always)]
fn announced(key: QueueKey, last: u64) -> EarlierPackets {
    let known = maps::QUEUES.get_ptr_mut(&key).or_else(|| {
        // Of two threads that ring at once one is the first.
        let inserted = maps::QUEUES.insert(&key, &(last + 1), u64::from(BPF_NOEXIST));
        inserted.err().and_then(|_| maps::QUEUES.get_ptr_mut(&key))
    });
    // Another CPU may change the value as well: a packet is then sent twice.
    let Some(next) = known else {
        // Of a new queue all packets are sent; of others the earlier packets were there before we looked.
        let sent = if last < MAX_PACKETS { last } else { 0 };
        return EarlierPackets { sent, unannounced: last - sent, flags: flag::FIRST };
    };
    // SAFETY: map values stay live while the program runs.
    let before = last.wrapping_sub(unsafe { *next });
    // A doorbell of an earlier packet than another thread's, or of another queue at the address.
    if before > u64::MAX / 2 {
        return EarlierPackets { sent: 0, unannounced: 0, flags: 0 };
    }
    // SAFETY: as above.
    unsafe { *next = last + 1 };
    let sent = before.min(MAX_PACKETS - 1);
    EarlierPackets { sent, unannounced: before - sent, flags: 0 }
}

/// Sends `count` packets before `last`: two pieces where the queue's end is between them.
#[inline(always)]
fn send_before(address: u64, queue: &Queue, last: u64, count: u64, pid_tgid: u64) {
    let size = u64::from(queue.size as u32);
    let index = last.wrapping_sub(count);
    let place = index & size.wrapping_sub(1);
    let first = count.min(size.wrapping_sub(place));
    maps::emit_in_place::<BatchRecord>(BpfLoss::PACKET_RING_FULL, Wake::AboveMark, |entry| {
        // SAFETY: `entry` is a reserved record of the type. Nobody looks at the part that is not written: the count
        // says how much is.
        unsafe {
            (*entry).header = header(kind::BATCH, 0, 0, pid_tgid);
            (*entry).time_ns = now();
            (*entry).queue = address;
            (*entry).queue_id = queue.id;
            (*entry).index = index;
            let packets = (&raw mut (*entry).packets).cast::<u8>();
            let read = copy(packets, queue.packets + place * PACKET_BYTES, first)
                && copy(packets.add(bytes(first)), queue.packets, count - first);
            (*entry).count = if read { count } else { 0 };
            if !read {
                maps::lost_many(BpfLoss::UNREADABLE, count);
            }
        }
    });
}

/// Bytes of packets, in a way that the verifier can follow: fewer than [`MAX_PACKETS`] of them.
#[inline(always)]
fn bytes(packets: u64) -> usize {
    let mut masked = packets;
    // SAFETY: computes `masked & 31`, which changes nothing; opaque to the compiler, which would leave
    // it out.
    unsafe { asm!("{0} &= 31", inout(reg) masked, options(pure, nomem, nostack)) };
    (masked * PACKET_BYTES) as usize
}

const _: () = assert!(MAX_PACKETS == 32, "the mask in `bytes`");

/// Copies packets from the traced process.
///
/// # Safety
///
/// There is room for [`MAX_PACKETS`] of them.
#[inline(always)]
unsafe fn copy(to: *mut u8, from: u64, packets: u64) -> bool {
    // SAFETY: the caller's promise; the helper checks the address that it reads from.
    packets == 0
        || unsafe { bpf_probe_read_user(to.cast(), bytes(packets) as u32, from as *const c_void) }
            == 0
}
