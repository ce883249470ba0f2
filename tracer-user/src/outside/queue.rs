//! A queue: which of its packets have been seen, and the clock of its GPU.

use std::collections::HashMap;

use super::{seen::Seen, ticks::Ticks};

/// The same index means the same packet within this: records of several CPUs come in any order, but not
/// later.
const SAME_NS: u64 = 1_000_000_000;

/// Whose doorbell announced a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doorbell {
    /// The packet's own: its thread rang it.
    Own,
    /// That of a packet behind it.
    Another,
}

/// What a record is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// A packet that was not seen before.
    New,
    /// One that another thread's doorbell announced; this is its own. It was given this number.
    Own(u64),
    /// One that was seen.
    Again,
}

#[derive(Clone, Copy)]
struct Known {
    time_ns: u64,
    sequence: u64,
    own: bool,
}

/// A queue of a process.
#[derive(Default)]
pub struct Queue {
    /// Recent packets, by index.
    known: HashMap<u64, Known>,
    newest_ns: u64,
    /// The GPU's clock.
    pub ticks: Ticks,
    /// Packets that ran, with the ticks of their start and end, while the clock is not known.
    pub held: Vec<(Seen, [u64; 2])>,
    /// By how much any time that was converted can be off, as it is told of a process.
    pub error_ns: u64,
}

impl Queue {
    /// Takes note of a packet, which is to get number `sequence` if it is new. Several threads' doorbells
    /// may announce it, in any order, but only one of these is its own.
    pub fn see(&mut self, index: u64, time_ns: u64, doorbell: Doorbell, sequence: u64) -> Sight {
        let own = doorbell == Doorbell::Own;
        self.newest_ns = self.newest_ns.max(time_ns);
        if let Some(known) = self.known.get_mut(&index)
            && known.time_ns.abs_diff(time_ns) < SAME_NS
            // Twice its own: another queue at the address.
            && !(known.own && own)
        {
            known.own |= own;
            return if own { Sight::Own(known.sequence) } else { Sight::Again };
        }
        self.known.insert(index, Known { time_ns, sequence, own });
        Sight::New
    }

    /// Forgets packets that no record can be about any more.
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
        assert_eq!(queue.see(0, 10, Own, 1), Sight::New);
        assert_eq!(queue.see(0, 11, Another, 2), Sight::Again);
        assert_eq!(queue.see(5, 12, Another, 2), Sight::New);
        assert_eq!(queue.see(5, 13, Another, 3), Sight::Again);
        assert_eq!(queue.see(5, 9, Own, 3), Sight::Own(2));
        assert_eq!(queue.see(5, 14, Own, 3), Sight::New, "another queue");
        assert_eq!(queue.see(6, 15, Another, 4), Sight::New);
        queue.age();
        assert_eq!(queue.see(6, 14 + SAME_NS, Another, 5), Sight::Again);
        queue.age();
        assert_eq!((queue.known.len(), queue.see(6, 15 + SAME_NS, Another, 5)), (1, Sight::New));
    }
}
