//! The clock (3.7), and ids by which a program names regions of its own (`roctracer_ext.h`).

#![expect(unsafe_code, reason = "exports, and pointers of the client's")]

use core::ffi::c_int;

use roctracer::error::Error;
use roctracer::{external, timestamp_ns};

use crate::answer;

/// The time, ns of CLOCK_BOOTTIME, by which calls and work of GPUs are told.
///
/// # Safety
///
/// `timestamp` is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_get_timestamp(timestamp: *mut u64) -> c_int {
    answer::to("roctracer_get_timestamp", || {
        if timestamp.is_null() {
            return Err(Error::InvalidArgument);
        }
        // SAFETY: valid for writes, as the caller promises.
        unsafe { timestamp.write(timestamp_ns()) };
        Ok(())
    })
}

/// Begins a region of the calling thread.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_activity_push_external_correlation_id(id: u64) -> c_int {
    answer::to("roctracer_activity_push_external_correlation_id", || external::push(id))
}

/// Ends the innermost region of the calling thread; its id is written to `last_id`, 0 if there is none.
///
/// # Safety
///
/// `last_id` is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn roctracer_activity_pop_external_correlation_id(
    last_id: *mut u64,
) -> c_int {
    answer::to("roctracer_activity_pop_external_correlation_id", || {
        let popped = external::pop();
        if !last_id.is_null() {
            // SAFETY: valid for writes, as the caller promises.
            unsafe { last_id.write(*popped.as_ref().unwrap_or(&0)) };
        }
        popped.map(drop)
    })
}
