//! Calls of HSA, for callbacks and records.
//!
//! * [`open`]: the calls that a thread is in, and their data.
//! * [`data`]: their arguments and results, as callbacks get them.
//! * [`events`]: the effects of some of them.

mod data;
mod events;
pub mod open;

use capi_common::hsa::{Functions, MOST_FUNCTIONS};
use capi_sources::hsa::Client;
use capi_sources::open::OfThreads;
use roctracer::error::Error;
use roctracer::tracer::{Source, Wanted};
use tracer_common::activity::Domain;
use tracer_common::bpf::flag;
use tracer_common::calls::{self, Call};
use tracer_common::hsa_functions::SLOTS;
use tracer_hooks::Tables;
use tracer_records::api;

use crate::gpu;
use crate::operations::Operations;
use crate::table_calls::{self, OpenCall, Runtime};
use data::Data;
use events::Events;

/// The HSA runtime.
pub struct Hsa;

/// Calls of HSA.
pub struct Calls {
    /// The function of an operation is known when the runtime is.
    wanted: Operations<{ MOST_FUNCTIONS as usize }>,
}

/// The one source of them.
pub static CALLS: Calls = Calls { wanted: Operations::new() };

/// The one source of events.
pub static EVENTS: Events = Events::new(|| CALLS.follow_events(), || CALLS.begin());

/// The place of an operation's function in the runtime's tables.
fn slot_of(op: u32) -> Option<usize> {
    Functions::found().get(op).map(|function| function.slot)
}

/// The operation of a function.
fn op_of(slot: usize) -> Option<u32> {
    Functions::found().number_of_slot(slot)
}

impl Source for Calls {
    fn follow(&self, op: u32, wanted: Wanted) {
        self.wanted.set(op, wanted);
        self.follows();
        if let Some(slot) = slot_of(op) {
            table_calls::CALLS.record(slot);
        }
    }

    fn prepare(&self) -> Result<(), Error> {
        Functions::find();
        Ok(())
    }

    fn begin(&self) {
        Functions::find();
        if self.any()
            && let Some(tables) = gpu::begin()
        {
            table_calls::CALLS.patch(&tables);
        }
    }
}

impl Calls {
    /// Whether anything is wanted that calls report.
    fn any(&self) -> bool {
        self.wanted.any() || EVENTS.any()
    }

    /// The wanted calls have changed.
    fn follows(&self) {
        gpu::want(gpu::CALLS_OF_HSA, self.any());
    }

    /// The wanted events have changed.
    fn follow_events(&self) {
        self.follows();
        table_calls::CALLS.record_all();
    }
}

impl Runtime for Hsa {
    const DOMAIN: Domain = Domain::HSA_API;
    type Data = Data;
    const THREADS: OfThreads<OpenCall<Data>> = open::THREADS;

    fn wish(slot: usize) -> Option<calls::Wanted> {
        let operation = u16::try_from(op_of(slot)?).ok()?;
        Some(calls::Wanted { operation, ..api::capture::shim_call(SLOTS.get(slot)?)? })
    }

    fn is_wanted(slot: usize) -> bool {
        op_of(slot).is_some_and(|op| CALLS.wanted.has(op)) || EVENTS.need(slot)
    }

    fn op(call: &Call) -> u32 {
        call.operation.into()
    }

    fn comes(call: &Call) -> bool {
        need_for_events(call).is_some()
    }

    fn event_begins(call: &Call, at: usize) {
        if let Some(slot) = need_for_events(call) {
            events::entered(slot, call, at);
        }
    }

    fn event_ends(call: &Call, at: usize) {
        let has_returned = call.flags & flag::ENTRY_ONLY == 0;
        if let Some(slot) = need_for_events(call).filter(|_| has_returned) {
            events::left(slot, call, at);
        }
    }

    fn begin(data: &mut Data, call: &Call, stack: &[u64], phase_data: *mut u64) {
        if let Some(called) = Functions::found().get(Self::op(call)) {
            data.begin(call.correlation_id, called, &call.args, stack);
            data.set_phase_data(phase_data);
        }
    }

    fn end(data: &mut Data, call: &Call) {
        data.end(call.ret);
    }
}

/// The runtime initializes, and has these tables.
pub fn runtime_begins(tables: Tables) {
    Functions::find();
    if gpu::runtime_begins(tables) && CALLS.any() {
        table_calls::CALLS.patch(&tables);
    }
}

/// The place of the function that is called, if it reports an event that is wanted.
fn need_for_events(call: &Call) -> Option<usize> {
    slot_of(Hsa::op(call)).filter(|&slot| EVENTS.need(slot))
}
