//! A mutual exclusion that never waits for ever.
//!
//! A thread that waits belongs to the traced process, so every acquisition has a bound and every caller a plan for not
//! getting the lock: the doorbell is then rung as the application asked and the packets go unrecorded. The bound is far
//! above any delay that a healthy machine produces; it exists for the thread that left by `siglongjmp`, or was stopped
//! by a debugger, while it held the lock. Where threads of the program wait again and again, the first that waits in
//! vain is the last ([`Lock::lock_or_lose`]): the value behind the lock is left alone from then on.

#![expect(unsafe_code, reason = "a lock owns a cell")]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use tracer_common::waited::Waited;

use crate::sys;

/// The word of a lock that nobody has. Else its owner, from [`sys::thread_mark`], and maybe [`AWAITED`].
const FREE: u32 = 0;
/// Somebody waits.
const AWAITED: u32 = 1 << 31;
/// Its owner never came back: nobody gets it any more.
const LOST: u32 = u32::MAX;

/// Longest sleep of a waiting thread between two looks, and the most that counts of one: when the machine stood still,
/// so did the owner.
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

    fn becomes(&self, from: u32, to: u32) -> bool {
        // Acquire pairs with the Release by which the last owner let go.
        self.word.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.becomes(FREE, sys::thread_mark()).then(|| Guard(self))
    }

    /// Whether a thread has it, or it is lost.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.word.load(Ordering::Relaxed) != FREE
    }

    /// Takes the lock, waiting at most `timeout_ns` for it.
    #[inline]
    pub fn lock_for(&self, timeout_ns: u64) -> Option<Guard<'_, T>> {
        self.try_lock().or_else(|| self.wait(timeout_ns, || true))
    }

    /// As [`Lock::lock_for`], but the first thread that waits in vain is the last to wait: the lock counts as lost from
    /// then on, nobody gets it, and nobody waits for it.
    #[inline]
    pub fn lock_or_lose(&self, timeout_ns: u64) -> Option<Guard<'_, T>> {
        self.try_lock().or_else(|| self.wait(timeout_ns, || self.lose()))
    }

    /// Whether the calling thread has it: a handler of a signal has interrupted it in here, and would wait for itself.
    pub fn is_own(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !AWAITED == sys::thread_mark()
    }

    /// Whether it is lost.
    pub fn is_lost(&self) -> bool {
        self.word.load(Ordering::Relaxed) == LOST
    }

    /// Gives up a lock that somebody else has; false when it is free by now. Should its owner come back
    /// after all, it is alone with the value.
    fn lose(&self) -> bool {
        loop {
            match self.word.load(Ordering::Relaxed) {
                FREE => return false,
                LOST => return true,
                held if self.becomes(held, LOST) => break,
                _ => {}
            }
        }
        sys::futex_wake(&self.word, u32::MAX >> 1);
        true
    }

    /// `gives_up`: asked when the time is over; false to look again.
    #[cold]
    fn wait(&self, timeout_ns: u64, gives_up: impl Fn() -> bool) -> Option<Guard<'_, T>> {
        let me = sys::thread_mark();
        let mut waited: Waited<LOOK_NS> = Waited::since(sys::now_ns());
        let (mut left_ns, mut spins) = (timeout_ns, 64);
        loop {
            let word = self.word.load(Ordering::Relaxed);
            match word {
                LOST => return None,
                // From here on the lock is taken as awaited, so that its release wakes the next waiter.
                FREE if self.becomes(FREE, me | AWAITED) => return Some(Guard(self)),
                FREE => continue,
                // A signal handler that has interrupted the owner, or was left by `siglongjmp`: the thread would wait
                // for itself.
                own if own & !AWAITED == me => left_ns = 0,
                _ if spins > 0 => {
                    spins -= 1;
                    sys::relax(8);
                    continue;
                }
                held if held & AWAITED == 0 && !self.becomes(held, held | AWAITED) => continue,
                _ => {}
            }
            if left_ns == 0 {
                if gives_up() {
                    return None;
                }
                continue;
            }
            sys::futex_wait(&self.word, word | AWAITED, left_ns.min(LOOK_NS));
            left_ns = timeout_ns.saturating_sub(waited.look(sys::now_ns()));
        }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire of the next owner.
        let (word, me) = (&self.0.word, sys::thread_mark());
        if word.compare_exchange(me, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            // A lost one stays lost.
            let awaited = me | AWAITED;
            if word.compare_exchange(awaited, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
                sys::futex_wake(word, 1);
            }
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
    fn a_lock_is_lost_once_and_nobody_waits_for_it_again() {
        const LONG_NS: u64 = 3_600_000_000_000;
        let lock = Lock::new(7);
        let owner = lock.lock_or_lose(LONG_NS).expect("free");
        std::thread::scope(|scope| {
            // The threads that wait already are told.
            let others: Vec<_> =
                (0..3).map(|_| scope.spawn(|| lock.lock_for(LONG_NS).is_none())).collect();
            assert!(lock.lock_or_lose(1_000_000).is_none() && lock.is_lost());
            assert!(others.into_iter().all(|other| other.join().expect("no panic")));
        });
        assert!(lock.lock_for(LONG_NS).is_none() && lock.lock_or_lose(LONG_NS).is_none());
        assert_eq!(*owner, 7);
        drop(owner);
        assert!(lock.is_lost() && lock.try_lock().is_none(), "for ever");
    }

    /// In a signal handler, or after `siglongjmp`: waiting would be for ever.
    #[test]
    fn nobody_waits_for_himself() {
        let lock = Lock::new(());
        let _owner = lock.try_lock().expect("free");
        assert!(lock.lock_for(u64::MAX).is_none() && !lock.is_lost());
        assert!(lock.lock_or_lose(u64::MAX).is_none() && lock.is_lost());
    }

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
