//! The client that receives the work of GPUs, and the data that it receives.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;

use tracer_common::shim::{self, Barrier, Copy, Dispatch};
use tracer_hooks::InstallError;

use super::kernels::Kernel;
use super::writing::Writing;

/// A library with an interface of its own, which writes records.
pub trait Client: Sync + Sized + 'static {
    /// The data that is kept of an operation from when it is enqueued: the place where its record goes, at least.
    type OperationData: Send;
    /// The data about the thread that enqueues an operation: the calls that it is in, at least.
    type Caller: Send;
    /// The key of a pool or buffer that has no room for a record.
    type BufferKey: core::marker::Copy + Ord;

    /// The name of the library's threads.
    const NAME: &'static str;
    /// The name of the hooks' thread.
    const THREAD_NAME: &'static CStr;
    /// The environment variable that says for how long work that a GPU does not end is waited for, ms.
    const DRAIN_MS: &'static str;

    /// Called once, before anything is recorded, and before the tables are patched.
    fn begins(&self) {}
    /// Calls `create`, which creates a thread.
    fn creates_thread<T>(&self, create: impl FnOnce() -> T) -> T {
        create()
    }
    /// Whether records of this key wait for the buffer, or the pool, at the address `whom`.
    fn waits_for(&self, _key: Self::BufferKey, _whom: usize) -> bool {
        false
    }
    /// Whether anything is wanted.
    fn is_wanted(&self) -> bool;
    /// The wanted records cannot be made.
    fn is_not_installed(&self, _why: InstallError) {}
    /// A kernel is being enqueued: returns the data to keep of it; none if it is not wanted.
    fn kernel(&self, dispatch: &Dispatch) -> Option<Self::OperationData>;
    /// The same of an asynchronous copy.
    fn copy(&self, copy: &Copy) -> Option<Self::OperationData>;
    /// The same of a barrier with a signal.
    fn barrier(&self, barrier: &Barrier) -> Option<Self::OperationData>;
    /// The calling thread.
    fn caller(&self) -> Self::Caller;
    /// The calling thread has enqueued the kept operations since this was called last, and is in nothing of ours: this
    /// may wait, call the runtime, and throw.
    fn has_enqueued(&self) {}
    /// Writes the records of an operation, on the thread that delivers, and tells [`Writing`] for whom it waits.
    /// Returns an operation that could not be written without waiting, and for whom it waits: it is tried again.
    fn write(
        &self,
        done: CompletedWork<Self>,
        agents: &Agents,
        writing: &Writing<'_>,
    ) -> Option<(Self::BufferKey, CompletedWork<Self>)>;
    /// There was no room for an operation that could not be written: it is lost.
    fn lost(&self, _done: CompletedWork<Self>) {}
}

/// An operation that is done.
pub struct CompletedWork<C: Client> {
    /// The kind of the operation.
    pub work: Work,
    /// The agent that has the queue; 0 of copies.
    pub agent: u64,
    /// The queue's id; 0 of copies.
    pub queue_id: u64,
    /// The data that the client keeps of it.
    pub kept: C::OperationData,
    /// The thread that enqueued it; none if that is not known.
    pub caller: Option<C::Caller>,
    /// The kernel, if it is one, and if its name is known.
    pub kernel: Option<Arc<Kernel>>,
    /// Begin on the GPU, ns of CLOCK_BOOTTIME; 0 if it is not known.
    pub begin_ns: u64,
    /// End, likewise.
    pub end_ns: u64,
}

/// The kind of an operation that is enqueued.
#[derive(Clone, core::marker::Copy)]
pub enum Work {
    /// A kernel, by the address of its descriptor.
    Kernel(u64),
    /// A copy of memory.
    Copy(MemoryCopy),
    /// A barrier with a signal.
    Barrier,
}

/// A copy of memory.
#[derive(Clone, core::marker::Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryCopy {
    /// Bytes to copy.
    pub bytes: u64,
    /// The agent that they are copied from.
    pub from: u64,
    /// The agent that they are copied to.
    pub to: u64,
    /// Where they are.
    pub from_address: u64,
    /// Where they go.
    pub to_address: u64,
}

impl From<&Copy> for MemoryCopy {
    fn from(record: &Copy) -> Self {
        Self {
            bytes: record.size_bytes,
            from: record.src_agent,
            to: record.dst_agent,
            from_address: record.src,
            to_address: record.dst,
        }
    }
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
