//! Runtimes of before ROCm 5.3.1, which have two functions for each operation.
//!
//! The one that is set by `hipRegisterActivityCallback` is called when a call begins, and returns where HIP is to put
//! the arguments; and again when it has ended. Between these the one of `hipRegisterApiCallback` is called with the
//! arguments, before and after the work.

#![expect(unsafe_code, reason = "functions of HIP's, and memory that it writes into")]

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU8, Ordering};

use roctracer::domains::MOST_HIP_FUNCTIONS;
use roctracer::timestamp_ns;
use roctracer::tracer::{Callback, CallbackFunction, Wanted};
use tracer_common::activity::{ActivityRecord, Domain};

use super::protocol::{Protocol, callback, is_recorded};
use crate::call_record;
use capi_common::loaded::Loaded;
use capi_sources::client_thread::{InCallback, next_id};
use capi_sources::open::{self, AtEnd, OfThreads};

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
    /// By operation: 0, or one more than the bits of what is followed.
    followed: Vec<AtomicU8>,
}

/// Any argument but null: HIP calls the function with that at the end of a call, and with null at its begin.
const AT_END_OF_CALL: *mut c_void = ptr::without_provenance_mut(1);

impl ByOperation {
    pub fn of(library: &Loaded) -> Option<Self> {
        let callback = library.function(c"hipRegisterApiCallback")?;
        let no_callback = library.function(c"hipRemoveApiCallback")?;
        let activity = library.function(c"hipRegisterActivityCallback")?;
        // SAFETY: functions of these types, by their names.
        unsafe {
            Some(Self {
                register_callback: transmute::<*mut c_void, RegisterCallback>(callback),
                remove_callback: transmute::<*mut c_void, Remove>(no_callback),
                register_activity: transmute::<*mut c_void, RegisterActivity>(activity),
                followed: (0..MOST_HIP_FUNCTIONS).map(|_| AtomicU8::new(0)).collect(),
            })
        }
    }

    /// Sets the function that is called with the arguments of an operation, or none. It fails for an operation that
    /// the runtime does not have, of which nothing will be told.
    fn set_callback(&self, op: u32, function: Option<CallbackFunction>) {
        // SAFETY: HIP's functions, and functions of ours that stay.
        let _ = unsafe {
            match function {
                Some(function) => (self.register_callback)(op, function, ptr::null_mut()),
                None => (self.remove_callback)(op),
            }
        };
    }

    /// The same for the function that is called at the begin and at the end, with an argument at the end. The runtime
    /// may read the function while it is set, and the argument of before: that is the same always, and set once
    /// without a function.
    fn set_activity(&self, op: u32, function: Option<ActivityFunction>) {
        // SAFETY: HIP's function, and one of ours that stays.
        unsafe { (self.register_activity)(op, function, AT_END_OF_CALL) };
    }
}

impl Protocol for ByOperation {
    fn follow(&self, op: u32, wanted: Wanted) {
        let Some(followed) = self.followed.get(op as usize) else { return };
        let now = 1 + u8::from(wanted.callback) + 2 * u8::from(wanted.activity);
        let before = followed.swap(now, Ordering::Relaxed);
        if before == 0 {
            self.set_activity(op, None);
        }
        // Calls wait while something is registered.
        if before != now {
            self.set_callback(op, wanted.callback.then_some(on_call));
            self.set_activity(op, (wanted.callback || wanted.activity).then_some(on_activity));
        }
    }

    fn innermost_id(&self) -> u64 {
        THREADS.known().map_or(0, open::Calls::innermost_id)
    }
}

/// `ACTIVITY_API_PHASE_ENTER`.
const ENTER: u32 = 0;

/// Bytes of `hip_api_data_t`: 832 of ROCm 5.2.3, and room for what a patch release may add.
const DATA_BYTES: usize = 1024;

/// The begin of `hip_api_data_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct ApiData {
    correlation_id: u64,
    phase: u32,
}

/// `hip_api_data_t`.
#[repr(C)]
union Data {
    api: ApiData,
    words: [u64; DATA_BYTES / 8],
}

/// What is kept of a call. HIP has a pointer to it.
#[repr(C)]
struct Kept {
    data: Data,
    op: u32,
    /// None if it was not to be recorded.
    begin_ns: Option<u64>,
    told: Told,
}

/// Whether the client's callback was called when a call began.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    No,
    /// It has not returned: it is being called, or was left by an exception.
    Entered,
    Yes,
}

impl Default for Kept {
    fn default() -> Self {
        let data = Data { words: [0; DATA_BYTES / 8] };
        Self { data, op: 0, begin_ns: None, told: Told::No }
    }
}

thread_local! {
    static CALLS: Cell<*mut open::Calls<Kept>> = const { Cell::new(ptr::null_mut()) };
    static AT_END: AtEnd<Kept> = const { AtEnd(&CALLS) };
}

const THREADS: OfThreads<Kept> = OfThreads { place: &CALLS, at_end: &AT_END };

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
    let is_recorded = is_recorded(op);
    if !is_recorded && callback(op).is_none() {
        return ptr::null_mut();
    }
    // The time takes longer than all else.
    let begin_ns = is_recorded.then(timestamp_ns);
    let correlation_id = next_id();
    let Some(call) = THREADS.own().begin(0, correlation_id) else { return ptr::null_mut() };
    let kept = &mut call.kept;
    (kept.op, kept.begin_ns, kept.told) = (op, begin_ns, Told::No);
    kept.data.api = ApiData { correlation_id, phase: ENTER };
    ptr::from_mut(kept).cast()
}

fn end(op: u32) -> *mut c_void {
    let ended = THREADS.own().end(|call| call.kept.op == op);
    if let Some((id, Some(begin_ns))) = ended.map(|call| (call.id, call.kept.begin_ns)) {
        call_record::write(Domain::HIP_API, op, id, begin_ns);
    }
    ptr::null_mut()
}

/// A call's arguments are there, or its result; the client's callback is called.
unsafe extern "C-unwind" fn on_call(_domain: u32, op: u32, data: *const c_void, _: *mut c_void) {
    let Some(Callback { function, argument }) = callback(op) else { return };
    // What `begin` has returned, the thread's own.
    let kept = data.cast_mut().cast::<Kept>();
    // Calls that a callback makes call none.
    let Some(inside) = InCallback::enter((&raw const op).addr()) else { return };
    // SAFETY: it was written when the call began, and nobody else has it now; HIP writes the phase.
    let (told, begins) = unsafe { (&mut (*kept).told, (*kept).data.api.phase == ENTER) };
    match (begins, *told) {
        (true, Told::No) => *told = Told::Entered,
        // Only who was told of the begin is told of the end.
        (false, Told::Yes) => {}
        // HIP says once more that a call begins when it ends by an exception of the callback's.
        _ => return,
    }
    // SAFETY: the client's function, with the data of its domain.
    unsafe { function(Domain::HIP_API.0, op, data, argument) };
    drop(inside);
    // SAFETY: as above.
    unsafe { (*kept).told = Told::Yes };
}
