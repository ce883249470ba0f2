//! The rings of threads, and the numbers of records.
//!
//! A thread claims a free ring with its first record and keeps it as long as the memory is used; `roctap` frees it when
//! the thread is gone. A thread keeps its own view of its ring in thread-locals without destructors: a destructor would
//! run in the middle of the target's thread exit.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use tracer_hooks::sys;

use crate::memory::SharedMemory;

/// Most rings that are used; as many as a sane layout has.
const MAX_RINGS: usize = 4096;
/// A thread that found no ring looks again after this.
const RETRY_NS: u64 = 100_000_000;

/// Records numbered so far in each ring. They outlive its owners, and the memories: a number is
/// never given twice.
static NUMBERS: [AtomicU64; MAX_RINGS] = [const { AtomicU64::new(0) }; MAX_RINGS];
/// [`NUMBERS`] when the memory was put in place: a record with a number up to these was written into another one.
static BEFORE: [AtomicU64; MAX_RINGS] = [const { AtomicU64::new(0) }; MAX_RINGS];

thread_local! {
    /// The thread's ring, and the generation of the memory that it is in.
    static RING: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
    /// When a thread that found no ring in this generation looks again.
    static RETRY: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
}

/// The calling thread's ring, claimed if it has none; `None` if none is free.
#[inline]
pub fn mine(memory: &SharedMemory, now_ns: u64) -> Option<usize> {
    match RING.get() {
        (generation, ring) if generation == memory.generation() => Some(ring as usize),
        _ => claim(memory, now_ns),
    }
}

#[cold]
fn claim(memory: &SharedMemory, now_ns: u64) -> Option<usize> {
    let generation = memory.generation();
    let (of, retry_after_ns) = RETRY.get();
    if of == generation && now_ns < retry_after_ns {
        return None;
    }
    let tid = u64::from(sys::gettid());
    let free = (0..memory.rings().min(MAX_RINGS)).find(|&ring| {
        memory.owner(ring).is_some_and(|owner| {
            // Acquire pairs with the Release by which `roctap` frees a ring: the last owner's words come before ours.
            owner.load(Ordering::Relaxed) == 0
                && owner.compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    });
    match free {
        Some(ring) => {
            memory.claimed(ring);
            RING.set((generation, ring as u32));
        }
        None => RETRY.set((generation, now_ns + RETRY_NS)),
    }
    free
}

/// The number that the next record of `ring` gets: ring << 40 | count, counted from 1.
#[inline]
pub fn next_number(ring: usize) -> u64 {
    // Only the ring's owner counts.
    (ring as u64) << 40 | (NUMBERS.get(ring).map_or(0, |n| n.load(Ordering::Relaxed)) + 1)
}

/// The number was given.
#[inline]
pub fn used_number(ring: usize) {
    if let Some(n) = NUMBERS.get(ring) {
        n.store(n.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Everything that is numbered from now on belongs to another memory. Nobody may be numbering.
pub fn new_memory() {
    for (before, number) in BEFORE.iter().zip(&NUMBERS) {
        before.store(number.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Whether a number was given out since the memory is in place.
#[inline]
pub fn is_of_this_memory(number: u64) -> bool {
    let before =
        BEFORE.get((number >> 40) as usize).map_or(u64::MAX, |n| n.load(Ordering::Relaxed));
    number & ((1 << 40) - 1) > before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::mapped;
    use tracer_common::shim::control;

    #[test]
    fn a_thread_keeps_its_ring_and_finds_one_that_is_freed() {
        let memory = mapped(2);
        let here = mine(&memory, 1).expect("free");
        assert_eq!(mine(&memory, 1), Some(here));
        std::thread::scope(|scope| {
            let there = scope.spawn(|| mine(&memory, 1)).join().expect("no panic");
            assert_eq!(there, Some(1 - here));
            scope.spawn(|| {
                assert_eq!(mine(&memory, 1), None, "both are taken");
                memory.owner(1 - here).expect("exists").store(0, Ordering::Release);
                assert_eq!(mine(&memory, RETRY_NS), None, "not asked again at once");
                assert_eq!(mine(&memory, RETRY_NS + 1), Some(1 - here));
            });
        });
        let next = mapped(1);
        assert_eq!(mine(&next, 1), Some(0), "another memory, another ring");
        assert_ne!(next.owner(0).expect("exists").load(Ordering::Relaxed), 0);
    }

    /// The reader looks at no others.
    #[test]
    fn a_claimed_ring_is_told() {
        let memory = mapped(4);
        memory.owner(0).expect("exists").store(1, Ordering::Relaxed);
        memory.owner(1).expect("exists").store(1, Ordering::Relaxed);
        assert_eq!(mine(&memory, 1), Some(2));
        assert_eq!(memory.control(control::CLAIMED_RINGS), 3);
        memory.claimed(0);
        assert_eq!(memory.control(control::CLAIMED_RINGS), 3, "never less");
    }

    #[test]
    fn numbers_ascend() {
        let first = next_number(7);
        assert_eq!(first >> 40, 7);
        assert_eq!(next_number(7), first);
        used_number(7);
        assert_eq!(next_number(7), first + 1);
        assert!(is_of_this_memory(first));
        new_memory();
        assert!(!is_of_this_memory(first));
        assert!(is_of_this_memory(next_number(7)));
    }
}
