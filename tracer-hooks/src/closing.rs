//! The runtime goes: what has to be done before, and what is put away afterwards.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tracer_common::shim::state;

use crate::abi::Status;
use crate::contained::contained;
use crate::harvest::{WORK, Work};
use crate::lock::{Guard, Lock};
use crate::phase::{Event, Phase};
use crate::queue::{Queue, Stage};
use crate::recording::{SWITCH, SWITCH_WAIT_NS, flush, release_queues};
use crate::runtime::{Hold, RUNTIME};
use crate::state::STATE;
use crate::track::Look;
use crate::{agents, sys};

/// Longest that a closing runtime waits for the worker, and then for what is in flight.
pub const CLOSE_WAIT_NS: u64 = 500_000_000;
/// Longest that the exit of the process is delayed.
pub const EXIT_WAIT_NS: u64 = 100_000_000;

/// A use of the runtime that we began because nobody could tell whether it goes.
static KEPT: Lock<Option<Hold>> = Lock::new(None);

/// The process exits.
static EXITS: AtomicBool = AtomicBool::new(false);

/// The process exits, and what shuts the runtime down from now on is the last that does.
pub fn exits() {
    EXITS.store(true, Ordering::Relaxed);
}

/// Threads that are about to shut the runtime down, or do.
static LEAVING: AtomicU32 = AtomicU32::new(0);

/// The worker is in the runtime without the lock of the work.
static WITHOUT_LOCK: AtomicBool = AtomicBool::new(false);

/// Has the worker call the runtime although somebody else has the lock of the work; not while the runtime
/// may be going.
pub fn without_lock(call: impl FnOnce()) {
    // Pairs with `Leaving`: one of both sees the other.
    WITHOUT_LOCK.store(true, Ordering::SeqCst);
    if LEAVING.load(Ordering::SeqCst) == 0 && STATE.phase.get().relays() {
        call();
    }
    // Pairs with the load in `Leaving::lock`: the runtime was left before.
    WITHOUT_LOCK.store(false, Ordering::SeqCst);
}

/// A thread that is about to shut the runtime down.
struct Leaving;

impl Leaving {
    fn begin() -> Self {
        // Pairs with the load in `without_lock`: one of both sees the other.
        LEAVING.fetch_add(1, Ordering::SeqCst);
        Self
    }

    /// The lock of the work, if none of our threads is in the runtime then.
    fn lock(&self) -> Option<Guard<'static, Work>> {
        let work = WORK.lock_for(CLOSE_WAIT_NS)?;
        let deadline = sys::awake_ns() + CLOSE_WAIT_NS;
        // Pairs with the stores in `without_lock`.
        while WITHOUT_LOCK.load(Ordering::SeqCst) {
            if sys::awake_ns() > deadline {
                return None;
            }
            sys::sleep_ns(50_000);
        }
        Some(work)
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        // Pairs with the load in `without_lock`: the runtime was shut down before.
        LEAVING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Calls `shut_down`, by which the runtime has one user less: the application, or us.
///
/// The runtime counts its users and goes with the last; the count is its own. So what is done before is
/// right whether it goes or not: none of our threads is inside of it or of its memory (they are under the
/// lock of the work that is held meanwhile), and what is in flight stays as it is. Nobody waits for it:
/// a library that pairs `hsa_init` with `hsa_shut_down` may do so while a kernel runs for hours. What has
/// become of the runtime is seen afterwards. If the lock cannot be had, the runtime is kept.
///
/// Where the runtime's tools interface knows us, it tells when it goes: see [`close`]. From ROCm 7 on it
/// destroys no signals then, and complains of those that are left: idle ones are given back before.
pub fn one_user_less(shut_down: impl FnOnce() -> Status) -> Status {
    if !STATE.phase.get().relays() {
        return shut_down();
    }
    if !STATE.late.load(Ordering::Relaxed) {
        sys::uninterrupted(|| {
            contained(|| {
                if let Some(mut work) = WORK.lock_for(CLOSE_WAIT_NS) {
                    make_ready(&mut work);
                }
            })
        });
        return shut_down();
    }
    let leaving = Leaving::begin();
    // A thread that is cancelled in the runtime would take the lock with it.
    let uncancelled = sys::Uncancelled::begin();
    let mut work = None;
    contained(|| {
        work = leaving.lock();
        match &mut work {
            Some(work) => make_ready(work),
            None => keep(),
        }
    });
    let status = shut_down();
    contained(|| {
        if let Some(work) = &mut work
            && RUNTIME.is_gone()
        {
            gone(work);
        }
    });
    drop(work);
    drop(leaving);
    uncancelled.end();
    status
}

/// The runtime may be about to go.
fn make_ready(work: &mut Guard<'_, Work>) {
    let Some(&sink) = STATE.sink.get() else { return };
    if sink.can_complete(sys::now_ns()) {
        work.round(&STATE, Look::Full);
    }
    let exits = EXITS.load(Ordering::Relaxed);
    let is_done = |queue: &Queue| queue.is(Stage::Free) || exits && queue.track.pending() == 0;
    if STATE.registry.objects().all(is_done) {
        // It probably does: the application has no queue left, or the process exits, where HIP 6 leaves
        // those of streams. Debian's runtimes complain of each signal that is not destroyed.
        STATE.registry.objects().for_each(|queue| queue.release(&STATE.pool));
        STATE.copies.give_back(&STATE.pool);
        STATE.pool.destroy_idle(|signal| RUNTIME.destroy_signal(signal));
    }
    if let Some(kept) = KEPT.try_lock().and_then(|mut kept| kept.take()) {
        kept.end();
    }
}

/// Has the runtime stay, since somebody of ours may be inside of it.
fn keep() {
    if let Some(mut kept) = KEPT.lock_for(SWITCH_WAIT_NS)
        && kept.is_none()
    {
        *kept = RUNTIME.hold();
    }
}

/// The runtime is gone, with all that was in flight.
fn gone(work: &mut Guard<'_, Work>) {
    if !closes() {
        return;
    }
    STATE.is_not_ready();
    forget(work);
    agents::forget_homes();
    closed();
}

/// Notes that the runtime goes; a process that ends stays in that phase. Whether there is anything to forget.
fn closes() -> bool {
    matches!(STATE.phase.apply(Event::Close), Ok(_) | Err(Phase::Ended))
}

/// Forgets everything of a runtime that is gone or goes, and touches nothing of it.
pub fn forget(work: &mut Guard<'_, Work>) {
    work.forget(&STATE);
    STATE.copies.give_back(&STATE.pool);
    STATE.pool.forget();
}

/// Tells whoever reads that nothing more comes of a runtime.
fn closed() {
    flush(sys::now_ns() + EXIT_WAIT_NS);
    if let Some(sink) = STATE.sink.get() {
        sink.state(state::DORMANT);
    }
}

/// The runtime goes, as it says itself: nothing of it may be used or kept afterwards. What is in flight
/// is given the time to complete.
pub fn close() {
    if !STATE.phase.get().relays() {
        return;
    }
    let leaving = Leaving::begin();
    {
        // Not longer: the worker may wait for it with the lock that is taken next.
        let _switching = SWITCH.lock_for(SWITCH_WAIT_NS);
        let _ = STATE.phase.apply(Event::End);
        release_queues();
    }
    let locked = leaving.lock();
    if !closes() {
        return;
    }
    STATE.is_not_ready();
    // Without the lock, what is left is put away before another runtime is hooked.
    let Some(mut work) = locked else { return };
    let mut deadline = sys::now_ns() + CLOSE_WAIT_NS;
    loop {
        let round = work.round(&STATE, Look::Full);
        let now = sys::now_ns();
        if !round.pending || now > deadline {
            break;
        }
        if round.done > 0 {
            deadline = now + CLOSE_WAIT_NS;
        }
        sys::sleep_ns(50_000);
    }
    work.forget(&STATE);
    STATE.copies.give_back(&STATE.pool);
    STATE.pool.destroy_idle(|signal| RUNTIME.destroy_signal(signal));
    STATE.pool.forget();
    agents::forget_homes();
    closed();
}
