//! What threads tell each other about single signals: who looks after one himself, and which of them
//! somebody needs who cannot.
//!
//! Both are small tables that may forget: what they say decides when the worker looks, never whether.

use core::sync::atomic::{AtomicU64, Ordering};

/// Threads that can say that they wait.
const WATCHED: usize = 32;
/// Signals that are known to be needed.
const NEEDED: usize = 256;

/// Signals of ours that a waiting thread looks at, each for a limited time: a thread that was lost
/// while it waited is not believed for ever.
pub struct Watched([Watch; WATCHED]);

struct Watch {
    signal: AtomicU64,
    until_ns: AtomicU64,
}

/// What a thread has said; taken back when dropped.
pub struct Watching<'a> {
    watch: &'a Watch,
    signal: u64,
}

impl Watched {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self([const { Watch { signal: AtomicU64::new(0), until_ns: AtomicU64::new(0) } }; WATCHED])
    }

    /// The calling thread looks after `signal` until then; `None` when too many do.
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
                // Pairs with the Acquire in `is_watched`, as the exchange above does. Not a store: whether the signal
                // is still in use is asked after this.
                watch.until_ns.swap(until_ns, Ordering::AcqRel);
                Watching { watch, signal }
            })
        })
    }

    /// Whether somebody looks after `signal`.
    pub fn is_watched(&self, signal: u64, now_ns: u64) -> bool {
        self.0.iter().any(|watch| {
            // Pair with the exchange and the store in `watch`, and with the store in `until`.
            watch.signal.load(Ordering::Acquire) == signal
                && watch.until_ns.load(Ordering::Acquire) >= now_ns
        })
    }
}

impl Watching<'_> {
    /// Goes on until then; false when somebody else has the place, because the time was over.
    pub fn until(&self, until_ns: u64) -> bool {
        self.watch.until_ns.store(until_ns, Ordering::Release);
        self.watch.signal.load(Ordering::Acquire) == self.signal
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let _ =
            self.watch.signal.compare_exchange(self.signal, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Signals of the application that something waits for that cannot look for itself: a packet or a copy
/// that depends on it, a handler that the runtime is to call, a thread that began to wait before the
/// signal was on a packet. Of two in one place the later one counts.
///
/// Who needs a signal marks it and then looks for its entry; who enqueues adds the entry and then looks at
/// the mark, with a locked instruction in between (the exchange of the packet's signal, the runtime's own
/// for a copy): one of the two sees the other.
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

    /// Something needs `signal`; nothing for 0.
    pub fn mark(&self, signal: u64) {
        if let Some(place) = self.place(signal).filter(|_| signal != 0) {
            place.store(signal, Ordering::SeqCst);
        }
    }

    /// Whether something does.
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
