//! A queue: the packets of it that have been seen, and the clock of its GPU.

use std::collections::HashMap;

use super::{seen::SeenPacket, ticks::Ticks};

/// Within this time the same index means the same packet: records of several CPUs come in any order, but not later than
/// this.
const SAME_NS: u64 = 1_000_000_000;

/// The doorbell that announced a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doorbell {
    /// The packet's own: the thread that enqueued the packet rang it.
    Own,
    /// The doorbell of a packet behind it.
    Another,
}

/// The meaning of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordMeaning {
    /// A packet that was not seen before.
    New,
    /// The packet's own doorbell, after another thread's doorbell had announced it. The packet was given this number.
    Own(u64),
    /// Of a packet that was seen already.
    Again,
}

#[derive(Clone, Copy)]
struct KnownPacket {
    time_ns: u64,
    sequence: u64,
    own: bool,
}

/// A queue of a process.
#[derive(Default)]
pub struct Queue {
    /// Recent packets, by index.
    known: HashMap<u64, KnownPacket>,
    newest_ns: u64,
    /// The GPU's clock.
    pub ticks: Ticks,
    /// Packets that ran, with the ticks of their start and end, while the clock is not known.
    pub held: Vec<(SeenPacket, [u64; 2])>,
    /// The largest error of the times that were converted, as it is reported for a process.
    pub error_ns: u64,
}

impl Queue {
    /// Notes a packet, which gets number `sequence` if it is new. Several threads' doorbells may announce it, in any
    /// order, but only one of these is its own.
    pub fn see(
        &mut self,
        index: u64,
        time_ns: u64,
        doorbell: Doorbell,
        sequence: u64,
    ) -> RecordMeaning {
        let own = doorbell == Doorbell::Own;
        self.newest_ns = self.newest_ns.max(time_ns);
        if let Some(known) = self.known.get_mut(&index)
            && known.time_ns.abs_diff(time_ns) < SAME_NS
            // Its own doorbell twice: this is another queue at the same address.
            && !(known.own && own)
        {
            known.own |= own;
            return if own { RecordMeaning::Own(known.sequence) } else { RecordMeaning::Again };
        }
        self.known.insert(index, KnownPacket { time_ns, sequence, own });
        RecordMeaning::New
    }

    /// Forgets packets to which no record can refer any more.
    pub fn age(&mut self) {
        let newest_ns = self.newest_ns;
        self.known.retain(|_, known| newest_ns.saturating_sub(known.time_ns) < SAME_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::{Doorbell::*, *};

    #[test]
    fn a_packet_is_seen_once() {
        let mut queue = Queue::default();
        assert_eq!(queue.see(0, 10, Own, 1), RecordMeaning::New);
        assert_eq!(queue.see(0, 11, Another, 2), RecordMeaning::Again);
        assert_eq!(queue.see(5, 12, Another, 2), RecordMeaning::New);
        assert_eq!(queue.see(5, 13, Another, 3), RecordMeaning::Again);
        assert_eq!(queue.see(5, 9, Own, 3), RecordMeaning::Own(2));
        assert_eq!(queue.see(5, 14, Own, 3), RecordMeaning::New, "another queue");
        assert_eq!(queue.see(6, 15, Another, 4), RecordMeaning::New);
        queue.age();
        assert_eq!(queue.see(6, 14 + SAME_NS, Another, 5), RecordMeaning::Again);
        queue.age();
        assert_eq!(
            (queue.known.len(), queue.see(6, 15 + SAME_NS, Another, 5)),
            (1, RecordMeaning::New)
        );
    }
}
