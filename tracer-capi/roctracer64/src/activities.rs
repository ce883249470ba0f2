//! Activities (3.6): the operations that are recorded, and their pools.

#![expect(unsafe_code, reason = "exports, and handles of the client's")]

use core::ffi::{c_int, c_void};
use roctracer::tracer::Ops;
use tracer_common::activity::Domain;

use crate::answer;
use crate::pools::pool_of;
use crate::sources::tracer;

/// Has activities of an operation recorded in a pool, the default pool if it is null.
///
/// # Safety
///
/// As of [`pool_of`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_enable_op_activity_expl(
    domain: u32,
    op: u32,
    pool: *mut c_void,
) -> c_int {
    answer::to("roctracer_enable_op_activity_expl", || {
        // SAFETY: as the caller promises.
        tracer().enable_activity(Domain(domain), op, unsafe { pool_of(pool) })
    })
}

/// The same in the default pool.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_enable_op_activity(domain: u32, op: u32) -> c_int {
    answer::to("roctracer_enable_op_activity", || {
        tracer().enable_activity(Domain(domain), op, None)
    })
}

/// Has activities of all operations of a domain recorded in a pool, the default pool if it is null.
///
/// # Safety
///
/// As of [`pool_of`].
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn roctracer_enable_domain_activity_expl(
    domain: u32,
    pool: *mut c_void,
) -> c_int {
    // SAFETY: as the caller promises.
    let pool = unsafe { pool_of(pool) };
    answer::to("roctracer_enable_domain_activity_expl", || {
        tracer().enable_activity(Domain(domain), Ops::All, pool)
    })
}

/// The same in the default pool.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn roctracer_enable_domain_activity(domain: u32) -> c_int {
    answer::to("roctracer_enable_domain_activity", || {
        tracer().enable_activity(Domain(domain), Ops::All, None)
    })
}

/// Has no activities of an operation recorded any more.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_disable_op_activity(domain: u32, op: u32) -> c_int {
    answer::to("roctracer_disable_op_activity", || tracer().disable_activity(Domain(domain), op))
}

/// The same for all operations of a domain.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn roctracer_disable_domain_activity(domain: u32) -> c_int {
    answer::to("roctracer_disable_domain_activity", || {
        tracer().disable_activity(Domain(domain), Ops::All)
    })
}
