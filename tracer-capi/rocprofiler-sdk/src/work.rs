//! Work of GPUs: kernels and copies become records.
//!
//! It goes to whom wanted it when it was enqueued. Its correlation id is that of the innermost call that the thread was in,
//! or one of its own where no call is traced.

use core::ffi::CStr;
use std::time::Instant;

use capi_sources::client_thread::next_id;
use capi_sources::gpu::{Agents, Client, Done, Gpu, Work, Writing};
use rocprofiler::buffer::Buffer;
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Externals, Service, Services};
use rocprofiler::threads::{CallbackThread, ROCPROFILER_LIBRARY};
use roctracer::thread::own_ids;
use tracer_common::shim::{Barrier, Copy, Dispatch};
use tracer_hooks::{Tables, contained};

use crate::kernels::KERNELS;
use crate::layout::{agent_id, number};
use crate::records::{self, Common, Kernel, Launch};
use crate::retirement::{self, Use};
use crate::{SDK, calls, externals};

/// `ROCPROFILER_KERNEL_DISPATCH_COMPLETE`: a record is of a kernel that is done.
const COMPLETE: usize = 2;

/// The work of this process.
static GPU: Gpu<Buffers> = Gpu::new(Buffers, &KERNELS);

/// Has what is wanted recorded from now on, in a runtime that may be in use; its tables, if they are patched. Where none is
/// loaded, it is recorded from its begin on.
pub fn begin() -> Option<Tables> {
    GPU.begin()
}

/// The runtime has begun, and has these tables; whether they are patched.
pub fn runtime_begins(tables: Tables) -> bool {
    GPU.runtime_begins(tables)
}

/// The runtime ends.
pub fn runtime_ends() {
    contained(tracer_hooks::close);
}

/// Waits until what has been enqueued until now is written, or a GPU has taken too long. A callback waits for nothing.
pub fn drain(buffer: Option<&'static Buffer>, until: Option<Instant>) {
    if !CallbackThread::is_any_current() {
        GPU.drain(buffer, until);
    }
}

/// Operations that could not be recorded, since callbacks took too long.
pub fn refused() -> usize {
    GPU.refused()
}

/// Whose records go into buffers.
struct Buffers;

/// What is kept of an operation.
struct Kept {
    services: Services,
    /// Who wants to be told of the end of its correlation id, if that is its own.
    retirements: Services,
    /// Of a kernel.
    launch: Launch,
}

/// Who enqueues one.
#[derive(Default)]
struct Caller {
    /// Of the innermost call that it is in; 0 if it is in none.
    correlation_id: u64,
    id_use: Use,
    thread: u32,
    externals: Externals,
}

impl Kept {
    fn of(services: Services, launch: Launch) -> Option<Self> {
        let kept = || Self { services, retirements: retirement::wanting(), launch };
        (!services.is_empty()).then(kept)
    }
}

impl Client for Buffers {
    type Kept = Kept;
    type Caller = Caller;
    type Whom = (Kind, Services);

    const NAME: &'static str = "rocprofiler";
    const THREAD_NAME: &'static CStr = c"rocprofiler-gpu";
    const DRAIN_MS: &'static str = "ROCPROFILER_DRAIN_MS";

    fn creates_thread<T>(&self, create: impl FnOnce() -> T) -> T {
        SDK.watchers.around(ROCPROFILER_LIBRARY, create)
    }

    fn is_wanted(&self) -> bool {
        let work = [Kind::KernelDispatch, Kind::MemoryCopy];
        work.into_iter().any(|kind| SDK.is_wanted(kind)) || calls::need_tables()
    }

    #[inline]
    fn kernel(&self, dispatch: &Dispatch) -> Option<Kept> {
        Kept::of(SDK.wanting(Kind::KernelDispatch, Some(COMPLETE)), Launch::of(dispatch))
    }

    /// From where to where is looked up later.
    fn copy(&self, _: &Copy) -> Option<Kept> {
        Kept::of(SDK.wanting(Kind::MemoryCopy, None), Launch::default())
    }

    fn barrier(&self, _: &Barrier) -> Option<Kept> {
        None
    }

    fn caller(&self) -> Caller {
        let (correlation_id, id_use) = calls::enqueue();
        Caller { correlation_id, id_use, thread: own_ids().thread, externals: externals::own() }
    }

    fn write(
        &self,
        mut done: Done<Self>,
        agents: &Agents,
        _writing: &Writing<'_>,
    ) -> Option<(Self::Whom, Done<Self>)> {
        let (kind, operation) = what(&done.work, agents)?;
        let meant = SDK.those(kind, done.kept.services, |service| service.means(operation));
        if meant.is_empty() {
            return None;
        }
        let caller = done.caller.get_or_insert_default();
        if caller.correlation_id == 0 {
            caller.correlation_id = next_id();
            caller.id_use = Use::alone(caller.correlation_id, done.kept.retirements);
        }
        let agent = |handle| agents.get(handle).map_or(0, |agent| agent_id(agent.node_id));
        let common = Common {
            kind: number(kind),
            operation: operation as u32,
            correlation_id: caller.correlation_id,
            external_id: 0,
            begin_ns: done.begin_ns,
            end_ns: done.end_ns,
            thread: caller.thread,
        };
        let of = |service: &Service| Common { external_id: caller.externals.of(service), ..common };
        let offer = |service: &Service, buffer: &'static Buffer| match done.work {
            Work::Kernel(_) => {
                let kernel = Kernel {
                    agent: agent(done.agent),
                    queue: done.queue_id,
                    kernel: done.kernel.as_ref().map_or(0, |kernel| kernel.number),
                    dispatch: done.dispatch,
                };
                buffer.offer(&records::kernel(&of(service), &kernel, &done.kept.launch))
            }
            Work::Copy { bytes, from, to } => {
                buffer.offer(&records::copy(&of(service), agent(to), agent(from), bytes))
            }
            Work::Barrier => true,
        };
        let is_refused =
            |service: &Service| service.buffer().is_some_and(|buffer| !offer(service, buffer));
        let left = SDK.those(kind, meant, is_refused);
        let is_left = |tool: u32| SDK.each(kind, left).any(|service| service.client() == tool);
        caller.id_use.end_but_for(|service| is_left(service.client()));
        done.kept.services = left;
        (!left.is_empty()).then_some(((kind, left), done))
    }

    fn lost(&self, done: Done<Self>) {
        let kind = match done.work {
            Work::Kernel(_) => Kind::KernelDispatch,
            Work::Copy { .. } => Kind::MemoryCopy,
            Work::Barrier => return,
        };
        let buffers = SDK.each(kind, done.kept.services).filter_map(Service::buffer);
        buffers.for_each(|buffer| buffer.drop_records(1));
    }
}

/// Kind and operation; none of a barrier.
fn what(work: &Work, agents: &Agents) -> Option<(Kind, usize)> {
    match *work {
        Work::Kernel(_) => Some((Kind::KernelDispatch, COMPLETE)),
        Work::Copy { from, to, .. } => {
            let is_gpu = |handle| usize::from(agents.gpu(handle).is_some());
            // From host to host is the first one.
            Some((Kind::MemoryCopy, 1 + is_gpu(to) + 2 * is_gpu(from)))
        }
        Work::Barrier => None,
    }
}
