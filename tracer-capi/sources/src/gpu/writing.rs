//! The progress of the thread that delivers, for threads that wait for it.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The progress of the thread.
pub struct Progress {
    /// The number of events that it has taken and of records that it has begun to write.
    steps: AtomicU64,
    /// The pool or buffer for which it may be waiting.
    waits_for: AtomicPtr<()>,
}

impl Progress {
    pub const fn new() -> Self {
        Self { steps: AtomicU64::new(0), waits_for: AtomicPtr::new(ptr::null_mut()) }
    }

    pub fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    pub fn waits_for(&self) -> *const () {
        self.waits_for.load(Ordering::Relaxed)
    }

    pub fn writing(&self) -> Writing<'_> {
        Writing(self)
    }
}

/// A client says by this for whom it may be waiting.
pub struct Writing<'a>(&'a Progress);

impl Writing<'_> {
    /// Writes something that may wait for `whom`: a pool, or a buffer.
    pub fn to<W, T>(&self, whom: &'static W, write: impl FnOnce() -> T) -> T {
        let Self(progress) = self;
        progress.waits_for.store(ptr::from_ref(whom).cast_mut().cast(), Ordering::Relaxed);
        progress.step();
        let written = write();
        progress.waits_for.store(ptr::null_mut(), Ordering::Relaxed);
        written
    }
}
