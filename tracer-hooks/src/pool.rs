//! The pool of GPU-only signals that packets without a signal get, and packets with one instead.
//!
//! Signals are made in blocks by the worker thread, ahead of need; a queue takes them in batches.
//! An empty pool grows on the spot up to [`CAP`], beyond which packets go out as they are; before that, the thread that
//! launches looks for completions itself ([`Pool::is_short`]). The pool destroys its signals when nothing is recorded
//! any more: the runtime of Debian 12 (asserts enabled) prints "Resource leak detected by SharedSignalPool" into the
//! target's stderr for each one forgotten. Signals that a thread has, or that the GPU may still write, are left alone
//! all the same: the runtime would give them to somebody else.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::bells::Bells;
use crate::lock::{Guard, Lock};
use crate::sys;

/// Most signals that exist at once: twice as many as four queues of HIP's have packets.
pub const CAP: usize = 128 << 10;
/// Signals that a queue takes at once.
pub const BATCH: usize = 64;
/// The worker makes more when fewer than this are free.
pub const LOW: usize = 1024;
/// The number of signals that are made at once on the spot.
const ON_THE_SPOT: usize = 256;
/// Longest wait of a thread for the pool's lock.
const WAIT_NS: u64 = 1_000_000_000;

/// Signals at hand, in fixed memory: where a doorbell rings nothing is allocated.
pub struct Batch {
    signals: [u64; BATCH],
    count: usize,
}

impl Batch {
    /// None.
    pub const fn new() -> Self {
        Self { signals: [0; BATCH], count: 0 }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The one that [`Batch::pop`] would take.
    #[inline]
    pub fn last(&self) -> Option<u64> {
        self.signals.get(self.count.checked_sub(1)?).copied()
    }

    /// Takes one.
    #[inline]
    pub fn pop(&mut self) -> Option<u64> {
        let last = self.last();
        self.count = self.count.saturating_sub(1);
        last
    }

    /// Keeps those that `keep` is true for.
    pub fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        let mut kept = Self::new();
        while let Some(signal) = self.pop() {
            if keep(signal) {
                kept.push(signal);
            }
        }
        *self = kept;
    }

    /// Adds one; false when there is no room.
    pub fn push(&mut self, signal: u64) -> bool {
        let place = self.signals.get_mut(self.count);
        place.map(|place| *place = signal).map(|()| self.count += 1).is_some()
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

/// The pool. A thread that takes a signal gets one of value 1 without times.
///
/// A thread that never comes back from here takes the pool with it: no packet gets a signal any more.
pub struct Pool {
    inner: Lock<Inner>,
    is_short: AtomicBool,
    /// The few that raise an interrupt.
    pub bells: Bells,
}

struct Inner {
    /// Every signal that exists.
    all: Vec<u64>,
    /// Has room for all of them.
    free: Vec<u64>,
}

impl Pool {
    /// An empty pool.
    pub const fn new() -> Self {
        let inner = Inner { all: Vec::new(), free: Vec::new() };
        Self { inner: Lock::new(inner), is_short: AtomicBool::new(false), bells: Bells::new() }
    }

    /// Whether more than half of all that there can be are in use.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    fn note(&self, inner: &Inner) {
        let left = inner.free.len() + CAP.saturating_sub(inner.all.len());
        self.is_short.store(left < CAP / 2, Ordering::Relaxed);
    }

    fn lock(&self) -> Option<Guard<'_, Inner>> {
        self.inner.lock_or_lose(WAIT_NS)
    }

    /// Fills `cache`, making some signals with `create` if there are none.
    pub fn take(&self, cache: &mut Batch, create: impl Fn() -> Option<u64>) {
        let fill = |inner: &mut Inner, cache: &mut Batch| {
            while let Some(&signal) = inner.free.last()
                && cache.push(signal)
            {
                inner.free.pop();
            }
            self.note(inner);
        };
        let Some(mut inner) = self.lock() else { return };
        fill(&mut inner, cache);
        drop(inner);
        if cache.is_empty() {
            // A signal that arrives meanwhile comes when the lock is free again.
            sys::uninterrupted(|| {
                let Some(mut inner) = self.lock() else { return };
                if inner.free.is_empty() {
                    inner.grow(ON_THE_SPOT, create);
                }
                fill(&mut inner, cache);
            });
        }
    }

    /// Gives signals back; `signals` is empty afterwards.
    pub fn give(&self, signals: &mut Batch) {
        if !signals.is_empty()
            && let Some(mut inner) = self.lock()
        {
            while inner.free.len() < inner.free.capacity()
                && let Some(signal) = signals.pop()
            {
                inner.free.push(signal);
            }
            self.note(&inner);
        }
        signals.count = 0;
    }

    /// Puts a signal where it belongs: with the bells, or to those that are given back together.
    pub fn take_back(&self, returned: &mut Batch, signal: u64) {
        if !self.bells.give(signal) && !returned.push(signal) {
            self.give(returned);
            returned.push(signal);
        }
    }

    /// The GPU has written a signal that was given up: takes it back, if it is of this runtime.
    pub fn readmit(&self, signal: u64) {
        if !self.bells.give(signal)
            && let Some(mut inner) = self.lock()
            && inner.all.contains(&signal)
            && inner.free.len() < inner.free.capacity()
        {
            inner.free.push(signal);
        }
    }

    /// Makes `count` more, or a few less, if fewer than [`LOW`] are free.
    pub fn top_up(&self, count: usize, create: impl Fn() -> Option<u64>) {
        for _ in 0..count.div_ceil(BATCH) {
            let wanted = match self.inner.try_lock() {
                Some(mut inner) if inner.free.len() < LOW => inner.room(BATCH),
                _ => return,
            };
            // Signals are made outside the lock: a launching thread may want some meanwhile.
            let mut made = Batch::new();
            for signal in (0..wanted).map_while(|_| create()) {
                made.push(signal);
            }
            let Some(mut inner) = self.lock() else { return };
            // Where others have taken the room, and there is no memory for more, the rest is forgotten.
            for signal in (0..inner.room(made.count)).map_while(|_| made.pop()) {
                inner.all.push(signal);
                inner.free.push(signal);
            }
            if wanted < BATCH {
                return;
            }
        }
    }

    /// Empties the pool of a runtime that is gone: the signals went with it.
    pub fn forget(&self) {
        if let Some(mut inner) = self.lock() {
            inner.all = Vec::new();
            inner.free = Vec::new();
        }
        self.bells.forget();
    }

    /// Calls `destroy` with every signal that nobody has. The others stay, also those of a thread that never came back,
    /// for it may: no packet may ever carry a signal that does not exist.
    pub fn destroy_idle(&self, destroy: impl Fn(u64)) {
        let Some(mut inner) = self.lock() else { return };
        let Inner { all, free } = &mut *inner;
        free.sort_unstable();
        all.retain(|signal| {
            let stays = free.binary_search(signal).is_err();
            if !stays {
                destroy(*signal);
            }
            stays
        });
        // Its room stays, for those that come back.
        free.clear();
        if all.is_empty() {
            (*all, *free) = (Vec::new(), Vec::new());
        }
        self.bells.destroy_idle(destroy);
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Inner {
    /// The number of `count` more signals for which there is room.
    fn room(&mut self, count: usize) -> usize {
        let count = count.min(CAP.saturating_sub(self.all.len()));
        let free = self.all.len() + count - self.free.len();
        let room = self.all.try_reserve(count).and_then(|()| self.free.try_reserve(free));
        if room.is_ok() { count } else { 0 }
    }

    fn grow(&mut self, count: usize, create: impl Fn() -> Option<u64>) {
        let room = self.room(count);
        for signal in (0..room).map_while(|_| create()) {
            self.all.push(signal);
            self.free.push(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::BTreeSet;

    fn taken(pool: &Pool, create: impl Fn() -> Option<u64>) -> Vec<u64> {
        let mut batch = Batch::new();
        pool.take(&mut batch, create);
        std::iter::from_fn(|| batch.pop()).collect()
    }

    fn batch(signals: &[u64]) -> Batch {
        let mut batch = Batch::new();
        assert!(signals.iter().all(|&signal| batch.push(signal)));
        batch
    }

    #[test]
    fn signals_are_unique_counted_and_all_destroyed() {
        let pool = Pool::new();
        let next = Cell::new(0);
        let create = || {
            next.set(next.get() + 1);
            Some(next.get())
        };
        let mut signals = taken(&pool, create);
        assert_eq!(signals.len(), BATCH);
        pool.top_up(2000, create);
        while signals.len() < 1000 {
            signals.extend(taken(&pool, create));
        }
        let distinct: BTreeSet<u64> = signals.iter().copied().collect();
        assert_eq!(distinct.len(), signals.len());
        for chunk in signals[2..].chunks(BATCH) {
            pool.give(&mut batch(chunk));
        }
        pool.readmit(signals[1]);
        pool.readmit(u64::MAX);
        let destroyed = Cell::new(0);
        pool.destroy_idle(|signal| {
            assert_ne!(signal, signals[0], "the GPU may still write it");
            destroyed.set(destroyed.get() + 1);
        });
        assert_eq!(destroyed.get(), next.get() - 1);
        pool.readmit(signals[0]);
        pool.destroy_idle(|signal| assert_eq!(signal, signals[0], "it came back"));
    }

    #[test]
    fn more_than_half_in_use_is_short() {
        let pool = Pool::new();
        let mut used = Vec::new();
        while used.len() <= CAP / 2 {
            assert!(!pool.is_short(), "{}", used.len());
            used.extend(taken(&pool, || Some(8)));
        }
        assert!(pool.is_short());
        pool.give(&mut batch(&used[..BATCH]));
        assert!(!pool.is_short());
    }

    /// A signal that was taken by a thread that never comes back stays, and is not counted on.
    #[test]
    fn what_somebody_has_is_not_destroyed_with_the_rest() {
        let pool = Pool::new();
        let next = Cell::new(0);
        let create = || {
            next.set(next.get() + 1);
            Some(next.get())
        };
        let lost = taken(&pool, create);
        let given = taken(&pool, create);
        pool.give(&mut batch(&given));
        let destroyed = std::cell::RefCell::new(Vec::new());
        pool.destroy_idle(|signal| destroyed.borrow_mut().push(signal));
        assert!(lost.iter().all(|signal| !destroyed.borrow().contains(signal)));
        assert_eq!(destroyed.borrow().len() + lost.len(), next.get() as usize);
        assert!(taken(&pool, create).iter().all(|signal| !lost.contains(signal)));
    }

    #[test]
    fn the_cap_holds_and_a_runtime_out_of_signals_is_no_error() {
        let pool = Pool::new();
        let all: usize = (0..2 * CAP / BATCH).map(|_| taken(&pool, || Some(8)).len()).sum();
        assert_eq!(all, CAP);
        assert!(taken(&Pool::new(), || None).is_empty());
    }
}
