//! Installing, beginning and ending to record, closing, and what happens in a forked child.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tracer_common::shim::{Loss, state};

use crate::abi::Status;
use crate::harvest::Work;
use crate::hooks::contained;
use crate::lock::{Guard, Lock};
use crate::originals::Patched;
use crate::phase::{Event, Phase};
use crate::queue::life;
use crate::runtime::{self, Hold, RUNTIME, Tables, Unsupported};
use crate::sink::{Sink, Wish};
use crate::state::{STATE, sleep};
use crate::track::Look;
use crate::{announce, calls, symbols, sys, worker};

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
    /// The process is exiting.
    Ended,
    /// Something of ours has failed in this process.
    Broken,
    /// What an earlier runtime left cannot be put away: a thread that stands still is in our code.
    Stuck,
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
            let held = tables.is_open().then(|| tables.hold(patched())).flatten();
            let result = put_in_place(tables, sink, timing, held.as_ref());
            if let Some(held) = held {
                one_user_less(move || held.end());
            }
            result?;
        }
    }
    STATE.call_worker();
    Ok(())
}

/// What every recording needs: a process that is not a forked child, and the worker.
///
/// # Errors
///
/// [`InstallError`], but not of the tables.
pub fn prepare_process(sink: &'static dyn Sink) -> Result<(), InstallError> {
    if STATE.phase.is_inert() {
        return Err(InstallError::Forked);
    }
    if STATE.phase.get() == Phase::Ended {
        return Err(InstallError::Ended);
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
    let mut now = patched();
    if now == Patched::NotYet {
        let mut work = STATE.work.lock_for(CLOSE_WAIT_NS).ok_or(InstallError::Stuck)?;
        now = patched();
        if now == Patched::NotYet {
            // Nothing of a runtime that is gone may be left, even if nobody could put it away at its end.
            forget(&mut work);
        }
    }
    let (patched, already) = (now, now == Patched::Already);
    runtime::save_and_patch(tables, patched).map_err(InstallError::Unsupported)?;
    if !already {
        sys::pin(tables.address());
        calls::tables_are_new();
    }
    if timing == Timing::AtStart || !already {
        STATE.late.store(timing == Timing::Live, Ordering::Relaxed);
        STATE.ready.store(held.is_some(), Ordering::Release);
    }
    let _ = STATE.phase.apply(Event::Install);
    // The worker relays meanwhile.
    activate(&mut || {});
    if !STATE.active() {
        sink.state(state::DORMANT);
    }
    Ok(())
}

/// Whether the tables of the runtime have our hooks in them.
fn patched() -> Patched {
    if installed() { Patched::Already } else { Patched::NotYet }
}

/// Whether anything can be installed in this process at all.
pub fn usable() -> bool {
    !STATE.phase.is_inert() && !worker::gave_up()
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
    STATE.phase.get().is_installed()
}

/// Whether the sink wants to record. Only an answer that was given under [`SWITCH`] may be acted on: an
/// earlier one can be of another recording.
fn wanted() -> bool {
    STATE.sink.get().is_some_and(|sink| sink.wanted(sys::now_ns()) == Wish::Record)
}

/// Begins to record, if that is wanted. Calls `between` again and again while it tells what is there.
pub fn activate(between: &mut dyn FnMut()) {
    let Some(switching) = SWITCH.lock_for(SWITCH_WAIT_NS) else { return };
    if STATE.phase.get().after(Event::Begin).is_none() || !wanted() {
        return;
    }
    let ready = STATE.ready.load(Ordering::Acquire);
    if ready {
        announce::prepare();
    }
    symbols::begin();
    STATE.epoch.fetch_add(1, Ordering::AcqRel);
    if STATE.phase.apply(Event::Begin).is_err() {
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
        announce::everything(between);
    }
}

/// Stops to record, unless that is still wanted; what is in flight is still looked after. Whether
/// nothing is recorded.
pub fn deactivate() -> bool {
    let Some(_switching) = SWITCH.lock_for(SWITCH_WAIT_NS) else { return false };
    if wanted() {
        return false;
    }
    if STATE.phase.apply(Event::End).is_ok() {
        release_queues();
    }
    true
}

/// A recording has ended: after this no thread instruments anything, for each looked at the phase
/// under its queue's lock.
fn release_queues() {
    for queue in STATE.registry.objects() {
        queue.release(&STATE.pool);
    }
    STATE.copies.release(&STATE.pool);
    let _ = STATE.phase.apply(Event::Release);
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
    match (STATE.phase.get(), patience) {
        (Phase::Active | Phase::Ended, _) => false,
        (Phase::Draining | Phase::Settling, Patience::Waiting) => {
            sink.let_go(false);
            false
        }
        (Phase::Draining | Phase::Settling, Patience::Ended) => {
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

/// Ends what is left of a recording if nothing is in flight any more.
pub fn finish_draining() {
    if STATE.phase.get() != Phase::Settling || in_flight() > 0 {
        return;
    }
    let Some(&sink) = STATE.sink.get() else { return };
    // Whoever reads stops when it sees the new state.
    if sink.housekeeping(sys::now_ns()) {
        return;
    }
    let Some(_switching) = SWITCH.try_lock() else { return };
    if STATE.phase.apply(Event::Settle).is_ok() {
        STATE.pool.destroy_idle(|signal| RUNTIME.destroy_signal(signal));
        announce::forget();
        sink.state(state::DORMANT);
    }
}

/// A use of the runtime that we began because nobody could tell whether it goes.
static KEPT: Lock<Option<Hold>> = Lock::new(None);

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
    WITHOUT_LOCK.store(false, Ordering::SeqCst);
}

/// A thread that is about to shut the runtime down.
struct Leaving;

impl Leaving {
    fn begin() -> Self {
        LEAVING.fetch_add(1, Ordering::SeqCst);
        Self
    }

    /// The lock of the work, if none of our threads is in the runtime then.
    fn lock(&self) -> Option<Guard<'static, Work>> {
        let work = STATE.work.lock_for(CLOSE_WAIT_NS)?;
        let deadline = sys::awake_ns() + CLOSE_WAIT_NS;
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
/// Where the runtime's tools interface knows us, it tells when it goes: see [`close`].
pub fn one_user_less(shut_down: impl FnOnce() -> Status) -> Status {
    if !STATE.late.load(Ordering::Relaxed) || !STATE.phase.get().relays() {
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
    if STATE.registry.objects().all(|queue| queue.life.load(Ordering::Acquire) == life::FREE) {
        // It probably does: the application has no queue left. The runtime of Debian 12 complains of
        // each signal that is not destroyed.
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
    STATE.ready.store(false, Ordering::Release);
    forget(work);
    announce::forget();
    closed();
}

/// Notes that the runtime goes; a process that ends stays in that phase. Whether there is anything to forget.
fn closes() -> bool {
    matches!(STATE.phase.apply(Event::Close), Ok(_) | Err(Phase::Ended))
}

/// Forgets everything of a runtime that is gone or goes, and touches nothing of it.
fn forget(work: &mut Guard<'_, Work>) {
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
    STATE.ready.store(false, Ordering::Release);
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
    announce::forget();
    closed();
}

/// Something of ours is broken: never touch anything again, except to complete what is in flight.
#[cold]
pub fn give_up() {
    if installed() {
        let _ = STATE.phase.apply(Event::End);
        worker::give_up();
    }
}

/// Ends what [`give_up`] gave up: rings what is held back.
pub fn release_after_failure() {
    if STATE.phase.get() == Phase::Draining {
        release_queues();
    }
}

/// The process exits. HIP programs do so without `hsa_shut_down`, and `OnUnload` is not called.
///
/// This runs before the destructors of everything that was loaded before us, HIP and the runtime
/// included, which may still launch and wait for work; so nothing is switched off here.
extern "C" fn at_exit() {
    contained(|| {
        let deadline = sys::now_ns() + EXIT_WAIT_NS;
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

/// The last recording of this process ends: called by the library's destructor.
///
/// What is in flight is relayed to the very end of the process: destructors that run later may wait for
/// it, and if they can wait in the runtime, signals can be decremented there.
pub fn finish() {
    let was_open = installed();
    // Until it has ended: no recording may begin in between.
    let switching = SWITCH.lock_for(EXIT_WAIT_NS);
    if was_open {
        let _ = STATE.phase.apply(Event::End);
        release_queues();
    }
    let finished = STATE.phase.apply(Event::Finish);
    drop(switching);
    if finished.is_err() || !was_open {
        return;
    }
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
    // Without hooks in the tables it is not known.
    let open = match STATE.phase.apply(Event::Fork) {
        Ok(Phase::Closed) => false,
        Ok(Phase::None) => true,
        Ok(_) => RUNTIME.is_open(),
        Err(_) => return,
    };
    if let Some(sink) = STATE.sink.get() {
        sink.forked(open);
    }
}
