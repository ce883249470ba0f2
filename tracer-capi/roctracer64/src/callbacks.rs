//! Callbacks (3.5), and whether anything is traced at all.

#![expect(unsafe_code, reason = "exports")]

use core::ffi::{c_int, c_void};

use roctracer::tracer::{Callback, CallbackFunction, Ops};
use tracer_common::activity::Domain;

use crate::answer;
use crate::sources::tracer;

/// Has a function called for an operation when it begins and when it ends, in the place of the one before.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_enable_op_callback(
    domain: u32,
    op: u32,
    function: Option<CallbackFunction>,
    argument: *mut c_void,
) -> c_int {
    answer::to("roctracer_enable_op_callback", || {
        let callback = function.map(|function| Callback { function, argument });
        tracer().enable_callback(Domain(domain), op, callback)
    })
}

/// The same for all operations of a domain.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn roctracer_enable_domain_callback(
    domain: u32,
    function: Option<CallbackFunction>,
    argument: *mut c_void,
) -> c_int {
    answer::to("roctracer_enable_domain_callback", || {
        let callback = function.map(|function| Callback { function, argument });
        tracer().enable_callback(Domain(domain), Ops::All, callback)
    })
}

/// Has no function called for an operation any more.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_disable_op_callback(domain: u32, op: u32) -> c_int {
    answer::to("roctracer_disable_op_callback", || tracer().disable_callback(Domain(domain), op))
}

/// The same for all operations of a domain.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn roctracer_disable_domain_callback(domain: u32) -> c_int {
    answer::to("roctracer_disable_domain_callback", || {
        tracer().disable_callback(Domain(domain), Ops::All)
    })
}

/// Goes on tracing after [`roctracer_stop`], and calls the function for that (`roctracer_ext.h`).
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_start() {
    tracer().start();
}

/// Has nothing called and nothing recorded but marks and ranges, and calls the function for that.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_stop() {
    tracer().stop();
}
