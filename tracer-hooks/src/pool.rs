//! The pool of GPU-only signals that packets without a signal get, and packets with one instead.
//!
//! Signals are made in blocks by the worker thread, ahead of need; a queue takes them in batches.
//! An empty pool grows on the spot up to [`CAP`], beyond which packets go out as they are. All are
//! destroyed when nothing is recorded any more: the runtime of Debian 12 (asserts enabled) prints
//! "Resource leak detected by SharedSignalPool" into the target's stderr for each one forgotten. Those
//! that the GPU may still write are left alone all the same: the runtime would give them to somebody else.

use crate::bells::Bells;
use crate::lock::Lock;

/// Most signals that exist at once.
pub const CAP: usize = 64 << 10;
/// Signals that a queue takes at once.
pub const BATCH: usize = 64;
/// The worker makes more when fewer than this are free.
pub const LOW: usize = 1024;
/// How many are made at once on the spot.
const ON_THE_SPOT: usize = 256;
/// How long anybody waits for the pool's lock.
const WAIT_NS: u64 = 1_000_000_000;

/// The pool. Whoever takes a signal is handed one of value 1 without times.
pub struct Pool {
    inner: Lock<Inner>,
    /// The few that raise an interrupt.
    pub bells: Bells,
}

struct Inner {
    /// Every signal that exists.
    all: Vec<u64>,
    free: Vec<u64>,
    /// Signals that the GPU may or may not write some day: not used again, and never destroyed.
    quarantined: Vec<u64>,
}

impl Pool {
    /// An empty pool.
    pub const fn new() -> Self {
        let inner = Inner { all: Vec::new(), free: Vec::new(), quarantined: Vec::new() };
        Self { inner: Lock::new(inner), bells: Bells::new() }
    }

    /// Moves up to [`BATCH`] signals into `cache`, making some with `create` if there are none.
    pub fn take(&self, cache: &mut Vec<u64>, create: impl Fn() -> Option<u64>) {
        let Some(mut inner) = self.inner.lock_for(WAIT_NS) else { return };
        if inner.free.is_empty() {
            inner.grow(ON_THE_SPOT, create);
        }
        let at = inner.free.len().saturating_sub(BATCH);
        cache.extend(inner.free.drain(at..));
    }

    /// Gives signals back; `signals` is empty afterwards.
    pub fn give(&self, signals: &mut Vec<u64>) {
        if !signals.is_empty()
            && let Some(mut inner) = self.inner.lock_for(WAIT_NS)
        {
            inner.free.append(signals);
        }
    }

    /// Puts a signal where it belongs: with the bells, or into `signals`, to be given back together.
    pub fn sort(&self, signal: u64, signals: &mut Vec<u64>) {
        if !self.bells.give(signal) {
            signals.push(signal);
        }
    }

    /// Does not expect `signal` back: the GPU may write it some day, or never.
    pub fn quarantine(&self, signal: u64) {
        if let Some(mut inner) = self.inner.lock_for(WAIT_NS) {
            inner.quarantined.push(signal);
        }
    }

    /// The GPU has written a signal that was given up: takes it back.
    pub fn readmit(&self, signal: u64) {
        if let Some(mut inner) = self.inner.lock_for(WAIT_NS)
            && let Some(at) = inner.quarantined.iter().position(|&known| known == signal)
        {
            inner.quarantined.swap_remove(at);
            if !self.bells.give(signal) {
                if !inner.all.contains(&signal) {
                    inner.all.push(signal);
                }
                inner.free.push(signal);
            }
        }
    }

    /// Makes `count` more if fewer than [`LOW`] are free.
    pub fn top_up(&self, count: usize, create: impl Fn() -> Option<u64>) {
        // Signals are made outside the lock: a launching thread may want some meanwhile.
        let wanted = match self.inner.try_lock() {
            Some(inner) if inner.free.len() < LOW => count.min(CAP.saturating_sub(inner.all.len())),
            _ => return,
        };
        let mut made: Vec<u64> = (0..wanted).map_while(|_| create()).collect();
        if let Some(mut inner) = self.inner.lock_for(WAIT_NS) {
            inner.all.extend_from_slice(&made);
            inner.free.append(&mut made);
        }
    }

    /// Signals that somebody has taken and will give back.
    pub fn outstanding(&self) -> usize {
        self.inner.lock_for(WAIT_NS).map_or(usize::MAX, |inner| {
            let all = inner.all.len() + self.bells.outstanding();
            all.saturating_sub(inner.free.len() + inner.quarantined.len())
        })
    }

    /// Empties the pool and calls `destroy` with every signal there is, wherever it is, but for those
    /// that the GPU may still write.
    pub fn destroy_all(&self, destroy: impl Fn(u64)) {
        let Some(mut inner) = self.inner.lock_for(WAIT_NS) else { return };
        let inner = &mut *inner;
        inner.free = Vec::new();
        for signal in core::mem::take(&mut inner.all) {
            match inner.quarantined.contains(&signal) {
                // It may be readmitted yet.
                true => inner.all.push(signal),
                false => destroy(signal),
            }
        }
        self.bells.destroy_all(destroy);
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Inner {
    fn grow(&mut self, count: usize, create: impl Fn() -> Option<u64>) {
        let count = count.min(CAP.saturating_sub(self.all.len()));
        for signal in (0..count).map_while(|_| create()) {
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

    #[test]
    fn signals_are_unique_counted_and_all_destroyed() {
        let pool = Pool::new();
        let next = Cell::new(0);
        let create = || {
            next.set(next.get() + 1);
            Some(next.get())
        };
        let mut cache = Vec::new();
        pool.take(&mut cache, create);
        assert_eq!(cache.len(), BATCH);
        pool.top_up(2000, create);
        let mut more = Vec::new();
        while pool.outstanding() < 1000 {
            pool.take(&mut more, create);
        }
        let distinct: BTreeSet<u64> = cache.iter().chain(&more).copied().collect();
        assert_eq!(distinct.len(), cache.len() + more.len());
        pool.give(&mut more);
        assert_eq!((pool.outstanding(), more.len()), (BATCH, 0));
        pool.quarantine(cache[0]);
        assert_eq!(pool.outstanding(), BATCH - 1);
        pool.quarantine(cache[1]);
        pool.readmit(cache[1]);
        assert_eq!(pool.outstanding(), BATCH - 2, "back again");
        let destroyed = Cell::new(0);
        pool.destroy_all(|signal| {
            assert_ne!(signal, cache[0], "the GPU may still write it");
            destroyed.set(destroyed.get() + 1);
        });
        assert_eq!(destroyed.get(), next.get() - 1);
        assert_eq!(pool.outstanding(), 0);
    }

    #[test]
    fn the_cap_holds_and_a_runtime_out_of_signals_is_no_error() {
        let pool = Pool::new();
        let mut cache = Vec::new();
        for _ in 0..2 * CAP / BATCH {
            pool.take(&mut cache, || Some(8));
        }
        assert_eq!(cache.len(), CAP);
        let dry = Pool::new();
        let mut none = Vec::new();
        dry.take(&mut none, || None);
        assert!(none.is_empty());
    }
}
