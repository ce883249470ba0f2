//! Work of GPUs: kernels and copies become records.
//!
//! The records go to the services that wanted them when the operation was enqueued: into buffers, and to [`callbacks`].
//! The correlation id is that of the innermost call that the thread was in, or one of its own where no call is traced.

mod callbacks;
mod caller;

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use capi_sources::gpu::{Agents, Client, CompletedWork, Gpu, Work, Writing};
use rocprofiler::buffer::Buffer;
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Service, Services};
use rocprofiler::threads::{CallbackThread, ROCPROFILER_LIBRARY};
use roctracer::thread::own_ids;
use tracer_common::loss::ShimLoss;
use tracer_common::shim::{Barrier, Copy, Dispatch};
use tracer_hooks::{InstallError, Tables, Timing, contained};

use self::callbacks::{Callbacks, Operation};
use self::caller::Caller;
use crate::kernels::KERNELS;
use crate::layout::{COMPLETE, agent_id, copied, number};
use crate::records::{self, Common, Kernel, Launch};
use crate::retirement::{self, Use};
use crate::{SDK, calls, externals, log, process};

/// Kernels that were enqueued.
static DISPATCHES: AtomicU64 = AtomicU64::new(0);
/// Completions that tools were not told of, because there was no room for them.
static NOT_CALLED_BACK: AtomicUsize = AtomicUsize::new(0);

/// The work of this process.
static GPU: Gpu<Buffers> = Gpu::new(Buffers, &KERNELS);

/// Records everything that is wanted from now on, in a runtime that may be in use. Returns its tables, if they are
/// patched. Where none is loaded, recording begins when it does.
pub fn begin() -> Option<Tables> {
    GPU.begin()
}

/// The runtime has begun, and has these tables. Returns whether they are patched.
pub fn runtime_begins(tables: Tables, timing: Timing) -> bool {
    GPU.runtime_begins(tables, timing)
}

/// The runtime ends.
pub fn runtime_ends() {
    contained(tracer_hooks::close);
}

/// Waits until everything that has been enqueued until now is written, or a GPU has taken too long. On a callback
/// thread it does not wait, since writing may wait for callbacks.
pub fn drain(buffer: &'static Buffer) {
    if !CallbackThread::is_any_current() {
        GPU.drain(Some(buffer));
    }
}

/// As [`drain`], at the end, for some seconds at most, also in a callback. Returns the number of operations that drains
/// have ever waited for in vain.
pub fn drain_last() -> usize {
    GPU.drain_last()
}

/// Operations that are done and wait for callbacks.
pub fn behind() -> usize {
    GPU.behind()
}

/// Operations that could not be recorded, or told of, since callbacks took too long.
pub fn refused() -> usize {
    GPU.refused() + NOT_CALLED_BACK.load(Ordering::Relaxed)
}

/// The operations that could not be recorded, or have no times, since the last call of this, by cause.
pub fn losses() -> impl Iterator<Item = (ShimLoss, u64)> {
    GPU.losses()
}

/// The client that writes records into buffers.
struct Buffers;

/// The data that is kept of an operation.
struct OperationData {
    services: Services,
    /// The services that want to be told of the end of its correlation id, if that is its own.
    retirements: Services,
    /// The launch parameters of a kernel.
    launch: Launch,
    /// Its number among kernels, from 1 on, by when they were enqueued; 0 of a copy.
    dispatch: u64,
    callbacks: Option<Arc<Callbacks>>,
    /// Callbacks are told of it only when it is done.
    is_late: bool,
}

/// Tells the user why nothing passes through the HSA runtime's tables here.
pub fn is_not_recorded(why: InstallError) {
    log::error(format_args!("calls of HSA and work of GPUs are not recorded: {why}"));
}

impl Client for Buffers {
    type OperationData = OperationData;
    type Caller = Caller;
    type BufferKey = (Kind, Services);

    const NAME: &'static str = "rocprofiler";
    const THREAD_NAME: &'static CStr = c"rocprofiler-gpu";
    const DRAIN_MS: &'static str = "ROCPROFILER_DRAIN_MS";

    fn creates_thread<T>(&self, create: impl FnOnce() -> T) -> T {
        SDK.watchers.around(ROCPROFILER_LIBRARY, create)
    }

    fn waits_for(&self, (kind, services): (Kind, Services), whom: usize) -> bool {
        let is_it = |buffer: &'static Buffer| ptr::from_ref(buffer).addr() == whom;
        SDK.each(kind, services).any(|service| service.buffer().is_some_and(is_it))
    }

    fn is_wanted(&self) -> bool {
        // For scratch memory queues have to be known.
        let work = [Kind::KernelDispatch, Kind::MemoryCopy, Kind::ScratchMemory];
        let is_wanted = work.into_iter().any(|kind| SDK.is_wanted(kind)) || calls::need_tables();
        is_wanted && !process::is_forked()
    }

    fn is_not_installed(&self, why: InstallError) {
        is_not_recorded(why);
    }

    #[inline]
    fn kernel(&self, record: &Dispatch) -> Option<OperationData> {
        let kind = Kind::KernelDispatch;
        let services = SDK.those(kind, SDK.wanting(kind, None), |service| {
            service.means(COMPLETE) || service.completions().is_some()
        });
        if services.is_empty() {
            return None;
        }
        let dispatch = DISPATCHES.fetch_add(1, Ordering::Relaxed) + 1;
        let launch = Launch::of(record);
        let &Dispatch { kernel_object: descriptor, agent, queue_id: queue, .. } = record;
        let operation = Operation::Kernel { descriptor, agent, queue, dispatch, launch };
        let retirements = retirement::wanting(kind, services);
        let callbacks = Callbacks::begin(operation, services);
        let is_late = callbacks.is_none() && callbacks::are_late();
        Some(OperationData { services, retirements, launch, dispatch, callbacks, is_late })
    }

    /// The agents are looked up later.
    fn copy(&self, record: &Copy) -> Option<OperationData> {
        let kind = Kind::MemoryCopy;
        let services = SDK.wanting(kind, None);
        if services.is_empty() {
            return None;
        }
        let retirements = retirement::wanting(kind, services);
        let callbacks = Callbacks::begin(Operation::Copy(record.into()), services);
        let launch = Launch::default();
        let (dispatch, is_late) = (0, callbacks.is_none() && callbacks::are_late());
        Some(OperationData { services, retirements, launch, dispatch, callbacks, is_late })
    }

    fn barrier(&self, _: &Barrier) -> Option<OperationData> {
        None
    }

    fn caller(&self) -> Caller {
        let (ids, id_use) = calls::enqueue();
        Caller { ids, id_use, thread: own_ids().thread, externals: externals::own() }
    }

    fn has_enqueued(&self) {
        callbacks::has_enqueued();
    }

    fn write(
        &self,
        mut done: CompletedWork<Self>,
        agents: &Agents,
        _writing: &Writing<'_>,
    ) -> Option<(Self::BufferKey, CompletedWork<Self>)> {
        let (kind, operation) = what(&done.work, agents)?;
        let is_late = done.kept.is_late;
        let meant = SDK.those(kind, done.kept.services, |service| {
            service.means(operation) || (is_late && service.completions().is_some())
        });
        if meant.is_empty() {
            return None;
        }
        if done.kept.callbacks.as_ref().is_some_and(|callbacks| callbacks.is_open()) {
            return Some(((kind, meant), done));
        }
        let caller = done.caller.get_or_insert_default();
        let known = done.kept.callbacks.as_ref().map(|callbacks| callbacks.ids());
        if caller.ids.internal == 0 {
            (caller.ids, caller.id_use) =
                known.unwrap_or_else(|| Use::alone(done.kept.retirements));
        }
        if is_late && done.kept.callbacks.is_none() {
            let enqueued = enqueued(&done.work, done.agent, done.queue_id, &done.kept)?;
            done.kept.callbacks = Callbacks::late(enqueued, meant, caller);
        }
        let agent = |handle| agents.get(handle).map_or(0, |agent| agent_id(agent.node_id));
        let common = Common {
            kind: number(kind),
            operation: operation as u32,
            ids: caller.ids,
            external_id: 0,
            begin_ns: done.begin_ns,
            end_ns: done.end_ns,
            thread: caller.thread,
        };
        let asked = done.kept.callbacks.as_ref().and_then(|callbacks| callbacks.externals());
        let externals = asked.unwrap_or(&caller.externals);
        let of = |service: &Service| Common { external_id: externals.of(service), ..common };
        let launch = &done.kept.launch;
        let kernel = Kernel {
            agent: agent(done.agent),
            queue: done.queue_id,
            kernel: done.kernel.as_ref().map_or(0, |kernel| kernel.number),
            dispatch: done.kept.dispatch,
        };
        let offer = |service: &Service, buffer: &'static Buffer| match done.work {
            Work::Copy(copy) => {
                let agents = [copy.from, copy.to].map(agent);
                buffer.offer(&records::copy(&of(service), agents, &copy))
            }
            _ => buffer.offer(&records::kernel(&of(service), &kernel, launch)),
        };
        let data = || {
            let times = [done.begin_ns, done.end_ns];
            let data = match done.work {
                Work::Copy(copy) => {
                    records::copy_data(times, [copy.from, copy.to].map(agent), &copy)
                }
                _ => records::kernel_data(times, &kernel, launch),
            };
            (operation, data)
        };
        let tell = |service: &Service| {
            let callbacks = done.kept.callbacks.as_ref();
            callbacks.is_none_or(|callbacks| callbacks.complete(service, data))
        };
        let is_refused = |service: &Service| match service.buffer() {
            Some(buffer) => !offer(service, buffer),
            None => !tell(service),
        };
        let left = SDK.those(kind, meant, is_refused);
        let is_left = |tool: u32| SDK.each(kind, left).any(|service| service.client() == tool);
        caller.id_use.end_but_for(|service| is_left(service.client()));
        done.kept.services = left;
        (!left.is_empty()).then_some(((kind, left), done))
    }

    fn lost(&self, done: CompletedWork<Self>) {
        let kind = match done.work {
            Work::Kernel(_) => Kind::KernelDispatch,
            Work::Copy(_) => Kind::MemoryCopy,
            Work::Barrier => return,
        };
        for service in SDK.each(kind, done.kept.services) {
            match service.buffer() {
                Some(buffer) => buffer.drop_records(1),
                None => drop(NOT_CALLED_BACK.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }
}

/// The operation that was enqueued; none of a barrier.
fn enqueued(work: &Work, agent: u64, queue: u64, kept: &OperationData) -> Option<Operation> {
    let &OperationData { launch, dispatch, .. } = kept;
    match *work {
        Work::Kernel(descriptor) => {
            Some(Operation::Kernel { descriptor, agent, queue, dispatch, launch })
        }
        Work::Copy(copy) => Some(Operation::Copy(copy)),
        Work::Barrier => None,
    }
}

/// Kind and operation; none of a barrier.
fn what(work: &Work, agents: &Agents) -> Option<(Kind, usize)> {
    match *work {
        Work::Kernel(_) => Some((Kind::KernelDispatch, COMPLETE)),
        Work::Copy(copy) => {
            let is_gpu = |handle| agents.gpu(handle).is_some();
            Some((Kind::MemoryCopy, copied(is_gpu(copy.from), is_gpu(copy.to))))
        }
        Work::Barrier => None,
    }
}
