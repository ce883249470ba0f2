//! The life of the hooks in a process: installed, at its exit, in a forked child.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use tracer_common::loss::ShimLoss;
use tracer_common::shim::state;

use crate::closing::{CLOSE_WAIT_NS, EXIT_WAIT_NS, begin_exit, forget, while_held};
use crate::contained::contained;
use crate::harvest::{IfTaken, WORK, collect_now};
use crate::originals::Patched;
use crate::phase::{Event, Phase};
use crate::recording::{SWITCH, SWITCH_WAIT_NS, activate, flush, in_flight, release_queues};
use crate::runtime::{Hold, RUNTIME, Tables, Unsupported};
use crate::sink::{AtFork, Sink};
use crate::state::{STATE, sleep};
use crate::track::HarvestExtent;
use crate::{calls, closing, patch, sys, worker};

/// When the tables are patched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Inside of `hsa_init`, by a tool of the runtime's, before the application has called anything: the runtime will
    /// tell the tool when it closes.
    AtStart,
    /// While the application uses the tables, or may begin to: nobody will tell us when the runtime closes.
    Live,
    /// As [`Timing::Live`], by a thread that may be inside of `hsa_init`: if it opened the runtime, it would
    /// wait for itself.
    Unheld,
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
    /// We cannot put away what an earlier runtime left: a thread that stands still is in our code.
    Stuck,
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported(Unsupported::Second) => {
                "the process has two HSA runtimes, of which the other is recorded"
            }
            Self::Unsupported(Unsupported::Covered) => {
                "another tool stands in the tables of the HSA runtime, which were made anew"
            }
            Self::Unsupported(_) => "the tables of this HSA runtime are not known",
            Self::Thread => "no thread could be started",
            Self::Sink => "something else is recording",
            Self::Forked => "the process was forked from one that is recorded",
            Self::Ended => "the process exits",
            Self::Broken => "recording has failed in this process before",
            Self::Stuck => "a thread stands still in what was put into the HSA runtime before",
        })
    }
}

static STARTED: AtomicBool = AtomicBool::new(false);
static WORKING: AtomicBool = AtomicBool::new(false);

/// Patches the runtime's tables so that `sink` is told of the process's work.
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
        Timing::AtStart | Timing::Unheld => put_in_place(tables, sink, timing, None)?,
        Timing::Live => {
            let patched = patched();
            // Not by an entry with our thunk in it, which would take this for a call of the application.
            let is_open = match patched {
                Patched::Already if RUNTIME.has(&tables) => RUNTIME.is_open(),
                _ => tables.is_open(),
            };
            // The runtime must not go while we learn what is in it.
            let hold = || is_open.then(|| tables.hold(patched)).flatten();
            let install = |held: Option<&Hold>| put_in_place(tables, sink, timing, held);
            while_held(hold, install).ok_or(InstallError::Ended)??;
        }
    }
    STATE.call_worker();
    Ok(())
}

/// Whether a recording through these tables is under way. If so, there is nothing to install: it goes on as
/// long as the sink wants it.
pub fn records(tables: &Tables) -> bool {
    // A thread that ends a recording asks the sink under this lock.
    let switching = SWITCH.lock_for(SWITCH_WAIT_NS);
    switching.is_some() && STATE.active() && RUNTIME.has(tables) && !RUNTIME.is_gone()
}

/// Prepares what every recording needs: a process that is not a forked child, and the worker.
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
    if STATE.gave_up() {
        return Err(InstallError::Broken);
    }
    if !core::ptr::addr_eq(core::ptr::from_ref(*STATE.sink.get_or_init(|| sink)), sink) {
        return Err(InstallError::Sink);
    }
    if !STARTED.swap(true, Ordering::AcqRel) {
        sys::look_for_tid();
        sys::at_fork(in_child);
        sys::at_exit(at_exit);
        // Pairs with the Acquire below and in `call_worker`: the worker was started before.
        let mut start = || worker::start(sink.thread_name());
        WORKING.store(sink.creates_worker(&mut start), Ordering::Release);
        STATE.call_worker();
    }
    // Pairs with the Release above.
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
    let mut work = None;
    if patched() == Patched::NotYet {
        // Held until the hooks are in place: else another thread that installs would forget what is in flight
        // by then.
        let mut locked = WORK.lock_for(CLOSE_WAIT_NS).ok_or(InstallError::Stuck)?;
        if patched() == Patched::NotYet {
            // Nobody may have been able to put away what is left of an earlier runtime, at its end.
            forget(&mut locked);
            work = Some(locked);
        }
    }
    let already = work.is_none();
    let patched = if already { Patched::Already } else { Patched::NotYet };
    patch::save_and_patch(&tables, patched).map_err(InstallError::Unsupported)?;
    if !already {
        sys::pin(tables.address());
        calls::on_new_tables();
    }
    if timing == Timing::AtStart || !already {
        STATE.late.store(timing != Timing::AtStart, Ordering::Relaxed);
        match held {
            Some(_) => _ = STATE.becomes_ready(),
            None => STATE.clear_ready(),
        }
    }
    let _ = STATE.phase.apply(Event::Install);
    drop(work);
    // The worker relays meanwhile.
    activate(&mut || {});
    if !STATE.active() {
        sink.state(state::DORMANT);
    }
    Ok(())
}

/// Whether the tables of the runtime have our hooks in them.
fn patched() -> Patched {
    if STATE.is_installed() { Patched::Already } else { Patched::NotYet }
}

/// Whether anything can be installed in this process at all.
pub fn usable() -> bool {
    STATE.is_usable()
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

/// Tells the sink what has completed until now. If another thread is doing so, asks that one to look again, and
/// waits for it if it takes long, but not for ever.
pub fn collect() {
    if STATE.relays() {
        contained(|| collect_now(&STATE, IfTaken::Wait));
    }
}

/// The process exits. Programs of HIP 5 do so without `hsa_shut_down`, and `OnUnload` is not called.
///
/// This runs before the destructors of everything that was loaded before us, HIP and the runtime included.
/// These may still launch work and wait for it, so this switches nothing off.
extern "C-unwind" fn at_exit() {
    begin_exit();
    contained(|| {
        let deadline = sys::now_ns() + EXIT_WAIT_NS;
        if !STATE.is_installed() {
            return;
        }
        let Some(sink) = STATE.sink.get() else { return };
        if !sink.can_complete(sys::now_ns()) {
            // The worker can tell the sink; this gives it the time.
            STATE.wake_beyond(sleep::AWAKE);
            sys::sleep_ns(5_000_000);
        } else if let Some(mut work) = WORK.lock_for(EXIT_WAIT_NS)
            && STATE.is_installed()
        {
            while work.round(&STATE, HarvestExtent::Full).done > 0 && sys::now_ns() < deadline {}
        }
        flush(deadline);
    });
}

/// The last recording of this process ends: called by the library's destructor.
///
/// We go on relaying what is in flight to the very end of the process: destructors that run later may wait
/// for it. As long as they can wait in the runtime, we can decrement signals there.
pub fn finish() {
    let was_open = STATE.is_installed();
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
    if let Some(sink) = STATE.sink.get() {
        let mut work = WORK.lock_for(EXIT_WAIT_NS);
        if let Some(work) = &mut work
            && sink.can_complete(sys::now_ns())
        {
            // The operations that have completed since the worker looked last.
            work.round(&STATE, HarvestExtent::Full);
        }
        let unfinished = in_flight();
        if unfinished > 0 {
            sink.lost(ShimLoss::UNFINISHED, unfinished);
        }
    }
    flush(sys::now_ns() + EXIT_WAIT_NS);
}

/// In a forked child there is no worker, and a runtime that is open is the parent's.
#[expect(unsafe_code, reason = "pthread_atfork's signature")]
unsafe extern "C" fn in_child() {
    closing::forked();
    // Before anything was installed it is not known whether the runtime is open: it counts as open.
    let runtime = match STATE.phase.apply(Event::Fork) {
        Ok(Phase::Closed) => AtFork::Closed,
        Ok(Phase::None) => AtFork::Open,
        Ok(_) if RUNTIME.is_open() => AtFork::Open,
        Ok(_) => AtFork::Closed,
        Err(_) => return,
    };
    if let Some(sink) = STATE.sink.get() {
        sink.forked(runtime);
    }
}
