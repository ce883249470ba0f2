//! A few signals of ours that raise the GPU's interrupt when they complete, so that a thread that waits
//! for one can sleep.
//!
//! Each has one of the 4,096 events that the driver gives to a process, which the application needs as
//! well: so there are few, and they go to packets whose own signal has one too. A thread that waits
//! for such a signal mostly waits for the last of them; when they run out, it looks now and then.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The most signals that exist at once: a bit of a word for each.
pub const CAP: usize = 64;
/// The number of signals that are made the first time that they have run out.
const FIRST: usize = 8;

/// The signals.
pub struct Bells {
    signals: [AtomicU64; CAP],
    /// The signals that nobody has, by place.
    free: AtomicU64,
    /// Threads that sleep until one of them rings, or are about to.
    sleepers: AtomicU32,
    ran_out: AtomicBool,
    /// The driver has no more events for us.
    no_more: AtomicBool,
}

impl Bells {
    /// None.
    pub const fn new() -> Self {
        Self {
            signals: [const { AtomicU64::new(0) }; CAP],
            free: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            ran_out: AtomicBool::new(false),
            no_more: AtomicBool::new(false),
        }
    }

    /// Takes a signal of value 1, without times.
    #[inline]
    pub fn take(&self) -> Option<u64> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 {
            let rest = free & (free - 1);
            // Acquire pairs with the Release in `give`: the signal is as good as new.
            match self.free.compare_exchange_weak(free, rest, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => {
                    let signal = self.signals.get(free.trailing_zeros() as usize)?;
                    return Some(signal.load(Ordering::Relaxed));
                }
                Err(now) => free = now,
            }
        }
        self.ran_out.store(true, Ordering::Relaxed);
        None
    }

    /// Gives `signal` back; false: it is none of these.
    pub fn give(&self, signal: u64) -> bool {
        let place = self.signals.iter().position(|known| known.load(Ordering::Relaxed) == signal);
        if let Some(place) = place {
            // Pairs with the Acquire of the thread that takes it: its value was set before.
            self.free.fetch_or(1 << place, Ordering::Release);
        }
        place.is_some()
    }

    fn made(&self) -> usize {
        self.signals.iter().filter(|signal| signal.load(Ordering::Relaxed) != 0).count()
    }

    /// Makes some, or more, if they ran out. Called by one thread at a time.
    pub fn top_up(&self, create: impl Fn() -> Option<u64>) {
        let ran_out = self.ran_out.swap(false, Ordering::Relaxed);
        if !ran_out || self.no_more.load(Ordering::Relaxed) {
            return;
        }
        let made = self.made();
        let wanted = (2 * made).clamp(FIRST, CAP);
        let empty = self.signals.iter().filter(|signal| signal.load(Ordering::Relaxed) == 0);
        for place in empty.take(wanted.saturating_sub(made)) {
            let Some(signal) = create() else {
                self.no_more.store(true, Ordering::Relaxed);
                return;
            };
            place.store(signal, Ordering::Relaxed);
            self.give(signal);
        }
    }

    /// The calling thread is going to sleep on one that is in flight; [`Bells::sleep_ends`] follows. Where
    /// it does not, the thread was lost in its sleep, and the signals stay.
    pub fn sleep_begins(&self) {
        // Pairs with the load in `has_sleepers`: it comes before the thread looks whether its signal is
        // still in flight.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    /// It has slept.
    pub fn sleep_ends(&self) {
        // Pairs with the load in `has_sleepers`: the signal was used before.
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether a thread may sleep on one.
    pub fn has_sleepers(&self) -> bool {
        // Pairs with the additions above.
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    /// Calls `destroy` with all that nobody has, and forgets those; with none while somebody may sleep
    /// on one.
    pub fn destroy_idle(&self, destroy: impl Fn(u64)) {
        if self.has_sleepers() {
            return;
        }
        // Pairs with the Release in `give`.
        let free = self.free.swap(0, Ordering::Acquire);
        self.no_more.store(false, Ordering::Relaxed);
        for (place, signal) in self.signals.iter().enumerate() {
            if free & (1 << place) != 0 {
                destroy(signal.swap(0, Ordering::Relaxed));
            }
        }
    }

    /// Forgets them all: the runtime has gone with them.
    pub fn forget(&self) {
        self.free.store(0, Ordering::Relaxed);
        self.no_more.store(false, Ordering::Relaxed);
        self.signals.iter().for_each(|signal| signal.store(0, Ordering::Relaxed));
    }
}

impl Default for Bells {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::BTreeSet;

    #[test]
    fn few_are_made_more_when_they_run_out_and_never_too_many() {
        let bells = Bells::new();
        let next = Cell::new(0);
        let create = || {
            next.set(next.get() + 64);
            Some(next.get())
        };
        assert_eq!(bells.take(), None);
        let mut taken = BTreeSet::new();
        let mut made = Vec::new();
        for _ in 0..6 {
            bells.top_up(create);
            bells.top_up(create);
            while let Some(signal) = bells.take() {
                assert!(taken.insert(signal), "twice");
            }
            made.push(taken.len());
        }
        assert_eq!(made, [FIRST, 2 * FIRST, 4 * FIRST, CAP, CAP, CAP]);
        let lost = taken.pop_first().expect("there");
        assert!(taken.iter().all(|&signal| bells.give(signal)) && !bells.give(7));
        let destroyed = Cell::new(0);
        bells.destroy_idle(|signal| {
            assert_ne!(signal, lost, "the GPU may still write it");
            destroyed.set(destroyed.get() + 1);
        });
        assert_eq!(destroyed.get(), CAP - 1);
        assert!(bells.give(lost), "it comes back");
        assert_eq!((bells.take(), bells.take()), (Some(lost), None));
        bells.forget();
        assert!(!bells.give(lost), "its runtime has gone");
    }

    #[test]
    fn a_runtime_without_events_is_no_error() {
        let bells = Bells::new();
        assert_eq!(bells.take(), None);
        bells.top_up(|| None);
        assert_eq!(bells.take(), None);
        bells.top_up(|| panic!("it was asked before"));
    }
}
