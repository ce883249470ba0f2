//! Records that must not be dropped: agents, queues, kernel symbols.
//!
//! A module of a big library brings thousands of kernels at once, more than a ring holds, and a
//! kernel whose name was dropped has none for the rest of the recording. They wait here for room,
//! and the shim's thread moves them into its ring.

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
    /// How many symbols have been put here since it was cleared. Changed under the lock.
    symbols: AtomicU32,
}

struct Frames {
    waiting: VecDeque<(u32, Vec<u64>)>,
    words: usize,
}

impl Backlog {
    /// Nothing waits.
    pub const fn new() -> Self {
        let frames = Lock::new(Frames { waiting: VecDeque::new(), words: 0 });
        Self { frames, symbols: AtomicU32::new(0) }
    }

    /// How many symbols have been told since recording began.
    #[inline]
    pub fn symbols(&self) -> u32 {
        // Who launches a kernel has been told of it since: no order is needed.
        self.symbols.load(Ordering::Relaxed)
    }

    /// Puts frames at the end, one behind the other; false, and none of them, when too much waits already, or
    /// there is no memory for more.
    pub fn push(&self, new: Vec<(u32, Vec<u64>)>) -> bool {
        let Some(mut frames) = self.frames.lock_or_lose(WAIT_NS) else { return false };
        let words = new.iter().map(|(_, words)| words.len()).sum::<usize>();
        let fit = new.iter().all(|(_, words)| words.len() < MAX_FRAME_WORDS);
        if !fit || frames.words + words > MAX_WORDS {
            return false;
        }
        if frames.waiting.try_reserve(new.len()).is_err() {
            return false;
        }
        frames.words += words;
        let symbols = new.iter().filter(|(kind, _)| *kind == kind::SYMBOL).count();
        self.symbols.fetch_add(symbols as u32, Ordering::Relaxed);
        frames.waiting.extend(new);
        true
    }

    /// Hands frames to `write` as long as they fit into `room` words; true if some still wait.
    pub fn drain(&self, mut room: impl FnMut() -> u64, mut write: impl FnMut(u32, &[u64])) -> bool {
        let Some(mut frames) = self.frames.try_lock() else { return true };
        while let Some((kind, words)) = frames.waiting.front() {
            if room() < words.len() as u64 + 1 {
                return true;
            }
            write(*kind, words);
            frames.words -= words.len();
            frames.waiting.pop_front();
        }
        // Shrinking it would take memory.
        frames.waiting = VecDeque::new();
        false
    }

    /// Forgets everything that waits: recording begins anew and tells all of it again.
    pub fn clear(&self) {
        if let Some(mut frames) = self.frames.lock_or_lose(WAIT_NS) {
            frames.waiting = VecDeque::new();
            frames.words = 0;
            self.symbols.store(0, Ordering::Relaxed);
        }
    }
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
}
