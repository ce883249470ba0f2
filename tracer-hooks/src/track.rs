//! Packets in flight: one single-producer, single-consumer list per queue.
//!
//! The producer is whoever holds the queue's lock, the consumer whoever holds the harvest's. An
//! entry ties the signal of ours that the packet carries to the application's own signal, if it had
//! one, and to the sequence number of its record. Entries are in packet order but need not complete
//! in it: an entry that is done becomes a hole, and the head moves on past holes.
//!
//! `head` and `tail` count entries and never wrap. The Release store of `tail` pairs with the
//! consumer's Acquire load, that of `head` with the producer's.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::sys;

/// Entries of one track. A HIP queue holds 16,384 packets; twice that may be in flight at once,
/// executing and published.
pub const CAPACITY: usize = 32 << 10;

/// Entries that a harvest looks at beyond the first that is not done, unless it looks at all.
pub const WINDOW: usize = 256;

/// One packet in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// Handle of the signal of ours that it carries.
    pub signal: u64,
    /// Handle of the application's signal, 0 for none.
    pub original: u64,
    /// Sequence number of its record, 0 when that was dropped.
    pub sequence: u64,
    /// Its header has the barrier bit: whatever was before it is done when it starts.
    pub barrier: bool,
}

/// In [`Entry::signal`]: what the entry was made for does not happen; see [`Track::cancel`].
const CANCELLED: u64 = 1;

impl Entry {
    /// The signal of an entry that was cancelled: nobody has it any more.
    pub fn cancelled(&self) -> Option<u64> {
        (self.signal & CANCELLED != 0).then_some(self.signal & !CANCELLED)
    }
}

#[derive(Default)]
struct Slot([AtomicU64; 4]);

#[expect(unsafe_code, reason = "promises that atomics may begin as zeros")]
// SAFETY: four atomics, for which zeros are valid, without a destructor.
unsafe impl sys::Zeroed for Slot {}

/// The list. What either side writes is on cache lines of its own.
#[derive(Default)]
pub struct Track {
    slots: std::sync::OnceLock<&'static [Slot]>,
    by_producer: ByProducer,
    by_consumer: ByConsumer,
}

#[derive(Default)]
#[repr(align(128))]
struct ByProducer {
    tail: AtomicU64,
    /// Entries with an original, ever pushed.
    chained: AtomicU64,
    /// What `head` was when it was last read.
    head_seen: AtomicU64,
}

#[derive(Default)]
#[repr(align(128))]
struct ByConsumer {
    head: AtomicU64,
    /// Entries with an original that are gone.
    chained_gone: AtomicU64,
    /// What was below this index and not done at the last full look, while something with the
    /// barrier bit behind it was.
    suspects: AtomicU64,
}

/// What became of an entry, as the consumer's closure says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Still in flight.
    Pending,
    /// Done and dealt with.
    Done,
}

/// How thoroughly [`Track::harvest`] looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Up to the first entry that proves that nothing behind it is done, or a [`WINDOW`].
    Near,
    /// At everything; finds packets that will never complete their signal.
    Full,
}

/// What a harvest found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Entries that were done.
    pub done: usize,
    /// Entries that are left, holes included.
    pub left: usize,
    /// Some of those that are left have an original.
    pub chained_left: bool,
}

impl Track {
    /// An empty list; its memory is mapped by the first push.
    pub const fn new() -> Self {
        Self {
            slots: std::sync::OnceLock::new(),
            by_producer: ByProducer {
                tail: AtomicU64::new(0),
                chained: AtomicU64::new(0),
                head_seen: AtomicU64::new(0),
            },
            by_consumer: ByConsumer {
                head: AtomicU64::new(0),
                chained_gone: AtomicU64::new(0),
                suspects: AtomicU64::new(0),
            },
        }
    }

    fn slots(&self) -> Option<&'static [Slot]> {
        match self.slots.get() {
            Some(slots) => Some(slots),
            None => {
                let fresh = sys::zeroed_slice::<Slot>(CAPACITY)?;
                Some(self.slots.get_or_init(|| fresh))
            }
        }
    }

    /// Entries, holes included, as the producer sees them; at least as many as there are.
    #[inline]
    pub fn used(&self) -> u64 {
        let ByProducer { tail, head_seen, .. } = &self.by_producer;
        // Only the producer writes these two.
        let tail = tail.load(Ordering::Relaxed);
        let used = tail.wrapping_sub(head_seen.load(Ordering::Relaxed));
        if used < CAPACITY as u64 / 2 {
            return used;
        }
        // Acquire pairs with the Release in `harvest`.
        let head = self.by_consumer.head.load(Ordering::Acquire);
        head_seen.store(head, Ordering::Relaxed);
        tail.wrapping_sub(head)
    }

    /// Whether [`Track::push`] would succeed.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.used() < CAPACITY as u64 && self.slots().is_some()
    }

    /// Appends `entry`; false when there is no room.
    #[inline]
    pub fn push(&self, entry: Entry) -> bool {
        if !self.has_room() {
            return false;
        }
        let tail = self.by_producer.tail.load(Ordering::Relaxed);
        let Some(slot) = self.slot(tail) else { return false };
        slot[0].store(entry.signal, Ordering::Relaxed);
        slot[1].store(entry.original, Ordering::Relaxed);
        slot[2].store(entry.sequence, Ordering::Relaxed);
        slot[3].store(u64::from(entry.barrier), Ordering::Relaxed);
        if entry.original != 0 {
            self.by_producer
                .chained
                .store(self.by_producer.chained.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        // Pairs with the Acquire load in `harvest`.
        self.by_producer.tail.store(tail + 1, Ordering::Release);
        true
    }

    /// Takes back the entry that is `at`, for which nothing was enqueued after all; nothing if it is gone.
    /// Whoever harvests drops it and has its signal back.
    pub fn cancel(&self, at: u64, signal: u64) {
        if let Some([place, ..]) = self.slot(at) {
            let (from, to) = (signal, signal | CANCELLED);
            let _ = place.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The entry that is `at` has no record; nothing if it is gone.
    pub fn has_no_record(&self, at: u64, sequence: u64) {
        if let Some([_, _, place, _]) = self.slot(at) {
            let _ = place.compare_exchange(sequence, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    #[inline]
    fn slot(&self, at: u64) -> Option<&'static [AtomicU64; 4]> {
        let slots = *self.slots.get()?;
        slots.get(at as usize & (CAPACITY - 1)).map(|slot| &slot.0)
    }

    fn read(&self, at: u64) -> Entry {
        let Some(slot) = self.slot(at) else { return Entry::default() };
        Entry {
            signal: slot[0].load(Ordering::Relaxed),
            original: slot[1].load(Ordering::Relaxed),
            sequence: slot[2].load(Ordering::Relaxed),
            barrier: slot[3].load(Ordering::Relaxed) != 0,
        }
    }

    fn hole(&self, at: u64, entry: &Entry) {
        if let Some(slot) = self.slot(at) {
            slot[0].store(0, Ordering::Relaxed);
        }
        if entry.original != 0 {
            self.by_consumer.chained_gone.store(
                self.by_consumer.chained_gone.load(Ordering::Relaxed) + 1,
                Ordering::Relaxed,
            );
        }
    }

    /// Nothing is in flight.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_consumer.head.load(Ordering::Relaxed)
            == self.by_producer.tail.load(Ordering::Acquire)
    }

    /// Some entry that is in flight has an original.
    #[inline]
    pub fn chained(&self) -> bool {
        self.by_consumer.chained_gone.load(Ordering::Relaxed)
            != self.by_producer.chained.load(Ordering::Relaxed)
    }

    /// How many entries are in flight, holes excluded.
    pub fn pending(&self) -> usize {
        let (head, tail) = (
            self.by_consumer.head.load(Ordering::Relaxed),
            self.by_producer.tail.load(Ordering::Acquire),
        );
        (head..tail).filter(|&at| self.read(at).signal != 0).count()
    }

    /// How many entries, and how many entries with an original, were ever pushed.
    #[inline]
    pub fn pushed(&self) -> (u64, u64) {
        (
            self.by_producer.tail.load(Ordering::Acquire),
            self.by_producer.chained.load(Ordering::Relaxed),
        )
    }

    /// Shows entries to `done`, oldest first, and drops those that it says are done.
    ///
    /// An entry that is not done although one with the barrier bit behind it is will never be: the
    /// packet processor had read the packet before our signal was in it. It is given the benefit of
    /// the doubt until the next full look (the two completions may reach memory in either order)
    /// and then handed to `lost`.
    pub fn harvest(
        &self,
        look: Look,
        mut done: impl FnMut(&Entry) -> Fate,
        mut lost: impl FnMut(&Entry),
    ) -> Found {
        let first = self.by_consumer.head.load(Ordering::Relaxed);
        let tail = self.by_producer.tail.load(Ordering::Acquire);
        let suspects = self.by_consumer.suspects.load(Ordering::Relaxed);
        let mut found = Found::default();
        let mut head = first;
        let mut pending = 0;
        let mut overtaken_below = 0;
        for at in first..tail {
            let entry = self.read(at);
            if entry.signal != 0 {
                // While something before it is pending, one with the barrier bit cannot have begun.
                if look == Look::Near && pending > 0 && (entry.barrier || pending >= WINDOW) {
                    break;
                }
                if done(&entry) == Fate::Done {
                    found.done += 1;
                    self.hole(at, &entry);
                    if entry.barrier && pending > 0 && entry.cancelled().is_none() {
                        overtaken_below = at;
                    }
                } else if look == Look::Full && at < suspects {
                    lost(&entry);
                    self.hole(at, &entry);
                } else {
                    pending += 1;
                    continue;
                }
            }
            if at == head {
                head += 1;
            }
        }
        if look == Look::Full {
            self.by_consumer.suspects.store(overtaken_below, Ordering::Relaxed);
        }
        found.left = (tail - head) as usize;
        found.chained_left =
            self.by_consumer.chained_gone.load(Ordering::Relaxed) < self.pushed().1;
        // Pairs with the Acquire load in `has_room`: the slots may be written again.
        self.by_consumer.head.store(head, Ordering::Release);
        found
    }

    /// Empties the list, handing every entry that is left to `each`.
    pub fn discard(&self, mut each: impl FnMut(&Entry)) {
        let tail = self.by_producer.tail.load(Ordering::Acquire);
        for at in self.by_consumer.head.load(Ordering::Relaxed)..tail {
            let entry = self.read(at);
            if entry.signal != 0 {
                each(&entry);
                self.hole(at, &entry);
            }
        }
        self.by_consumer.suspects.store(0, Ordering::Relaxed);
        self.by_consumer.head.store(tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use std::collections::BTreeSet;

    fn entry(sequence: u64, barrier: bool) -> Entry {
        Entry { signal: sequence + 8, original: sequence % 3, sequence, barrier }
    }

    /// Entries complete in any order that barrier bits allow; each is seen done exactly once, in
    /// whatever order pushes and looks interleave.
    #[test]
    fn every_entry_is_harvested_once_in_any_interleaving() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let track = Track::new();
            let mut completed = BTreeSet::new();
            let mut flight: Vec<(u64, bool)> = Vec::new();
            let mut seen = Vec::new();
            let mut next = 0;
            for _ in 0..500 {
                match random.below(3) {
                    0 => {
                        for _ in 0..random.below(20) {
                            let barrier = random.below(2) == 0;
                            assert!(track.push(entry(next, barrier)));
                            flight.push((next, barrier));
                            next += 1;
                        }
                    }
                    1 => {
                        for _ in 0..random.below(20) {
                            // One that may run: nothing with or behind a barrier bit before it.
                            let limit = flight
                                .iter()
                                .skip(1)
                                .position(|f| f.1)
                                .map_or(flight.len(), |p| p + 1);
                            if limit > 0 {
                                let (done, _) = flight.remove(random.below(limit as u64) as usize);
                                completed.insert(done);
                            }
                        }
                    }
                    _ => {
                        let look = if random.below(8) == 0 { Look::Full } else { Look::Near };
                        let found = track.harvest(
                            look,
                            |e| {
                                if completed.contains(&e.sequence) {
                                    seen.push(e.sequence);
                                    Fate::Done
                                } else {
                                    Fate::Pending
                                }
                            },
                            |_| panic!("nothing is lost"),
                        );
                        assert!(found.left >= flight.len());
                    }
                }
            }
            completed.extend(flight.iter().map(|f| f.0));
            for _ in 0..2 {
                track.harvest(
                    Look::Full,
                    |e| {
                        seen.push(e.sequence);
                        Fate::Done
                    },
                    |_| panic!("nothing is lost"),
                );
            }
            assert!(track.is_empty());
            seen.sort_unstable();
            assert_eq!(seen, (0..next).collect::<Vec<_>>(), "seed {seed}");
        }
    }

    #[test]
    fn a_near_look_sees_all_that_can_be_done() {
        let track = Track::new();
        for i in 0..4 {
            track.push(entry(i, i == 3));
        }
        // 0 runs on; 1 and 2 ran beside it.
        let near = |done: &[u64]| {
            let done = done.to_vec();
            track.harvest(
                Look::Near,
                move |e| if done.contains(&e.sequence) { Fate::Done } else { Fate::Pending },
                |_| panic!("nothing is lost"),
            )
        };
        assert_eq!(near(&[1, 2]), Found { done: 2, left: 4, chained_left: false });
        assert_eq!(near(&[0, 3]), Found { done: 2, left: 0, chained_left: false });
    }

    #[test]
    fn what_was_overtaken_by_a_barrier_is_lost_at_the_second_full_look() {
        let track = Track::new();
        for i in 0..4 {
            track.push(entry(i, true));
        }
        let mut lost = Vec::new();
        let look = |lost: &mut Vec<u64>| {
            track.harvest(
                Look::Full,
                |e| if e.sequence == 2 { Fate::Done } else { Fate::Pending },
                |e| lost.push(e.sequence),
            )
        };
        assert_eq!(look(&mut lost).done, 1);
        assert!(lost.is_empty());
        assert_eq!(look(&mut lost).left, 1);
        assert_eq!(lost, [0, 1]);
    }

    #[test]
    fn what_is_taken_back_overtakes_nothing() {
        let track = Track::new();
        for i in 0..3 {
            track.push(entry(i * 8, true));
        }
        track.cancel(1, 16);
        track.cancel(1, 24);
        let mut back = Vec::new();
        for _ in 0..3 {
            track.harvest(
                Look::Full,
                |e| match e.cancelled() {
                    Some(signal) => {
                        back.push(signal);
                        Fate::Done
                    }
                    None => Fate::Pending,
                },
                |_| panic!("nothing is lost"),
            );
        }
        assert_eq!((back, track.pending()), (vec![16], 2));
    }

    #[test]
    fn a_full_track_refuses() {
        let track = Track::new();
        for i in 0..CAPACITY as u64 {
            assert!(track.push(entry(i, true)));
        }
        assert!(!track.push(entry(0, true)));
        let mut left = 0;
        track.discard(|_| left += 1);
        assert_eq!(left, CAPACITY);
        assert!(track.push(entry(0, true)));
    }
}
