//! Installing, beginning and ending to record, closing, and what happens in a forked child.

use core::sync::atomic::{AtomicBool, Ordering};

use tracer_common::shim::{Loss, state};

use crate::lock::Lock;
use crate::runtime::{self, Hold, Patched, RUNTIME, Tables, Unsupported};
use crate::sink::{Sink, Wish};
use crate::state::{STATE, phase, sleep};
use crate::track::Look;
use crate::{announce, hip, symbols, sys, worker};

/// Longest that a closing runtime waits for the worker, and then for what is in flight.
const CLOSE_WAIT_NS: u64 = 500_000_000;
/// Longest that the exit of the process is delayed.
const EXIT_WAIT_NS: u64 = 100_000_000;
/// Longest that anybody waits for another thread to begin or end a recording.
const SWITCH_WAIT_NS: u64 = 1_000_000_000;
/// Signals that are made before a live queue needs the first.
const FIRST_SIGNALS: usize = 512;

/// When the tables are patched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Inside of `hsa_init`, before the application has called anything.
    AtStart,
    /// While the application uses them, or may begin to: nobody will tell when the runtime closes.
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
    /// Something of ours has failed in this process.
    Broken,
}

static STARTED: sys::Once = sys::Once::new();
static WORKING: AtomicBool = AtomicBool::new(false);
/// Held by whoever begins or ends a recording.
static SWITCH: Lock<()> = Lock::new(());

/// Patches the runtime's tables so that `sink` is told what the process does.
///
/// May be called again: after the runtime was shut down and initialized anew, because the runtime's
/// tools interface knows this library in two ways, or because the sink has somebody to record for
/// again.
///
/// # Errors
///
/// [`InstallError`]; the process runs on as if nothing had been asked for.
pub fn install(
    tables: Tables,
    sink: &'static dyn Sink,
    timing: Timing,
) -> Result<(), InstallError> {
    prepare_process(sink)?;
    match timing {
        Timing::AtStart => put_in_place(tables, sink, timing, None)?,
        Timing::Live => {
            // The runtime must not go while we learn what is in it.
            let held = tables.is_open().then(|| tables.hold()).flatten();
            put_in_place(tables, sink, timing, held.as_ref())?;
            let was_open = held.is_some();
            drop(held);
            if was_open && !RUNTIME.is_open() {
                vanished();
            }
        }
    }
    STATE.call_worker();
    Ok(())
}

/// What both ways to GPU times need: a process that is not a forked child, and the worker.
///
/// # Errors
///
/// [`InstallError`], but not of the tables.
pub fn prepare_process(sink: &'static dyn Sink) -> Result<(), InstallError> {
    if STATE.phase.load(Ordering::Acquire) == phase::INERT {
        return Err(InstallError::Forked);
    }
    if worker::gave_up() {
        return Err(InstallError::Broken);
    }
    if !core::ptr::addr_eq(core::ptr::from_ref(*STATE.sink.get_or_init(|| sink)), sink) {
        return Err(InstallError::Sink);
    }
    if STARTED.set() {
        sys::at_fork(in_child);
        sys::at_exit(at_exit);
        WORKING.store(worker::start(), Ordering::Release);
        STATE.call_worker();
    }
    if !WORKING.load(Ordering::Acquire) {
        return Err(InstallError::Thread);
    }
    Ok(())
}

fn put_in_place(
    tables: Tables,
    sink: &'static dyn Sink,
    timing: Timing,
    held: Option<&Hold>,
) -> Result<(), InstallError> {
    let already = installed();
    let patched = if already { Patched::Already } else { Patched::NotYet };
    runtime::save_and_patch(tables, patched).map_err(InstallError::Unsupported)?;
    if timing == Timing::AtStart || !already {
        STATE.late.store(timing == Timing::Live, Ordering::Relaxed);
        STATE.ready.store(held.is_some(), Ordering::Release);
    }
    if !already {
        STATE.phase.store(phase::DORMANT, Ordering::Release);
    }
    activate();
    if !STATE.active() && !hip::in_charge() {
        sink.state(state::DORMANT);
    }
    Ok(())
}

/// The application shut the runtime down while we held it: it went when we let go, unseen.
fn vanished() {
    let work = STATE.work.lock_for(CLOSE_WAIT_NS);
    STATE.phase.store(phase::CLOSED, Ordering::Release);
    STATE.ready.store(false, Ordering::Release);
    if let Some(mut work) = work {
        work.abandon(&STATE);
        // The runtime's memory is gone, and the signals with it.
        STATE.pool.destroy_all(|_| ());
    }
    if let Some(sink) = STATE.sink.get() {
        sink.state(state::DORMANT);
    }
}

/// Whether anything can be installed in this process at all.
pub fn usable() -> bool {
    STATE.phase.load(Ordering::Acquire) != phase::INERT && !worker::gave_up()
}

/// Has the worker call [`Sink::called`]; false if there is no worker, or nothing can be installed any
/// more. Calls nothing of libc.
pub fn call_worker() -> bool {
    let works = usable() && WORKING.load(Ordering::Acquire);
    if works {
        STATE.call_worker();
    }
    works
}

/// Whether the hooks are in place and the runtime is open.
pub fn installed() -> bool {
    matches!(STATE.phase.load(Ordering::Acquire), phase::DORMANT | phase::ACTIVE | phase::DRAINING)
}

/// Whether the sink wants to record what the tables tell. Only an answer that was given under
/// [`SWITCH`] may be acted on: an earlier one can be of another recording.
fn wanted() -> bool {
    !hip::in_charge()
        && STATE.sink.get().is_some_and(|sink| sink.wanted(sys::now_ns()) == Wish::Record)
}

/// Begins to record, if that is wanted.
pub fn activate() {
    let Some(switching) = SWITCH.lock_for(SWITCH_WAIT_NS) else { return };
    let from = STATE.phase.load(Ordering::Acquire);
    if (from != phase::DORMANT && from != phase::DRAINING) || !wanted() {
        return;
    }
    let ready = STATE.ready.load(Ordering::Acquire);
    if ready {
        announce::prepare();
    }
    symbols::begin();
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
    drop(switching);
    if ready {
        if STATE.late.load(Ordering::Relaxed) {
            STATE.pool.top_up(FIRST_SIGNALS, || RUNTIME.create_signal());
        }
        announce::everything();
    }
}

/// Stops to record, unless that is still wanted; what is in flight is still looked after. Whether
/// nothing is recorded.
pub fn deactivate() -> bool {
    let Some(_switching) = SWITCH.lock_for(SWITCH_WAIT_NS) else { return false };
    if wanted() {
        return false;
    }
    let swapped = STATE.phase.compare_exchange(
        phase::ACTIVE,
        phase::DRAINING,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if swapped.is_ok() {
        release_queues();
    }
    true
}

/// Has somebody else take over from the tables by `take`, once nothing is recorded or in flight of
/// theirs; false if that takes too long.
pub(crate) fn hand_over(take: impl FnOnce()) -> bool {
    let deadline = sys::awake_ns() + SWITCH_WAIT_NS;
    while sys::awake_ns() < deadline {
        if let Some(_switching) = SWITCH.lock_for(SWITCH_WAIT_NS)
            && !matches!(STATE.phase.load(Ordering::Acquire), phase::ACTIVE | phase::DRAINING)
        {
            take();
            return true;
        }
        sys::sleep_ns(500_000);
    }
    false
}

/// After this no thread instruments anything: each looked at the phase under its queue's lock.
fn release_queues() {
    for queue in STATE.registry.objects() {
        queue.release(&STATE.pool);
    }
    STATE.copies.release(&STATE.pool);
}

/// Whether what is in flight may still be worth waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Something completed not long ago.
    Waiting,
    /// Nothing did: it may be a kernel that runs for hours, or a packet that was taken just before
    /// our signal was in it.
    Ended,
}

/// Has the sink give up what it records into, if nobody wants that any more; true when there is
/// nothing to give up and nothing to look after.
pub fn let_go(patience: Patience) -> bool {
    let Some(_switching) = SWITCH.try_lock() else { return false };
    let Some(&sink) = STATE.sink.get() else { return true };
    // Under the lock: a recording that begins meanwhile is not to lose its memory.
    match (STATE.phase.load(Ordering::Acquire), patience) {
        (phase::ACTIVE, _) => false,
        (phase::DRAINING, Patience::Waiting) => {
            sink.let_go(false);
            false
        }
        (phase::DRAINING, Patience::Ended) => {
            // It is looked after as before, but whoever reads need not wait for it.
            if !sink.housekeeping(sys::now_ns()) {
                sink.lost(Loss::UNFINISHED, in_flight());
                sink.state(state::DORMANT);
                sink.let_go(true);
            }
            false
        }
        _ => sink.let_go(true),
    }
}

/// Operations that have not completed.
pub fn in_flight() -> u64 {
    let pending = |track: &crate::track::Track| track.pending() as u64;
    STATE.registry.objects().map(|q| pending(&q.track)).sum::<u64>() + pending(&STATE.copies.track)
}

/// Ends draining if nothing is in flight any more.
pub fn finish_draining() {
    if STATE.phase.load(Ordering::Acquire) != phase::DRAINING || in_flight() > 0 {
        return;
    }
    let Some(&sink) = STATE.sink.get() else { return };
    // Whoever reads stops when it sees the new state.
    if sink.housekeeping(sys::now_ns()) {
        return;
    }
    let Some(_switching) = SWITCH.try_lock() else { return };
    let drained = STATE.phase.compare_exchange(
        phase::DRAINING,
        phase::DORMANT,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if drained.is_ok() {
        STATE.pool.destroy_idle(|signal| RUNTIME.destroy_signal(signal));
        announce::forget();
        sink.state(state::DORMANT);
    }
}

/// The runtime is about to go: nothing of it may be used or kept afterwards.
pub fn close() {
    let before = STATE.phase.load(Ordering::Acquire);
    if !matches!(before, phase::DORMANT | phase::ACTIVE | phase::DRAINING) {
        return;
    }
    {
        // Not longer: the worker may wait for it with the lock that is taken next.
        let _switching = SWITCH.lock_for(SWITCH_WAIT_NS);
        STATE.phase.store(phase::DRAINING, Ordering::Release);
        release_queues();
    }
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
    announce::forget();
    flush(sys::now_ns() + EXIT_WAIT_NS);
    if let Some(sink) = STATE.sink.get()
        && !hip::in_charge()
    {
        sink.state(state::DORMANT);
    }
}

/// A runtime that was patched live was asked to shut down: if it still has users, go on.
pub fn reopen() {
    if STATE.phase.load(Ordering::Acquire) != phase::CLOSED {
        // A forked child stays inert.
        return;
    }
    let mut agents = 0;
    RUNTIME.agents(|_| agents += 1);
    if agents > 0 {
        STATE.ready.store(true, Ordering::Release);
        STATE.phase.store(phase::DORMANT, Ordering::Release);
        STATE.call_worker();
    }
}

/// Something of ours is broken: never touch anything again, except to complete what is in flight.
#[cold]
pub fn give_up() {
    if hip::in_charge() {
        // The worker ends it.
        worker::give_up();
    } else if installed() {
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
        let deadline = sys::now_ns() + EXIT_WAIT_NS;
        if hip::in_charge() {
            flush(deadline);
            return;
        }
        if !installed() {
            return;
        }
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
    if hip::in_charge() {
        hip::finish();
        flush(sys::now_ns() + EXIT_WAIT_NS);
    }
    if !installed() {
        return;
    }
    STATE.phase.store(phase::CLOSED, Ordering::Release);
    // Wait for the worker to be out of the runtime.
    let work = STATE.work.lock_for(EXIT_WAIT_NS);
    let unfinished = in_flight();
    if let Some(sink) = STATE.sink.get()
        && unfinished > 0
    {
        sink.lost(Loss::UNFINISHED, unfinished);
    }
    drop(work);
    flush(sys::now_ns() + EXIT_WAIT_NS);
}

/// In a forked child there is no worker, and what is open of the runtime is the parent's.
#[expect(unsafe_code, reason = "pthread_atfork's signature")]
unsafe extern "C" fn in_child() {
    // Without hooks in the tables it is not known; HIP's interface is of programs that use the GPU.
    let open = match STATE.phase.swap(phase::INERT, Ordering::AcqRel) {
        phase::DORMANT | phase::ACTIVE | phase::DRAINING => RUNTIME.is_open(),
        phase::CLOSED => false,
        phase::INERT => return,
        _ => true,
    };
    if let Some(sink) = STATE.sink.get() {
        sink.forked(open);
    }
}
