//! Records that must not be dropped: agents, queues, kernel symbols.
//!
//! A module of a big library brings thousands of kernels at once, more than a ring holds, and a
//! kernel whose name was dropped has none for the rest of the recording. They wait here for room,
//! and the shim's thread moves them into its ring; at the end of a recording or of the program other
//! threads do, which may come while it waits for room in the middle of a name.

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::VecDeque;

use tracer_common::ring::MAX_FRAME_WORDS;
use tracer_common::shim::kind;
use tracer_hooks::lock::Lock;

/// Most words of 8 bytes that wait: 64 MiB, a hundred thousand kernels with long names.
const MAX_WORDS: usize = 8 << 20;
const WAIT_NS: u64 = 1_000_000_000;

/// Frames in order.
pub struct Backlog {
    frames: Lock<Frames>,
    /// The number of symbols that have been put here since it was cleared. Changed under the lock.
    symbols: AtomicU32,
}

/// Frames that go into one ring, one behind the other: their kinds and words.
type Group = Vec<(u32, Vec<u64>)>;

struct Frames {
    waiting: VecDeque<Group>,
    words: usize,
    /// The number of frames of the first group that have been written, and the ring that they are in.
    written: usize,
    ring: usize,
}

impl Backlog {
    /// Nothing waits.
    pub const fn new() -> Self {
        let frames = Lock::new(Frames { waiting: VecDeque::new(), words: 0, written: 0, ring: 0 });
        Self { frames, symbols: AtomicU32::new(0) }
    }

    /// The number of symbols that have been told since recording began.
    #[inline]
    pub fn symbols(&self) -> u32 {
        // A thread that launches a kernel has been told of it since: no order is needed.
        self.symbols.load(Ordering::Relaxed)
    }

    /// Puts frames at the end; false, and none of them, when too much waits already, or there is no memory for
    /// more.
    pub fn push(&self, new: Group) -> bool {
        let Some(mut frames) = self.frames.lock_or_lose(WAIT_NS) else { return false };
        let words = words(&new);
        let fit = new.iter().all(|(_, words)| words.len() < MAX_FRAME_WORDS);
        if !fit || frames.words + words > MAX_WORDS {
            return false;
        }
        if frames.waiting.try_reserve(1).is_err() {
            return false;
        }
        frames.words += words;
        let symbols = new.iter().filter(|(kind, _)| *kind == kind::SYMBOL).count();
        self.symbols.fetch_add(symbols as u32, Ordering::Relaxed);
        frames.waiting.push_back(new);
        true
    }

    /// Hands frames to `write`, which writes into `ring`, as long as they fit into `room` words; true if some
    /// still wait.
    pub fn drain(
        &self,
        ring: usize,
        mut room: impl FnMut() -> u64,
        mut write: impl FnMut(u32, &[u64]),
    ) -> bool {
        let Some(mut frames) = self.frames.try_lock() else { return true };
        let frames = &mut *frames;
        if frames.ring != ring {
            (frames.ring, frames.written) = (ring, 0);
        }
        while let Some(group) = frames.waiting.front() {
            for (kind, words) in group.iter().skip(frames.written) {
                if room() < words.len() as u64 + 1 {
                    return true;
                }
                write(*kind, words);
                frames.written += 1;
            }
            frames.words -= words(group);
            frames.waiting.pop_front();
            frames.written = 0;
        }
        // Shrinking it would take memory.
        frames.waiting = VecDeque::new();
        false
    }

    /// Forgets everything that waits: recording begins anew and tells all of it again.
    pub fn clear(&self) {
        if let Some(mut frames) = self.frames.lock_or_lose(WAIT_NS) {
            frames.waiting = VecDeque::new();
            (frames.words, frames.written) = (0, 0);
            self.symbols.store(0, Ordering::Relaxed);
        }
    }
}

fn words(group: &Group) -> usize {
    group.iter().map(|(_, words)| words.len()).sum()
}

impl Default for Backlog {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn frames_wait_for_room_and_keep_their_order() {
        let backlog = Backlog::new();
        for i in 0..10u64 {
            assert!(backlog.push(vec![(5, vec![i; 3])]));
        }
        let room = Cell::new(9);
        let mut seen = Vec::new();
        let mut step = |free| {
            room.set(free);
            backlog.drain(
                0,
                || room.get(),
                |kind, words| {
                    assert_eq!(kind, 5);
                    seen.push(words[0]);
                    room.set(room.get() - 4);
                },
            )
        };
        assert!(step(9));
        assert!(step(0));
        assert!(!step(1000));
        let frames = vec![(5, vec![0; 3]), (5, vec![0; MAX_FRAME_WORDS])];
        assert!(!backlog.push(frames), "no frame is that long");
        assert!(!step(1000), "all or none");
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_group_that_another_ring_goes_on_with_begins_anew() {
        let backlog = Backlog::new();
        assert!(backlog.push((1..=3).map(|nth| (nth, vec![0])).collect()));
        assert!(backlog.push(vec![(4, vec![0])]));
        let (room, written) = (Cell::new(0), Cell::new([0; 8]));
        let drain = |ring, frames: u64| {
            room.set(2 * frames);
            written.set([0; 8]);
            let mut nth = 0;
            let more = backlog.drain(
                ring,
                || room.get(),
                |kind, _| {
                    let mut kinds = written.get();
                    kinds[nth] = kind;
                    written.set(kinds);
                    nth += 1;
                    room.set(room.get() - 2);
                },
            );
            (more, written.get()[..nth].to_vec())
        };
        assert_eq!(drain(7, 1), (true, vec![1]));
        assert_eq!(drain(7, 1), (true, vec![2]));
        assert_eq!(drain(8, 2), (true, vec![1, 2]));
        assert_eq!(drain(8, 9), (false, vec![3, 4]));
    }
}
