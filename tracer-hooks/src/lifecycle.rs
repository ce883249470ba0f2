//! Installing, beginning and ending to record, closing, and what happens in a forked child.

use core::sync::atomic::{AtomicBool, Ordering};

use tracer_common::shim::{Loss, state};

use crate::abi::ApiTable;
use crate::runtime::{self, RUNTIME, Unsupported};
use crate::sink::Sink;
use crate::state::{STATE, phase, sleep};
use crate::track::Look;
use crate::{announce, sys, worker};

/// Longest that a closing runtime waits for the worker, and then for what is in flight.
const CLOSE_WAIT_NS: u64 = 500_000_000;
/// Longest that the exit of the process is delayed.
const EXIT_WAIT_NS: u64 = 100_000_000;

/// When the tables are patched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Inside of `hsa_init`, before the application has called anything.
    AtStart,
    /// While the application uses them.
    Live,
}

/// Why nothing was installed. The runtime works as if we were not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstallError {
    /// The tables are not what this code knows.
    Unsupported(Unsupported),
    /// The worker thread could not be started.
    Thread,
    /// Another sink is installed.
    Sink,
    /// This process is a forked child of the one that installed it.
    Forked,
}

static STARTED: sys::Once = sys::Once::new();
static WORKING: AtomicBool = AtomicBool::new(false);

/// Patches the runtime's tables so that `sink` is told what the process does.
///
/// May be called again: after the runtime was shut down and initialized anew, or because the
/// runtime's tools interface knows this library in two ways.
///
/// # Errors
///
/// [`InstallError`]; the process runs on as if nothing had been asked for.
///
/// # Safety
///
/// `tables` is null or points at the runtime's own tables.
#[expect(unsafe_code, reason = "the tables are the caller's promise")]
pub unsafe fn install(
    tables: *const ApiTable,
    sink: &'static dyn Sink,
    timing: Timing,
) -> Result<(), InstallError> {
    if STATE.phase.load(Ordering::Acquire) == phase::INERT {
        return Err(InstallError::Forked);
    }
    if !core::ptr::addr_eq(core::ptr::from_ref(*STATE.sink.get_or_init(|| sink)), sink) {
        return Err(InstallError::Sink);
    }
    if STARTED.set() {
        sys::at_fork(in_child);
        sys::at_exit(at_exit);
        WORKING.store(worker::start(), Ordering::Release);
    }
    if !WORKING.load(Ordering::Acquire) {
        return Err(InstallError::Thread);
    }
    // SAFETY: the caller's promise.
    unsafe { runtime::save_and_patch(tables) }.map_err(InstallError::Unsupported)?;
    STATE.late.store(timing == Timing::Live, Ordering::Relaxed);
    STATE.ready.store(timing == Timing::Live, Ordering::Release);
    if !installed() {
        STATE.phase.store(phase::DORMANT, Ordering::Release);
    }
    if sink.wanted(sys::now_ns()) {
        activate();
    } else {
        sink.state(state::DORMANT);
    }
    STATE.wake_beyond(sleep::AWAKE);
    Ok(())
}

/// Whether the hooks are in place and the runtime is open.
pub fn installed() -> bool {
    matches!(STATE.phase.load(Ordering::Acquire), phase::DORMANT | phase::ACTIVE | phase::DRAINING)
}

/// Begins to record.
pub fn activate() {
    let from = STATE.phase.load(Ordering::Acquire);
    if from != phase::DORMANT && from != phase::DRAINING {
        return;
    }
    STATE.epoch.fetch_add(1, Ordering::AcqRel);
    if STATE
        .phase
        .compare_exchange(from, phase::ACTIVE, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return;
    }
    if let Some(sink) = STATE.sink.get() {
        sink.state(state::ACTIVE);
    }
    if STATE.ready.load(Ordering::Acquire) {
        announce::everything();
    }
}

/// Stops to record; what is in flight is still looked after.
pub fn deactivate() {
    let swapped = STATE.phase.compare_exchange(
        phase::ACTIVE,
        phase::DRAINING,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if swapped.is_ok() {
        release_queues();
    }
}

/// After this no thread instruments anything: each looked at the phase under its queue's lock.
fn release_queues() {
    for queue in STATE.registry.objects() {
        queue.release(&STATE.pool);
    }
    STATE.copies.release(&STATE.pool);
}

/// Ends draining if nothing is in flight any more.
pub fn finish_draining() {
    if STATE.phase.load(Ordering::Acquire) == phase::DRAINING && STATE.pool.outstanding() == 0 {
        STATE.pool.destroy_all(|signal| RUNTIME.destroy_signal(signal));
        let drained = STATE.phase.compare_exchange(
            phase::DRAINING,
            phase::DORMANT,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if let (Ok(_), Some(sink)) = (drained, STATE.sink.get()) {
            sink.state(state::DORMANT);
        }
    }
}

/// The runtime is about to go: nothing of it may be used or kept afterwards.
pub fn close() {
    let before = STATE.phase.load(Ordering::Acquire);
    if !matches!(before, phase::DORMANT | phase::ACTIVE | phase::DRAINING) {
        return;
    }
    STATE.phase.store(phase::DRAINING, Ordering::Release);
    release_queues();
    let locked = STATE.work.lock_for(CLOSE_WAIT_NS);
    STATE.phase.store(phase::CLOSED, Ordering::Release);
    STATE.ready.store(false, Ordering::Release);
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
    work.abandon(&STATE);
    STATE.pool.destroy_all(|signal| RUNTIME.destroy_signal(signal));
    if let Some(sink) = STATE.sink.get() {
        sink.state(state::DORMANT);
    }
}

/// A runtime that was patched live was asked to shut down: if it still has users, go on.
pub fn reopen() {
    let mut agents = 0;
    RUNTIME.agents(|_| agents += 1);
    if agents > 0 {
        STATE.ready.store(true, Ordering::Release);
        STATE.phase.store(phase::DORMANT, Ordering::Release);
        STATE.wake_beyond(sleep::AWAKE);
    }
}

/// Something of ours is broken: never touch anything again, except to complete what is in flight.
#[cold]
pub fn give_up() {
    if installed() {
        STATE.phase.store(phase::DRAINING, Ordering::Release);
        worker::give_up();
    }
}

/// Ends what [`give_up`] gave up: rings what is held back.
pub fn release_after_failure() {
    if STATE.phase.load(Ordering::Acquire) == phase::DRAINING {
        release_queues();
    }
}

/// The process exits. HIP programs do so without `hsa_shut_down`, and `OnUnload` is not called.
///
/// This runs before the destructors of everything that was loaded before us, HIP and the runtime
/// included, which may still launch and wait for work; so nothing is switched off here.
extern "C" fn at_exit() {
    crate::hooks::contained(|| {
        if !installed() {
            return;
        }
        let deadline = sys::now_ns() + EXIT_WAIT_NS;
        let Some(sink) = STATE.sink.get() else { return };
        if !sink.can_complete(sys::now_ns()) {
            // The worker can; give it the time.
            STATE.wake_beyond(sleep::AWAKE);
            sys::sleep_ns(5_000_000);
        } else if let Some(mut work) = STATE.work.lock_for(EXIT_WAIT_NS)
            && installed()
        {
            while work.round(&STATE, Look::Full).done > 0 && sys::now_ns() < deadline {}
        }
        flush(deadline);
    });
}

/// Lets the sink finish what it puts off.
fn flush(deadline: u64) {
    if let Some(sink) = STATE.sink.get() {
        while sys::now_ns() < deadline && sink.housekeeping(sys::now_ns()) {
            sys::sleep_ns(500_000);
        }
    }
}

/// The last that is done in this process: called by the library's destructor, when the runtime's
/// own statics may be gone. No function of the runtime is called any more.
pub fn finish() {
    if !installed() {
        return;
    }
    STATE.phase.store(phase::CLOSED, Ordering::Release);
    // Wait for the worker to be out of the runtime.
    let work = STATE.work.lock_for(EXIT_WAIT_NS);
    let in_flight = |track: &crate::track::Track| track.pending() as u64;
    let unfinished: u64 = STATE.registry.objects().map(|q| in_flight(&q.track)).sum::<u64>()
        + in_flight(&STATE.copies.track);
    if let Some(sink) = STATE.sink.get()
        && unfinished > 0
    {
        sink.lost(Loss::UNFINISHED, unfinished);
    }
    drop(work);
    flush(sys::now_ns() + EXIT_WAIT_NS);
}

/// In a forked child there is no worker, and the GPU is not the child's.
#[expect(unsafe_code, reason = "pthread_atfork's signature")]
unsafe extern "C" fn in_child() {
    STATE.phase.store(phase::INERT, Ordering::Release);
}
