//! Calls of HIP: what the runtime tells of them becomes callbacks and records.
//!
//! * [`runtime`]: the HIP runtime that is loaded, and its functions for tracers.
//! * [`calls`]: the calls that a thread is in.
//!
//! Runtimes of before ROCm 5.3.1 have two functions for each operation. The one that is set by
//! `hipRegisterActivityCallback` is called when a call begins, and returns where HIP is to put the arguments; and
//! again when it has ended. Between these the one of `hipRegisterApiCallback` is called with the arguments, before
//! and after the work.

#![expect(unsafe_code, reason = "functions that HIP calls")]

mod calls;
mod runtime;

use core::ffi::c_void;
use std::panic::catch_unwind;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use roctracer::timestamp_ns;
use roctracer::tracer::{Callback, Source, Wanted};
use tracer_common::activity::{ActivityRecord, Domain};

use crate::call_record;
use crate::client_thread::InCallback;
use crate::enabled::TRACER;
use calls::{ApiData, ENTER, Ended};
use runtime::Runtime;

pub use calls::innermost_id;

/// Calls of HIP.
pub struct Calls {
    /// By operation: 0, or one more than the bits of what is followed.
    followed: [AtomicU8; OPERATIONS],
}

/// More than any release has.
const OPERATIONS: usize = 1024;

/// The one source of them.
pub static CALLS: Calls = Calls { followed: [const { AtomicU8::new(0) }; OPERATIONS] };

/// Any argument but null: HIP calls the function with that at the end of a call, and with null at its begin.
const AT_END: *mut c_void = ptr::without_provenance_mut(1);

impl Source for Calls {
    /// What is wanted before HIP is loaded is followed when it is asked for again.
    fn follow(&self, op: u32, wanted: Wanted) {
        let (Some(runtime), Some(followed)) = (Runtime::get(), self.followed.get(op as usize))
        else {
            return;
        };
        let now = 1 + u8::from(wanted.callback) + 2 * u8::from(wanted.activity);
        // One at a time.
        let before = followed.swap(now, Ordering::Relaxed);
        if before == 0 {
            runtime.set_activity(op, None, AT_END);
        }
        // Calls wait while something is registered.
        if before != now {
            runtime.set_callback(op, wanted.callback.then_some((on_call, ptr::null_mut())));
            let called = wanted.callback || wanted.activity;
            runtime.set_activity(op, called.then_some(on_activity), AT_END);
        }
    }

    fn prepare(&self) {
        Runtime::look();
    }
}

/// A call begins, and wants a place for its arguments: null has HIP tell no more of it. Or it has ended.
unsafe extern "C-unwind" fn on_activity(
    op: u32,
    _record: *mut ActivityRecord,
    _data: *const c_void,
    argument: *mut c_void,
) -> *mut c_void {
    // Nothing of the client's is called here.
    let done = catch_unwind(|| if argument.is_null() { begin(op) } else { end(op) });
    done.unwrap_or(ptr::null_mut())
}

fn begin(op: u32) -> *mut c_void {
    // The time takes longer than all else.
    if TRACER.activity(Domain::HIP_API, op).is_some() {
        calls::push(op, Some(timestamp_ns()))
    } else if TRACER.callback(Domain::HIP_API, op).is_some() {
        calls::push(op, None)
    } else {
        ptr::null_mut()
    }
}

fn end(op: u32) -> *mut c_void {
    if let Some(Ended { correlation_id, begin_ns: Some(begin_ns) }) = calls::pop(op) {
        call_record::write(Domain::HIP_API, op, correlation_id, begin_ns);
    }
    ptr::null_mut()
}

/// A call's arguments are there, or its result; the client's callback is called.
unsafe extern "C-unwind" fn on_call(_domain: u32, op: u32, data: *const c_void, _: *mut c_void) {
    // SAFETY: what `begin` has returned.
    let phase = unsafe { (*data.cast::<ApiData>()).phase };
    let Some(callback) = TRACER.callback(Domain::HIP_API, op) else { return };
    // Calls that a callback makes call none.
    let Some(inside) = InCallback::enter((&raw const phase).addr()) else { return };
    // Only who was told of the begin is told of the end.
    let begins = phase == ENTER;
    if !(if begins { calls::begins_callback() } else { calls::ends_callback() }) {
        return;
    }
    let Callback { function, argument } = callback;
    // SAFETY: the client's function, with the data of its domain.
    unsafe { function(Domain::HIP_API.0, op, data, argument) };
    drop(inside);
    if begins {
        calls::was_told();
    }
}
