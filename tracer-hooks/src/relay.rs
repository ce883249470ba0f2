//! Relaying: we do to the application's signal what the packet processor would have done.
//!
//! Why relay at all, instead of leaving the application's own signal on the packet and reading its
//! times? Because the application may use its signal again the moment that it completes, and may
//! put one signal on many packets: by the time that anybody looks, the times are another packet's.
//! Only a signal that nobody else knows keeps them. The price is that the application's signal is
//! decremented after ours.
//!
//! **The waiting thread relays.** A thread that waits for a signal of the application's through the tables waits for
//! ours in its place, in the same way: it spins where the runtime would spin, and where the runtime would sleep, it
//! sleeps in the runtime's own wait, until the GPU's interrupt. Then it claims the entry and relays it. No other thread
//! has to be woken for that, or to look. It holds no lock: if it is stopped or lost between claim and decrement, that
//! one entry is not relayed.
//!
//! The worker relays the entries that no thread waits for in this way.

use core::sync::atomic::Ordering;

use crate::abi::{self, AmdSignal, Times, signal_kind, wait_state};
use crate::marks::Watching;
use crate::runtime::RUNTIME;
use crate::state::State;
use crate::track::{ReadEntry, Track};
use crate::{sys, view};

/// Time that a wait that may sleep spins first. As the runtime: "a few times bigger than null kernel latency".
const SPIN_NS: u64 = 200_000;
/// Shortest and longest sleep on one of our signals before the thread looks around. Between these it sleeps
/// as long as it has waited already.
const SLEEP_NS: (u64, u64) = (10_000_000, 100_000_000);
/// Shortest and longest sleep between looks at a signal that raises no interrupt. The runtime always takes
/// the shortest.
const NAP_NS: (u64, u64) = (20_000, 500_000);
/// A thread counts as watching a signal for this much longer than it has announced to wait.
const GRACE_NS: u64 = 50_000_000;
/// Time that a thread waits for the application's signal itself before it looks around.
const SLICE_NS: u64 = 1_000_000_000;
/// Once a thread has waited this long, it relays on each look every completed entry that has an application's signal,
/// in place of a worker that may have been stopped.
const STAND_IN_NS: u64 = 5_000_000;
/// Time that a thread spins before it looks around, and announces anew that it watches the signal.
const SPINNING_NS: u64 = 5_000_000;

/// The kind of the entries of a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrackKind {
    /// Packets of a queue.
    Queue,
    /// Asynchronous copies.
    Copies,
}

/// The signal of ours that `seen` carries, if the GPU is done with it.
pub fn completed(seen: &ReadEntry) -> Option<&'static AmdSignal> {
    // Acquire: the times were written before the decrement.
    view::signal(seen.entry.signal).filter(|signal| signal.value.load(Ordering::Acquire) <= 0)
}

/// Relays an entry that has completed, unless another thread does or did. Returns whether this call has.
pub fn relay(state: &State, kind: TrackKind, seen: &ReadEntry) -> bool {
    let Some(signal) = completed(seen) else { return false };
    let original = seen.entry.original;
    // Our signal is read before the claim: once the entry is claimed, the worker may use the signal again.
    match kind {
        TrackKind::Queue => {
            let start = signal.start_ts.load(Ordering::Relaxed);
            let end = signal.end_ts.load(Ordering::Relaxed);
            if !seen.claim() {
                return false;
            }
            decrement(original, (start, end));
        }
        TrackKind::Copies => {
            let now = sys::now_ns();
            let until = now + SPINNING_NS + GRACE_NS;
            // So the worker does not use it again meanwhile: the runtime would complain on standard error of a
            // signal without times.
            let Some(_watching) = state.watched.watch(seen.entry.signal, now, until) else {
                return false;
            };
            if !seen.is_open() {
                return false;
            }
            let copy_times = || RUNTIME.copy_times(seen.entry.signal);
            let times: Option<Times> = sys::uninterrupted(copy_times);
            if !seen.claim() {
                return false;
            }
            if let Some(times) = times {
                // Before the decrement: a thread that waits for the signal may ask for the times at once.
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
        // The program has destroyed it while its packet was in flight, which only a broken one does.
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
fn tracks(state: &'static State) -> impl Iterator<Item = (TrackKind, &'static Track)> {
    let queues = state.registry.objects().map(|queue| (TrackKind::Queue, &queue.track));
    queues.chain([(TrackKind::Copies, &state.copies.track)])
}

/// An entry of `original` that nobody has relayed.
fn find(state: &'static State, original: u64) -> Option<(TrackKind, ReadEntry)> {
    tracks(state).find_map(|(kind, track)| Some((kind, track.find(original)?)))
}

/// Something that cannot relay, as the GPU, is going to wait for `signals`: marks those that are in flight,
/// and calls the worker if any are.
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

/// Relays an entry of `original` that has completed, since the calling thread is about to read that signal.
/// Returns whether it has.
pub fn before_load(state: &'static State, original: u64) -> bool {
    let waits = view::signal(original).is_some_and(|signal| {
        signal.kind.load(Ordering::Relaxed) == signal_kind::USER
            && signal.value.load(Ordering::Relaxed) > 0
    });
    waits
        && state.relays()
        && find(state, original).is_some_and(|(kind, seen)| relay(state, kind, &seen))
}

/// Relays everything of `track` that has completed, since the worker may be busy elsewhere, or stopped.
pub fn everything_of(state: &State, kind: TrackKind, track: &Track) {
    if track.chained() {
        for seen in track.open().filter(|seen| seen.entry.original != 0) {
            relay(state, kind, &seen);
        }
    }
}

/// As [`everything_of`], for all tracks: the signal that a thread waits for may depend on any of them.
pub fn everything(state: &'static State) {
    tracks(state).for_each(|(kind, track)| everything_of(state, kind, track));
}

/// A wait of the application.
#[derive(Clone, Copy)]
pub struct Wait {
    /// Its signal.
    pub signal: u64,
    /// `hsa_signal_condition_t`.
    pub condition: u32,
    /// The number that the value is compared with.
    pub compare: i64,
    /// ns; all ones: no end.
    pub timeout: u64,
    /// One of [`wait_state`].
    pub state: u32,
}

/// A wait that is going on.
pub struct Waiter {
    wait: Wait,
    original: &'static AmdSignal,
    state: &'static State,
    began_ns: u64,
    awaited: Option<AwaitedEntry>,
    found: bool,
}

/// The entry whose completion a waiter waits for.
struct AwaitedEntry {
    kind: TrackKind,
    seen: ReadEntry,
    /// While the thread has this, and until the time that it has announced, the worker does not use the signal again: so
    /// the thread may sleep on it. None if too many threads watch: the thread then naps.
    watching: Option<Watching<'static>>,
    /// When the thread last announced that it watches the signal.
    said_ns: u64,
}

/// The way in which a wait goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// By the runtime's own wait for the application's signal, for this long at most. If the condition does not hold
    /// then, the caller asks for the next step.
    Itself(u64),
    /// The wait is over: the caller returns the result of the runtime's own wait, with this much of the timeout left.
    Over(u64),
    /// By the runtime's wait for this signal of ours, for this long at most; [`Waiter::woke`] follows.
    Sleep(u64, u64),
    /// By doing nothing for this long.
    Nap(u64),
}

impl Wait {
    /// Begins to wait; `None` if there is nothing for us to do.
    pub fn begin(self, state: &'static State) -> Option<Waiter> {
        let original = view::signal(self.signal).filter(|signal| {
            signal.kind.load(Ordering::Relaxed) == signal_kind::USER && state.relays()
        })?;
        let began_ns = sys::now_ns();
        Some(Waiter { wait: self, original, state, began_ns, awaited: None, found: false })
    }
}

impl Waiter {
    /// Relays what the thread waits for, and spins where it need not sleep. The caller takes the step that
    /// this returns, and calls it again until the step is [`Step::Over`].
    ///
    /// The caller sleeps, not this function: a thread that is cancelled in its sleep, or jumps out of it,
    /// leaves through frames of the caller's only.
    pub fn step(&mut self) -> Step {
        loop {
            if self.is_over() || !self.state.relays() {
                self.awaited = None;
                return Step::Over(self.left_ns());
            }
            if self.elapsed_ns() > STAND_IN_NS {
                everything(self.state);
            }
            let pushed = self.state.chained_ever();
            if self.awaited.is_none() {
                self.awaited = self.find();
            }
            if let Some(awaited) = &self.awaited {
                relay(self.state, awaited.kind, &awaited.seen);
            }
            match &mut self.awaited {
                Some(awaited) if !awaited.seen.is_open() => self.awaited = None,
                Some(_) => {
                    if let Some(step) = self.until_it_is_done() {
                        return step;
                    }
                }
                // No entry has this signal. Spins until a thread adds an entry with an application's signal, which may
                // be this one, for a limited time.
                None if self.wait.state == wait_state::ACTIVE => {
                    let until = self.elapsed_ns().saturating_add(SPINNING_NS);
                    self.spin_while(|waiter| {
                        waiter.state.chained_ever() == pushed && waiter.elapsed_ns() < until
                    });
                }
                // A packet may get the signal while this thread sleeps. The worker relays it then.
                None => {
                    self.state.needed.mark(self.wait.signal);
                    self.awaited = self.find();
                    if self.awaited.is_none() {
                        return Step::Itself(self.left_ns().min(SLICE_NS));
                    }
                }
            }
        }
    }

    /// To be called after each [`Step::Sleep`]: the caller no longer counts as one that sleeps.
    pub fn woke(&self) {
        self.state.pool.bells.sleep_ends();
    }

    /// Whether it has found the signal in flight, whichever thread has relayed it since.
    pub fn has_found(&self) -> bool {
        self.found
    }

    fn find(&mut self) -> Option<AwaitedEntry> {
        let (kind, seen) = find(self.state, self.wait.signal)?;
        self.found = true;
        let now = sys::now_ns();
        let until = now + SPINNING_NS + GRACE_NS;
        let watching = self.state.watched.watch(seen.entry.signal, now, until);
        Some(AwaitedEntry { kind, seen, watching, said_ns: now })
    }

    fn elapsed_ns(&self) -> u64 {
        sys::now_ns().saturating_sub(self.began_ns)
    }

    fn left_ns(&self) -> u64 {
        match self.wait.timeout {
            u64::MAX => u64::MAX,
            timeout => timeout.saturating_sub(self.elapsed_ns()),
        }
    }

    /// The application's condition holds, or its time is over.
    fn is_over(&self) -> bool {
        let value = self.original.value.load(Ordering::Acquire);
        abi::is_satisfied(self.wait.condition, value, self.wait.compare) || self.left_ns() == 0
    }

    fn spin_while(&self, goes_on: impl Fn(&Self) -> bool) {
        while !self.is_over() && self.state.relays() && goes_on(self) {
            sys::relax(16);
        }
    }

    /// Waits for the entry that is awaited; the worker relays others of the same signal meanwhile. Spins, and
    /// returns `None` when the caller is to look around again; or returns how the caller is to sleep.
    fn until_it_is_done(&mut self) -> Option<Step> {
        let elapsed = self.elapsed_ns();
        let now = self.began_ns + elapsed;
        let AwaitedEntry { seen, watching, said_ns, .. } = self.awaited.as_mut()?;
        let interrupts = view::signal(seen.entry.signal)
            .is_some_and(|signal| signal.event_mailbox.load(Ordering::Relaxed) != 0);
        if self.wait.state == wait_state::ACTIVE || (!interrupts && elapsed < SPIN_NS) {
            if now.saturating_sub(*said_ns) > SPINNING_NS {
                *said_ns = now;
                if let Some(watching) = watching {
                    watching.until(now + SPINNING_NS + GRACE_NS);
                }
            }
            let (seen, active) = (*seen, self.wait.state == wait_state::ACTIVE);
            self.spin_while(|waiter| {
                let more = if active { SPINNING_NS } else { SPIN_NS };
                completed(&seen).is_none()
                    && seen.is_open()
                    && waiter.elapsed_ns() < elapsed.saturating_add(more)
            });
            return None;
        }
        let sleep = elapsed.clamp(SLEEP_NS.0, SLEEP_NS.1);
        let bells = &self.state.pool.bells;
        if interrupts {
            bells.sleep_begins();
        }
        let slept_on = interrupts
            && watching.as_ref().is_some_and(|watching| watching.until(now + sleep + GRACE_NS))
            && seen.is_open();
        if interrupts && !slept_on {
            bells.sleep_ends();
        }
        let signal = seen.entry.signal;
        let left = self.left_ns();
        Some(match slept_on {
            true => Step::Sleep(signal, sleep.min(left)),
            false => Step::Nap((elapsed / 32).clamp(NAP_NS.0, NAP_NS.1).min(left)),
        })
    }
}
