//! The interface by which the mechanism tells its embedder of what it records.

use core::ffi::CStr;

use tracer_common::loss::ShimLoss;
use tracer_common::shim::{Agent, Barrier, Complete, Copy, Dispatch, Queue, Symbol, THREAD_NAME};

/// Whether there is somebody to record for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demand {
    /// Record.
    Record,
    /// Not now, perhaps soon: ask again.
    Later,
    /// Not until the mechanism is installed again.
    Nothing,
}

/// The state of a recording that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remains {
    /// Operations whose completions are still to be written.
    InFlight,
    /// Nothing that anybody waits for.
    Nothing,
}

/// The state of the runtime in a process that was forked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtFork {
    /// Open, or it is not known: its child cannot use the GPU.
    Open,
    /// Not open.
    Closed,
}

/// The thread that enqueued an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Enqueuer {
    /// The calling thread.
    Caller,
    /// Another thread, which claims it when it rings for it.
    Other,
    /// Maybe another thread.
    #[default]
    Unknown,
}

/// Receives events and decides whether there should be any.
///
/// Everything is called in the traced process, on the thread that is named, so nothing may panic,
/// wait or call the HSA runtime. Records come without a sequence number where one is to be filled
/// in: the sink numbers them.
pub trait Sink: Sync {
    /// The name of the worker: roctap knows its shim's by that.
    fn thread_name(&self) -> &'static CStr {
        THREAD_NAME
    }

    /// Calls `create`, which creates the worker, and returns whether it was created. Called on a thread that installs,
    /// which holds no lock.
    fn creates_worker(&self, create: &mut dyn FnMut() -> bool) -> bool {
        create()
    }

    /// Whether to record, asked by the worker a few times a second.
    fn wanted(&self, now_ns: u64) -> Demand;

    /// Asked by the worker instead of recording, when [`Demand::Nothing`] was the answer: gives up the memory that it
    /// records into, unless the remains belong there. True when there is nothing left to give up, or to ask about.
    fn let_go(&self, remains: Remains) -> bool;

    /// The worker has begun, or has been called by [`crate::call_worker`].
    fn called(&self) {}

    /// The calling process is a forked child: nothing is ever done here again.
    fn forked(&self, _runtime: AtFork) {}

    /// A number for an operation of the calling thread that is recorded later, maybe by another
    /// thread.
    fn reserve(&self, now_ns: u64) -> Option<u64>;

    /// The operation that a number was reserved for is not recorded after all.
    fn refused(&self, _sequence: u64) {}

    /// A kernel is being enqueued. Fills in the sequence number, unless one was reserved, and takes
    /// the record, or returns false: the packet is then left as it is.
    fn dispatch(&self, record: &mut Dispatch, by: Enqueuer) -> bool;

    /// As [`Sink::dispatch`], for a barrier packet with a completion signal.
    fn barrier(&self, record: &mut Barrier, by: Enqueuer) -> bool;

    /// As [`Sink::dispatch`], for an asynchronous copy, by the caller.
    fn copy(&self, record: &mut Copy) -> bool;

    /// The operation of this number, which was told before with the same enqueuer, has been enqueued. No lock of
    /// ours is held.
    fn enqueued(&self, sequence: u64, by: Enqueuer);

    /// The calling thread has enqueued the operation of this number, which another thread reports, or has reported with
    /// another or an unknown enqueuer. No lock of ours is held.
    fn claimed(&self, sequence: u64);

    /// Operations that were taken have been enqueued by the calling thread, or others than its own have been found by it,
    /// which [`Sink::enqueued`] has told. The thread is in nothing of ours: this may wait, call the runtime, and throw.
    fn has_enqueued(&self) {}

    /// Whether a thread that has waited for the GPU, or looked, reports the completed operations before it goes on: the
    /// process may end by `_exit`, and only what was reported by then is kept.
    fn waiters_collect(&self) -> bool {
        true
    }

    /// Whether the calling thread can take [`Sink::complete`]. The worker is not asked.
    fn can_complete(&self, now_ns: u64) -> bool;

    /// An operation completed. Called on any thread; with the tables, on one at a time. [`Sink::collected`] follows.
    fn complete(&self, record: Complete);

    /// Every operation that was found complete in one look has been reported.
    fn collected(&self) {}

    /// The operation of this number will have no completion: it was lost for this cause, which is counted as well. 0 is
    /// the number of an operation that was not recorded. Called like [`Sink::complete`].
    fn no_times(&self, _sequence: u64, _cause: ShimLoss) {}

    /// No time that is told from here on, or was since recording began, is off by more than `error_ns`, as
    /// [`tracer_common::shim::control::CLOCK_ERROR_NS`] says it. Called like [`Sink::complete`].
    fn clock_error(&self, _error_ns: u64) {}

    /// A kernel symbol became known; the name has no `.kd` at its end.
    fn symbol(&self, record: Symbol, name: &[u8]);

    /// An agent became known.
    fn agent(&self, record: Agent);

    /// A queue was created, destroyed, or existed when recording began.
    fn queue(&self, record: Queue);

    /// Something could not be recorded.
    fn lost(&self, cause: ShimLoss, count: u64);

    /// A recording is about to begin: operations are recorded from then on.
    fn begins(&self) {}

    /// The mechanism is now active or dormant (one of [`tracer_common::shim::state`]).
    fn state(&self, state: u64);

    /// Called by each thread that looks at what is in flight, and by the worker after each of its rounds; true to be
    /// called again soon.
    fn housekeeping(&self, now_ns: u64) -> bool;
}
