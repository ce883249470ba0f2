//! A mutual exclusion that never waits for ever.
//!
//! Whoever waits belongs to the traced process, so every acquisition has a bound and every caller a
//! plan for not getting it: the doorbell is then rung as the application asked and the packets go
//! unrecorded. The bound is far above any delay that a healthy machine produces; it exists for the
//! thread that was killed, or stopped by a debugger, inside.

#![expect(unsafe_code, reason = "a lock owns a cell")]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use tracer_common::waited::Waited;

use crate::sys;

const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;

/// How often whoever waits looks: when the machine stood still, so did the owner.
const LOOK_NS: u64 = 20_000_000;

/// A value behind a lock.
pub struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached only through a `Guard`, of which there is one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to use the value; gives the lock back when dropped.
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Acquire pairs with the Release in `Guard::drop`.
        self.word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Guard(self))
    }

    /// Takes the lock, waiting at most `timeout_ns` for it.
    #[inline]
    pub fn lock_for(&self, timeout_ns: u64) -> Option<Guard<'_, T>> {
        self.try_lock().or_else(|| self.wait(timeout_ns))
    }

    #[cold]
    fn wait(&self, timeout_ns: u64) -> Option<Guard<'_, T>> {
        for _ in 0..64 {
            sys::relax(8);
            if self.word.load(Ordering::Relaxed) == FREE
                && let Some(guard) = self.try_lock()
            {
                return Some(guard);
            }
        }
        let mut waited: Waited<LOOK_NS> = Waited::since(sys::now_ns());
        let mut left_ns = timeout_ns;
        // From here on the lock is taken as AWAITED, so that its release wakes the next waiter.
        while self.word.swap(AWAITED, Ordering::Acquire) != FREE {
            if left_ns == 0 {
                return None;
            }
            sys::futex_wait(&self.word, AWAITED, left_ns.min(LOOK_NS));
            left_ns = timeout_ns.saturating_sub(waited.look(sys::now_ns()));
        }
        Some(Guard(self))
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire of the next owner.
        if self.0.word.swap(FREE, Ordering::AcqRel) == AWAITED {
            sys::futex_wake(&self.0.word);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one.
        unsafe { &mut *self.0.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_at_a_time_and_nobody_waits_for_ever() {
        static LOCK: Lock<u64> = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut value = LOCK.lock_for(10_000_000_000).expect("in time");
                        *value += 1;
                    }
                });
            }
        });
        let held = LOCK.try_lock().expect("free");
        assert_eq!(*held, 40_000);
        assert!(LOCK.try_lock().is_none());
        assert!(LOCK.lock_for(1_000_000).is_none());
        drop(held);
        assert!(LOCK.lock_for(1_000_000).is_some());
    }
}
