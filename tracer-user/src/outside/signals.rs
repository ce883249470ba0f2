//! Completion signals: the GPU writes times into them when their packets ran.
//!
//! A signal holds the times of the last packet that used it. They are read at each doorbell of a packet that uses it,
//! when it is destroyed, and now and then. Of two readings in a row the later one tells when the packet of the earlier
//! one ran, if its times are new. Records of several CPUs come in any order, so readings wait until all earlier
//! records have come. If a packet is announced while another one with the same signal is under way, it is not known
//! whose times are read: these packets have none.

use std::collections::HashMap;

use zerocopy::IntoBytes as _;

use super::seen::SeenPacket;
use crate::plan::ProcessMemory;

/// Offset of the start in `amd_signal_t` (`amd_hsa_signal.h`); the end follows.
const TICKS: u64 = 32;
/// The most signals that are read in one round: reading one takes a microsecond.
const MAX_READ: usize = 1 << 14;
/// The most packets whose end is waited for.
const MAX_WAITING: usize = 1 << 20;
/// Work that was under way when the first packet was seen has ended after this time, or does not count.
const SETTLED_NS: u64 = 1_000_000_000;

/// A packet whose fate is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettledPacket {
    pub seen: SeenPacket,
    /// Start and end in ticks, and when they could be read; none if they cannot be known.
    pub ran: Option<([u64; 2], u64)>,
}

/// The times that a signal held at some time, and the packet that began to use the signal then, if one did.
struct SignalReading {
    time_ns: u64,
    ticks: [u64; 2],
    packet: Option<SeenPacket>,
}

impl SignalReading {
    /// Whether `later` shows that a packet has run since.
    fn ran_by(&self, later: &Self) -> bool {
        let [start, end] = later.ticks;
        start != self.ticks[0] && end != self.ticks[1] && start != 0 && start <= end
    }
}

#[derive(Default)]
struct Signal {
    /// The readings, oldest first once they are sorted.
    readings: Vec<SignalReading>,
    /// Whether an earlier packet was or may be under way.
    shared: bool,
    begun: bool,
}

/// The signals of one process.
#[derive(Default)]
pub struct Signals {
    signals: HashMap<u64, Signal>,
    waiting: usize,
    first_ns: Option<u64>,
}

impl Signals {
    /// A packet uses `signal`, which held `ticks` when its doorbell rang. False if too many packets are waited for
    /// already: then the end of this one is not.
    pub fn uses(&mut self, signal: u64, ticks: [u64; 2], packet: SeenPacket) -> bool {
        if self.waiting >= MAX_WAITING {
            return false;
        }
        self.waiting += 1;
        self.first_ns.get_or_insert(packet.time_ns);
        self.note(signal, SignalReading { time_ns: packet.time_ns, ticks, packet: Some(packet) });
        true
    }

    /// `signal` held `ticks` when it was destroyed.
    pub fn destroyed(&mut self, signal: u64, ticks: [u64; 2], time_ns: u64) {
        self.note(signal, SignalReading { time_ns, ticks, packet: None });
    }

    fn note(&mut self, signal: u64, reading: SignalReading) {
        self.signals.entry(signal).or_default().readings.push(reading);
    }

    /// The packets whose fate is known, now that all records made before `horizon_ns` have come. Reads the signals of
    /// the others.
    pub fn settle(
        &mut self,
        horizon_ns: u64,
        now_ns: u64,
        memory: Option<&dyn ProcessMemory>,
    ) -> Vec<SettledPacket> {
        let mut fates = Vec::new();
        let settled_ns = self.first_ns.map_or(0, |first| first.saturating_add(SETTLED_NS));
        let mut reads = 0;
        self.signals.retain(|&address, signal| {
            signal.settle(horizon_ns, settled_ns, &mut fates);
            let Some(last) = signal.readings.last() else { return false };
            if let (Some(memory), [SignalReading { packet: Some(_), .. }]) =
                (memory, &signal.readings[..])
                && reads < MAX_READ
            {
                reads += 1;
                let mut reading = SignalReading { time_ns: now_ns, ticks: [0; 2], packet: None };
                let at = address.wrapping_add(TICKS);
                if memory.read(at, reading.ticks.as_mut_bytes()).is_ok() && last.ran_by(&reading) {
                    signal.readings.push(reading);
                }
            }
            true
        });
        self.waiting -= fates.len().min(self.waiting);
        fates
    }

    /// The remaining packets: their ends will not be seen.
    pub fn rest(&mut self) -> impl Iterator<Item = SeenPacket> {
        self.signals.drain().flat_map(|(_, signal)| signal.readings).filter_map(|r| r.packet)
    }
}

impl Signal {
    fn settle(&mut self, horizon_ns: u64, settled_ns: u64, fates: &mut Vec<SettledPacket>) {
        self.readings.sort_by_key(|reading| reading.time_ns);
        if let (false, Some(first)) = (self.begun, self.readings.first()) {
            // A signal that was used before may also have been used just now, unseen.
            self.shared = first.ticks != [0; 2] && first.time_ns < settled_ns;
            self.begun = true;
        }
        let mut done = 0;
        while let [reading, later, ..] = &self.readings[done..]
            && later.time_ns < horizon_ns
        {
            if let Some(seen) = reading.packet {
                let ran = reading.ran_by(later);
                let known = ran && !self.shared;
                fates.push(SettledPacket {
                    seen,
                    ran: known.then_some((later.ticks, later.time_ns)),
                });
                self.shared |= !ran && later.packet.is_some();
            }
            done += 1;
        }
        // A last reading without a packet waits for nothing.
        if let [SignalReading { packet: None, time_ns, .. }] = &self.readings[done..]
            && *time_ns < horizon_ns
        {
            done += 1;
        }
        self.readings.drain(..done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(time_ns: u64) -> SeenPacket {
        SeenPacket { key: (1, time_ns), time_ns, queue: (0, 0) }
    }

    fn settle(signals: &mut Signals, horizon_ns: u64) -> Vec<(u64, Option<[u64; 2]>)> {
        let mut fates = signals.settle(horizon_ns, horizon_ns, None);
        fates.sort_by_key(|fate| fate.seen.time_ns);
        fates.iter().map(|f| (f.seen.time_ns, f.ran.map(|(ticks, _)| ticks))).collect()
    }

    #[test]
    fn a_packets_times_are_what_the_next_one_finds() {
        let mut signals = Signals::default();
        // Out of order; and the signal is destroyed in the end.
        assert!(signals.uses(64, [5, 6], seen(20)));
        assert!(signals.uses(64, [0, 0], seen(10)));
        signals.destroyed(64, [9, 9], 30);
        assert_eq!(settle(&mut signals, 15), []);
        assert_eq!(settle(&mut signals, 25), [(10, Some([5, 6]))]);
        assert_eq!(settle(&mut signals, 40), [(20, Some([9, 9]))]);
        assert_eq!((signals.waiting, signals.signals.len()), (0, 0));
    }

    #[test]
    fn signals_that_packets_share_tell_nothing() {
        let mut signals = Signals::default();
        for (time, ticks) in [(10, [0; 2]), (20, [0; 2]), (30, [1, 2]), (40, [3, 4])] {
            assert!(signals.uses(64, ticks, seen(time)));
        }
        assert_eq!(settle(&mut signals, 50), [(10, None), (20, None), (30, None)]);
        assert_eq!(signals.rest().count(), 1);
    }

    #[test]
    fn what_was_there_before_is_not_trusted_at_first() {
        let mut signals = Signals::default();
        for (time, ticks) in [(10, [1, 2]), (20, [3, 4])] {
            assert!(signals.uses(64, ticks, seen(time)));
        }
        assert_eq!(settle(&mut signals, 50), [(10, None)]);
        let later = SETTLED_NS + 10;
        for (time, ticks) in [(later, [1, 2]), (later + 10, [3, 4])] {
            assert!(signals.uses(128, ticks, seen(time)));
        }
        assert!(settle(&mut signals, u64::MAX).contains(&(later, Some([3, 4]))));
    }

    #[test]
    fn half_written_times_do_not_count() {
        let before = SignalReading { time_ns: 0, ticks: [5, 6], packet: None };
        for (ticks, ran) in [([7, 8], true), ([7, 6], false), ([5, 8], false), ([9, 8], false)] {
            assert_eq!(before.ran_by(&SignalReading { time_ns: 1, ticks, packet: None }), ran);
        }
    }
}
