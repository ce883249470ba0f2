//! Calls of HSA, which pass through thunks in the runtime's tables ([`tracer_hooks::calls`]).
//!
//! * [`open`]: the calls that a thread is in.
//! * [`data`]: their arguments and results, as callbacks get them.
//! * [`events`]: what some of them have done.
//!
//! The first `hsa_init` is not told of, since the tables are made inside of it.

#![expect(unsafe_code, reason = "functions of the client's")]

mod data;
mod events;
pub mod open;

use std::ptr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use roctracer::tracer::{Callback, Source, Wanted};
use tracer_common::activity::Domain;
use tracer_common::calls::Call;
use tracer_common::hsa_functions::SLOTS;
use tracer_hooks::calls::{self, CallSink};
use tracer_hooks::{Tables, contained};
use tracer_records::api;

use crate::call_record;
use crate::enabled::TRACER;
use crate::gpu;
use capi_sources::client_thread::{InCallback, next_id};
use events::Events;
use open::Called;

/// More than there are operations.
const OPERATIONS: usize = 192;

/// Calls of HSA.
pub struct Calls {
    /// By operation.
    recorded: [AtomicBool; OPERATIONS],
    /// How many are.
    count: AtomicU32,
}

/// The one source of them.
pub static CALLS: Calls =
    Calls { recorded: [const { AtomicBool::new(false) }; OPERATIONS], count: AtomicU32::new(0) };

/// The one source of events.
pub static EVENTS: Events = Events::new(|| CALLS.follow_events(), || CALLS.begin());

/// Places of the runtime's tables, by operation: those of functions that roctracer has an id for.
static SLOT_OF: LazyLock<[Option<usize>; OPERATIONS]> = LazyLock::new(|| {
    let mut slots = [None; OPERATIONS];
    for (slot, function) in SLOTS.iter().enumerate() {
        let op = api::by_name(function.name).filter(|op| op.domain == Domain::HSA_API);
        if let Some(place) = op.and_then(|op| slots.get_mut(usize::from(op.id))) {
            *place = Some(slot);
        }
    }
    slots
});

fn slot_of(op: u32) -> Option<usize> {
    SLOT_OF.get(op as usize).copied().flatten()
}

impl Source for Calls {
    fn follow(&self, op: u32, wanted: Wanted) {
        let (Some(recorded), Some(slot)) = (self.recorded.get(op as usize), slot_of(op)) else {
            return;
        };
        let now = wanted.callback || wanted.activity;
        // One at a time.
        if recorded.swap(now, Ordering::SeqCst) != now {
            match now {
                true => self.count.fetch_add(1, Ordering::Relaxed),
                false => self.count.fetch_sub(1, Ordering::Relaxed),
            };
        }
        self.follows();
        self.record(op, slot);
    }

    fn begin(&self) {
        if !self.any() {
            return;
        }
        want();
        if let Some(tables) = gpu::begin() {
            self.patch(&tables);
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

    fn patch(&self, tables: &Tables) {
        contained(|| calls::patch(tables));
        self.record_all();
    }

    fn record_all(&self) {
        for op in 0..OPERATIONS as u32 {
            if let Some(slot) = slot_of(op) {
                self.record(op, slot);
            }
        }
    }

    fn is_wanted(&self, op: u32, slot: usize) -> bool {
        let recorded = self.recorded.get(op as usize);
        recorded.is_some_and(|recorded| recorded.load(Ordering::SeqCst)) || EVENTS.need(slot)
    }

    /// Has calls of an operation recorded, or not, as is wanted.
    fn record(&self, op: u32, slot: usize) {
        loop {
            let now = self.is_wanted(op, slot);
            calls::record(slot, now);
            // Another thread may have changed it, and come first.
            if self.is_wanted(op, slot) == now {
                return;
            }
        }
    }
}

/// Says which functions there may be calls of: all that roctracer has an id for.
fn want() {
    let wishes = SLOTS.iter().map(|slot| {
        let wanted = api::capture::shim_call(slot);
        let wanted = wanted.filter(|wanted| slot_of(wanted.operation.into()).is_some());
        wanted.map_or(0, |wanted| wanted.to_word())
    });
    calls::want(wishes, &CALLS);
}

/// The runtime initializes, and has these tables.
pub fn runtime_begins(tables: Tables) {
    let calls = CALLS.any();
    if calls {
        want();
    }
    if gpu::runtime_begins(tables) && calls {
        CALLS.patch(&tables);
    }
}

fn callback(op: u32) -> Option<Callback> {
    TRACER.callback(Domain::HSA_API, op)
}

impl CallSink for Calls {
    fn begins(&self, call: &mut Call, at: usize) -> bool {
        let op = call.operation.into();
        let wanted = TRACER.activity(Domain::HSA_API, op).is_some() || callback(op).is_some();
        call.correlation_id = if wanted { next_id() } else { 0 };
        wanted && open::begin(at, call.correlation_id)
            || slot_of(op).is_some_and(|slot| EVENTS.need(slot))
    }

    fn ends(&self, _call: &Call, _at: usize) {}

    /// The client's callback is called, unless the thread is in one.
    fn entered(&self, call: &Call, stack: &[u64], at: usize) {
        let op = call.operation.into();
        if let Some(slot) = slot_of(op).filter(|&slot| EVENTS.need(slot)) {
            events::entered(slot, call, at);
        }
        let Some(Callback { function, argument }) = callback(op) else { return };
        let Some(inside) = InCallback::enter(at) else { return };
        let Some(open) = open::find(at) else { return };
        open.called = Called::Entered;
        open.data.begin(call.correlation_id, op, &call.args, stack);
        open.data.set_phase_data(&raw mut open.phase_data);
        let data = ptr::from_ref(&open.data).cast();
        // SAFETY: the client's function, with the data of its domain.
        unsafe { function(Domain::HSA_API.0, op, data, argument) };
        drop(inside);
        if let Some(open) = open::find(at) {
            open.called = Called::Yes;
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
        let Some(open) = open::find(at) else { return };
        let called = open.called;
        // Only who was told of the begin is told of the end.
        if called == Called::Yes
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
        if called != Called::Entered {
            call_record::write(Domain::HSA_API, op, call.correlation_id, call.begin_ns);
        }
    }
}

/// When it is dropped, the call whose frame is there has ended.
struct Ends(usize);

impl Drop for Ends {
    fn drop(&mut self) {
        open::end(self.0);
    }
}
