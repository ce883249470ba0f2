//! Operations of a domain of which anything is wanted.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use roctracer::tracer::Wanted;

/// The operations of a domain, of as many as there can be.
pub struct Operations<const MOST: usize> {
    wanted: [AtomicBool; MOST],
    /// The number of wanted operations.
    count: AtomicU32,
}

impl<const MOST: usize> Operations<MOST> {
    /// No operation is wanted.
    pub const fn new() -> Self {
        Self { wanted: [const { AtomicBool::new(false) }; MOST], count: AtomicU32::new(0) }
    }

    /// The wanted parts of an operation have changed, or were asked for again. One thread at a time calls this.
    pub fn set(&self, op: u32, wanted: Wanted) {
        let Some(its) = self.wanted.get(op as usize) else { return };
        let now = wanted.callback || wanted.activity;
        if its.swap(now, Ordering::SeqCst) != now {
            match now {
                true => self.count.fetch_add(1, Ordering::Relaxed),
                false => self.count.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }

    /// Whether anything of an operation is wanted.
    pub fn has(&self, op: u32) -> bool {
        self.wanted.get(op as usize).is_some_and(|its| its.load(Ordering::SeqCst))
    }

    /// Whether anything of any operation is wanted.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }
}
