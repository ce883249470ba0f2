//! Runtimes from ROCm 5.3.1 on, which report everything to one function.
//!
//! The function is set by `hipRegisterTracerCallback`, and is asked at the begin of a call whether that is traced. HIP
//! has made room in its stack frame for its report, [`Trace`]; a function that answers yes fills in the functions that
//! HIP calls when the arguments are there, and at the end.

#![expect(unsafe_code, reason = "functions of HIP's, and its stack frames")]

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::mem::{self, offset_of, size_of, transmute};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use roctracer::tracer::{Callback, Wanted};
use tracer_common::activity::Domain;
use tracer_hooks::{contained, contained_without_points};

use super::client::{self, Client};
use super::protocol::Protocol;
use crate::client_thread::{InCallback, next_id};
use capi_common::hip::{Functions, MOST_FUNCTIONS};
use capi_common::loaded::Loaded;

/// Domain, operation, and the frame of a call or null. The function returns whether the call is traced: 0 or −1.
type Report = unsafe extern "C-unwind" fn(u32, u32, *mut c_void) -> c_int;
type Register = unsafe extern "C" fn(Option<Report>);

const TRACED: c_int = 0;
const NOT_TRACED: c_int = -1;

/// `ACTIVITY_API_PHASE_EXIT`.
const EXIT: u32 = 1;

/// `hip_api_trace_data_t`, in HIP's frame of a call: `hip_api_data_t`, and the fields behind it. Fields that HIP does
/// not write itself are not initialized.
#[repr(C)]
struct Trace<const ARGUMENTS: usize> {
    correlation_id: u64,
    phase: u32,
    /// As many words as the largest ones have, of any function: those of `hipChooseDevice`, whose second points at a
    /// `hipDeviceProp_t`, of which there is a copy.
    arguments: [u64; ARGUMENTS],
    phase_data_at: *mut u64,
    /// The place for a time, which is kept elsewhere.
    _begin_ns: u64,
    /// The client's number, from the begin to the end.
    phase_data: u64,
    /// HIP calls it if it is there, when the arguments are.
    enter: Option<Phase<ARGUMENTS>>,
    exit: Option<Phase<ARGUMENTS>>,
}

type Phase<const ARGUMENTS: usize> = unsafe extern "C-unwind" fn(u32, *mut Trace<ARGUMENTS>);

/// Words of arguments until ROCm 5.7.
const UNTIL_5: usize = 102;
/// From ROCm 6.0 on.
const SINCE_6: usize = 187;
const _: () = assert!(offset_of!(Trace<UNTIL_5>, _begin_ns) == 840);
const _: () = assert!(offset_of!(Trace<SINCE_6>, _begin_ns) == 1520);
const _: () = assert!(size_of::<Trace<SINCE_6>>() == 1520 + 32);

/// One past the last function of ROCm 5.7, and of 7.2. A later release may have larger arguments.
const END_OF_5: u32 = 364;
const END_OF_7: u32 = 450;

/// Such a runtime.
pub struct OneFunction {
    register: Register,
    report: Report,
    is_since_6: bool,
    /// By operation.
    followed: Vec<AtomicBool>,
    /// The number of followed operations.
    count: AtomicU32,
}

impl OneFunction {
    /// None if it has no such function, or is later than those that are known.
    pub fn of<C: Client>(library: &Loaded) -> Option<Self> {
        let register = library.function(c"hipRegisterTracerCallback")?;
        // Its `hipDeviceProp_t` is another one since then.
        let is_since_6 = library.function(c"hipGetDevicePropertiesR0600").is_some();
        let (report, end): (Report, _) = match is_since_6 {
            true => (report::<C, SINCE_6>, END_OF_7),
            false => (report::<C, UNTIL_5>, END_OF_5),
        };
        if Functions::found().end() > end {
            return None;
        }
        Some(Self {
            // SAFETY: a function of this type, by its name.
            register: unsafe { transmute::<*mut c_void, Register>(register) },
            report,
            is_since_6,
            followed: (0..MOST_FUNCTIONS).map(|_| AtomicBool::new(false)).collect(),
            count: AtomicU32::new(0),
        })
    }
}

impl Protocol for OneFunction {
    /// The runtime tells nothing while nothing is followed.
    fn follow(&self, op: u32, wanted: Wanted) {
        let Some(followed) = self.followed.get(op as usize) else { return };
        let now = wanted.callback || wanted.activity;
        if followed.swap(now, Ordering::Relaxed) == now {
            return;
        }
        let before = match now {
            true => self.count.fetch_add(1, Ordering::Relaxed),
            false => self.count.fetch_sub(1, Ordering::Relaxed),
        };
        if before == u32::from(!now) {
            // SAFETY: HIP's function, and one of ours that stays.
            unsafe { (self.register)(now.then_some(self.report)) };
        }
    }

    fn waits(&self) -> bool {
        false
    }

    fn has_tables(&self) -> bool {
        self.is_since_6
    }
}

/// Whether an operation is traced. If it is a call, which begins, its trace is filled in.
///
/// Work of GPUs is of another domain, and not traced in this way: 7.2 then has 1 for a pointer.
unsafe extern "C-unwind" fn report<C: Client, const ARGUMENTS: usize>(
    domain: u32,
    op: u32,
    trace: *mut c_void,
) -> c_int {
    if Domain(domain) != Domain::HIP_API {
        return NOT_TRACED;
    }
    // Nearly every call of a runtime that has tables.
    if contained_without_points(|| C::is_reported_by_tables(op)) == Some(true) {
        return NOT_TRACED;
    }
    let mut recorded = None;
    contained(|| recorded = C::begin(op));
    let has_callback = C::callback(op, recorded.as_ref()).is_some();
    if recorded.is_none() && !has_callback {
        return NOT_TRACED;
    }
    let trace = trace.cast::<Trace<ARGUMENTS>>();
    if trace.is_null() {
        return TRACED;
    }
    let correlation_id = next_id();
    let begin = || client::begin::<C>(op, trace.addr(), correlation_id, recorded).is_some();
    if contained(begin) != Some(true) {
        return NOT_TRACED;
    }
    // SAFETY: HIP's frame, which has the place for it, and is this thread's.
    unsafe {
        (&raw mut (*trace).correlation_id).write(correlation_id);
        (&raw mut (*trace).phase).write(0);
        (&raw mut (*trace).phase_data).write(0);
        (&raw mut (*trace).phase_data_at).write(&raw mut (*trace).phase_data);
        (&raw mut (*trace).enter).write(has_callback.then_some(enter::<C, ARGUMENTS>));
        (&raw mut (*trace).exit).write(Some(exit::<C, ARGUMENTS>));
    }
    TRACED
}

/// A call's arguments are there; the client's callback is called.
unsafe extern "C-unwind" fn enter<C: Client, const ARGUMENTS: usize>(
    op: u32,
    trace: *mut Trace<ARGUMENTS>,
) {
    let Some(callback) = callback::<C>(op, trace.addr()) else { return };
    // Calls that a callback makes call none.
    let Some(inside) = InCallback::enter(trace.addr()) else { return };
    // HIP does not tell of the end when the callback throws.
    let ends = Ends::<C>(trace.addr(), PhantomData);
    // SAFETY: the client's function, with the data of its domain.
    unsafe { call(callback, op, trace) };
    mem::forget(ends);
    drop(inside);
    // Only who was told of the begin is told of the end.
    // SAFETY: HIP's frame.
    unsafe { (&raw mut (*trace).exit).write(Some(exit_with_callback::<C, ARGUMENTS>)) };
}

/// A call has ended of which the client was told; its callback is called.
unsafe extern "C-unwind" fn exit_with_callback<C: Client, const ARGUMENTS: usize>(
    op: u32,
    trace: *mut Trace<ARGUMENTS>,
) {
    if let Some(callback) = callback::<C>(op, trace.addr())
        && let Some(_inside) = InCallback::enter(trace.addr())
    {
        // SAFETY: HIP's frame; the client's function, with the data of its domain.
        unsafe {
            (&raw mut (*trace).phase).write(EXIT);
            call(callback, op, trace);
        }
    }
    // SAFETY: HIP's frame.
    unsafe { exit::<C, ARGUMENTS>(op, trace) };
}

/// A call has ended.
unsafe extern "C-unwind" fn exit<C: Client, const ARGUMENTS: usize>(
    op: u32,
    trace: *mut Trace<ARGUMENTS>,
) {
    contained(|| {
        if let Some((id, recorded)) = end::<C>(trace.addr()) {
            C::end(op, id, recorded);
        }
    });
}

/// # Safety
///
/// As of the client's function.
unsafe fn call<const ARGUMENTS: usize>(
    callback: Callback,
    op: u32,
    trace: *const Trace<ARGUMENTS>,
) {
    let Callback { function, argument } = callback;
    // SAFETY: as the caller promises.
    unsafe { function(Domain::HIP_API.0, op, trace.cast(), argument) };
}

/// When it is dropped, the call whose frame is there has ended.
struct Ends<C: Client>(usize, PhantomData<C>);

impl<C: Client> Drop for Ends<C> {
    fn drop(&mut self) {
        contained(|| {
            if let Some((id, recorded)) = end::<C>(self.0) {
                C::leave(id, recorded);
            }
        });
    }
}

fn callback<C: Client>(op: u32, at: usize) -> Option<Callback> {
    client::callback::<C>(op, |call| call.at == at)
}

fn end<C: Client>(at: usize) -> Option<(u64, C::Begin)> {
    client::end::<C>(|call| call.at == at)
}
