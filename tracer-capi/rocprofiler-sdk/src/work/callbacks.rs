//! Callbacks of work of GPUs: the thread that has enqueued an operation tells tools so, and a thread for that tells
//! them that the operation is done.
//!
//! The operation may be done before the tool has come back from being told that it was enqueued: the thread that comes
//! second has the tool told of the completion.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use capi_sources::client_thread::InCallback;
use capi_sources::gpu::MemoryCopy;
use rocprofiler::callback::{CorrelationIds, Event, Phase, Request};
use rocprofiler::completions::Completions;
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Externals, Service, Services};
use rocprofiler::threads::CallbackThread;
use roctracer::thread::own_ids;
use tracer_hooks::worker::is_worker;

use super::caller::Caller;
use crate::kernels::KERNELS;
use crate::layout::{COMPLETE, ENQUEUE, agent_id, copied};
use crate::records::{self, Data, Kernel, Launch};
use crate::retirement::{self, Use};
use crate::{SDK, calls, caught, externals, log};

/// The tool has come back from being told that it was enqueued.
const WAS_ENQUEUED: u8 = 1;
/// It is done.
const IS_DONE: u8 = 2;

thread_local! {
    /// The operations that the calling thread has enqueued, until tools are told.
    static ENQUEUED: Cell<Vec<Arc<Callbacks>>> = const { Cell::new(Vec::new()) };
    /// Whether there are any. Without a destructor, for threads of whose work no tool is told.
    static ANY_ENQUEUED: Cell<bool> = const { Cell::new(false) };
}

/// Whether the thread is in a callback: no tool is told of work that callbacks enqueue.
fn is_in_callback() -> bool {
    InCallback::is_current() || CallbackThread::is_any_current()
}

/// Whether the calling thread may not call tools: it is one of ours, or its own variables are gone, since it ends.
fn calls_nobody() -> bool {
    is_worker() || ENQUEUED.try_with(|_| ()).is_err()
}

/// Whether tools are told that the calling thread has enqueued an operation only when that is done.
pub fn are_late() -> bool {
    calls_nobody() && !is_in_callback()
}

/// The kind of the operation. Agents are handles of the runtime's.
#[derive(Clone, Copy)]
pub enum Operation {
    Kernel { descriptor: u64, agent: u64, queue: u64, dispatch: u64, launch: Launch },
    Copy(MemoryCopy),
}

/// The callbacks of an operation.
pub struct Callbacks {
    operation: Operation,
    subscribers: Vec<Subscriber>,
    /// The services that want the operation recorded, or want to be told.
    services: Services,
    /// Whether tools are asked for external ids.
    asks: bool,
    /// Tools are told that it was enqueued only when it is done.
    is_late: AtomicBool,
    ids: CorrelationIds,
    /// The use of the id by the operation's record, until that is written.
    record_use: Mutex<Use>,
    /// The thread that has enqueued it.
    thread: u32,
    /// The external ids when tools had been told that it was enqueued.
    externals: OnceLock<Externals>,
    /// The operation of the kind and its data, once it is done.
    done: OnceLock<(usize, Data)>,
}

/// A service that is told.
struct Subscriber {
    service: &'static Service,
    completions: &'static Completions,
    /// The data that the tool keeps from one callback to the next.
    kept: AtomicU64,
    /// The events that have happened: [`WAS_ENQUEUED`] and [`IS_DONE`].
    state: AtomicU8,
    /// The use of the id, until the tool has been told that it is done.
    id_use: Mutex<Use>,
}

impl Operation {
    fn kind(&self) -> Kind {
        match self {
            Self::Kernel { .. } => Kind::KernelDispatch,
            Self::Copy(_) => Kind::MemoryCopy,
        }
    }

    /// The number of its kernel, 0 of a copy; none as long as it is not known. When a recording begins, kernels that
    /// are loaded already may be launched before they are announced.
    fn kernel(&self) -> Option<u64> {
        match *self {
            Self::Kernel { descriptor, .. } => KERNELS.find(descriptor).map(|kernel| kernel.number),
            Self::Copy(_) => Some(0),
        }
    }

    /// The operation of the kind, and its data, as tools are told when it was enqueued. Asks the runtime.
    fn enqueued(&self, kernel: Option<u64>) -> (usize, Data) {
        let device = |handle| tracer_hooks::device(handle).unwrap_or_default();
        match *self {
            Self::Kernel { agent, queue, dispatch, launch, .. } => {
                let agent = agent_id(device(agent).1);
                let kernel = Kernel { agent, queue, kernel: kernel.unwrap_or(0), dispatch };
                (ENQUEUE, records::kernel_data([0; 2], &kernel, &launch))
            }
            Self::Copy(copy) => {
                let devices @ [(from, _), (to, _)] = [copy.from, copy.to].map(device);
                let agents = devices.map(|(_, node)| agent_id(node));
                (copied(from, to), records::copy_data([0; 2], agents, &copy))
            }
        }
    }
}

impl Callbacks {
    /// The calling thread enqueues an operation. Takes those of these services that have callbacks, or are asked for
    /// external ids; none if there are none, or if the thread is in a callback. For a thread that may not call tools,
    /// [`late`](Self::late) tells them.
    pub fn begin(operation: Operation, services: Services) -> Option<Arc<Self>> {
        let kind = operation.kind();
        let with_callbacks = SDK.those(kind, services, |service| service.completions().is_some());
        let asks = SDK.asks(kind, services);
        if (with_callbacks.is_empty() && !asks) || is_in_callback() || calls_nobody() {
            return None;
        }
        let (mut ids, mut id_use) = calls::enqueue();
        if ids.internal == 0 {
            (ids, id_use) = Use::alone(retirement::wanting(kind, services));
        }
        let callbacks = Arc::new(Self {
            operation,
            subscribers: subscribers(kind, with_callbacks, &id_use, 0),
            services,
            asks,
            is_late: AtomicBool::new(false),
            ids,
            record_use: Mutex::new(id_use),
            thread: own_ids().thread,
            externals: OnceLock::new(),
            done: OnceLock::new(),
        });
        ENQUEUED.with(|enqueued| {
            let mut all = enqueued.take();
            all.push(Arc::clone(&callbacks));
            enqueued.set(all);
        });
        ANY_ENQUEUED.set(true);
        Some(callbacks)
    }

    /// The operation is done, and no thread that may call tools has found it enqueued: tools are told both when it is
    /// done. None if none of these services have callbacks.
    pub fn late(operation: Operation, services: Services, caller: &Caller) -> Option<Arc<Self>> {
        let kind = operation.kind();
        let services = SDK.those(kind, services, |service| service.completions().is_some());
        let callbacks = || Self {
            operation,
            subscribers: subscribers(kind, services, &caller.id_use, WAS_ENQUEUED),
            services,
            asks: false,
            is_late: AtomicBool::new(true),
            ids: caller.ids,
            record_use: Mutex::default(),
            thread: caller.thread,
            externals: caller.externals.clone().into(),
            done: OnceLock::new(),
        };
        (!services.is_empty()).then(|| Arc::new(callbacks()))
    }

    /// The correlation ids that tools are told, and the use of its own by the record.
    pub fn ids(&self) -> (CorrelationIds, Use) {
        (self.ids, take(&self.record_use))
    }

    /// Whether tools have yet to be asked for the external ids of its record.
    pub fn is_open(&self) -> bool {
        self.asks && self.externals.get().is_none()
    }

    /// The external ids that tools have answered with, and others, if tools were asked.
    pub fn externals(&self) -> Option<&Externals> {
        self.externals.get().filter(|_| self.asks)
    }

    /// The operation is done, and a service is to be told so: false if there is no room for that now.
    pub fn complete(
        self: &Arc<Self>,
        service: &Service,
        done: impl FnOnce() -> (usize, Data),
    ) -> bool {
        let mut own = self.subscribers.iter().enumerate();
        let Some((place, subscriber)) =
            own.find(|(_, subscriber)| ptr::eq(subscriber.service, service))
        else {
            return true;
        };
        let has_room = subscriber.completions.has_room();
        if has_room {
            self.done.get_or_init(done);
            self.happens(place, IS_DONE);
        }
        has_room
    }

    /// When both have happened, the tool is told that it is done.
    fn happens(self: &Arc<Self>, place: usize, what: u8) {
        let Some(subscriber) = self.subscribers.get(place) else { return };
        // The thread that comes second sees the data that the first one has left here.
        let before = subscriber.state.fetch_or(what, Ordering::AcqRel);
        if before != 0 && before != what {
            let this = Arc::clone(self);
            subscriber.completions.add(move || {
                if !caught::returns(|| this.tell_done(place)) {
                    log::error(format_args!(
                        "a callback of work that is done has thrown an exception"
                    ));
                }
            });
        }
    }

    /// Tells tools that the operation was enqueued, on the thread that has done so, or else when it is done. A tool may
    /// throw.
    fn tell_enqueued(&self) {
        let kernel = self.operation.kernel();
        // The thread that tells of the end sees this behind the change of a state.
        self.is_late.store(kernel.is_none(), Ordering::Relaxed);
        let (operation, data) = self.operation.enqueued(kernel);
        let means =
            |subscriber: &&Subscriber| kernel.is_some() && subscriber.service.means(operation);
        let tell = |phase, externals: &Externals| {
            self.subscribers
                .iter()
                .filter(means)
                .for_each(|subscriber| self.tell(subscriber, phase, operation, externals, data));
        };
        let &Self { thread, ids, services, .. } = self;
        let kind = self.operation.kind();
        let request = Request {
            thread: thread.into(),
            kind,
            operation: operation as u32,
            correlation_id: ids.internal,
        };
        let answers = SDK.ask(kind, services, &request);
        tell(Phase::Enter, &externals::own().with(&answers));
        let externals = self.externals.get_or_init(|| externals::own().with(&answers));
        if kind == Kind::KernelDispatch {
            tell(Phase::Exit, externals);
        }
    }

    fn tell_done(&self, place: usize) {
        let (Some(subscriber), Some(&(operation, data))) =
            (self.subscribers.get(place), self.done.get())
        else {
            return;
        };
        let phase = match self.operation {
            Operation::Kernel { .. } => Phase::None,
            Operation::Copy { .. } => Phase::Exit,
        };
        let none = Externals::default();
        let externals = self.externals.get().unwrap_or(&none);
        if self.is_late.load(Ordering::Relaxed) {
            let (operation, data) = self.operation.enqueued(self.operation.kernel());
            let is_kernel = self.operation.kind() == Kind::KernelDispatch;
            let phases = if is_kernel { &[Phase::Enter, Phase::Exit][..] } else { &[Phase::Enter] };
            if subscriber.service.means(operation) {
                phases
                    .iter()
                    .for_each(|&phase| self.tell(subscriber, phase, operation, externals, data));
            }
        }
        if subscriber.service.means(operation) {
            self.tell(subscriber, phase, operation, externals, data);
        }
        drop(take(&subscriber.id_use));
    }

    fn tell(
        &self,
        subscriber: &Subscriber,
        phase: Phase,
        operation: usize,
        externals: &Externals,
        mut data: Data,
    ) {
        let event = Event {
            thread: self.thread.into(),
            ids: self.ids,
            external_id: externals.of(subscriber.service),
            kind: self.operation.kind(),
            operation: operation as u32,
            phase,
            payload: data.as_mut_ptr().cast(),
        };
        subscriber.service.tell(&event, subscriber.kept.as_ptr());
    }
}

/// Those of these services that are told; `state` has the events that have happened already.
fn subscribers(kind: Kind, services: Services, id_use: &Use, state: u8) -> Vec<Subscriber> {
    let subscriber = |service: &'static Service| {
        let has_end = kind != Kind::KernelDispatch || service.means(COMPLETE);
        Some(Subscriber {
            service,
            completions: service.completions()?,
            kept: AtomicU64::new(0),
            state: AtomicU8::new(state),
            id_use: Mutex::new(match has_end {
                true => id_use.of(service.client()),
                false => Use::default(),
            }),
        })
    };
    SDK.each(kind, services).filter_map(subscriber).collect()
}

/// Tells tools of the operations that the calling thread has enqueued. A tool may throw: of the rest of the operations
/// tools are told only the completion.
pub fn has_enqueued() {
    if !ANY_ENQUEUED.replace(false) {
        return;
    }
    let all = ENQUEUED.try_with(Cell::take).unwrap_or_default();
    let all: Vec<WasEnqueued> = all.into_iter().map(WasEnqueued).collect();
    let here = 0_u8;
    if let Some(_inside) = InCallback::enter(ptr::from_ref(&here) as usize) {
        all.iter().for_each(|one| one.0.tell_enqueued());
    }
}

/// When this is dropped, tools have been told that the operation was enqueued: also when one throws.
struct WasEnqueued(Arc<Callbacks>);

impl Drop for WasEnqueued {
    fn drop(&mut self) {
        self.0.externals.get_or_init(Externals::default);
        (0..self.0.subscribers.len()).for_each(|place| self.0.happens(place, WAS_ENQUEUED));
    }
}

/// No thread waits for another one here: each takes the use at a time of its own.
fn take(id_use: &Mutex<Use>) -> Use {
    core::mem::take(&mut id_use.lock().unwrap_or_else(PoisonError::into_inner))
}
