//! Calls that pass through tables: of HSA, and of HIP since 6.0.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use capi_sources::client_thread::{InCallback, next_id};
use capi_sources::hsa::Client;
use tracer_common::bpf::flag;
use tracer_common::calls::{Call, Wanted};
use tracer_common::slots;
use tracer_hooks::calls::{self, CallSink, Detail};
use tracer_hooks::lock::Lock;
use tracer_hooks::{Tables, contained};

use super::callbacks::Callbacks;
use super::open::{THREADS, innermost};
use super::operations::{OF_TABLES, Operation};
use super::payload::{self, Payload};
use super::record::{self, Begun};
use super::{hip, memory, streams};
use crate::{code_objects, log};

/// Calls that pass through tables.
pub struct Calls;

/// `HSA_STATUS_SUCCESS`.
const SUCCESS: u32 = 0;

fn operation(slot: usize) -> Option<Operation> {
    OF_TABLES.get(slot).copied().flatten()
}

/// Whether calls of a function are to be seen for another kind.
fn is_needed(slot: usize) -> bool {
    code_objects::need(slot) || memory::need(slot) || hip::need(slot)
}

/// The time that one thread waits for another one that changes which calls are recorded.
const WAIT_NS: u64 = 1_000_000_000;

/// Follows the wishes of now. If another thread does so for long, that thread looks once more before it leaves.
pub fn follow_now() {
    static ONE_AT_A_TIME: Lock<()> = Lock::new(());
    static HAS_CHANGED: AtomicBool = AtomicBool::new(false);
    // Pairs with the exchange below: the thread sees the wishes of now behind that.
    HAS_CHANGED.store(true, Ordering::Release);
    let Some(_one) = ONE_AT_A_TIME.lock_for(WAIT_NS) else { return };
    while HAS_CHANGED.swap(false, Ordering::AcqRel) {
        hip::follow();
        Calls.record_all();
    }
}

impl Client for Calls {
    /// Of the arguments it wants an address that the function allocates. The function is known by its place in the
    /// tables.
    fn wish(&self, slot: usize) -> Option<Wanted> {
        let (operation, out_arg) = (slot as u16, memory::output(slot));
        let wanted = Wanted { operation, args: out_arg, out_arg, ..Wanted::default() };
        self::operation(slot).map(|_| wanted)
    }

    fn is_wanted(&self, slot: usize) -> bool {
        let is_one = |of: Operation| of.is_wanted() || streams::are_followed(of);
        operation(slot).is_some_and(is_one) || is_needed(slot)
    }
}

impl CallSink for Calls {
    fn begins(&self, call: &mut Call, at: usize) -> Detail {
        let slot = call.operation.into();
        if hip::need(slot) {
            capi_sources::hip::silence();
        }
        let or = |detail| if is_needed(slot) { Detail::All } else { detail };
        let Some(of) = operation(slot) else { return or(Detail::Nothing) };
        // Before the call is one of those that the thread is in.
        let ancestor = hip::ancestor(at);
        call.correlation_id = next_id();
        let Some(kept) = THREADS.begin(at, call.correlation_id) else { return Detail::Nothing };
        *kept = Begun::new(of, ancestor, || streams::StreamCallbacks::of(of), || call.begin_ns);
        match kept {
            Some(Begun { callbacks: Some(_), .. }) => Detail::All,
            Some(_) => or(Detail::End),
            None => {
                THREADS.end(at);
                or(Detail::Nothing)
            }
        }
    }

    /// Where tools are not told, the call is over here; this may wait for room in a buffer.
    fn ends(&self, call: &Call, at: usize) {
        if let Some(kept) = THREADS.find(at)
            && kept.as_ref().is_some_and(|begun| begun.callbacks.is_none())
        {
            end(kept, at, call.correlation_id, call.end_ns);
        }
    }

    /// Tools are told, unless the thread is in a callback. An exception of a tool's leaves the call.
    fn entered(&self, call: &Call, stack: &[u64], at: usize) {
        let slot = call.operation.into();
        code_objects::entered(slot, call.args[0], at);
        if let (Some(callbacks), Some(operation)) = (callbacks(at), operation(slot))
            && let Some(_inside) = InCallback::enter(at)
        {
            let fill = |payload: &mut Payload| payload.set_words(operation, &call.args, stack);
            callbacks.enter(call.correlation_id, fill);
        }
        let around = || record::share_innermost([hip::innermost(), innermost()]);
        memory::entered(slot, call, at, around);
    }

    /// Tools are told of a call that has returned, and then the call is over.
    fn left(&self, call: &Call, at: usize) {
        let _ends =
            THREADS.find(at).map(|_| Ends { at, id: call.correlation_id, end_ns: call.end_ns });
        let slot = call.operation.into();
        let has_returned = call.flags & flag::ENTRY_ONLY == 0;
        let has_succeeded = has_returned && call.ret as u32 == SUCCESS;
        code_objects::left(slot, call.args[0], has_succeeded, at);
        memory::left(slot, call, at);
        if has_returned
            && let (Some(callbacks), Some(operation)) = (callbacks(at), operation(slot))
            && let Some(_inside) = InCallback::enter(at)
        {
            let fill = |payload: &mut Payload| payload.set_result(operation, call.ret);
            callbacks.exit(call.correlation_id, Some(has_succeeded), fill);
        }
    }

    fn hip_is_patched(&self) {
        log::info(format_args!("calls of HIP are recorded through its dispatch tables"));
    }
}

/// Has calls recorded that pass through the HSA runtime's tables, and through HIP's: as soon as these are made.
pub fn patch(tables: &Tables) {
    payload::prepare();
    Calls.patch(tables);
    let is_there = || calls::in_place() & slots::tables::HIP != 0;
    if hip::need_tables() && !is_there() {
        contained(calls::patch_hip);
        if is_there() {
            Calls.hip_is_patched();
        }
    }
}

/// The callbacks of the call whose frame is at `at`, if tools are told of it.
fn callbacks(at: usize) -> Option<Rc<Callbacks>> {
    THREADS.find(at)?.as_ref()?.callbacks.clone()
}

/// The call whose frame is at `at` is over; `kept` is the data that is kept of it.
fn end(kept: &mut Option<Begun>, at: usize, id: u64, end_ns: u64) {
    if let Some(begun) = kept {
        begun.end(id, end_ns);
    }
    *kept = None;
    THREADS.end(at);
}

/// When this is dropped, the call whose frame is there is over: also when a callback throws.
struct Ends {
    at: usize,
    id: u64,
    end_ns: u64,
}

impl Drop for Ends {
    fn drop(&mut self) {
        contained(|| {
            if let Some(kept) = THREADS.find(self.at) {
                end(kept, self.at, self.id, self.end_ns);
            }
        });
    }
}
