//! The functions that others call: the runtime, the loader, roctap.

#![expect(unsafe_code, reason = "exports, and the runtime's pointers")]

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use tracer_common::shim::Attach;
use tracer_hooks::{Tables, Timing, abi::ApiTable, contained, sys};

use crate::recorder::{self, RECORDER};
use crate::{attach, calls, exports};

/// Runtimes from ROCm 5.3 on load every mapped library that exports this, lower values first; the
/// last one loaded sees calls first.
#[unsafe(no_mangle)]
pub static HSA_AMD_TOOL_PRIORITY: u32 = 1100;

static QUIET: AtomicBool = AtomicBool::new(false);

/// Called by the runtime inside of `hsa_init`.
///
/// It always returns true: a tool that returns false is closed but not forgotten by ROCm 5.2.3,
/// whose `hsa_shut_down` then crashes.
///
/// # Safety
///
/// `table` is null or the runtime's own table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn OnLoad(
    table: *const c_void,
    _runtime_version: u64,
    _failed_tool_count: u64,
    _failed_tool_names: *const *const c_char,
) -> bool {
    prepare();
    contained(|| {
        if recorder::connect() {
            exports::tell_own_code();
            // SAFETY: the caller's promise.
            let tables = unsafe { Tables::of(table.cast::<ApiTable>()) };
            // The runtime works also without us.
            let _ = calls::install(tables, Timing::AtStart);
        }
    });
    true
}

/// Called by the runtime inside of the last `hsa_shut_down`.
#[unsafe(no_mangle)]
pub extern "C" fn OnUnload() {
    contained(tracer_hooks::close);
}

/// Begins to record in this process, which runs already; see [`attach`].
///
/// It is for roctap, which calls it on a detached thread of its own. That thread ends when it returns.
///
/// # Safety
///
/// `request` is null or valid, as is what it points at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn roctap_attach(request: *mut Attach) -> *mut c_void {
    sys::block_signals();
    prepare();
    if !request.is_null() {
        // SAFETY: the caller's promise.
        contained(|| unsafe { attach::attach(request) });
    }
    core::ptr::null_mut()
}

/// Begins to record again in this process; see [`attach::again`].
///
/// # Safety
///
/// `request` is valid, as is what it points at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn roctap_attach_again(request: *mut Attach) {
    // SAFETY: the caller's promise.
    unsafe { attach::again(request) };
}

/// The first call sets the function that the worker calls. A panic is a bug of ours and is contained; its message must
/// not appear on the target's stderr.
fn prepare() {
    static CALLED: fn() = attach::start_waiting;
    RECORDER.when_called(&CALLED);
    if !QUIET.swap(true, Ordering::Relaxed) {
        contained(|| std::panic::set_hook(Box::new(|_| {})));
        sys::take_machines_time();
    }
}

/// Runs when the process ends, after the destructors of everything else. `OnUnload` does not: HIP 5
/// programs exit without `hsa_shut_down`.
extern "C" fn at_end() {
    contained(tracer_hooks::finish);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;
