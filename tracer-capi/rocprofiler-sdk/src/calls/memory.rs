//! Memory that calls of HSA allocate and give back (`MEMORY_ALLOCATION`, since 1.0).
//!
//! Its correlation id is that of the innermost call that the thread is in, or one of its own where no call is traced.

use core::cell::{Cell, RefCell, UnsafeCell};
use core::ffi::c_void;
use std::rc::Rc;

use capi_sources::calls_of_threads;
use capi_sources::client_thread::{InCallback, next_id};
use capi_sources::hsa::agent_of_pool;
use capi_sources::open::OfThreads;
use rocprofiler::callback::{Event, Phase, Request};
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::{Answers, Externals, Service, Services};
use rocprofiler::threads::CallbackThread;
use roctracer::thread::own_ids;
use tracer_common::bpf::flag;
use tracer_common::calls::Call;
use tracer_common::hsa_functions::slot;

use crate::layout::{agent_id, number};
use crate::records::{self, Common};
use crate::retirement::{self, Use};
use crate::{SDK, externals, process};

const KIND: Kind = Kind::MemoryAllocation;

/// What a function does: the operations of the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Does {
    Allocate = 1,
    AllocateVirtual = 2,
    Free = 3,
    FreeVirtual = 4,
}

impl Does {
    fn allocates(self) -> bool {
        matches!(self, Self::Allocate | Self::AllocateVirtual)
    }
}

/// The functions, and which argument the address is, or the place for it. One that allocates has a pool before it, or a
/// region, and how many bytes.
const FUNCTIONS: [(usize, Does, u8); 6] = [
    (slot("hsa_memory_allocate"), Does::Allocate, 2),
    (slot("hsa_amd_memory_pool_allocate"), Does::Allocate, 3),
    (slot("hsa_amd_vmem_handle_create"), Does::AllocateVirtual, 4),
    (slot("hsa_memory_free"), Does::Free, 0),
    (slot("hsa_amd_memory_pool_free"), Does::Free, 0),
    (slot("hsa_amd_vmem_handle_release"), Does::FreeVirtual, 0),
];

fn of(slot: usize) -> Option<(Does, u8)> {
    FUNCTIONS.iter().find(|(of, ..)| *of == slot).map(|&(_, does, address)| (does, address))
}

/// Whether the calls of a function are to be seen for that.
pub fn need(slot: usize) -> bool {
    SDK.is_wanted(KIND) && of(slot).is_some()
}

/// Which argument is the place for an address, plus 1; 0 of functions that have none.
pub fn output(slot: usize) -> u8 {
    of(slot).filter(|(does, _)| does.allocates()).map_or(0, |(_, place)| place + 1)
}

/// `rocprofiler_callback_tracing_memory_allocation_data_t`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Payload {
    size: usize,
    begin_ns: u64,
    end_ns: u64,
    agent: u64,
    address: u64,
    bytes: u64,
}

/// A call that allocates or frees, and who is told of it.
struct Told {
    does: Does,
    services: Services,
    /// What each callback keeps.
    callbacks: Vec<(&'static Service, UnsafeCell<u64>)>,
    /// Callbacks have been told of the begin.
    has_begun: Cell<bool>,
    payload: UnsafeCell<Payload>,
    answers: Answers,
    externals: RefCell<Externals>,
    id: u64,
    /// It uses the id until it has ended.
    _id_use: Use,
}

const THREADS: OfThreads<Option<Rc<Told>>> = calls_of_threads!(Option<Rc<Told>>);

/// A call begins, whose frame is there: tools are told, which may throw. `around` shares the id of the innermost call that is
/// recorded.
pub fn entered(slot: usize, call: &Call, at: usize, around: impl FnOnce() -> (u64, Use)) {
    let Some((does, address)) = of(slot) else { return };
    if CallbackThread::is_any_current() || process::is_forked() {
        return;
    }
    let services = SDK.wanting(KIND, Some(does as usize));
    if services.is_empty() {
        return;
    }
    let told = Rc::new(Told::new(does, services, (&call.args, address), around()));
    if THREADS.begin(at, told.id).map(|kept| *kept = Some(Rc::clone(&told))).is_some()
        && let Some(_inside) = InCallback::enter(at)
    {
        told.tell(Phase::Enter);
        told.externals.replace(externals::own().with(&told.answers));
        told.has_begun.set(true);
    }
}

/// It has returned, or an exception has left it.
pub fn left(call: &Call, at: usize) {
    let Some(told) = THREADS.find(at).and_then(Option::take) else { return };
    THREADS.end(at);
    if call.flags & flag::ENTRY_ONLY != 0 || process::is_forked() {
        return;
    }
    told.end(call);
    if told.has_begun.get()
        && let Some(_inside) = InCallback::enter(at)
    {
        told.tell(Phase::Exit);
    }
    told.write();
}

impl Told {
    fn new(
        does: Does,
        services: Services,
        (args, address): (&[u64; 6], u8),
        (mut id, mut id_use): (u64, Use),
    ) -> Self {
        if id == 0 {
            id = next_id();
            id_use = Use::alone(id, retirement::wanting(KIND, services));
        }
        let thread = own_ids().thread.into();
        let request = Request { thread, kind: KIND, operation: does as u32, correlation_id: id };
        let answers = SDK.ask(KIND, services, &request);
        let all = SDK.each(KIND, services).filter(|service| service.is_told());
        let [source, bytes, ..] = *args;
        let mut payload = Payload { size: size_of::<Payload>(), ..Payload::default() };
        if does.allocates() {
            let agent = agent_of_pool(source).and_then(tracer_hooks::device);
            payload.agent = agent.map_or(0, |(_, node)| agent_id(node));
            payload.bytes = bytes;
        } else {
            payload.address = args.get(usize::from(address)).copied().unwrap_or(0);
        }
        Self {
            does,
            services,
            callbacks: all.map(|service| (service, UnsafeCell::new(0))).collect(),
            has_begun: Cell::new(false),
            payload: UnsafeCell::new(payload),
            externals: RefCell::new(externals::own().with(&answers)),
            answers,
            id,
            _id_use: id_use,
        }
    }

    /// The call has returned. One that has failed has allocated nothing: it has no address.
    #[expect(unsafe_code, reason = "memory that tools have pointers to")]
    fn end(&self, call: &Call) {
        // SAFETY: the thread's own, and no tool is called just now.
        let payload = unsafe { &mut *self.payload.get() };
        (payload.begin_ns, payload.end_ns) = (call.begin_ns, call.end_ns);
        if call.flags & flag::OUT_VALUE != 0 {
            payload.address = call.extra[0];
        }
    }

    fn tell(&self, phase: Phase) {
        let event = Event {
            thread: own_ids().thread.into(),
            correlation_id: self.id,
            external_id: 0,
            kind: KIND,
            operation: self.does as u32,
            phase,
            payload: self.payload.get().cast::<c_void>(),
        };
        for (service, kept) in &self.callbacks {
            let external_id = self.externals.borrow().of(service);
            service.tell(&Event { external_id, ..event }, kept.get());
        }
    }

    /// Writes its records. It may wait for room in a buffer.
    #[expect(unsafe_code, reason = "memory that tools have pointers to")]
    fn write(&self) {
        // SAFETY: the thread's own, and no tool is called just now.
        let Payload { begin_ns, end_ns, agent, address, bytes, .. } =
            unsafe { *self.payload.get() };
        let externals = self.externals.borrow();
        for service in SDK.each(KIND, self.services) {
            let Some(buffer) = service.buffer() else { continue };
            let common = Common {
                kind: number(KIND),
                operation: self.does as u32,
                correlation_id: self.id,
                external_id: externals.of(service),
                begin_ns,
                end_ns,
                thread: own_ids().thread,
            };
            buffer.write(&records::allocation(&common, agent, address, bytes));
        }
    }
}
