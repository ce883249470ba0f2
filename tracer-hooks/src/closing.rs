//! Shutdown of the runtime: keeps our threads out of it meanwhile, and puts away afterwards the objects that we had of
//! it.

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
use crate::track::HarvestExtent;
use crate::{agents, sys};

/// Longest that a closing runtime waits for the worker, and then for operations in flight.
pub const CLOSE_WAIT_NS: u64 = 500_000_000;
/// Longest that the exit of the process is delayed.
pub const EXIT_WAIT_NS: u64 = 100_000_000;

/// Longest that the exit of the process waits for threads that hold the runtime.
const HOLD_WAIT_NS: u64 = 2_000_000_000;

/// A use of the runtime that [`keep`] began: one of our threads could have been inside when it shut down.
static KEPT: Lock<Option<Hold>> = Lock::new(None);

/// The process exits.
static EXITS: AtomicBool = AtomicBool::new(false);

/// The number of threads in [`while_held`].
static HOLDING: AtomicU32 = AtomicU32::new(0);

/// The process exits: a thread that shuts the runtime down from now on is probably the last user. Waits for threads in
/// [`while_held`]: behind this the runtime's own destructors run.
pub fn begin_exit() {
    // Pairs with the addition in `while_held`: one of the two sees the other.
    EXITS.store(true, Ordering::SeqCst);
    let deadline = sys::awake_ns() + HOLD_WAIT_NS;
    while HOLDING.load(Ordering::SeqCst) > 0 && sys::awake_ns() < deadline {
        sys::sleep_ns(50_000);
    }
}

/// A forked child has none of the threads that its parent has in [`while_held`].
pub fn forked() {
    HOLDING.store(0, Ordering::SeqCst);
}

/// The number of threads in [`while_held`].
#[cfg(test)]
pub fn holders() -> u32 {
    HOLDING.load(Ordering::SeqCst)
}

/// Whether the process exits.
pub fn exits() -> bool {
    EXITS.load(Ordering::SeqCst)
}

/// Begins a use of the runtime by `hold`, calls `meanwhile` with it, and ends it. The application may have ended its own
/// last use just before: then `hold` initializes the runtime anew. None if the process exits, which waits for this else.
pub fn while_held<T>(
    hold: impl FnOnce() -> Option<Hold>,
    meanwhile: impl FnOnce(Option<&Hold>) -> T,
) -> Option<T> {
    struct Holding;
    impl Drop for Holding {
        fn drop(&mut self) {
            HOLDING.fetch_sub(1, Ordering::SeqCst);
        }
    }
    // Pairs with the store in `begin_exit`.
    HOLDING.fetch_add(1, Ordering::SeqCst);
    let _holding = Holding;
    if exits() {
        return None;
    }
    let held = hold();
    let result = meanwhile(held.as_ref());
    if let Some(held) = held {
        one_user_less(move || held.end());
    }
    Some(result)
}

/// The number of threads that shut the runtime down now, or are about to.
static LEAVING: AtomicU32 = AtomicU32::new(0);

/// The worker is in the runtime without the lock of the work.
static WITHOUT_LOCK: AtomicBool = AtomicBool::new(false);

/// The worker calls the runtime, by `call`, while another thread has the lock of the work; not while a thread
/// may be shutting the runtime down.
pub fn without_lock(call: impl FnOnce()) {
    // Pairs with `Leaving`: one of the two sees the other.
    WITHOUT_LOCK.store(true, Ordering::SeqCst);
    if LEAVING.load(Ordering::SeqCst) == 0 && STATE.phase.get().may_call_runtime() {
        call();
    }
    // Pairs with the load in `Leaving::lock`: the runtime was left before.
    WITHOUT_LOCK.store(false, Ordering::SeqCst);
}

/// A thread that is about to shut the runtime down.
struct Shutdown;

impl Shutdown {
    fn begin() -> Self {
        // Pairs with the load in `without_lock`: one of the two sees the other.
        LEAVING.fetch_add(1, Ordering::SeqCst);
        Self
    }

    /// Takes the lock of the work and waits until the worker has left the runtime. With the lock held, none
    /// of our threads is in the runtime. `None` if either takes too long.
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

impl Drop for Shutdown {
    fn drop(&mut self) {
        // Pairs with the load in `without_lock`: the runtime was shut down before.
        LEAVING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Calls `shut_down`, by which the application, or we, stop using the runtime.
///
/// The runtime counts its users itself, and shuts down with the last. We cannot tell before whether this one
/// is the last, so what we do before is right in both cases. We hold the lock of the work meanwhile, so none
/// of our threads is inside of the runtime or of its memory. We leave what is in flight as it is, and do not
/// wait for it: a library that pairs `hsa_init` with `hsa_shut_down` may do so while a kernel runs for hours.
/// Afterwards we look whether the runtime is gone. If we cannot get the lock, we keep the runtime open.
///
/// Where the runtime's tools interface has loaded us, the runtime tells us when it shuts down ([`close`]), and
/// we hold no lock meanwhile. From ROCm 7 on it destroys no signals then, and complains of those that are
/// left: we destroy idle ones before.
pub fn one_user_less(shut_down: impl FnOnce() -> Status) -> Status {
    if !STATE.phase.get().may_call_runtime() {
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
    let leaving = Shutdown::begin();
    // A thread that was cancelled in the runtime would never give the lock back.
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

/// Prepares for a shutdown that may be the last: collects what has completed, and destroys our idle signals
/// if it probably is the last. Ends the use that [`keep`] began.
fn make_ready(work: &mut Guard<'_, Work>) {
    let Some(&sink) = STATE.sink.get() else { return };
    if sink.can_complete(sys::now_ns()) {
        work.round(&STATE, HarvestExtent::Full);
    }
    let is_done = |queue: &Queue| queue.is(Stage::Free) || exits() && queue.track.pending() == 0;
    if STATE.registry.objects().all(is_done) {
        // It probably is: the application has no queue left, or the process exits, where HIP 6 leaves the
        // queues of its streams. Debian's runtimes complain of each signal that is not destroyed.
        STATE.registry.objects().for_each(|queue| queue.release(&STATE.pool));
        STATE.copies.give_back(&STATE.pool);
        STATE.pool.destroy_idle(|signal| RUNTIME.destroy_signal(signal));
        // The worker may have its turn before the runtime complains.
        STATE.emptied_at.store(STATE.enqueued_ever(), Ordering::Relaxed);
    }
    if let Some(kept) = KEPT.try_lock().and_then(|mut kept| kept.take()) {
        kept.end();
    }
}

/// Begins a use of the runtime, so that it stays open: one of our threads may be inside of it.
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
    STATE.clear_ready();
    forget(work);
    agents::forget_homes();
    closed();
}

/// Notes that the runtime shuts down; a process that ends stays in its phase. Returns whether there is
/// anything to forget.
fn closes() -> bool {
    matches!(STATE.phase.apply(Event::Close), Ok(_) | Err(Phase::Ended))
}

/// Forgets everything of a runtime that shuts down or has, and touches nothing of it.
pub fn forget(work: &mut Guard<'_, Work>) {
    work.forget(&STATE);
    STATE.copies.give_back(&STATE.pool);
    STATE.pool.forget();
}

/// Has the sink finish what it puts off, and tells it that nothing more comes of this runtime.
fn closed() {
    flush(sys::now_ns() + EXIT_WAIT_NS);
    if let Some(sink) = STATE.sink.get() {
        sink.state(state::DORMANT);
    }
}

/// The runtime tells us, through its tools interface, that it shuts down. Ends the recording, gives what is
/// in flight some time to complete, destroys our idle signals, and forgets the rest: nothing of the runtime
/// may be used afterwards.
pub fn close() {
    if !STATE.phase.get().may_call_runtime() {
        return;
    }
    let leaving = Shutdown::begin();
    {
        // Given back before the lock of the work is taken: the worker may hold that one and wait for this.
        let _switching = SWITCH.lock_for(SWITCH_WAIT_NS);
        let _ = STATE.phase.apply(Event::End);
        release_queues();
    }
    let locked = leaving.lock();
    if !closes() {
        return;
    }
    STATE.clear_ready();
    // Without the lock, `forget` is called when another runtime is hooked.
    let Some(mut work) = locked else { return };
    let mut deadline = sys::now_ns() + CLOSE_WAIT_NS;
    loop {
        let round = work.round(&STATE, HarvestExtent::Full);
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
