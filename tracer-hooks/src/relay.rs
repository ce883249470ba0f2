//! Relaying: what the packet processor would have done to the application's signal is done by us.
//!
//! Why relay at all, instead of leaving the application's own signal on the packet and reading its
//! times? Because the application may use its signal again the moment that it completes, and may
//! put one signal on many packets: by the time that anybody looks, the times are another packet's.
//! Only a signal that nobody else knows keeps them. The price is that the application's signal is
//! decremented after ours.
//!
//! **Whoever waits relays.** A thread that waits for a signal of the application's through the tables
//! waits for ours in its place, in the same way: it spins where the runtime would spin, and sleeps in
//! the runtime's own wait, until the GPU's interrupt, where that would sleep. Then it claims the entry
//! and relays it. No other thread has to be woken for that, or to look. Nothing is locked: who is
//! stopped or lost between claim and decrement takes one entry with him.
//!
//! Whatever nobody waits for in this way is the worker's.

use core::sync::atomic::Ordering;

use crate::abi::{self, AmdSignal, Times, signal_kind, wait_state};
use crate::runtime::RUNTIME;
use crate::state::State;
use crate::track::{Seen, Track};
use crate::{sys, view};

/// How long a wait that may sleep spins first. As the runtime: "a few times bigger than null kernel
/// latency".
const SPIN_NS: u64 = 200_000;
/// How long anybody sleeps for one of our signals before he looks around: at least, at most, and as
/// long again as he has waited already.
const SLEEP_NS: (u64, u64) = (10_000_000, 100_000_000);
/// Sleeps between looks at a signal that raises no interrupt: the runtime's, and what we stretch it to.
const NAP_NS: (u64, u64) = (20_000, 500_000);
/// How much longer than a wait takes the thread is believed to be there.
const GRACE_NS: u64 = 50_000_000;
/// How long a thread that spins says that it is there.
const SPINNING_NS: u64 = 5_000_000;

/// Whose entries a track has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// Packets of a queue.
    Queue,
    /// Asynchronous copies.
    Copies,
}

/// The signal of ours that `seen` carries, if the GPU is done with it.
pub fn completed(seen: &Seen) -> Option<&'static AmdSignal> {
    // Acquire: the times were written before the decrement.
    view::signal(seen.entry.signal).filter(|signal| signal.value.load(Ordering::Acquire) <= 0)
}

/// Relays an entry that has completed, unless somebody else does or did; whether this call has.
pub fn relay(state: &State, of: Of, seen: &Seen) -> bool {
    let Some(signal) = completed(seen) else { return false };
    let original = seen.entry.original;
    // All of ours is read before the claim: once it is claimed, the worker may use it again.
    match of {
        Of::Queue => {
            let start = signal.start_ts.load(Ordering::Relaxed);
            let end = signal.end_ts.load(Ordering::Relaxed);
            if !seen.claim() {
                return false;
            }
            decrement(original, (start, end));
        }
        Of::Copies => {
            let times: Option<Times> = RUNTIME.copy_times(seen.entry.signal);
            if !seen.claim() {
                return false;
            }
            if let Some(times) = times {
                // Before the decrement: whoever waits for it may ask at once.
                state.copies.answer(original, times);
            }
            decrement(original, (0, 0));
        }
    }
    state.needed.clear(original);
    true
}

/// Does to the application's signal what the packet processor would have done.
pub fn decrement(original: u64, (start, end): (u64, u64)) {
    let Some(signal) = view::signal(original) else { return };
    if signal.kind.load(Ordering::Acquire) != signal_kind::USER {
        // Destroyed while its packet was in flight, which only a broken program does.
        return;
    }
    if end != 0 {
        signal.start_ts.store(start, Ordering::Relaxed);
        signal.end_ts.store(end, Ordering::Relaxed);
    }
    if signal.event_mailbox.load(Ordering::Relaxed) == 0 {
        // No interrupt belongs to it (GPU-only and IPC signals): its waiters spin on the value.
        // Release: the times, and what the packet wrote, are visible before.
        signal.value.fetch_sub(1, Ordering::AcqRel);
    } else {
        RUNTIME.decrement(original);
    }
}

/// All tracks.
fn tracks(state: &'static State) -> impl Iterator<Item = (Of, &'static Track)> {
    let queues = state.registry.objects().map(|queue| (Of::Queue, &queue.track));
    queues.chain([(Of::Copies, &state.copies.track)])
}

/// An entry of `original` that nobody has relayed.
fn find(state: &'static State, original: u64) -> Option<(Of, Seen)> {
    tracks(state).find_map(|(of, track)| Some((of, track.find(original)?)))
}

/// Something that cannot look is going to wait for `signals`.
pub fn need(state: &'static State, signals: &[u64]) {
    let mut any = false;
    for &signal in signals.iter().filter(|&&signal| find(state, signal).is_some()) {
        state.needed.mark(signal);
        any = true;
    }
    if any {
        state.urge();
    }
}

/// Relays what has completed of `original`, which the calling thread is about to look at.
pub fn before_load(state: &'static State, original: u64) {
    let waits = view::signal(original).is_some_and(|signal| {
        signal.kind.load(Ordering::Relaxed) == signal_kind::USER
            && signal.value.load(Ordering::Relaxed) > 0
    });
    if waits
        && state.relays()
        && let Some((of, seen)) = find(state, original)
    {
        relay(state, of, &seen);
    }
}

/// Relays everything of `track` that has completed; the worker may be busy elsewhere.
pub fn everything_of(state: &State, track: &Track) {
    for seen in track.open().filter(|seen| seen.entry.original != 0) {
        relay(state, Of::Queue, &seen);
    }
}

/// What the application waits for.
#[derive(Clone, Copy)]
pub struct Wait {
    /// Its signal.
    pub signal: u64,
    /// `hsa_signal_condition_t`.
    pub condition: u32,
    /// What the value is compared with.
    pub compare: i64,
    /// ns; all ones: no end.
    pub timeout: u64,
    /// One of [`wait_state`].
    pub state: u32,
}

/// A wait that is going on.
struct Waiter {
    wait: Wait,
    original: &'static AmdSignal,
    state: &'static State,
    began_ns: u64,
}

/// What a look at an entry came to.
enum Step {
    /// The application's condition holds, or its time is over.
    Over,
    /// The entry has been relayed, or something has happened elsewhere.
    Again,
}

impl Wait {
    /// Waits, relaying what is waited for. How long is left of the timeout; the runtime's own wait
    /// follows, and has the last word.
    pub fn relay_meanwhile(self, state: &'static State) -> u64 {
        let Some(original) = view::signal(self.signal).filter(|_| state.relays()) else {
            return self.timeout;
        };
        if original.kind.load(Ordering::Relaxed) != signal_kind::USER {
            return self.timeout;
        }
        let waiter = Waiter { wait: self, original, state, began_ns: sys::now_ns() };
        loop {
            let pushed = state.chained_ever();
            match find(state, self.signal) {
                _ if waiter.is_over() => return waiter.left_ns(),
                Some((of, seen)) => match waiter.look_after(of, &seen) {
                    Step::Over => return waiter.left_ns(),
                    Step::Again => {}
                },
                None if self.state == wait_state::ACTIVE => {
                    // It may be put on a packet meanwhile.
                    while !waiter.is_over() && state.chained_ever() == pushed && state.relays() {
                        sys::relax(16);
                    }
                    if !state.relays() {
                        return waiter.left_ns();
                    }
                }
                None => {
                    // It may be put on a packet while this thread sleeps: the worker's then.
                    state.needed.mark(self.signal);
                    if find(state, self.signal).is_none() {
                        return waiter.left_ns();
                    }
                }
            }
        }
    }
}

impl Waiter {
    fn elapsed_ns(&self) -> u64 {
        sys::now_ns().saturating_sub(self.began_ns)
    }

    fn left_ns(&self) -> u64 {
        match self.wait.timeout {
            u64::MAX => u64::MAX,
            timeout => timeout.saturating_sub(self.elapsed_ns()),
        }
    }

    fn is_over(&self) -> bool {
        let value = self.original.value.load(Ordering::Acquire);
        abi::is_satisfied(self.wait.condition, value, self.wait.compare) || self.left_ns() == 0
    }

    /// Waits for one entry and relays it. Others of the same signal are the worker's meanwhile.
    fn look_after(&self, of: Of, seen: &Seen) -> Step {
        let now = sys::now_ns();
        let watching =
            self.state.watched.watch(seen.entry.signal, now, now + SPINNING_NS + GRACE_NS);
        let rings = view::signal(seen.entry.signal)
            .is_some_and(|signal| signal.event_mailbox.load(Ordering::Relaxed) != 0);
        let mut said_ns = now;
        // From here on the signal of a watched entry is not used again, so it can be slept on.
        loop {
            if relay(self.state, of, seen) || !seen.is_open() || !self.state.relays() {
                return Step::Again;
            }
            if self.is_over() {
                return Step::Over;
            }
            let elapsed = self.elapsed_ns();
            if self.wait.state == wait_state::ACTIVE || (!rings && elapsed < SPIN_NS) {
                let now = self.began_ns + elapsed;
                if now.saturating_sub(said_ns) > SPINNING_NS {
                    said_ns = now;
                    if let Some(watching) = &watching {
                        watching.until(now + SPINNING_NS + GRACE_NS);
                    }
                }
                sys::relax(16);
                continue;
            }
            let sleep = elapsed.clamp(SLEEP_NS.0, SLEEP_NS.1).min(self.left_ns());
            match &watching {
                Some(watching) if rings => {
                    let until = self.began_ns + elapsed + sleep + GRACE_NS;
                    if watching.until(until) && seen.is_open() {
                        RUNTIME.wait_until_done(seen.entry.signal, sleep);
                    }
                }
                _ => sys::sleep_ns((elapsed / 32).clamp(NAP_NS.0, NAP_NS.1).min(sleep)),
            }
        }
    }
}
