//! What the thread that delivers does just now, for those who wait for it.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// What the thread does.
pub struct Progress {
    /// What it has taken and begun to write, counted.
    steps: AtomicU64,
    /// Whom it may be waiting for.
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

/// By which a client says for whom it may be waiting.
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
