//! Calls of HSA, for callbacks and records.
//!
//! * [`open`]: what is kept of the calls that a thread is in.
//! * [`data`]: their arguments and results, as callbacks get them.
//! * [`events`]: what some of them have done.

#![expect(unsafe_code, reason = "functions of the client's")]

mod data;
mod events;
pub mod open;

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use capi_common::hsa::{Functions, MOST_FUNCTIONS};
use roctracer::error::Error;
use roctracer::tracer::{Callback, Source, Wanted};
use tracer_common::activity::Domain;
use tracer_common::calls::{self, Call};
use tracer_common::hsa_functions::SLOTS;
use tracer_hooks::Tables;
use tracer_hooks::calls::{CallSink, Detail};
use tracer_records::api;

use crate::call_record;
use crate::enabled::TRACER;
use crate::gpu;
use capi_sources::client_thread::{InCallback, next_id};
use capi_sources::hsa::Client;
use capi_sources::open::CallbackState;
use events::Events;
use open::THREADS;

/// Calls of HSA.
pub struct Calls {
    /// By operation. Which function that is, is known when the runtime is.
    recorded: [AtomicBool; MOST_FUNCTIONS as usize],
    /// How many are.
    count: AtomicU32,
}

/// The one source of them.
pub static CALLS: Calls = Calls {
    recorded: [const { AtomicBool::new(false) }; MOST_FUNCTIONS as usize],
    count: AtomicU32::new(0),
};

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
        let Some(recorded) = self.recorded.get(op as usize) else { return };
        let now = wanted.callback || wanted.activity;
        // One at a time.
        if recorded.swap(now, Ordering::SeqCst) != now {
            match now {
                true => self.count.fetch_add(1, Ordering::Relaxed),
                false => self.count.fetch_sub(1, Ordering::Relaxed),
            };
        }
        self.follows();
        if let Some(slot) = slot_of(op) {
            self.record(slot);
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
            CALLS.patch(&tables);
        }
    }
}

impl Calls {
    /// Whether anything is wanted that calls tell of.
    fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0 || EVENTS.any()
    }

    /// What is wanted has changed.
    fn follows(&self) {
        gpu::want(gpu::CALLS_OF_HSA, self.any());
    }

    /// What is wanted of events has changed.
    fn follow_events(&self) {
        self.follows();
        self.record_all();
    }
}

impl Client for Calls {
    fn wish(&self, slot: usize) -> Option<calls::Wanted> {
        let operation = u16::try_from(op_of(slot)?).ok()?;
        Some(calls::Wanted { operation, ..api::capture::shim_call(SLOTS.get(slot)?)? })
    }

    fn is_wanted(&self, slot: usize) -> bool {
        let recorded = op_of(slot).and_then(|op| self.recorded.get(op as usize));
        recorded.is_some_and(|recorded| recorded.load(Ordering::SeqCst)) || EVENTS.need(slot)
    }
}

/// The runtime initializes, and has these tables.
pub fn runtime_begins(tables: Tables) {
    Functions::find();
    if gpu::runtime_begins(tables) && CALLS.any() {
        CALLS.patch(&tables);
    }
}

fn callback(op: u32) -> Option<Callback> {
    TRACER.callback(Domain::HSA_API, op)
}

impl CallSink for Calls {
    fn begins(&self, call: &mut Call, at: usize) -> Detail {
        let op = call.operation.into();
        let wanted = TRACER.activity(Domain::HSA_API, op).is_some() || callback(op).is_some();
        call.correlation_id = if wanted { next_id() } else { 0 };
        let is_told = wanted && open::begin(at, call.correlation_id)
            || slot_of(op).is_some_and(|slot| EVENTS.need(slot));
        if is_told { Detail::All } else { Detail::Nothing }
    }

    fn ends(&self, _call: &Call, _at: usize) {}

    /// The client's callback is called, unless the thread is in one.
    fn entered(&self, call: &Call, stack: &[u64], at: usize) {
        let op = call.operation.into();
        if let Some(slot) = slot_of(op).filter(|&slot| EVENTS.need(slot)) {
            events::entered(slot, call, at);
        }
        let Some(Callback { function, argument }) = callback(op) else { return };
        let Some(called) = Functions::found().get(op) else { return };
        let Some(inside) = InCallback::enter(at) else { return };
        let Some(open) = THREADS.find(at) else { return };
        open.callback = CallbackState::Entered;
        open.data.begin(call.correlation_id, called, &call.args, stack);
        open.data.set_phase_data(&raw mut open.phase_data);
        let data = ptr::from_ref(&open.data).cast();
        // SAFETY: the client's function, with the data of its domain.
        unsafe { function(Domain::HSA_API.0, op, data, argument) };
        drop(inside);
        if let Some(open) = THREADS.find(at) {
            open.callback = CallbackState::Returned;
        }
    }

    fn left(&self, call: &Call, at: usize) {
        // Also when the callback throws.
        let _ended = Ends(at);
        let op = call.operation.into();
        let has_returned = call.flags & tracer_common::bpf::flag::ENTRY_ONLY == 0;
        if let Some(slot) = slot_of(op).filter(|&slot| has_returned && EVENTS.need(slot)) {
            events::left(slot, call, at);
        }
        let Some(open) = THREADS.find(at) else { return };
        let state = open.callback;
        // Only who was told of the begin is told of the end.
        if state == CallbackState::Returned
            && has_returned
            && let Some(Callback { function, argument }) = callback(op)
            && let Some(_inside) = InCallback::enter(at)
        {
            open.data.end(call.ret);
            let data = ptr::from_ref(&open.data).cast();
            // SAFETY: the client's function, with the data of its domain.
            unsafe { function(Domain::HSA_API.0, op, data, argument) };
        }
        // A callback that has thrown has kept the call from being made.
        if state != CallbackState::Entered {
            call_record::write(Domain::HSA_API, op, call.correlation_id, call.begin_ns);
        }
    }
}

/// When it is dropped, the call whose frame is there has ended.
struct Ends(usize);

impl Drop for Ends {
    fn drop(&mut self) {
        THREADS.end(self.0);
    }
}
