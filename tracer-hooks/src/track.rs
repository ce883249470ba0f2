//! Packets in flight: one single-producer, single-consumer list for each queue, and one for copies.
//!
//! The producer is the thread that holds the lock of the queue, or of the copies; the consumer the one that
//! holds the lock of the work ([`crate::harvest::WORK`]). An entry ties the signal of ours that the packet
//! carries to the application's own signal (the *original*), if it had one, and to the sequence number of
//! its record. Entries are in packet order but need not complete in it: the consumer makes a hole of an
//! entry that is done, and moves the head on past holes.
//!
//! Any thread may look for the entries of an original ([`Track::find`]) and **claim** one: of all that try,
//! one succeeds, and it alone decrements the original. A claim is one compare-exchange on a word that names
//! the entry for ever, not just its slot: a thread that was stopped between finding and claiming, for
//! however long, never claims an entry that came into the slot later.
//!
//! The pairs of atomic accesses:
//! - `head` and `tail` count entries and never wrap. The Release store of `tail` in [`Track::push`] pairs
//!   with every Acquire load of it: the entries before it are written. The Release stores of `head` pair
//!   with the Acquire load in [`Track::used`]: the slots before it are read, and may be written again.
//! - The producer stores the last word of a slot with Release after the rest, and a reader loads it with
//!   Acquire before the rest. Every later change of it is a read-modify-write, AcqRel: of the claim, the
//!   cancellation and the hole, one comes first and the others see it.
//! - A place of `recent` is stored with Release after its entry, and loaded with Acquire by
//!   [`Track::find`].

use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::sys;

/// Entries of one track. A HIP queue holds 16,384 packets; twice that may be in flight at once,
/// executing and published.
pub const CAPACITY: usize = 32 << 10;

/// [`HarvestExtent::Near`] stops after this many entries that are not done; [`Track::find`] and [`Track::ahead`] look at this
/// many entries.
pub const WINDOW: usize = 256;

/// Places of [`Track::recent`].
const RECENT: usize = 64;

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
    /// Key of the time that it usually takes: see [`crate::usual`].
    pub usual: u16,
}

/// The last word of a slot: the index of its entry, its key, and these bits.
mod word {
    /// The entry is in flight and nobody has claimed it.
    pub const OPEN: u64 = 1;
    /// [`super::Entry::barrier`].
    pub const BARRIER: u64 = 2;
    /// Nothing was enqueued for the entry after all: see [`super::Track::cancel`].
    pub const CANCELLED: u64 = 4;
    /// Where [`super::Entry::usual`] begins.
    pub const USUAL: u32 = 8;
    /// Where the entry's index begins: 40 bits, a million entries a second for twelve days.
    pub const INDEX: u32 = 24;
}

#[derive(Default)]
struct Slot([AtomicU64; 4]);

#[expect(unsafe_code, reason = "promises that atomics may begin as zeros")]
// SAFETY: four atomics, for which zeros are valid, without a destructor.
unsafe impl sys::Zeroed for Slot {}

/// An entry as a thread has read it. It keeps meaning this entry, whatever its slot holds later.
#[derive(Clone, Copy)]
pub struct ReadEntry {
    /// The entry as it was read.
    pub entry: Entry,
    /// The slot's last word, as it is while the entry is open.
    word: u64,
    slot: &'static [AtomicU64; 4],
}

impl ReadEntry {
    /// Whether it was cancelled: no packet and no copy has its signal.
    pub fn is_cancelled(&self) -> bool {
        self.word & word::CANCELLED != 0
    }

    /// Whether nobody has claimed it yet.
    pub fn is_open(&self) -> bool {
        self.slot[3].load(Ordering::Acquire) == self.word
    }

    /// Takes the duty to do to the application's signal what the packet would have done; true for one
    /// caller, ever.
    pub fn claim(&self) -> bool {
        let claimed = self.word & !word::OPEN;
        self.slot[3]
            .compare_exchange(self.word, claimed, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// The list. The words that each side writes are on cache lines of their own.
pub struct Track {
    slots: std::sync::OnceLock<&'static [Slot]>,
    by_producer: ByProducer,
    by_consumer: ByConsumer,
    /// One more than the index of the last entry with an original, by the original's [`place`].
    recent: [AtomicU64; RECENT],
}

#[derive(Default)]
#[repr(align(128))]
struct ByProducer {
    tail: AtomicU64,
    /// Entries with an original, ever pushed.
    chained: AtomicU64,
    /// The value of `head` when the producer last read it.
    head_seen: AtomicU64,
}

#[derive(Default)]
#[repr(align(128))]
struct ByConsumer {
    head: AtomicU64,
    /// Entries with an original that are gone.
    chained_gone: AtomicU64,
    /// At the last full look, the entry at this index had the barrier bit and was done: those before it that
    /// were not done have been overtaken.
    suspects: AtomicU64,
    /// One more than the index of the first entry, and when the consumer first found it to be the first.
    front: [AtomicU64; 2],
}

/// Where a track remembers an original.
fn place(original: u64) -> usize {
    ((original >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % RECENT
}

/// The fate of an entry, as the consumer's closure says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryFate {
    /// Still in flight.
    Pending,
    /// Done and dealt with.
    Done,
}

/// How thoroughly [`Track::harvest`] looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HarvestExtent {
    /// Until an entry has the barrier bit, behind one that is not done: neither it nor those behind it can
    /// have begun. Or until a [`WINDOW`] of entries is not done.
    Near,
    /// At every entry; finds packets that will never complete our signal.
    Full,
}

/// The result of a harvest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HarvestResult {
    /// Entries that were done.
    pub done: usize,
    /// Entries that are left, holes included.
    pub left: usize,
}

impl Default for Track {
    fn default() -> Self {
        Self::new()
    }
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
                front: [const { AtomicU64::new(0) }; 2],
            },
            recent: [const { AtomicU64::new(0) }; RECENT],
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

    /// Whether more than half is used: more than a queue of HIP's has packets.
    #[inline]
    pub fn is_short(&self) -> bool {
        let ByProducer { tail, head_seen, .. } = &self.by_producer;
        let tail = tail.load(Ordering::Relaxed);
        let is_much = |head: &AtomicU64| {
            tail.wrapping_sub(head.load(Ordering::Relaxed)) > CAPACITY as u64 / 2
        };
        // The consumer's own is in a cache line that it writes.
        is_much(head_seen) && is_much(&self.by_consumer.head)
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
        // Pairs with the fence in `see`: a thread that reads a word of this entry finds the slot's earlier
        // entry closed.
        fence(Ordering::Release);
        slot[0].store(entry.signal, Ordering::Relaxed);
        slot[1].store(entry.original, Ordering::Relaxed);
        slot[2].store(entry.sequence, Ordering::Relaxed);
        let barrier = if entry.barrier { word::BARRIER } else { 0 };
        let usual = u64::from(entry.usual) << word::USUAL;
        // Release pairs with the Acquire in `see`.
        slot[3].store(tail << word::INDEX | usual | barrier | word::OPEN, Ordering::Release);
        if entry.original != 0 {
            self.by_producer
                .chained
                .store(self.by_producer.chained.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            if let Some(recent) = self.recent.get(place(entry.original)) {
                recent.store(tail + 1, Ordering::Release);
            }
        }
        // Pairs with the Acquire load in `harvest`.
        self.by_producer.tail.store(tail + 1, Ordering::Release);
        true
    }

    /// Takes back the entry at index `at`, since nothing was enqueued for it. Nobody claims it from then on;
    /// the consumer drops it and takes its signal. Does nothing if the entry is gone.
    pub fn cancel(&self, at: u64) {
        let Some([.., place]) = self.slot(at) else { return };
        let open = place.load(Ordering::Relaxed);
        if open & word::OPEN != 0 && open >> word::INDEX == at << word::INDEX >> word::INDEX {
            let cancelled = open & !word::OPEN | word::CANCELLED;
            let _ = place.compare_exchange(open, cancelled, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The entry at index `at` has no record: clears its sequence number. Does nothing if the entry is gone.
    pub fn forget_sequence(&self, at: u64, sequence: u64) {
        if let Some([_, _, place, _]) = self.slot(at) {
            let _ = place.compare_exchange(sequence, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    #[inline]
    fn slot(&self, at: u64) -> Option<&'static [AtomicU64; 4]> {
        let slots = *self.slots.get()?;
        slots.get(at as usize & (CAPACITY - 1)).map(|slot| &slot.0)
    }

    /// For the consumer, while the entry is not a hole yet.
    fn read(&self, at: u64) -> Option<ReadEntry> {
        let slot = self.slot(at)?;
        let word = slot[3].load(Ordering::Acquire);
        let entry = Entry {
            signal: slot[0].load(Ordering::Relaxed),
            original: slot[1].load(Ordering::Relaxed),
            sequence: slot[2].load(Ordering::Relaxed),
            barrier: word & word::BARRIER != 0,
            usual: (word >> word::USUAL) as u16,
        };
        (entry.signal != 0).then_some(ReadEntry { entry, word: word | word::OPEN, slot })
    }

    /// For every thread: the entry at `at` if it is open.
    fn see(&self, at: u64) -> Option<ReadEntry> {
        let slot = self.slot(at)?;
        let open = at << word::INDEX | word::OPEN;
        let word = slot[3].load(Ordering::Acquire);
        let fits = word & !(word::BARRIER | u64::from(u16::MAX) << word::USUAL) == open;
        let seen = self.read(at).filter(|_| fits)?;
        // The words that were read are this entry's only if it was still open afterwards.
        fence(Ordering::Acquire);
        (seen.word == word && seen.is_open()).then_some(seen)
    }

    /// An open entry of `original`: the last that was pushed, or else the first among the oldest [`WINDOW`].
    pub fn find(&self, original: u64) -> Option<ReadEntry> {
        if !self.chained() {
            return None;
        }
        let of_original = |seen: &ReadEntry| seen.entry.original == original;
        let recent = self.recent.get(place(original))?.load(Ordering::Acquire);
        let last = recent.checked_sub(1).and_then(|at| self.see(at)).filter(of_original);
        last.or_else(|| {
            self.in_flight().take(WINDOW).filter_map(|at| self.see(at)).find(of_original)
        })
    }

    fn in_flight(&self) -> core::ops::Range<u64> {
        let tail = self.by_producer.tail.load(Ordering::Acquire);
        self.by_consumer.head.load(Ordering::Relaxed)..tail
    }

    /// All entries that are open, oldest first; those that are pushed meanwhile may be missing.
    pub fn open(&self) -> impl Iterator<Item = ReadEntry> + '_ {
        self.in_flight().filter_map(|at| self.see(at))
    }

    /// For the consumer: looks for the oldest open entry with an original that is `wanted`, among a
    /// [`WINDOW`], and shows `each` the entries up to it, itself included. Returns since when the first entry
    /// has been the first; none if it finds no such entry.
    pub fn ahead(
        &self,
        now_ns: u64,
        wanted: impl Fn(&Entry) -> bool,
        mut each: impl FnMut(&Entry),
    ) -> Option<u64> {
        let tail = self.by_producer.tail.load(Ordering::Acquire);
        let head = self.by_consumer.head.load(Ordering::Relaxed);
        let [front, since] = &self.by_consumer.front;
        if front.swap(head + 1, Ordering::Relaxed) != head + 1 {
            since.store(now_ns, Ordering::Relaxed);
        }
        let mut in_flight = (head..tail).take(WINDOW).filter_map(|at| self.read(at));
        let found = in_flight.any(|seen| {
            each(&seen.entry);
            seen.entry.original != 0 && wanted(&seen.entry) && seen.is_open()
        });
        found.then(|| since.load(Ordering::Relaxed))
    }

    fn hole(&self, seen: &ReadEntry) {
        // A thread that has found the entry must not claim it any more.
        seen.slot[3].fetch_and(!word::OPEN, Ordering::AcqRel);
        seen.slot[0].store(0, Ordering::Relaxed);
        if seen.entry.original != 0 {
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

    /// The number of entries in flight, holes excluded.
    pub fn pending(&self) -> usize {
        let (head, tail) = (
            self.by_consumer.head.load(Ordering::Relaxed),
            self.by_producer.tail.load(Ordering::Acquire),
        );
        (head..tail).filter(|&at| self.read(at).is_some()).count()
    }

    /// The number of entries, and of entries with an original, that were ever pushed.
    #[inline]
    pub fn pushed(&self) -> (u64, u64) {
        (
            self.by_producer.tail.load(Ordering::Acquire),
            self.by_producer.chained.load(Ordering::Relaxed),
        )
    }

    /// Shows entries to `done`, oldest first, and drops those that it says are done.
    ///
    /// An entry has been overtaken if it is not done, while one behind it with the barrier bit is. Mostly the
    /// packet processor had read the packet before our signal was in it, and will never complete our signal.
    /// But the two completions may reach memory in either order, so only the next full look hands the entry
    /// to `overtaken`, which answers as `done` does.
    pub fn harvest(
        &self,
        look: HarvestExtent,
        mut done: impl FnMut(&ReadEntry) -> EntryFate,
        mut overtaken: impl FnMut(&ReadEntry) -> EntryFate,
    ) -> HarvestResult {
        let first = self.by_consumer.head.load(Ordering::Relaxed);
        let tail = self.by_producer.tail.load(Ordering::Acquire);
        let suspects = self.by_consumer.suspects.load(Ordering::Relaxed);
        let mut found = HarvestResult::default();
        let mut head = first;
        let mut pending = 0;
        let mut overtaken_below = 0;
        for at in first..tail {
            if let Some(seen) = self.read(at) {
                let barrier = seen.entry.barrier;
                // One with the barrier bit cannot have begun while one before it is pending.
                if look == HarvestExtent::Near && pending > 0 && (barrier || pending >= WINDOW) {
                    break;
                }
                if done(&seen) == EntryFate::Done {
                    found.done += 1;
                    if barrier && pending > 0 && !seen.is_cancelled() {
                        overtaken_below = at;
                    }
                } else if look == HarvestExtent::Near
                    || at >= suspects
                    || overtaken(&seen) == EntryFate::Pending
                {
                    pending += 1;
                    continue;
                }
                self.hole(&seen);
            }
            if at == head {
                head += 1;
            }
        }
        if look == HarvestExtent::Full {
            self.by_consumer.suspects.store(overtaken_below, Ordering::Relaxed);
        }
        found.left = (tail - head) as usize;
        // Pairs with the Acquire load in `used`: the slots may be written again.
        self.by_consumer.head.store(head, Ordering::Release);
        found
    }

    /// Empties the list and hands every entry that was left to `each`. Nobody claims it any more.
    pub fn discard(&self, mut each: impl FnMut(&ReadEntry)) {
        let tail = self.by_producer.tail.load(Ordering::Acquire);
        for at in self.by_consumer.head.load(Ordering::Relaxed)..tail {
            if let Some(seen) = self.read(at) {
                self.hole(&seen);
                each(&seen);
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
        Entry { signal: sequence + 8, original: sequence % 3, sequence, barrier, usual: 0 }
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
                        let look = if random.below(8) == 0 {
                            HarvestExtent::Full
                        } else {
                            HarvestExtent::Near
                        };
                        let found = track.harvest(
                            look,
                            |e| {
                                if completed.contains(&e.entry.sequence) {
                                    seen.push(e.entry.sequence);
                                    EntryFate::Done
                                } else {
                                    EntryFate::Pending
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
                    HarvestExtent::Full,
                    |e| {
                        seen.push(e.entry.sequence);
                        EntryFate::Done
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
                HarvestExtent::Near,
                move |e| {
                    if done.contains(&e.entry.sequence) {
                        EntryFate::Done
                    } else {
                        EntryFate::Pending
                    }
                },
                |_| panic!("nothing is lost"),
            )
        };
        assert_eq!(near(&[1, 2]), HarvestResult { done: 2, left: 4 });
        assert_eq!(near(&[0, 3]), HarvestResult { done: 2, left: 0 });
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
                HarvestExtent::Full,
                |e| if e.entry.sequence == 2 { EntryFate::Done } else { EntryFate::Pending },
                |e| {
                    lost.push(e.entry.sequence);
                    EntryFate::Done
                },
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
        track.cancel(1);
        track.cancel(1 + CAPACITY as u64);
        track.cancel(3);
        let mut back = Vec::new();
        for _ in 0..3 {
            track.harvest(
                HarvestExtent::Full,
                |seen| match seen.is_cancelled() {
                    true => {
                        back.push(seen.entry.signal);
                        EntryFate::Done
                    }
                    false => EntryFate::Pending,
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
