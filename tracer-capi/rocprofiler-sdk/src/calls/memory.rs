//! Memory that calls of HSA allocate and give back (`MEMORY_ALLOCATION`, since 1.0).
//!
//! Its correlation id is that of the innermost call that the thread is in, or one of its own where no call is traced.

use std::rc::Rc;

use capi_sources::calls_of_threads;
use capi_sources::hsa::agent_of_pool;
use capi_sources::open::OfThreads;
use rocprofiler::callback::CorrelationIds;
use rocprofiler::kinds::Kind;
use rocprofiler::threads::CallbackThread;
use tracer_common::bpf::flag;
use tracer_common::calls::Call;
use tracer_common::hsa_functions::slot;

use crate::layout::agent_id;
use crate::retirement::{self, Use};
use crate::traced_operation::TracedOperation;
use crate::{SDK, process, records};

const KIND: Kind = Kind::MemoryAllocation;

/// The effect of a function: the operations of the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MemoryEffect {
    Allocate = 1,
    AllocateVirtual = 2,
    Free = 3,
    FreeVirtual = 4,
}

impl MemoryEffect {
    fn allocates(self) -> bool {
        matches!(self, Self::Allocate | Self::AllocateVirtual)
    }
}

/// The functions, and the argument that is the address, or the place for it. A function that allocates has a pool or a
/// region, and the number of bytes, before it.
const FUNCTIONS: [(usize, MemoryEffect, u8); 6] = [
    (slot("hsa_memory_allocate"), MemoryEffect::Allocate, 2),
    (slot("hsa_amd_memory_pool_allocate"), MemoryEffect::Allocate, 3),
    (slot("hsa_amd_vmem_handle_create"), MemoryEffect::AllocateVirtual, 4),
    (slot("hsa_memory_free"), MemoryEffect::Free, 0),
    (slot("hsa_amd_memory_pool_free"), MemoryEffect::Free, 0),
    (slot("hsa_amd_vmem_handle_release"), MemoryEffect::FreeVirtual, 0),
];

fn of(slot: usize) -> Option<(MemoryEffect, u8)> {
    FUNCTIONS.iter().find(|(of, ..)| *of == slot).map(|&(_, does, address)| (does, address))
}

/// Whether the calls of a function are to be seen for this kind.
pub fn need(slot: usize) -> bool {
    SDK.is_wanted(KIND) && of(slot).is_some()
}

/// The argument that is the place for an address, plus 1; 0 of functions that have none.
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

const THREADS: OfThreads<Option<Rc<TracedOperation<Payload>>>> =
    calls_of_threads!(Option<Rc<TracedOperation<Payload>>>);

/// A call begins, whose frame is at `at`: tools are told, which may throw. `around` shares the id of the innermost call
/// that is recorded.
pub fn entered(
    slot: usize,
    call: &Call,
    at: usize,
    around: impl FnOnce() -> (CorrelationIds, Use),
) {
    let Some((does, address)) = of(slot) else { return };
    if CallbackThread::is_any_current() || process::is_forked() {
        return;
    }
    let services = SDK.wanting(KIND, Some(does as usize));
    if services.is_empty() {
        return;
    }
    let (mut ids, mut id_use) = around();
    if ids.internal == 0 {
        (ids, id_use) = Use::alone(retirement::wanting(KIND, services));
    }
    let payload = Payload::new(does, &call.args, address);
    let traced =
        Rc::new(TracedOperation::new((KIND, does as u32), services, payload, (ids, id_use)));
    if THREADS.begin(at, traced.ids.internal).map(|kept| *kept = Some(Rc::clone(&traced))).is_some()
    {
        traced.begin(at);
    }
}

/// The call has returned, or an exception has left it.
pub fn left(slot: usize, call: &Call, at: usize) {
    if of(slot).is_none() {
        return;
    }
    let Some(traced) = THREADS.take(at).flatten() else { return };
    if call.flags & flag::ENTRY_ONLY != 0 || process::is_forked() {
        return;
    }
    let payload = traced.payload().ended(call);
    traced.set_payload(payload);
    traced.end(at);
    // It may wait for room in a buffer.
    let Payload { begin_ns, end_ns, agent, address, bytes, .. } = payload;
    for (buffer, common) in traced.buffers([begin_ns, end_ns]) {
        buffer.write(&records::allocation(&common, agent, address, bytes));
    }
}

impl Payload {
    fn new(does: MemoryEffect, args: &[u64; 6], address: u8) -> Self {
        let [source, bytes, ..] = *args;
        let payload = Self { size: size_of::<Self>(), ..Self::default() };
        if does.allocates() {
            let agent = agent_of_pool(source).and_then(tracer_hooks::device);
            let agent = agent.map_or(0, |(_, node)| agent_id(node));
            Self { agent, bytes, ..payload }
        } else {
            let address = args.get(usize::from(address)).copied().unwrap_or(0);
            Self { address, ..payload }
        }
    }

    /// The call has returned. One that has failed has allocated nothing: it has no address.
    fn ended(self, call: &Call) -> Self {
        let has_address = call.flags & flag::OUT_VALUE != 0;
        let address = if has_address { call.extra[0] } else { self.address };
        Self { begin_ns: call.begin_ns, end_ns: call.end_ns, address, ..self }
    }
}
