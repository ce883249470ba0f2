//! The one thread: collects completions, keeps the pool filled, begins and ends recording.
//!
//! The way that it waits decides what we cost. A thread that waits for a completion relays it itself
//! ([`crate::relay`]), so completions are collected in batches, and nobody is late for it: a look every 200 µs to 5 ms,
//! by how many there are. A completion that something needs that cannot look (the GPU, a handler of the runtime's) is
//! relayed by the worker: it looks when the kernel is due, by what the kernels before it usually take, and then after
//! growing parts of the time by which it is overdue. With nothing in flight the worker sleeps, and asks the sink a few
//! times a second whether somebody records. When nobody does or will, it sleeps until it is called.

use core::cell::Cell;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{Ordering, fence};

use tracer_common::waited::Waited;

use crate::closing;
use crate::contained::contained;
use crate::harvest::{self, Round, WORK, Work};
use crate::phase::Phase;
use crate::queue::Stage;
use crate::recording::{self, Patience};
use crate::relay;
use crate::runtime::RUNTIME;
use crate::sink::Demand;
use crate::state::{STATE, sleep};
use crate::sys;
use crate::track::HarvestExtent;

/// The time between two questions to the sink whether to record.
const ASK_EVERY_NS: u64 = 50_000_000;
/// The time that a recording that has ended waits for the next of its operations to complete.
const PATIENCE_NS: u64 = 300_000_000;
/// Until somebody calls.
const FOR_EVER_NS: u64 = u64::MAX;
/// The worker looks at everything that is in flight at most once in this time.
const FULL_LOOK_EVERY_NS: u64 = 2_000_000;
/// And at least once in this time, however long its last look took: some completions are found by no other look.
const FULL_LOOK_AT_LEAST_NS: u64 = 500_000_000;
/// The time that the worker waits for another thread that collects completions.
const COLLECTED_WITHIN_NS: u64 = 1_000_000;
/// Signals made in one round.
const TOP_UP: usize = 128;
/// Least and most time between two looks at what is in flight.
const LOOK_EVERY_NS: (u64, u64) = (200_000, 5_000_000);
/// Completions that make a look worth while.
const BATCH: u64 = 64;
/// Shortest and longest time between looks at something that is overdue: its part by which it is.
const OVERDUE_NS: (u64, u64) = (15_000, 2_000_000);
const OVERDUE_SHARE: u64 = 8;
/// Where something was in flight, something will be again: for this time we keep looking by ourselves, so that the
/// thread that enqueues it need not wake us. Waking costs the enqueueing thread 5 to 30 µs.
const LINGER_NS: u64 = 50_000_000;
/// The time, after the worker has relayed something, for which it relays everything promptly.
const PROMPT_NS: u64 = 100_000_000;
/// The part of what completed that the worker has to relay for that, in 256ths.
const PROMPT_SHARE: usize = 64;

/// Starts the thread.
pub fn start(name: &'static CStr) -> bool {
    sys::spawn(name, run)
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is the worker. Packets that the worker finds were enqueued by other threads.
pub fn is_worker() -> bool {
    IS_WORKER.get()
}

extern "C" fn run(name: *mut c_void) -> *mut c_void {
    IS_WORKER.set(true);
    sys::look_for_tid();
    sys::look_for_cancellation();
    sys::name_thread(name);
    sys::own_thread();
    let mut pace = Pace::new();
    loop {
        let pause = contained(|| one_round(&mut pace)).unwrap_or(Pause::Slow(1_000_000));
        match pause {
            Pause::Slow(ns) => doze(sleep::SLOW, ns, &pace),
            Pause::Idle(ns) => doze(sleep::IDLE, ns, &pace),
        }
    }
}

/// How to wait for the next round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pause {
    /// A thread that enqueues something that the worker is to relay wakes it.
    Slow(u64),
    /// A thread that enqueues anything wakes it.
    Idle(u64),
}

struct Pace {
    last_progress_ns: u64,
    last_look_ns: u64,
    /// The mean time from one completion to the next.
    each_ns: u64,
    last_relayed_ns: u64,
    /// Of what completed lately with a signal of the application, what this thread relayed, in 256ths.
    relayed_share: usize,
    /// The time for which a recording that has ended has waited for the next of its operations.
    draining: Waited,
    next_ask_ns: u64,
    next_full_ns: u64,
    /// The count of operations enqueued before the last look.
    seen: u64,
    /// [`crate::state::State::urgent`] before the last look.
    urgent: u32,
    /// The number of calls of the worker before the last look.
    calls: u32,
    /// The sink's last answer.
    demand: Demand,
}

impl Pace {
    const fn new() -> Self {
        Self {
            last_progress_ns: 0,
            last_look_ns: 0,
            each_ns: LOOK_EVERY_NS.0 / BATCH,
            last_relayed_ns: 0,
            relayed_share: 0,
            draining: Waited::since(0),
            next_ask_ns: 0,
            next_full_ns: 0,
            seen: 0,
            urgent: 0,
            calls: 0,
            demand: Demand::Later,
        }
    }

    /// Whether what is in flight of a recording that has ended may still be worth waiting for.
    fn patience(&mut self, now: u64) -> Patience {
        match self.draining.look(now) {
            0..PATIENCE_NS => Patience::Waiting,
            _ => Patience::Ended,
        }
    }

    /// Learns from what a round found. Whether all that is in flight is to be relayed promptly.
    fn learn(&mut self, now: u64, round: Round) -> bool {
        let passed = now.saturating_sub(core::mem::replace(&mut self.last_look_ns, now));
        if round.done > 0 {
            self.last_progress_ns = now;
            self.each_ns = (self.each_ns * 3 + passed / round.done as u64) / 4;
        } else if round.pending {
            self.each_ns = self.each_ns.saturating_add(passed / BATCH);
        }
        if round.relayed > 0 {
            self.last_relayed_ns = now;
        }
        if let Some(share) = (round.relayed * 256).checked_div(round.chained) {
            self.relayed_share = (self.relayed_share * 3 + share) / 4;
        }
        self.relayed_share >= PROMPT_SHARE && now.saturating_sub(self.last_relayed_ns) < PROMPT_NS
    }

    fn pause(&self, now: u64, round: Round, due: Option<(u64, u64)>, more: bool) -> Pause {
        let idle = now.saturating_sub(self.last_progress_ns);
        let (least, most) = LOOK_EVERY_NS;
        let most = if idle < 1_000_000_000 { most } else { 4 * most };
        let batch = self.each_ns.saturating_mul(BATCH).clamp(least, most);
        if let Some((_, due)) = due {
            let until = match due.checked_sub(now) {
                Some(until) if until > 0 => until,
                _ => {
                    let overdue = now.saturating_sub(due) / OVERDUE_SHARE;
                    overdue.clamp(OVERDUE_NS.0, OVERDUE_NS.1)
                }
            };
            Pause::Slow(until.min(batch))
        } else if round.pending {
            Pause::Slow(batch)
        } else if round.held || more {
            Pause::Slow(500_000)
        } else if let Some(ns) = round.resting_ns {
            Pause::Slow(ns)
        } else if idle < LINGER_NS {
            Pause::Slow(most)
        } else {
            Pause::Idle(self.next_ask_ns.saturating_sub(now).max(1_000_000))
        }
    }
}

/// Sleeps at `level` for at most `ns`, unless something arrived after the last look.
fn doze(level: u32, ns: u64, pace: &Pace) {
    STATE.sleep.store(level, Ordering::Relaxed);
    // Pairs with the fence in `State::wake_beyond`.
    fence(Ordering::SeqCst);
    let urgent = STATE.urgent.load(Ordering::Acquire) != pace.urgent;
    let arrived = urgent
        || (level == sleep::IDLE
            && (STATE.enqueued_ever() != pace.seen || (STATE.active() && held())));
    // Acquire pairs with the addition in `State::call_worker`.
    let called = STATE.calls.load(Ordering::Acquire) != pace.calls;
    if !arrived && !called {
        sys::futex_wait(&STATE.sleep, level, ns);
    }
    STATE.sleep.store(sleep::AWAKE, Ordering::Relaxed);
}

fn held() -> bool {
    STATE.registry.objects().any(|q| q.held.load(Ordering::Relaxed))
}

fn one_round(pace: &mut Pace) -> Pause {
    let now = sys::now_ns();
    // Acquire pairs with the addition in `State::call_worker`.
    let calls = STATE.calls.load(Ordering::Acquire);
    if calls != pace.calls {
        pace.calls = calls;
        pace.next_ask_ns = 0;
        if let Some(sink) = STATE.sink.get() {
            sink.called();
        }
    }
    if !STATE.phase.get().may_call_runtime() {
        return without_runtime(pace, now);
    }
    // Acquire pairs with the addition in `State::urge`.
    pace.urgent = STATE.urgent.load(Ordering::Acquire);
    let before = pace.seen;
    pace.seen = STATE.enqueued_ever();
    if pace.seen != before {
        pace.last_progress_ns = now;
    }
    let Some(mut work) = WORK.lock_for(COLLECTED_WITHIN_NS) else {
        return without_lock(pace, now);
    };
    // Asked again: the thread that closes the runtime does so under this lock.
    if !STATE.phase.get().may_call_runtime() {
        drop(work);
        return without_runtime(pace, now);
    }
    let look = if now >= pace.next_full_ns { HarvestExtent::Full } else { HarvestExtent::Near };
    let mut round = work.round(&STATE, look);
    round.chained += STATE.collected.swap(0, Ordering::Relaxed);
    if look == HarvestExtent::Full {
        let cost = sys::now_ns().saturating_sub(now);
        pace.next_full_ns = now + (cost * 128).clamp(FULL_LOOK_EVERY_NS, FULL_LOOK_AT_LEAST_NS);
    }
    STATE.prompt.store(pace.learn(now, round), Ordering::Relaxed);
    let due = work.due(&STATE, now);
    if now >= pace.next_ask_ns {
        pace.next_ask_ns = now + ASK_EVERY_NS;
        pace.demand = ask(now, Some(&mut work));
    }
    if round.done > 0 || !STATE.phase.get().is_ending() {
        pace.draining = Waited::since(now);
    }
    let patience = pace.patience(now);
    // A thread that has just waited uses one of our signals until it runs. The worker waits for that, so that the
    // signal is destroyed with the others, but not for a thread that was lost in its sleep.
    let is_used = work.has_resting() || STATE.pool.bells.has_sleepers();
    if !is_used || patience == Patience::Ended {
        recording::finish_draining();
    }
    if STATE.active() && STATE.is_ready() {
        if round.held {
            retry();
        }
        if pace.seen > STATE.emptied_at.load(Ordering::Relaxed) || any_queue() && !closing::exits()
        {
            STATE.pool.top_up(TOP_UP, || RUNTIME.create_signal());
            STATE.pool.bells.top_up(|| RUNTIME.create_bell());
        }
    }
    // From here on the runtime may go.
    harvest::unlock(work, &STATE);
    let quiet = round.resting_ns.is_none() && !round.pending && !round.held;
    if pace.demand == Demand::Nothing && recording::let_go(patience) && quiet {
        return Pause::Idle(FOR_EVER_NS);
    }
    let more = STATE.sink.get().is_some_and(|sink| sink.housekeeping(now));
    let pause = pace.pause(now, round, due, more);
    match pause {
        // Draining ends here, not by anybody's waking.
        Pause::Idle(_) if STATE.phase.get().is_ending() => Pause::Slow(1_000_000),
        _ => pause,
    }
}

/// Another thread has the lock of the work: a thread that collects has it for microseconds, unless it was stopped or
/// lost meanwhile. Relaying and ringing take no lock; nothing is recorded meanwhile.
fn without_lock(pace: &mut Pace, now: u64) -> Pause {
    closing::without_lock(|| {
        relay::everything(&STATE);
        if STATE.is_ready() && held() {
            retry();
        }
    });
    if now >= pace.next_ask_ns {
        pace.next_ask_ns = now + ASK_EVERY_NS;
        pace.demand = ask(now, None);
    }
    if pace.demand == Demand::Nothing {
        recording::let_go(pace.patience(now));
    }
    Pause::Slow(500_000)
}

/// The runtime is gone, or has not been there: only the sink is left to ask.
fn without_runtime(pace: &mut Pace, now: u64) -> Pause {
    pace.seen = STATE.enqueued_ever();
    // Acquire pairs with the addition in `State::urge`.
    pace.urgent = STATE.urgent.load(Ordering::Acquire);
    pace.demand = demand(now);
    if pace.demand == Demand::Nothing && recording::let_go(Patience::Ended) {
        Pause::Idle(FOR_EVER_NS)
    } else {
        Pause::Idle(ASK_EVERY_NS)
    }
}

fn demand(now: u64) -> Demand {
    STATE.sink.get().map_or(Demand::Nothing, |sink| sink.wanted(now))
}

fn any_queue() -> bool {
    STATE.registry.objects().any(|q| q.is(Stage::Live))
}

/// Asks the sink, and begins or ends to record; it begins only under the lock of the work.
fn ask(now: u64, work: Option<&mut Work>) -> Demand {
    let broken = STATE.gave_up();
    if broken {
        recording::release_after_failure();
    }
    let demand = if broken { Demand::Nothing } else { demand(now) };
    match (STATE.phase.get(), demand == Demand::Record) {
        (Phase::Dormant | Phase::Settling, true) => {
            if let Some(work) = work {
                if STATE.is_ready() {
                    work.clocks.begin_all();
                }
                recording::activate(&mut || {
                    work.round(&STATE, HarvestExtent::Near);
                });
            }
        }
        (Phase::Active, false) => {
            recording::deactivate();
        }
        _ => {}
    }
    demand
}

/// Looks again at queues whose doorbell is held back.
fn retry() {
    for queue in STATE.registry.objects() {
        if queue.held.load(Ordering::Relaxed)
            && let Some(context) = STATE.context()
        {
            STATE.has_rung(queue.retry(&context), context.sink);
        }
    }
}
