//! Callbacks become records, which the plugin takes at once: what arguments point at is there.

#![expect(unsafe_code, reason = "callbacks of roctracer's")]

use core::cell::Cell;
use core::ffi::c_void;

use capi_common::{errno, hip, hsa};
use tracer_common::activity::{ActivityRecord, Domain};
use tracer_hooks::{contained, sys};

use crate::state::{self, Tool};
use crate::{begins, marks};

thread_local! {
    /// The thread's number; 0 if it was not asked for yet. In a forked child, where it is another, nothing is traced.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

fn own_number() -> u32 {
    if THREAD.get() == 0 {
        THREAD.set(sys::gettid());
    }
    THREAD.get()
}

/// `HSA_API_ID_hsa_shut_down`.
const SHUT_DOWN: u32 = 1;

/// A call of HIP begins, or has returned.
///
/// # Safety
///
/// `data` is a `hip_api_data_t`.
pub unsafe extern "C-unwind" fn on_hip(
    _domain: u32,
    op: u32,
    data: *const c_void,
    _argument: *mut c_void,
) {
    // SAFETY: as the caller promises. Nobody else uses it: it is this thread's call.
    errno::kept(|| contained(|| unsafe { hip_call(state::active()?, op, data) }));
}

/// # Safety
///
/// `data` is a `hip_api_data_t`.
unsafe fn hip_call(tool: &Tool, op: u32, data: *const c_void) -> Option<()> {
    let now_ns = tool.roctracer.now_ns();
    // SAFETY: as the caller promises.
    let call = unsafe { hip::Data::at(data) }?;
    let id = call.correlation_id();
    if !call.has_returned() {
        begins::begin(id, now_ns);
        return None;
    }
    let hip = tool.hip();
    call.fill(hip.fields(op));
    let record = ActivityRecord {
        bytes_or_name: hip.kernel(op, call).expose_provenance() as u64,
        ..record(tool, Domain::HIP_API, op, id, begins::end(id).unwrap_or(now_ns), now_ns)
    };
    // SAFETY: as the caller promises.
    unsafe { tool.plugin.call(&record, data) };
    None
}

/// A call of HSA begins, or has returned.
///
/// # Safety
///
/// `data` is a `hsa_api_data_t`.
pub unsafe extern "C-unwind" fn on_hsa(
    _domain: u32,
    op: u32,
    data: *const c_void,
    _argument: *mut c_void,
) {
    // SAFETY: as the caller promises.
    errno::kept(|| contained(|| unsafe { hsa_call(state::active()?, op, data) }));
}

/// # Safety
///
/// `data` is a `hsa_api_data_t`.
unsafe fn hsa_call(tool: &Tool, op: u32, data: *const c_void) -> Option<()> {
    let now_ns = tool.roctracer.now_ns();
    // SAFETY: as the caller promises.
    let call = unsafe { hsa::Data::at(data) }?;
    let id = call.correlation_id();
    if !call.has_returned() {
        begins::begin(id, now_ns);
        return None;
    }
    let begin_ns = begins::end(id).unwrap_or(now_ns);
    let end_ns = if op == SHUT_DOWN { begin_ns } else { now_ns };
    let record = record(tool, Domain::HSA_API, op, id, begin_ns, end_ns);
    // SAFETY: as the caller promises.
    unsafe { tool.plugin.call(&record, data) };
    None
}

/// A mark, or a range's begin or end.
///
/// # Safety
///
/// `data` is a `roctx_api_data_t`.
pub unsafe extern "C-unwind" fn on_mark(
    _domain: u32,
    op: u32,
    data: *const c_void,
    _argument: *mut c_void,
) {
    // SAFETY: as the caller promises.
    errno::kept(|| contained(|| unsafe { mark(op, data) }));
}

/// # Safety
///
/// `data` is a `roctx_api_data_t`.
unsafe fn mark(op: u32, data: *const c_void) -> Option<()> {
    let time_ns = state::roctracer()?.now_ns();
    // SAFETY: as the caller promises.
    let mark = unsafe { data.cast::<marks::Data>().as_ref() }?;
    match state::active() {
        // SAFETY: as the caller promises.
        Some(tool) => unsafe { write_mark(tool, op, time_ns, own_number(), mark) },
        None if state::may_begin() => {
            // SAFETY: as the caller promises.
            unsafe { marks::keep(op, time_ns, sys::gettid(), *mark) };
            // It may have begun meanwhile, and have taken those that waited before.
            if let Some(tool) = state::active() {
                write_waiting_marks(tool);
            }
        }
        None => {}
    }
    None
}

/// # Safety
///
/// The string of `data` is there.
unsafe fn write_mark(tool: &Tool, op: u32, time_ns: u64, thread_id: u32, data: &marks::Data) {
    let record = ActivityRecord { thread_id, ..record(tool, Domain::ROCTX, op, 0, time_ns, 0) };
    // SAFETY: as the caller promises.
    unsafe { tool.plugin.call(&record, (&raw const *data).cast()) };
}

/// Hands over the marks of before the begin. Returns how many there were beside them.
pub fn write_waiting_marks(tool: &Tool) -> u64 {
    let (waiting, too_many) = marks::take();
    for mark in waiting {
        // SAFETY: data whose string is the mark's.
        unsafe { write_mark(tool, mark.op, mark.time_ns, mark.thread_id, &mark.data()) };
    }
    too_many
}

fn record(
    tool: &Tool,
    domain: Domain,
    op: u32,
    id: u64,
    begin_ns: u64,
    end_ns: u64,
) -> ActivityRecord {
    ActivityRecord {
        domain,
        op,
        correlation_id: id,
        begin_ns,
        end_ns,
        process_or_device: tool.process_id,
        thread_id: own_number(),
        ..ActivityRecord::default()
    }
}

/// Activities are delivered.
///
/// # Safety
///
/// They are records, from `begin` to before `end`.
pub unsafe extern "C-unwind" fn on_delivered(
    begin: *const ActivityRecord,
    end: *const ActivityRecord,
    _argument: *mut c_void,
) {
    contained(|| {
        if let Some(tool) = state::own() {
            // SAFETY: as the caller promises.
            unsafe { tool.plugin.activities(begin, end) };
        }
    });
}
