//! The one thread: waits for completions, keeps the pool filled, begins and ends recording.
//!
//! How it waits decides what we cost. While the application may be waiting for a signal that we
//! relay, it looks again after a small part of the time that has passed since something last
//! happened ([`Pace::prompt`]): a completion is late by a few per cent of what it took at most, and
//! a long kernel costs few looks. Work that nobody waits for is looked at every 200 µs to 2 ms. With
//! nothing in flight the thread sleeps, and asks a few times a second whether somebody records. When
//! nobody does or will, it sleeps until it is called.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering, fence};

use tracer_common::waited::Waited;

use crate::harvest::{Round, Work};
use crate::hip;
use crate::hooks::{self, contained};
use crate::lifecycle::{self, Patience};
use crate::phase::Phase;
use crate::queue::life;
use crate::runtime::RUNTIME;
use crate::sink::Wish;
use crate::state::{STATE, sleep};
use crate::sys;
use crate::track::Look;

/// How often the sink is asked whether to record.
const ASK_EVERY_NS: u64 = 50_000_000;
/// How long a recording that has ended waits for the next of its operations to complete.
const PATIENCE_NS: u64 = 300_000_000;
/// Until somebody calls.
const FOR_EVER_NS: u64 = u64::MAX;
/// Least time between two looks at everything.
const FULL_LOOK_EVERY_NS: u64 = 2_000_000;
/// Signals made in one round.
const TOP_UP: usize = 128;
/// How long we look again and again after something happened, before we sleep in between.
const YIELD_NS: u64 = 50_000;
/// Where something was waited for, something will be again: so long we keep looking by ourselves,
/// so that whoever enqueues it need not wake us. Waking costs the enqueueing thread 5 to 30 µs.
const LINGER_NS: u64 = 5_000_000;

static BROKEN: AtomicBool = AtomicBool::new(false);

/// Starts the thread.
pub fn start() -> bool {
    sys::spawn(tracer_common::shim::THREAD_NAME, run)
}

/// Never begin to record again.
pub fn give_up() {
    BROKEN.store(true, Ordering::Release);
}

/// Whether [`give_up`] was called.
pub fn gave_up() -> bool {
    BROKEN.load(Ordering::Acquire)
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    sys::precise_timers();
    let mut pace = Pace::new(sys::cpus());
    loop {
        let pause = contained(|| one_round(&mut pace)).unwrap_or(Pause::Slow(1_000_000));
        match pause {
            Pause::Yield => sys::yield_now(),
            Pause::Nap(ns) => sys::sleep_ns(ns),
            Pause::Slow(ns) => doze(sleep::SLOW, ns, &pace),
            Pause::Idle(ns) => doze(sleep::IDLE, ns, &pace),
        }
    }
}

/// What to do until the next round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pause {
    /// Look again at once, unless somebody else has use for the CPU.
    Yield,
    Nap(u64),
    /// Whoever enqueues something that it will wait for wakes us.
    Slow(u64),
    /// Whoever enqueues anything wakes us.
    Idle(u64),
}

struct Pace {
    may_yield: bool,
    last_progress_ns: u64,
    last_chained_ns: u64,
    /// How long a recording that has ended has waited for the next of its operations.
    draining: Waited,
    next_ask_ns: u64,
    next_full_ns: u64,
    /// What had been enqueued before the last look: everything, and what is waited for.
    seen: (u64, u64),
    /// How often the worker had been called before the last look.
    calls: u32,
    /// What the sink last said.
    wish: Wish,
}

impl Pace {
    const fn new(cpus: usize) -> Self {
        Self {
            // On fewer CPUs even yielding takes time from those that we wait for: a program that
            // waits actively keeps one busy, and its GPU's interrupts another.
            may_yield: cpus > 3,
            last_progress_ns: 0,
            last_chained_ns: 0,
            draining: Waited::since(0),
            next_ask_ns: 0,
            next_full_ns: 0,
            seen: (0, 0),
            calls: 0,
            wish: Wish::Later,
        }
    }

    fn pause(&mut self, now: u64, round: Round, more: bool) -> Pause {
        if round.done > 0 {
            self.last_progress_ns = now;
        }
        if round.chained {
            self.last_chained_ns = now;
            return self.prompt(now.saturating_sub(self.last_progress_ns));
        }
        if now.saturating_sub(self.last_chained_ns) < LINGER_NS {
            return Pause::Nap(60_000);
        }
        let idle = now.saturating_sub(self.last_progress_ns);
        if round.pending {
            let longest = if idle < 1_000_000_000 { 2_000_000 } else { 20_000_000 };
            Pause::Slow((idle / 16).clamp(200_000, longest))
        } else if round.held || more {
            Pause::Slow(500_000)
        } else {
            Pause::Idle(self.next_ask_ns.saturating_sub(now).max(1_000_000))
        }
    }

    fn prompt(&self, since_ns: u64) -> Pause {
        match since_ns {
            // Whoever waits looks for itself.
            _ if STATE.helpers.load(Ordering::Relaxed) > 0 => Pause::Nap(100_000),
            // Shorter sleeps do not exist: the shortest take 10 to 30 µs on virtual machines.
            0..YIELD_NS if self.may_yield => Pause::Yield,
            _ => Pause::Nap(
                (since_ns / 32)
                    .clamp(5_000, if since_ns < 100_000_000 { 200_000 } else { 1_000_000 }),
            ),
        }
    }
}

/// Sleeps at `level` for at most `ns`, unless something arrived after the last look.
fn doze(level: u32, ns: u64, pace: &Pace) {
    STATE.sleep.store(level, Ordering::Relaxed);
    // Pairs with the fence in `State::wake_beyond`.
    fence(Ordering::SeqCst);
    let (all, chained) = enqueued();
    let arrived =
        if level == sleep::IDLE { all != pace.seen.0 || held() } else { chained != pace.seen.1 };
    let called = STATE.calls.load(Ordering::Acquire) != pace.calls;
    if !arrived && !called {
        sys::futex_wait(&STATE.sleep, level, ns);
    }
    STATE.sleep.store(sleep::AWAKE, Ordering::Relaxed);
}

/// How much was ever enqueued, and how much of it with a signal of the application.
fn enqueued() -> (u64, u64) {
    let tracks = STATE.registry.objects().map(|q| &q.track);
    tracks
        .chain([&STATE.copies.track])
        .map(|track| track.pushed())
        .fold((0, 0), |sum: (u64, u64), pushed| {
            (sum.0.wrapping_add(pushed.0), sum.1.wrapping_add(pushed.1))
        })
}

fn held() -> bool {
    STATE.registry.objects().any(|q| q.held.load(Ordering::Relaxed))
}

fn one_round(pace: &mut Pace) -> Pause {
    let now = sys::now_ns();
    let calls = STATE.calls.load(Ordering::Acquire);
    if calls != pace.calls {
        pace.calls = calls;
        pace.next_ask_ns = 0;
        if let Some(sink) = STATE.sink.get() {
            sink.called();
        }
    }
    if let Some(more) = hip::round(now) {
        pace.seen = enqueued();
        return if more { Pause::Slow(1_000_000) } else { Pause::Idle(ASK_EVERY_NS) };
    }
    if !STATE.phase.get().relays() {
        return without_runtime(pace, now);
    }
    let before = pace.seen;
    pace.seen = enqueued();
    if pace.seen != before {
        pace.last_progress_ns = now;
    }
    if pace.seen.1 != before.1 {
        pace.last_chained_ns = now;
    }
    let Some(mut work) = STATE.work.try_lock() else { return Pause::Nap(50_000) };
    // Again: whoever closes the runtime does so under this lock.
    if !STATE.phase.get().relays() {
        drop(work);
        return without_runtime(pace, now);
    }
    let look = if now >= pace.next_full_ns { Look::Full } else { Look::Near };
    let round = work.round(&STATE, look);
    if look == Look::Full {
        let cost = sys::now_ns().saturating_sub(now);
        pace.next_full_ns = now + FULL_LOOK_EVERY_NS.max(cost * 32);
    }
    if now >= pace.next_ask_ns {
        pace.next_ask_ns = now + ASK_EVERY_NS;
        pace.wish = ask(now, &mut work);
    }
    lifecycle::finish_draining();
    if STATE.active() && STATE.ready.load(Ordering::Acquire) {
        if round.held {
            retry();
        }
        if pace.seen.0 > 0 || any_queue() {
            STATE.pool.top_up(TOP_UP, || RUNTIME.create_signal());
        }
    }
    // From here on the runtime may go.
    drop(work);
    if round.done > 0 || !STATE.phase.get().is_ending() {
        pace.draining = Waited::since(now);
    }
    let patience = match pace.draining.look(now) {
        0..PATIENCE_NS => Patience::Waiting,
        _ => Patience::Ended,
    };
    if pace.wish == Wish::Nothing && lifecycle::let_go(patience) {
        return Pause::Idle(FOR_EVER_NS);
    }
    let more = STATE.sink.get().is_some_and(|sink| sink.housekeeping(now));
    let pause = pace.pause(now, round, more);
    match pause {
        // Draining ends here, not by anybody's waking.
        Pause::Idle(_) if STATE.phase.get().is_ending() => Pause::Slow(1_000_000),
        _ => pause,
    }
}

/// The runtime is gone, or has not been there: only the sink is left to ask.
fn without_runtime(pace: &mut Pace, now: u64) -> Pause {
    pace.wish = wish(now);
    if pace.wish == Wish::Nothing && lifecycle::let_go(Patience::Ended) {
        Pause::Idle(FOR_EVER_NS)
    } else {
        Pause::Idle(ASK_EVERY_NS)
    }
}

fn wish(now: u64) -> Wish {
    STATE.sink.get().map_or(Wish::Nothing, |sink| sink.wanted(now))
}

fn any_queue() -> bool {
    STATE.registry.objects().any(|q| q.life.load(Ordering::Relaxed) == life::LIVE)
}

fn ask(now: u64, work: &mut Work) -> Wish {
    let broken = gave_up();
    if broken {
        lifecycle::release_after_failure();
    }
    let wish = if broken { Wish::Nothing } else { wish(now) };
    match (STATE.phase.get(), wish == Wish::Record) {
        (Phase::Dormant | Phase::Settling, true) => {
            lifecycle::activate(&mut || {
                work.round(&STATE, Look::Near);
            });
        }
        (Phase::Active, false) => {
            lifecycle::deactivate();
        }
        _ => {}
    }
    wish
}

/// Looks again at queues whose doorbell is held back.
fn retry() {
    for queue in STATE.registry.objects() {
        if queue.held.load(Ordering::Relaxed)
            && let Some(context) = STATE.context()
        {
            hooks::after(queue.retry(&context), context.sink);
        }
    }
}
