//! The reading of AQL packets.

use core::ops::Range;
use core::sync::atomic::Ordering;

use tracer_common::shim::{Dispatch, packet_flag};

use crate::abi::{self, AmdQueue, Packet, packet_type};
use crate::view;

/// Whether the packet at `index`, which is not consumed, is published.
#[inline]
pub fn is_published(amd: &'static AmdQueue, index: u64) -> bool {
    let packet =
        view::packets(amd).and_then(|packets| packets.get(index as usize & (packets.len() - 1)));
    packet.is_some_and(|packet| packet.0[0].load(Ordering::Acquire) as u8 != packet_type::INVALID)
}

/// Whether a published packet is one that is recorded.
#[inline]
pub fn is_operation(first: u64, original: u64) -> bool {
    match first as u8 {
        packet_type::DISPATCH => true,
        packet_type::BARRIER_AND | packet_type::BARRIER_OR => original != 0,
        _ => false,
    }
}

/// Which words of a packet are signals that it waits for.
#[inline]
pub fn dependencies(first: u64) -> Range<usize> {
    match first as u8 {
        packet_type::BARRIER_AND | packet_type::BARRIER_OR => 1..6,
        packet_type::VENDOR if (first >> 16) as u8 == abi::VENDOR_BARRIER_VALUE => 1..2,
        _ => 0..0,
    }
}

/// Whether the GPU raises an interrupt when it completes a signal of the application.
#[inline]
pub fn raises_interrupt(original: u64) -> bool {
    view::signal(original).is_some_and(|s| s.event_mailbox.load(Ordering::Relaxed) != 0)
}

/// Whether a packet's completion signal may be replaced by one of ours: there is none, or it is an
/// ordinary signal that can be decremented for it.
#[inline]
pub fn may_replace(original: u64) -> bool {
    original == 0
        || view::signal(original)
            .is_some_and(|s| s.kind.load(Ordering::Relaxed) == abi::signal_kind::USER)
}

/// The dispatch that a packet describes. The sequence number, the time, the queue, the place there and the agent are
/// still to be filled in.
#[inline]
pub fn dispatch(packet: &Packet, first: u64, original: u64) -> Dispatch {
    let word = |i: usize| packet.0.get(i).map_or(0, |w| w.load(Ordering::Relaxed));
    let (second, third, fourth) = (word(1), word(2), word(3));
    Dispatch {
        kernel_object: word(4),
        grid: [(second >> 32) as u32, third as u32, (third >> 32) as u32],
        workgroup: [(first >> 32) as u16, (first >> 48) as u16, second as u16],
        header: first as u16,
        private_bytes: fourth as u32,
        group_bytes: (fourth >> 32) as u32,
        flags: if original != 0 { packet_flag::HAD_SIGNAL } else { 0 },
        ..Dispatch::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_packet_processor_waits_for() {
        let header = |kind: u8, format: u64| u64::from(kind) | 1 << 8 | format << 16;
        for (kind, format, words) in [
            (packet_type::BARRIER_AND, 0, 1..6),
            (packet_type::BARRIER_OR, 0, 1..6),
            // `hsa_amd_barrier_value_packet_t`; others of the vendor's, a dispatch of two dimensions.
            (packet_type::VENDOR, 2, 1..2),
            (packet_type::VENDOR, 1, 0..0),
            (packet_type::DISPATCH, 2, 0..0),
        ] {
            assert_eq!(dependencies(header(kind, format)), words, "{kind} {format}");
        }
    }
}
