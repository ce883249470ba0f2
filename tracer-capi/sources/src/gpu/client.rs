//! Whom work of GPUs is told to, and what is told.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;

use tracer_common::shim::{self, Barrier, Copy, Dispatch};
use tracer_hooks::InstallError;

use super::kernels::Kernel;
use super::writing::Writing;

/// Whose records they are: a library with an interface of its own.
pub trait Client: Sync + Sized + 'static {
    /// What is kept of an operation from when it is enqueued: where its record goes, at least.
    type Kept: Send;
    /// What is known of the thread that enqueues an operation: the calls that it is in, at least.
    type Caller: Send;
    /// Who has no room for a record.
    type Whom: core::marker::Copy + Ord;

    /// What threads of the library are called.
    const NAME: &'static str;
    /// And the one that the hooks have.
    const THREAD_NAME: &'static CStr;
    /// The environment's word for how long work is waited for that a GPU does not end, ms.
    const DRAIN_MS: &'static str;

    /// Called once, before anything is recorded, and before the tables are patched.
    fn begins(&self) {}
    /// A thread is created by this function.
    fn creates_thread<T>(&self, create: impl FnOnce() -> T) -> T {
        create()
    }
    /// Whether anything is wanted.
    fn is_wanted(&self) -> bool;
    /// What is wanted cannot be recorded.
    fn is_not_installed(&self, _why: InstallError) {}
    /// A kernel is being enqueued: what is to be kept of it; none if it is not wanted.
    fn kernel(&self, dispatch: &Dispatch) -> Option<Self::Kept>;
    /// The same of an asynchronous copy.
    fn copy(&self, copy: &Copy) -> Option<Self::Kept>;
    /// The same of a barrier with a signal.
    fn barrier(&self, barrier: &Barrier) -> Option<Self::Kept>;
    /// The calling thread.
    fn caller(&self) -> Self::Caller;
    /// The calling thread has enqueued what was kept since it was here last, and is in nothing of ours: this may wait, call
    /// the runtime, and throw.
    fn has_enqueued(&self) {}
    /// Writes the records of an operation, on the thread that delivers: [`Writing`] is told for whom it waits. Returns what
    /// could not be written without waiting, and for whom: it is tried again.
    fn write(
        &self,
        done: Done<Self>,
        agents: &Agents,
        writing: &Writing<'_>,
    ) -> Option<(Self::Whom, Done<Self>)>;
    /// There is no room for what could not be written: it is lost.
    fn lost(&self, _done: Done<Self>) {}
}

/// An operation that is done.
pub struct Done<C: Client> {
    /// What was enqueued.
    pub work: Work,
    /// The agent that has the queue; 0 of copies.
    pub agent: u64,
    /// The queue's id; 0 of copies.
    pub queue_id: u64,
    /// What was kept.
    pub kept: C::Kept,
    /// Who enqueued it; none if that is not known.
    pub caller: Option<C::Caller>,
    /// The kernel, if it is one, and if its name is known.
    pub kernel: Option<Arc<Kernel>>,
    /// Begin on the GPU, ns of CLOCK_BOOTTIME; 0 if it is not known.
    pub begin_ns: u64,
    /// End, likewise.
    pub end_ns: u64,
}

/// What is enqueued.
#[derive(Clone, core::marker::Copy)]
pub enum Work {
    /// A kernel, by the address of its descriptor.
    Kernel(u64),
    /// So many bytes, from agent to agent.
    Copy {
        /// How many.
        bytes: u64,
        /// The agent that has them.
        from: u64,
        /// And that gets them.
        to: u64,
    },
    /// A barrier with a signal.
    Barrier,
}

/// Agents of the runtime, by handle.
#[derive(Default)]
pub struct Agents(HashMap<u64, shim::Agent>);

impl Agents {
    /// Adds one, or takes its place.
    pub(super) fn add(&mut self, agent: shim::Agent) {
        self.0.insert(agent.handle, agent);
    }

    /// An agent that was told of.
    pub fn get(&self, handle: u64) -> Option<&shim::Agent> {
        self.0.get(&handle)
    }

    /// The number of a GPU among the GPUs; none of CPUs.
    pub fn gpu(&self, handle: u64) -> Option<u32> {
        self.get(handle).filter(|agent| agent.device_type == 1).map(|agent| agent.index)
    }
}

impl FromIterator<shim::Agent> for Agents {
    fn from_iter<T: IntoIterator<Item = shim::Agent>>(agents: T) -> Self {
        Self(agents.into_iter().map(|agent| (agent.handle, agent)).collect())
    }
}
