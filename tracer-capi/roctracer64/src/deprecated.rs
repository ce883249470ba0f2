//! Functions of roctracer 4.0 that no header declares any more, and that old programs call.

#![expect(unsafe_code, reason = "exports, and handles of the client's")]

use core::ffi::{c_char, c_int, c_void};

use roctracer::error::Status;
use roctracer::tracer::CallbackFunction;

use crate::activities::{
    roctracer_disable_domain_activity, roctracer_enable_domain_activity,
    roctracer_enable_domain_activity_expl,
};
use crate::callbacks::{roctracer_disable_domain_callback, roctracer_enable_domain_callback};

/// `ACTIVITY_DOMAIN_NUMBER`.
const DOMAINS: u32 = 8;

/// Does something for one domain after the other until that fails: with `KFD_API`, of which nothing can be
/// traced.
fn for_all_domains(act: impl Fn(u32) -> c_int) -> c_int {
    let failed = |status: &c_int| *status != Status::SUCCESS.0;
    (0..DOMAINS).map(act).find(failed).unwrap_or(Status::SUCCESS.0)
}

/// Nothing needs to be loaded. Returns 1, as before.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_load() -> c_int {
    1
}

/// Does nothing.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_unload() {}

/// Does nothing.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_flush_buf() {}

/// Does nothing.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_mark(_: *const c_char) {}

/// Enables a callback for all operations of all domains up to `KFD_API`, and fails there.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_enable_callback(
    function: Option<CallbackFunction>,
    argument: *mut c_void,
) -> c_int {
    for_all_domains(|domain| roctracer_enable_domain_callback(domain, function, argument))
}

/// Disables callbacks of all operations of all domains up to `KFD_API`, and fails there.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_disable_callback() -> c_int {
    for_all_domains(|domain| roctracer_disable_domain_callback(domain))
}

/// Enables activities of all operations of all domains up to `KFD_API`, and fails there.
///
/// # Safety
///
/// `pool` is null, or a pool.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_enable_activity_expl(pool: *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    for_all_domains(|domain| unsafe { roctracer_enable_domain_activity_expl(domain, pool) })
}

/// The same in the default pool.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_enable_activity() -> c_int {
    for_all_domains(|domain| roctracer_enable_domain_activity(domain))
}

/// Disables activities of all operations of all domains up to `KFD_API`, and fails there.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_disable_activity() -> c_int {
    for_all_domains(|domain| roctracer_disable_domain_activity(domain))
}
