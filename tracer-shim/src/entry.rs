//! The exported functions, all of them.

#![expect(unsafe_code, reason = "exports, and the runtime's pointers")]

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tracer_common::shim::{Attach, SITE_OWN_CODE, VERSION, life};
use tracer_hooks::{Tables, Timing, abi::ApiTable, calls::CallTables, contained, sys};

use crate::{attach, calls, recorder};

/// Runtimes from ROCm 5.3 on load every mapped library that exports this, lower values first; the
/// last one loaded sees calls first.
#[unsafe(no_mangle)]
pub static HSA_AMD_TOOL_PRIORITY: u32 = 1100;

/// The protocol that this library speaks: what roctap finds in the file of one that is there already.
#[unsafe(no_mangle)]
pub static ROCTAP_SHIM_PROTOCOL: u64 = VERSION;

/// One of [`life`]: what later attaches may do.
#[unsafe(no_mangle)]
pub static ROCTAP_SHIM_LIFE: AtomicU64 = AtomicU64::new(life::NEW);

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
    be_quiet();
    contained(|| {
        if recorder::connect() {
            tell_own_code();
            let root = table.cast::<ApiTable>();
            // SAFETY: the caller's promise. The runtime works also without us.
            let _ = unsafe {
                let tables = || CallTables::of(root);
                calls::install(Tables::of(root), tables, Timing::AtStart)
            };
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
    be_quiet();
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

/// A panic is a bug of ours and is contained; its message must not appear on the target's stderr.
fn be_quiet() {
    if !QUIET.swap(true, Ordering::Relaxed) {
        contained(|| std::panic::set_hook(Box::new(|_| {})));
    }
}

/// Runs when the process ends, after the destructors of everything else. `OnUnload` does not: HIP
/// programs exit without `hsa_shut_down`.
extern "C" fn at_end() {
    contained(tracer_hooks::finish);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

/// The probe site: fires for every sequence number on the thread that enqueued the operation. The low
/// half of `own` is 0 when that may have been another thread; `call` is the innermost open HSA call
/// that we record, and the high half of `own` its operation.
///
/// It does nothing, at whichever of two instructions the kernel probes it cheaply.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub extern "C" fn roctap_dispatch_site(sequence: u64, own: u64, call: u64) {
    tracer_common::dispatch_code!()
}

unsafe extern "C" {
    // Defined by the linker: the beginning of this library, and the end of its code.
    static __ehdr_start: u8;
    static _etext: u8;
}

/// Tells the tracer where this library's code is: what it calls of the runtime is not the program's.
pub fn tell_own_code() {
    let (start, end) = (&raw const __ehdr_start as u64, &raw const _etext as u64);
    tell(SITE_OWN_CODE, start, end);
}

/// Tells the tracer something that is no sequence number.
pub fn tell(what: u64, first: u64, second: u64) {
    roctap_dispatch_site(what, first, second);
}

/// Fires the probe site.
#[inline]
pub fn fire(sequence: u64, own: bool) {
    let (call, operation) = calls::innermost();
    roctap_dispatch_site(sequence, u64::from(own) | u64::from(operation) << 32, call);
}
