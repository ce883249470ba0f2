//! The memory that is recorded into now: another one after each attach, none in between.
//!
//! Threads of the target are inside at any moment, so a thread that uses the memory pins it: it counts itself, then
//! reads the pointer. The thread that takes the memory away writes the pointer, then waits until every count has been 0
//! once. Both orders are sequentially consistent: a thread that still found the memory had counted itself before the
//! pointer changed, so its count is seen; and it leaves with Release, which pairs with the load of the count. Under the
//! lock, loads of the pointer only pair with its store in `put`. For a thread that does not come back (it is stopped by
//! a debugger, or left by `siglongjmp`) the memory stays mapped, and its pages are the reader's to give back; nobody
//! finds it any more.

#![expect(unsafe_code, reason = "a pointer that is replaced")]

use core::cell::Cell;
use core::ops::Deref;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use tracer_common::waited::Waited;
use tracer_hooks::lock::Lock;
use tracer_hooks::sys;

use crate::memory::SharedMemory;

/// Counts, so that threads rarely write the same cache line.
const SHARDS: usize = 64;
/// The time that a change waits for threads that are inside.
const WAIT_NS: u64 = 1_000_000_000;
/// The longest time between two looks that counts.
const LOOK_NS: u64 = 20_000_000;

thread_local! {
    /// One more than the thread's shard; 0 while it has none. Without a destructor: one would run in the
    /// middle of the target's thread exit.
    static SHARD: Cell<u32> = const { Cell::new(0) };
}

/// The count of the calling thread, by its index.
#[inline]
fn shard() -> usize {
    match SHARD.get() {
        0 => choose_shard(),
        shard => shard as usize - 1,
    }
}

#[cold]
fn choose_shard() -> usize {
    let shard = sys::gettid() as usize % SHARDS;
    SHARD.set(shard as u32 + 1);
    shard
}

/// The place.
pub struct Current {
    memory: AtomicPtr<SharedMemory>,
    inside: [Inside; SHARDS],
    changes: Lock<()>,
}

/// Threads that use the memory.
#[repr(align(128))]
struct Inside(AtomicU32);

/// The memory, which stays mapped as long as this exists.
pub struct Pinned<'a> {
    memory: &'a SharedMemory,
    inside: &'a AtomicU32,
}

impl Current {
    /// None.
    pub const fn new() -> Self {
        Self {
            memory: AtomicPtr::new(ptr::null_mut()),
            inside: [const { Inside(AtomicU32::new(0)) }; SHARDS],
            changes: Lock::new(()),
        }
    }

    /// The memory, if there is one.
    #[inline]
    pub fn get(&self) -> Option<Pinned<'_>> {
        let inside = &self.inside.get(shard())?.0;
        // Before the pointer is read; see above.
        inside.fetch_add(1, Ordering::SeqCst);
        // SAFETY: null, or a box that `take` frees only after it has seen `inside` at 0.
        match unsafe { self.memory.load(Ordering::SeqCst).as_ref() } {
            Some(memory) => Some(Pinned { memory, inside }),
            None => {
                inside.fetch_sub(1, Ordering::Release);
                None
            }
        }
    }

    /// Uses `memory` from now on, unless there is one, or no memory to note it in. Returns whether it does; `before` is
    /// called just before.
    pub fn put(&self, memory: SharedMemory, before: impl FnOnce()) -> bool {
        let Some(_changes) = self.changes.lock_for(WAIT_NS) else { return false };
        if !self.memory.load(Ordering::Acquire).is_null() {
            return false;
        }
        let Some(memory) = sys::boxed(memory) else { return false };
        before();
        self.memory.store(Box::into_raw(memory), Ordering::SeqCst);
        true
    }

    /// The calling process is a forked child, and the memory its parent's: it stays mapped, and nobody
    /// writes to it any more.
    pub fn leave(&self) {
        self.memory.store(ptr::null_mut(), Ordering::SeqCst);
    }

    /// Takes the memory away, and unmaps it unless somebody stays in it, if `condition` holds for it; true
    /// when there is none afterwards.
    pub fn take(&self, condition: impl FnOnce(&SharedMemory) -> bool) -> bool {
        let Some(_changes) = self.changes.lock_for(WAIT_NS) else { return false };
        let old = self.memory.load(Ordering::Acquire);
        // SAFETY: null, or a box that is freed below only, under the lock.
        let Some(memory) = (unsafe { old.as_ref() }) else { return true };
        if !condition(memory) {
            return false;
        }
        self.memory.store(ptr::null_mut(), Ordering::SeqCst);
        let mut waited: Waited<LOOK_NS> = Waited::since(sys::now_ns());
        for Inside(inside) in &self.inside {
            // After the pointer was written; see above.
            while inside.load(Ordering::SeqCst) > 0 {
                if waited.look(sys::now_ns()) > WAIT_NS {
                    return true;
                }
                sys::sleep_ns(20_000);
            }
        }
        // SAFETY: made by `put`; nobody can find it any more, and nobody who did is left.
        drop(unsafe { Box::from_raw(old) });
        true
    }
}

impl Default for Current {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Pinned<'_> {
    type Target = SharedMemory;
    #[inline]
    fn deref(&self) -> &SharedMemory {
        self.memory
    }
}

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the load in `take`: the use was before.
        self.inside.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::mapped;
    use core::sync::atomic::AtomicBool;
    use tracer_common::shim::control;

    /// Threads write into the memory of the moment while it is replaced: a write into one that is unmapped would end
    /// the test.
    #[test]
    fn memories_come_and_go_under_threads_that_write() {
        let current = Current::new();
        let stop = AtomicBool::new(false);
        let written: u64 = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut written = 0u64;
                        while !stop.load(Ordering::Relaxed) {
                            if let Some(memory) = current.get() {
                                memory.set_control(control::CLOCK_ERROR_NS, written);
                                written += 1;
                            }
                        }
                        written
                    })
                })
                .collect();
            for _ in 0..300 {
                assert!(current.put(mapped(1), || {}));
                assert!(!current.put(mapped(1), || {}), "there is one");
                assert!(!current.take(|_| false), "not wanted");
                while !current.take(|_| true) {}
            }
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|w| w.join().expect("no fault")).sum()
        });
        assert!(written > 0 && current.get().is_none() && current.take(|_| panic!("none")));
    }

    #[test]
    fn a_thread_that_does_not_come_back_keeps_its_memory_and_nobody_elses() {
        let current = Current::new();
        assert!(current.put(mapped(1), || {}));
        let pinned = current.get().expect("there");
        assert!(current.take(|_| true) && current.get().is_none());
        assert_eq!(pinned.rings(), 1, "still mapped");
        assert!(current.put(mapped(2), || {}));
        assert_eq!(current.get().expect("there").rings(), 2);
        drop(pinned);
        assert!(current.take(|_| true));
    }

    /// The parent's memory is not written to.
    #[test]
    fn a_forked_child_has_no_memory() {
        let current = Current::new();
        assert!(current.put(mapped(1), || {}));
        current.leave();
        assert!(current.get().is_none() && current.take(|_| panic!("none")));
    }
}
