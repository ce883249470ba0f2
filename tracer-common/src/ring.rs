//! A single-producer, single-consumer ring of frames over 64-bit atomics.
//!
//! The ring lives in memory that is shared between two processes which do not trust each other.
//! That is why it is not the `ringbuf` crate's: its consumer believes the producer's index, and
//! its slots are plain memory, so that a hostile or dying peer would make reading it undefined
//! behaviour. Here every word is an atomic, so any interleaving and any content is defined; the
//! consumer checks each index and length before it uses them, and the worst that a broken producer
//! achieves is a [`Corrupt`] answer.
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
    data: &'a [AtomicU64],
}

/// The consumer's side. One thread at a time may use it.
pub struct Consumer<'a> {
    head: &'a AtomicU64,
    tail: &'a AtomicU64,
    data: &'a [AtomicU64],
}

/// The ring's indices or a frame's length are impossible: the producer is broken or hostile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corrupt;

impl<'a> Producer<'a> {
    /// A producer over `data`, whose length must be a power of two (else every push is dropped).
    pub fn new(
        head: &'a AtomicU64,
        tail: &'a AtomicU64,
        dropped: &'a AtomicU64,
        data: &'a [AtomicU64],
    ) -> Self {
        Self { head, tail, dropped, data }
    }

    /// Appends one frame of `kind` made of `parts`, or counts it as dropped; true when appended.
    #[inline]
    pub fn push(&self, kind: u32, parts: [&[u64]; 2]) -> bool {
        let len = 1 + parts[0].len() + parts[1].len();
        // Only this side writes `head`.
        let head = self.head.load(Ordering::Relaxed);
        // Pairs with the Release store in `Consumer::pop`: the words up to `tail` are read.
        let used = head.wrapping_sub(self.tail.load(Ordering::Acquire));
        let capacity = self.data.len() as u64;
        if len > MAX_FRAME_WORDS || used > capacity || (len as u64) > capacity - used {
            self.dropped.store(self.dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return false;
        }
        let mut at = head;
        self.put(at, len as u64 | u64::from(kind) << 32);
        for &word in parts[0].iter().chain(parts[1]) {
            at += 1;
            self.put(at, word);
        }
        // Pairs with the Acquire load in `Consumer::pop`: the frame's words are visible.
        self.head.store(head + len as u64, Ordering::Release);
        true
    }

    #[inline]
    fn put(&self, at: u64, word: u64) {
        let mask = self.data.len().wrapping_sub(1);
        if let Some(slot) = self.data.get(at as usize & mask) {
            slot.store(word, Ordering::Relaxed);
        }
    }
}

impl<'a> Consumer<'a> {
    /// A consumer over `data`, whose length must be a power of two.
    pub fn new(head: &'a AtomicU64, tail: &'a AtomicU64, data: &'a [AtomicU64]) -> Self {
        Self { head, tail, data }
    }

    /// How many words have been pushed and not taken, going by the ring's indices: not less, while
    /// another thread takes some.
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
        let first = self.get(tail);
        let len = first as u32 as u64;
        if len == 0 || len > ready || len > MAX_FRAME_WORDS as u64 {
            return Err(Corrupt);
        }
        for i in 1..len {
            frame[i as usize - 1] = self.get(tail + i);
        }
        // Pairs with the Acquire load in `Producer::push`: the words may be overwritten.
        self.tail.store(tail + len, Ordering::Release);
        Ok(Some(((first >> 32) as u32, len as usize - 1)))
    }

    #[inline]
    fn get(&self, at: u64) -> u64 {
        let mask = self.data.len().wrapping_sub(1);
        self.data.get(at as usize & mask).map_or(0, |slot| slot.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Memory {
        head: AtomicU64,
        tail: AtomicU64,
        dropped: AtomicU64,
        data: Vec<AtomicU64>,
    }

    impl Memory {
        fn new(words: usize) -> Self {
            let data = (0..words).map(|_| AtomicU64::new(0)).collect();
            Self { head: 0.into(), tail: 0.into(), dropped: 0.into(), data }
        }
        fn producer(&self) -> Producer<'_> {
            Producer::new(&self.head, &self.tail, &self.dropped, &self.data)
        }
        fn consumer(&self) -> Consumer<'_> {
            Consumer::new(&self.head, &self.tail, &self.data)
        }
    }

    #[test]
    fn frames_come_out_as_they_went_in_across_the_wrap() {
        let memory = Memory::new(16);
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
        let memory = Memory::new(8);
        let pushed = (0..5u64).filter(|&i| memory.producer().push(1, [&[i], &[]])).count();
        assert_eq!((pushed, memory.dropped.load(Ordering::Relaxed)), (4, 1));
    }

    #[test]
    fn impossible_numbers_are_corrupt_and_touch_nothing() {
        let mut frame = [0; MAX_FRAME_WORDS];
        for (head, first) in [(9, 1), (u64::MAX, 1), (4, 0), (4, 5), (4, u64::from(u32::MAX))] {
            let memory = Memory::new(8);
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
    use loom::sync::Arc;

    /// Two frames through a ring that holds one: whatever the interleaving, each frame arrives
    /// whole and in order, or is counted.
    #[test]
    fn no_frame_is_torn_lost_uncounted_or_seen_twice() {
        loom::model(|| {
            let shared = Arc::new((
                AtomicU64::new(0),
                AtomicU64::new(0),
                AtomicU64::new(0),
                [AtomicU64::new(0), AtomicU64::new(0)],
            ));
            let theirs = Arc::clone(&shared);
            let producer = loom::thread::spawn(move || {
                let ring = Producer::new(&theirs.0, &theirs.1, &theirs.2, &theirs.3);
                let first = ring.push(1, [&[10], &[]]);
                let second = ring.push(2, [&[20], &[]]);
                (first, second)
            });
            let mut frame = [0; MAX_FRAME_WORDS];
            let mut seen = Vec::new();
            let ring = Consumer::new(&shared.0, &shared.1, &shared.3);
            let mut take = |seen: &mut Vec<u32>| {
                if let Some((kind, len)) = ring.pop(&mut frame).expect("never corrupt") {
                    assert_eq!((len, frame[0]), (1, u64::from(kind) * 10));
                    seen.push(kind);
                }
            };
            take(&mut seen);
            take(&mut seen);
            let (first, second) = producer.join().expect("no panic");
            take(&mut seen);
            take(&mut seen);
            assert!(first, "an empty ring has room");
            assert_eq!(seen, if second { vec![1, 2] } else { vec![1] });
            let dropped = shared.2.load(Ordering::Relaxed);
            assert_eq!(dropped, u64::from(!second), "every frame arrives or is counted");
        });
    }
}
