//! A single-producer, single-consumer ring of frames over 64-bit atomics.
//!
//! The ring lives in memory that is shared between two processes which do not trust each other.
//! That is why it is not the `ringbuf` crate's: its consumer believes the producer's index, and
//! its slots are plain memory, so that a hostile or dying peer would make reading it undefined
//! behaviour. Here every word is an atomic, so any interleaving and any content is defined; the
//! consumer checks each index and length before it uses them, and the worst that a broken producer
//! achieves is a [`Corrupt`] answer.
//!
//! The producer writes only to as much of the ring as it needs: words that were never written to cost no memory. It
//! begins with a small part of the ring, and from each frame on that does not fit it uses twice as much, up to all of
//! it, so that it never takes more than four times the words that have waited to be read at once. The index from which
//! on a larger part is used stands beside the ring (`grown`). The words of that part begin behind the smaller part, and
//! wrap only when everything before them has been read: both sides find every word by its index alone.
//!
//! `head` and `tail` count words since the beginning and never wrap. The producer publishes a frame
//! by the Release store of `head`, which pairs with the consumer's Acquire load; the consumer gives
//! room back by the Release store of `tail`, which pairs with the producer's Acquire load.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering};

/// Longest frame in words, its first word included.
pub const MAX_FRAME_WORDS: usize = 1024;

/// The producer's side. One thread at a time may use it.
pub struct Producer<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    dropped: &'a AtomicU64,
    grown: &'a [AtomicU64],
    data: &'a [AtomicU64],
}

/// The consumer's side. One thread at a time may use it.
pub struct Consumer<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    grown: &'a [AtomicU64],
    data: &'a [AtomicU64],
}

/// The ring's indices or a frame's length are impossible: the producer is broken or hostile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

/// The part of a ring that is used for words from some index on.
#[derive(Clone, Copy)]
struct Part {
    /// The number of times that the ring had grown.
    grown: usize,
    /// The index of its first word, and the place of that word in the data.
    since: u64,
    first: u64,
    /// Words of the part, which begins where the data begin.
    size: u64,
}

impl Part {
    /// The part of the word of index `at`. A word of `grown` is one more than the index of the first word that was
    /// written after the ring grew, 0 if it has not.
    #[inline]
    fn of(at: u64, grown: &[AtomicU64], data: &[AtomicU64]) -> Self {
        let mut part =
            Self { grown: 0, since: 0, first: 0, size: data.len() as u64 >> grown.len() };
        for since in grown {
            // Written before the head that told of the word (see `Producer::push`). Later growth begins behind the
            // word.
            match since.load(Ordering::Relaxed).wrapping_sub(1) {
                since if since <= at => part = part.doubled(since),
                _ => break,
            }
        }
        part
    }

    /// A part of twice the size, from the word of index `since` on.
    #[inline]
    fn doubled(self, since: u64) -> Self {
        Self { grown: self.grown + 1, since, first: self.size, size: self.size * 2 }
    }

    /// The number of words that can be written now.
    #[inline]
    fn room(self, head: u64, tail: u64) -> u64 {
        let (unread, own) = (head.wrapping_sub(tail), head.wrapping_sub(self.since));
        // Words that were written before the ring grew stand where this part would wrap to.
        let taken = if unread <= own { unread } else { self.first.saturating_add(own) };
        self.size.saturating_sub(taken)
    }

    /// The place in the data of the word of index `at`.
    #[inline]
    fn place(self, at: u64) -> usize {
        let at = at.wrapping_sub(self.since).wrapping_add(self.first);
        (at & self.size.wrapping_sub(1)) as usize
    }
}

impl<'a> Producer<'a> {
    /// A producer over `data`, whose length must be a power of two (else pushes are dropped), and which
    /// grows as often as `grown` has words.
    pub fn new(
        head: &'a AtomicU64,
        tail: &'a AtomicU64,
        dropped: &'a AtomicU64,
        grown: &'a [AtomicU64],
        data: &'a [AtomicU64],
    ) -> Self {
        Self { head, tail, dropped, grown, data }
    }

    /// Appends one frame of `kind` made of `parts`, or counts it as dropped; true when appended.
    #[inline]
    pub fn push(&self, kind: u32, parts: [&[u64]; 2]) -> bool {
        let len = 1 + parts[0].len() + parts[1].len();
        let (head, tail) = self.indices();
        let Some(part) = self.part_for(len, head, tail) else {
            self.dropped.store(self.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return false;
        };
        let mut at = head;
        self.put(part, at, len as u64 | u64::from(kind) << 32);
        for &word in parts[0].iter().chain(parts[1]) {
            at += 1;
            self.put(part, at, word);
        }
        // Pairs with the Acquire load in `Consumer::pop`: the frame's words are visible, and so is the ring's growth
        // for it.
        self.head.store(head + len as u64, Ordering::Release);
        true
    }

    /// The longest frame that can be pushed now.
    pub fn room(&self) -> u64 {
        let (head, tail) = self.indices();
        let mut part = Part::of(head, self.grown, self.data);
        let mut room = part.room(head, tail);
        while part.grown < self.grown.len() {
            part = part.doubled(head);
            room = room.max(part.room(head, tail));
        }
        room.min(MAX_FRAME_WORDS as u64)
    }

    #[inline]
    fn indices(&self) -> (u64, u64) {
        // Only this side writes `head`. The Acquire pairs with the Release store in `Consumer::pop`: the
        // words up to `tail` are read.
        (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Acquire))
    }

    /// The part for a frame of `len` words: one that has room, grown if need be.
    #[inline]
    fn part_for(&self, len: usize, head: u64, tail: u64) -> Option<Part> {
        if len > MAX_FRAME_WORDS {
            return None;
        }
        let mut part = Part::of(head, self.grown, self.data);
        while part.room(head, tail) < len as u64 {
            // The Release of `head` in `push` publishes it.
            self.grown.get(part.grown)?.store(head + 1, Ordering::Relaxed);
            part = part.doubled(head);
        }
        Some(part)
    }

    #[inline]
    fn put(&self, part: Part, at: u64, word: u64) {
        if let Some(slot) = self.data.get(part.place(at)) {
            slot.store(word, Ordering::Relaxed);
        }
    }
}

impl<'a> Consumer<'a> {
    /// A consumer of the frames that [`Producer::new`]'s producer writes.
    pub fn new(
        head: &'a AtomicU64,
        tail: &'a AtomicU64,
        grown: &'a [AtomicU64],
        data: &'a [AtomicU64],
    ) -> Self {
        Self { head, tail, grown, data }
    }

    /// The number of words that have been pushed and not taken, going by the ring's indices: not less, while another
    /// thread takes some.
    pub fn ready(&self) -> u64 {
        let tail = self.tail.load(Ordering::Relaxed);
        // Acquire as in `pop`.
        self.head.load(Ordering::Acquire).wrapping_sub(tail).min(self.data.len() as u64)
    }

    /// Takes the oldest frame: its words without the first go into `frame`, its kind is returned.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] when the producer's numbers are impossible; the ring must not be read again.
    pub fn pop(&self, frame: &mut [u64; MAX_FRAME_WORDS]) -> Result<Option<(u32, usize)>, Corrupt> {
        // Only this side writes `tail`.
        let tail = self.tail.load(Ordering::Relaxed);
        // Pairs with the Release store in `Producer::push`.
        let ready = self.head.load(Ordering::Acquire).wrapping_sub(tail);
        if ready == 0 {
            return Ok(None);
        }
        if ready > self.data.len() as u64 {
            return Err(Corrupt);
        }
        // All of a frame stands in one part.
        let part = Part::of(tail, self.grown, self.data);
        let first = self.get(part, tail);
        let len = first as u32 as u64;
        if len == 0 || len > ready || len > MAX_FRAME_WORDS as u64 {
            return Err(Corrupt);
        }
        for i in 1..len {
            frame[i as usize - 1] = self.get(part, tail + i);
        }
        // Pairs with the Acquire load in `Producer::indices`: the words may be overwritten.
        self.tail.store(tail + len, Ordering::Release);
        Ok(Some(((first >> 32) as u32, len as usize - 1)))
    }

    #[inline]
    fn get(&self, part: Part, at: u64) -> u64 {
        self.data.get(part.place(at)).map_or(0, |slot| slot.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Memory {
        head: AtomicU64,
        tail: AtomicU64,
        dropped: AtomicU64,
        grown: Vec<AtomicU64>,
        data: Vec<AtomicU64>,
    }

    impl Memory {
        fn new(words: usize, growths: usize) -> Self {
            let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
            let (grown, data) = (zeros(growths), zeros(words));
            Self { head: 0.into(), tail: 0.into(), dropped: 0.into(), grown, data }
        }
        fn producer(&self) -> Producer<'_> {
            Producer::new(&self.head, &self.tail, &self.dropped, &self.grown, &self.data)
        }
        fn consumer(&self) -> Consumer<'_> {
            Consumer::new(&self.head, &self.tail, &self.grown, &self.data)
        }
        /// Words up to the last that was written to.
        fn touched(&self) -> usize {
            let written = |word: &AtomicU64| word.load(Ordering::Relaxed) != 0;
            self.data.iter().rposition(written).map_or(0, |last| last + 1)
        }
    }

    #[test]
    fn frames_come_out_as_they_went_in_across_the_wrap() {
        let memory = Memory::new(16, 0);
        let mut frame = [0; MAX_FRAME_WORDS];
        for i in 0..100u64 {
            assert!(memory.producer().push(7, [&[i, i + 1], &[i + 2]]));
            assert_eq!(memory.consumer().pop(&mut frame), Ok(Some((7, 3))));
            assert_eq!(frame[..3], [i, i + 1, i + 2]);
        }
        assert_eq!(memory.consumer().pop(&mut frame), Ok(None));
    }

    #[test]
    fn a_full_ring_drops_and_counts() {
        let memory = Memory::new(8, 2);
        let pushed = (0..5u64).filter(|&i| memory.producer().push(1, [&[i], &[]])).count();
        assert_eq!((pushed, memory.dropped.load(Ordering::Relaxed)), (4, 1));
    }

    #[test]
    fn a_ring_that_is_read_in_time_stays_small() {
        let memory = Memory::new(1 << 12, 8);
        let mut frame = [0; MAX_FRAME_WORDS];
        for i in 1..10_000u64 {
            assert!(memory.producer().push(7, [&[i], &[i; 2]]));
            assert_eq!(memory.consumer().pop(&mut frame), Ok(Some((7, 3))));
            assert_eq!(frame[..3], [i; 3]);
        }
        assert_eq!(memory.touched(), 16, "its first part");
    }

    /// Frames of all lengths, taken in any rhythm: they come in order, no part is larger than was
    /// needed, and `room` tells what fits.
    #[test]
    fn a_ring_grows_by_need_and_tears_nothing() {
        let mut frame = [0; MAX_FRAME_WORDS];
        let mut seed = 1u64;
        let mut below = |limit: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % limit
        };
        for _ in 0..500 {
            let memory = Memory::new(256, 6);
            let mut waiting = std::collections::VecDeque::new();
            let (mut number, mut unread, mut most, mut dropped) = (0u64, 0, 0, 0u64);
            let reader = 1 + below(60);
            for _ in 0..600 {
                if below(60) < reader {
                    let popped = memory.consumer().pop(&mut frame).expect("never corrupt");
                    assert_eq!(popped, waiting.front().map(|&(_, len): &(u64, usize)| (3, len)));
                    if let Some((expected, len)) = waiting.pop_front() {
                        assert!(frame[..len].iter().all(|&word| word == expected));
                        unread -= len + 1;
                    }
                } else {
                    let len = below(12) as usize;
                    let fits = memory.producer().room() > len as u64;
                    number += 1;
                    let words = [number; 12];
                    assert_eq!(memory.producer().push(3, [&words[..len], &[]]), fits);
                    if fits {
                        waiting.push_back((number, len));
                        unread += len + 1;
                        most = most.max(unread);
                    } else {
                        dropped += 1;
                    }
                }
            }
            assert_eq!(memory.dropped.load(Ordering::Relaxed), dropped);
            assert!(memory.touched() <= 4 * (most + 12), "{} for {most}", memory.touched());
        }
    }

    #[test]
    fn a_ring_that_nobody_reads_uses_all_of_its_words() {
        let memory = Memory::new(1 << 10, 6);
        while memory.producer().push(7, [&[1], &[]]) {}
        assert_eq!(memory.touched(), 1 << 10);
        assert_eq!(memory.consumer().ready(), 1 << 10);
        assert_eq!(memory.producer().room(), 0);
    }

    /// No side believes the content of `grown`.
    #[test]
    fn impossible_growth_touches_nothing_else() {
        let mut frame = [0; MAX_FRAME_WORDS];
        for grown in [1, 2, 3, 5, u64::MAX] {
            for at in 0..3 {
                let memory = Memory::new(8, 3);
                memory.grown[at].store(grown, Ordering::Relaxed);
                memory.head.store(8, Ordering::Relaxed);
                memory.data.iter().for_each(|word| word.store(2, Ordering::Relaxed));
                for _ in 0..4 {
                    assert_eq!(memory.consumer().pop(&mut frame), Ok(Some((0, 1))));
                }
            }
        }
    }

    #[test]
    fn impossible_numbers_are_corrupt_and_touch_nothing() {
        let mut frame = [0; MAX_FRAME_WORDS];
        for (head, first) in [(9, 1), (u64::MAX, 1), (4, 0), (4, 5), (4, u64::from(u32::MAX))] {
            let memory = Memory::new(8, 0);
            memory.head.store(head, Ordering::Relaxed);
            memory.data[0].store(first, Ordering::Relaxed);
            assert_eq!(memory.consumer().pop(&mut frame), Err(Corrupt), "{head} {first}");
            assert_eq!(memory.tail.load(Ordering::Relaxed), 0);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use std::sync::{Arc, atomic::AtomicUsize};

    struct Memory {
        head: AtomicU64,
        tail: AtomicU64,
        dropped: AtomicU64,
        grown: Vec<AtomicU64>,
        data: Vec<AtomicU64>,
    }

    /// Frames of two words are pushed while they are taken, through a ring of `words` that grows
    /// `growths` times: whatever the interleaving, each arrives whole and in order, or is counted.
    fn frames_arrive_or_are_counted(words: usize, growths: usize, frames: u32) {
        let schedules = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&schedules);
        loom::model(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let zero = || AtomicU64::new(0);
            let shared = loom::sync::Arc::new(Memory {
                head: zero(),
                tail: zero(),
                dropped: zero(),
                grown: (0..growths).map(|_| zero()).collect(),
                data: (0..words).map(|_| zero()).collect(),
            });
            let take = |shared: &Memory, times| {
                let ring = Consumer::new(&shared.head, &shared.tail, &shared.grown, &shared.data);
                let mut frame = [0; MAX_FRAME_WORDS];
                let pop = |_| {
                    let (kind, len) = ring.pop(&mut frame).expect("never corrupt")?;
                    assert_eq!((len, frame[0]), (1, u64::from(kind) * 10));
                    Some(kind)
                };
                (0..times).filter_map(pop).collect::<Vec<_>>()
            };
            // The consumer is a thread that begins later: loom 0.7 goes by the last access to a word alone
            // where it looks for schedules, so that a thread's own load hides what others did before.
            let theirs = loom::sync::Arc::clone(&shared);
            let producer = loom::thread::spawn(move || {
                let Memory { head, tail, dropped, grown, data } = &*theirs;
                let ring = Producer::new(head, tail, dropped, grown, data);
                let push = |&kind: &u32| ring.push(kind, [&[u64::from(kind) * 10], &[]]);
                (1..=frames).filter(push).collect::<Vec<_>>()
            });
            let theirs = loom::sync::Arc::clone(&shared);
            let consumer = loom::thread::spawn(move || take(&theirs, 3));
            let pushed = producer.join().expect("no panic");
            let mut seen = consumer.join().expect("no panic");
            seen.extend(take(&shared, frames));
            assert!(pushed.len() >= (words / 2).min(frames as usize), "an empty ring has room");
            assert_eq!(seen, pushed);
            let dropped = shared.dropped.load(Ordering::Relaxed);
            assert_eq!(dropped as usize, frames as usize - pushed.len(), "or is counted");
        });
        let schedules = schedules.load(Ordering::Relaxed);
        assert!(schedules > 10, "{schedules} schedules are no test");
    }

    #[test]
    fn no_frame_is_torn_lost_uncounted_or_seen_twice() {
        frames_arrive_or_are_counted(2, 0, 2);
    }

    #[test]
    fn no_frame_is_torn_lost_uncounted_or_seen_twice_while_the_ring_grows() {
        frames_arrive_or_are_counted(4, 1, 3);
    }
}
