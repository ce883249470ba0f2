//! Views of the runtime's signals, queues and packets.
//!
//! A pointer that the application or the runtime hands over is checked here once and becomes a
//! reference to atomics; nothing else follows raw addresses.

#![expect(unsafe_code, reason = "addresses become references")]

use core::sync::atomic::Ordering;

use crate::abi::{AmdQueue, AmdSignal, Packet, signal_kind};

/// The signal behind `handle`; `None` for 0 and for what cannot be one.
///
/// The memory of a local signal stays mapped until the runtime shuts down, also when the signal was
/// destroyed (its kind is 0 then), so looking is safe whatever the application did.
#[inline]
pub fn signal(handle: u64) -> Option<&'static AmdSignal> {
    if handle == 0 || !handle.is_multiple_of(8) {
        return None;
    }
    // SAFETY: a signal handle is the address of an `amd_signal_t`; all its fields are atomics. Its
    // alignment is 64 in the runtime, and no field needs more than 8.
    Some(unsafe { &*(handle as *const AmdSignal) })
}

/// Whether the signal is a doorbell.
#[inline]
pub fn is_doorbell(signal: &AmdSignal) -> bool {
    let kind = signal.kind.load(Ordering::Relaxed);
    kind == signal_kind::DOORBELL || kind == signal_kind::LEGACY_DOORBELL
}

/// The queue at `address`.
#[inline]
pub fn queue(address: usize) -> Option<&'static AmdQueue> {
    if address == 0 || !address.is_multiple_of(8) {
        return None;
    }
    // SAFETY: the address comes from the runtime: a queue that it returned, or the queue of a
    // doorbell that the application rings, which therefore is alive.
    Some(unsafe { &*(address as *const AmdQueue) })
}

/// The packets of `queue`; their number is a power of two.
#[inline]
pub fn packets(queue: &'static AmdQueue) -> Option<&'static [Packet]> {
    let base = queue.base_address.load(Ordering::Relaxed);
    let size = queue.size.load(Ordering::Relaxed);
    if base == 0 || !base.is_multiple_of(64) || !size.is_power_of_two() {
        return None;
    }
    // SAFETY: the runtime says that `size` packets are at `base` as long as the queue lives; they
    // are atomics here.
    Some(unsafe { core::slice::from_raw_parts(base as *const Packet, size as usize) })
}
