//! The contents of an AQL packet.

use tracer_common::{
    bpf::PacketRecord,
    shim::{Barrier, Dispatch, packet_flag},
};

use crate::join::Work;

/// Low byte of a packet's header (HSA runtime specification, `hsa_packet_type_t`).
mod packet_type {
    pub const INVALID: u8 = 1;
    pub const KERNEL_DISPATCH: u8 = 2;
    pub const BARRIER_AND: u8 = 3;
    pub const BARRIER_OR: u8 = 5;
}

/// The packet's completion signal; none when it has none.
pub fn signal(record: &PacketRecord) -> Option<u64> {
    Some(record.packet[7]).filter(|&signal| signal != 0)
}

/// Whether the packet has been written, and not been consumed.
pub fn is_valid(record: &PacketRecord) -> bool {
    record.packet[0] as u8 != packet_type::INVALID
}

/// The kinds of packets, by how they are recorded.
pub enum Content {
    /// It is recorded.
    Work(Work),
    /// A barrier without a signal: nobody could see its end.
    SilentBarrier,
    /// It was consumed before it was seen, and the bytes that are left are not those of a dispatch.
    Missed,
    /// Work of a kind that is not recorded: a vendor's own packet, or an agent dispatch.
    Other,
}

/// Whether a consumed packet was a dispatch. Such a packet loses its type alone; only a dispatch has dimensions and a
/// kernel.
fn is_consumed_dispatch(record: &PacketRecord) -> bool {
    let [head, _, _, _, kernel_object, ..] = record.packet;
    head as u8 == packet_type::INVALID && (1..=3).contains(&(head >> 16 & 3)) && kernel_object != 0
}

/// Takes a packet apart; its work gets a number.
pub fn content(record: &PacketRecord, sequence: u64) -> Content {
    let words = &record.packet;
    let half = |word: usize, nth: usize| (words[word] >> (nth * 16)) as u16;
    let (low, high) = (|word: usize| words[word] as u32, |word: usize| (words[word] >> 32) as u32);
    let signal = signal(record);
    let flags = if signal.is_some() { packet_flag::HAD_SIGNAL } else { 0 };
    match half(0, 0) as u8 {
        kind if kind == packet_type::KERNEL_DISPATCH || is_consumed_dispatch(record) => {
            Content::Work(Work::Dispatch(Dispatch {
                sequence,
                enqueue_ns: record.time_ns,
                kernel_object: words[4],
                queue_id: record.queue_id,
                packet_index: record.index,
                agent: 0,
                grid: [high(1), low(2), high(2)],
                workgroup: [half(0, 2), half(0, 3), half(1, 0)],
                header: half(0, 0),
                group_bytes: high(3),
                private_bytes: low(3),
                flags,
                ..Dispatch::default()
            }))
        }
        packet_type::BARRIER_AND | packet_type::BARRIER_OR if signal.is_some() => {
            Content::Work(Work::Barrier(Barrier {
                sequence,
                enqueue_ns: record.time_ns,
                queue_id: record.queue_id,
                packet_index: record.index,
                flags,
                ..Barrier::default()
            }))
        }
        packet_type::BARRIER_AND | packet_type::BARRIER_OR => Content::SilentBarrier,
        packet_type::INVALID => Content::Missed,
        _ => Content::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dispatch_is_taken_apart() {
        let mut record = PacketRecord { queue_id: 3, index: 9, time_ns: 5, ..Default::default() };
        let mut bytes = [0u8; 64];
        bytes[0..2].copy_from_slice(&0x0b02u16.to_le_bytes());
        for (nth, size) in [64u16, 2, 1].into_iter().enumerate() {
            bytes[4 + nth * 2..][..2].copy_from_slice(&size.to_le_bytes());
        }
        for (nth, size) in [1024u32, 16, 8, 12, 34].into_iter().enumerate() {
            bytes[12 + nth * 4..][..4].copy_from_slice(&size.to_le_bytes());
        }
        bytes[32..40].copy_from_slice(&0xabc0u64.to_le_bytes());
        for (word, eight) in record.packet.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*eight);
        }
        let Content::Work(Work::Dispatch(dispatch)) = content(&record, 77) else {
            panic!("a dispatch")
        };
        assert_eq!((dispatch.grid, dispatch.workgroup), ([1024, 16, 8], [64, 2, 1]));
        assert_eq!((dispatch.private_bytes, dispatch.group_bytes), (12, 34));
        assert_eq!((dispatch.kernel_object, dispatch.sequence), (0xabc0, 77));
        assert_eq!((dispatch.queue_id, dispatch.packet_index, dispatch.flags), (3, 9, 0));
        // A consumed dispatch still has its dimensions.
        record.packet[0] = record.packet[0] & !0xffff | 2 << 16 | 1;
        assert!(matches!(content(&record, 77), Content::Work(Work::Dispatch(_))));
        record.packet[0] = 1;
        assert!(matches!(content(&record, 77), Content::Missed));
        // A barrier counts if its end can be seen.
        record.packet[0] = 0x1503;
        assert!(matches!(content(&record, 78), Content::SilentBarrier));
        record.packet[7] = 0x1000;
        assert!(matches!(content(&record, 78), Content::Work(Work::Barrier(b)) if b.flags == 1));
        record.packet[0] = 0;
        assert!(matches!(content(&record, 79), Content::Other));
    }
}
