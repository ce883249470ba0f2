//! The messages between threads that have waited for the GPU and the holder of [`crate::harvest::WORK`], which records
//! the completed operations.
//!
//! A thread that finds the lock taken asks the holder to look once more, and mostly goes on: holding up many threads,
//! one after the other, would cost the program more than a record is worth. The thread waits only if the holder has
//! been collecting for long. The holder may be reading a clock for the first time, which takes half a millisecond, or
//! may not be scheduled; if the process ended by `_exit` meanwhile, everything that is not recorded would be lost.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The holder mostly needs a few microseconds; more than this is long.
const LONG_NS: u64 = 50_000;

/// The requests of these threads to the holder, and its state.
pub struct Collecting {
    asked: AtomicBool,
    began_ns: AtomicU64,
    /// A thread has waited in vain since the holder began.
    is_stuck: AtomicBool,
}

impl Collecting {
    /// Nobody collects.
    pub const fn new() -> Self {
        Self {
            asked: AtomicBool::new(false),
            began_ns: AtomicU64::new(0),
            is_stuck: AtomicBool::new(false),
        }
    }

    /// The holder looks at everything now, for all that asked.
    pub fn begins(&self, now_ns: u64) {
        self.began_ns.store(now_ns, Ordering::Relaxed);
        self.is_stuck.store(false, Ordering::Relaxed);
        // Acquire pairs with the Release in `ask`: what completed before is seen, for all that asked.
        self.asked.swap(false, Ordering::AcqRel);
    }

    /// Something that the caller knows of has completed. The caller tries to get the lock afterwards.
    pub fn ask(&self) {
        // Release pairs with the Acquire in `begins`. A swap, not a store: it continues the release sequence of
        // another thread that has asked.
        self.asked.swap(true, Ordering::Release);
        // Pairs with the fence in `is_asked`: the caller gets the lock, or the holder sees that it has asked.
        fence(Ordering::SeqCst);
    }

    /// Whether a thread has asked. To miss none, the holder looks again after it gave the lock back.
    pub fn is_asked(&self) -> bool {
        // Pairs with the fence in `ask`.
        fence(Ordering::SeqCst);
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether somebody has begun to look in the last `ns`.
    pub fn has_begun_within(&self, now_ns: u64, ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns.load(Ordering::Relaxed)) < ns
    }

    /// Whether the holder has been at it for long, and may still come back.
    pub fn takes_long(&self, now_ns: u64) -> bool {
        let began_ns = self.began_ns.load(Ordering::Relaxed);
        now_ns.saturating_sub(began_ns) > LONG_NS && !self.is_stuck.load(Ordering::Relaxed)
    }

    /// The caller has waited in vain: no other thread waits until a holder begins to look again.
    pub fn waited_in_vain(&self) {
        self.is_stuck.store(true, Ordering::Relaxed);
    }
}

impl Default for Collecting {
    fn default() -> Self {
        Self::new()
    }
}
