//! The exports that roctap reads and probes in this library: three words, and the dispatch site.

#![expect(unsafe_code, reason = "exports")]

use core::sync::atomic::AtomicU64;

use tracer_common::shim::{SITE_OWN_CODE, VERSION, shim_status};

use tracer_hooks::sink::Enqueuer;

use crate::open_calls::Launcher;

/// The protocol that this library speaks: roctap reads it in the file of a shim that is there already.
#[unsafe(no_mangle)]
pub static ROCTAP_SHIM_PROTOCOL: u64 = VERSION;

/// One of [`shim_status`]: the steps that later attaches may take.
#[unsafe(no_mangle)]
pub static ROCTAP_SHIM_LIFE: AtomicU64 = AtomicU64::new(shim_status::NEW);

/// The process in which it works, as the process sees itself. A child of a raw `clone` has its parent's here.
#[unsafe(no_mangle)]
pub static ROCTAP_SHIM_PROCESS: AtomicU64 = AtomicU64::new(0);

/// The probe site: fires for every sequence number on the thread that enqueued the operation. The low half of `own` is
/// 0 when that may have been another thread; `call` is the innermost open call that we record, and the high half of
/// `own` its operation. Where that is a call of HIP, a frame says it instead.
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

/// Tells the tracer where this library's code is: calls of the runtime from this code are not the program's.
pub fn tell_own_code() {
    let (start, end) = (&raw const __ehdr_start as u64, &raw const _etext as u64);
    tell(SITE_OWN_CODE, start, end);
}

/// Tells the tracer something that is no sequence number.
pub fn tell(what: u64, first: u64, second: u64) {
    roctap_dispatch_site(what, first, second);
}

/// Fires the probe site; `launcher` is the call that is open.
#[inline]
pub fn fire(sequence: u64, by: Enqueuer, launcher: Launcher) {
    let Launcher { correlation_id: call, operation } = launcher;
    let own = by == Enqueuer::Caller;
    roctap_dispatch_site(sequence, u64::from(own) | u64::from(operation) << 32, call);
}
