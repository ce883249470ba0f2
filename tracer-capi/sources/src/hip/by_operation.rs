//! Runtimes of before ROCm 5.3.1, which have two functions for each operation.
//!
//! The one that is set by `hipRegisterActivityCallback` is called when a call begins, and returns where HIP is to put
//! the arguments; and again when it has ended. Between these the one of `hipRegisterApiCallback` is called with the
//! arguments, before and after the work.

#![expect(unsafe_code, reason = "functions of HIP's, and memory that it writes into")]

use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU8, Ordering};

use capi_common::hip::MOST_FUNCTIONS;
use roctracer::tracer::{Callback, CallbackFunction, Wanted};
use tracer_common::activity::{ActivityRecord, Domain};

use super::client::{self, ApiData, Client, OpenCall};
use super::protocol::Protocol;
use crate::client_thread::{InCallback, next_id};
use crate::open::CallbackState;
use capi_common::loaded::Loaded;

/// `activity_sync_callback_t`, which returns the place for a call's arguments here.
type ActivityFunction = unsafe extern "C-unwind" fn(
    u32,
    *mut ActivityRecord,
    *const c_void,
    *mut c_void,
) -> *mut c_void;

type RegisterCallback = unsafe extern "C" fn(u32, CallbackFunction, *mut c_void) -> c_int;
type RegisterActivity = unsafe extern "C" fn(u32, Option<ActivityFunction>, *mut c_void) -> c_int;
type Remove = unsafe extern "C" fn(u32) -> c_int;

/// Such a runtime.
pub struct ByOperation {
    register_callback: RegisterCallback,
    remove_callback: Remove,
    register_activity: RegisterActivity,
    on_call: CallbackFunction,
    on_activity: ActivityFunction,
    /// By operation: 0, or one more than the bits of the followed parts.
    followed: Vec<AtomicU8>,
}

/// Any argument but null: HIP calls the function with this argument at the end of a call, and with null at its begin.
const AT_END_OF_CALL: *mut c_void = ptr::without_provenance_mut(1);

impl ByOperation {
    pub fn of<C: Client>(library: &Loaded) -> Option<Self> {
        let callback = library.function(c"hipRegisterApiCallback")?;
        let no_callback = library.function(c"hipRemoveApiCallback")?;
        let activity = library.function(c"hipRegisterActivityCallback")?;
        // SAFETY: functions of these types, by their names.
        unsafe {
            Some(Self {
                register_callback: transmute::<*mut c_void, RegisterCallback>(callback),
                remove_callback: transmute::<*mut c_void, Remove>(no_callback),
                register_activity: transmute::<*mut c_void, RegisterActivity>(activity),
                on_call: on_call::<C>,
                on_activity: on_activity::<C>,
                followed: (0..MOST_FUNCTIONS).map(|_| AtomicU8::new(0)).collect(),
            })
        }
    }

    /// Sets the function that is called with the arguments of an operation, or none. Fails for an operation that the
    /// runtime does not have, whose calls will not be seen.
    fn set_callback(&self, op: u32, function: Option<CallbackFunction>) {
        // SAFETY: HIP's functions, and functions of ours that stay.
        let _ = unsafe {
            match function {
                Some(function) => (self.register_callback)(op, function, ptr::null_mut()),
                None => (self.remove_callback)(op),
            }
        };
    }

    /// The same for the function that is called at the begin and at the end of a call, with an argument at the end. The
    /// runtime may read the function while it is set, with the argument of before: the argument is always the same, and
    /// is set first without a function.
    fn set_activity(&self, op: u32, function: Option<ActivityFunction>) {
        // SAFETY: HIP's function, and one of ours that stays.
        unsafe { (self.register_activity)(op, function, AT_END_OF_CALL) };
    }
}

impl Protocol for ByOperation {
    fn follow(&self, op: u32, wanted: Wanted) {
        let Some(followed) = self.followed.get(op as usize) else { return };
        let is_wanted = wanted.callback || wanted.activity;
        if !is_wanted && followed.load(Ordering::Relaxed) == 0 {
            return;
        }
        let now = 1 + u8::from(wanted.callback) + 2 * u8::from(wanted.activity);
        let before = followed.swap(now, Ordering::Relaxed);
        if before == 0 {
            self.set_activity(op, None);
        }
        // Calls wait while something is registered.
        if before != now {
            self.set_callback(op, wanted.callback.then_some(self.on_call));
            self.set_activity(op, is_wanted.then_some(self.on_activity));
        }
    }

    fn waits(&self) -> bool {
        true
    }

    fn has_tables(&self) -> bool {
        false
    }
}

/// `ACTIVITY_API_PHASE_ENTER`.
const ENTER: u32 = 0;

/// A call begins, and HIP wants a place for its arguments: null has HIP tell no more of the call. Or a call has ended.
unsafe extern "C-unwind" fn on_activity<C: Client>(
    op: u32,
    _record: *mut ActivityRecord,
    _data: *const c_void,
    argument: *mut c_void,
) -> *mut c_void {
    // Nothing of the client's is called here.
    let done = catch_unwind(|| if argument.is_null() { begin::<C>(op) } else { end::<C>(op) });
    done.unwrap_or(ptr::null_mut())
}

fn begin<C: Client>(op: u32) -> *mut c_void {
    let recorded = C::begin(op);
    if recorded.is_none() && C::callback(op, None).is_none() {
        return ptr::null_mut();
    }
    let correlation_id = next_id();
    let Some(kept) = client::begin::<C>(op, 0, correlation_id, recorded) else {
        return ptr::null_mut();
    };
    kept.data.api = ApiData { correlation_id, phase: ENTER };
    ptr::from_mut(kept).cast()
}

fn end<C: Client>(op: u32) -> *mut c_void {
    if let Some((id, recorded)) = client::end::<C>(|call| call.kept.op == op) {
        C::end(op, id, recorded);
    }
    ptr::null_mut()
}

/// A call's arguments are there, or its result; the client's callback is called.
unsafe extern "C-unwind" fn on_call<C: Client>(
    _domain: u32,
    op: u32,
    data: *const c_void,
    _: *mut c_void,
) {
    // The pointer that `begin` has returned, the thread's own.
    let kept = data.cast_mut().cast::<OpenCall<C::Begin>>();
    // SAFETY: it was written when the call began, and nobody else has it now.
    let begin = unsafe { (*kept).begin.as_ref() };
    let Some(Callback { function, argument }) = C::callback(op, begin) else { return };
    // Calls that a callback makes call none.
    let Some(inside) = InCallback::enter((&raw const op).addr()) else { return };
    // SAFETY: as above; HIP writes the phase.
    let (state, begins) = unsafe { (&mut (*kept).callback, (*kept).data.api.phase == ENTER) };
    match (begins, *state) {
        (true, CallbackState::NotCalled) => *state = CallbackState::Entered,
        // Only a callback that was told of the begin is told of the end.
        (false, CallbackState::Returned) => {}
        // HIP says once more that a call begins when it ends by an exception of the callback's.
        _ => return,
    }
    // SAFETY: the client's function, with the data of its domain.
    unsafe { function(Domain::HIP_API.0, op, data, argument) };
    drop(inside);
    // SAFETY: as above.
    unsafe { (*kept).callback = CallbackState::Returned };
}
