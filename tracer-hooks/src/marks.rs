//! The marks that threads set for the worker on single signals: on those that a waiting thread watches and relays
//! itself, and on those for which something waits that cannot relay.
//!
//! Both are small tables that may forget: they decide when the worker relays a signal, never whether.

use core::sync::atomic::{AtomicU64, Ordering};

/// The number of threads that can watch a signal at once.
const WATCHED: usize = 32;
/// Places for signals that are needed.
const NEEDED: usize = 256;

/// Signals of ours that waiting threads watch, each for a limited time: a thread that is lost while it waits
/// does not count for ever.
pub struct Watched([Watch; WATCHED]);

struct Watch {
    signal: AtomicU64,
    until_ns: AtomicU64,
}

/// A thread watches a signal, until this is dropped or its time is over.
pub struct Watching<'a> {
    watch: &'a Watch,
    signal: u64,
}

impl Watched {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self([const { Watch { signal: AtomicU64::new(0), until_ns: AtomicU64::new(0) } }; WATCHED])
    }

    /// The calling thread watches `signal` until `until_ns`; `None` if too many threads watch signals.
    pub fn watch(&self, signal: u64, now_ns: u64, until_ns: u64) -> Option<Watching<'_>> {
        let first = (signal >> 6) as usize;
        (0..WATCHED).find_map(|i| {
            let watch = self.0.get((first + i) % WATCHED)?;
            // Acquire pairs with the exchanges in here and in `drop`.
            let held = watch.signal.load(Ordering::Acquire);
            let free = held == 0 || watch.until_ns.load(Ordering::Relaxed) < now_ns;
            let taken = free
                && watch
                    .signal
                    .compare_exchange(held, signal, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok();
            taken.then(|| {
                // Pairs with the Acquire in `is_watched`, as the exchange above does. Not a store: the caller asks
                // after this whether the signal is still in use.
                watch.until_ns.swap(until_ns, Ordering::AcqRel);
                Watching { watch, signal }
            })
        })
    }

    /// Whether a thread watches `signal`.
    pub fn is_watched(&self, signal: u64, now_ns: u64) -> bool {
        self.0.iter().any(|watch| {
            // Pair with the exchange and the swap in `watch`, and with the swap in `until`.
            watch.signal.load(Ordering::Acquire) == signal
                && watch.until_ns.load(Ordering::Acquire) >= now_ns
        })
    }
}

impl Watching<'_> {
    /// The thread watches the signal until `until_ns` from now on. False if its time was over and another
    /// thread has its place.
    pub fn until(&self, until_ns: u64) -> bool {
        // An exchange, so that the loads behind it are not before it.
        self.watch.until_ns.swap(until_ns, Ordering::AcqRel);
        self.watch.signal.load(Ordering::Acquire) == self.signal
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let _ =
            self.watch.signal.compare_exchange(self.signal, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Signals of the application for which something waits that cannot relay them: a packet or a copy that
/// depends on the signal, a handler that the runtime is to call, a thread that began to wait before a packet
/// had the signal. Of two signals in one place the later one counts.
///
/// A thread that waits for a signal whose packet may be yet to come marks it and then looks for its entry. A
/// thread that enqueues adds the entry and then looks at the mark, with a locked instruction in between (its
/// exchange of the packet's signal, or the runtime's own for a copy): one of the two sees the other.
pub struct Needed([AtomicU64; NEEDED]);

impl Needed {
    /// None.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; NEEDED])
    }

    fn place(&self, signal: u64) -> Option<&AtomicU64> {
        let hash = (signal >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        self.0.get(hash as usize % NEEDED)
    }

    /// Something needs `signal`. Does nothing for 0.
    pub fn mark(&self, signal: u64) {
        if let Some(place) = self.place(signal).filter(|_| signal != 0) {
            place.store(signal, Ordering::SeqCst);
        }
    }

    /// Whether something needs `signal`.
    #[inline]
    pub fn is_marked(&self, signal: u64) -> bool {
        signal != 0
            && self.place(signal).is_some_and(|place| place.load(Ordering::SeqCst) == signal)
    }

    /// It has been relayed.
    pub fn clear(&self, signal: u64) {
        if let Some(place) = self.place(signal) {
            let _ = place.compare_exchange(signal, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
    }
}

impl Default for Watched {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Needed {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_ends_by_itself_or_by_its_owner() {
        let watched = Watched::new();
        let watching = watched.watch(64, 10, 20).expect("room");
        assert!(watched.is_watched(64, 20) && !watched.is_watched(128, 20));
        assert!(!watched.is_watched(64, 21), "not believed for ever");
        assert!(watching.until(30) && watched.is_watched(64, 30));
        drop(watching);
        assert!(!watched.is_watched(64, 20));
    }

    #[test]
    fn whoever_was_lost_leaves_his_place() {
        let watched = Watched::new();
        let lost = (1..=WATCHED as u64).map(|i| watched.watch(64 * i, 10, 20).expect("room"));
        let lost: Vec<_> = lost.collect();
        assert!(watched.watch(8000 * 64, 20, 30).is_none(), "full");
        let later: Vec<_> = (100..140).filter_map(|i| watched.watch(64 * i, 21, 40)).collect();
        assert_eq!(later.len(), WATCHED, "their time is over");
        assert!(lost.iter().all(|watching| !watching.until(50)));
        drop(lost);
        assert!(watched.is_watched(100 * 64, 40), "another's place is not given back");
    }

    #[test]
    fn marks_are_kept_until_cleared() {
        let needed: Box<Needed> = Box::default();
        needed.mark(0);
        needed.mark(640);
        assert!(needed.is_marked(640) && !needed.is_marked(704) && !needed.is_marked(0));
        needed.clear(704);
        assert!(needed.is_marked(640));
        needed.clear(640);
        assert!(!needed.is_marked(640));
    }
}
