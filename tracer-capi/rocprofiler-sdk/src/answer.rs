//! The results of functions: status codes, names and times.

#![expect(unsafe_code, reason = "exports")]

use core::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rocprofiler::status::{Result, Status};

use crate::layout::{self, VERSION};
use crate::process;

/// `ROCPROFILER_STATUS_SUCCESS`.
pub const SUCCESS: u32 = 0;

/// The number of a status.
pub fn number(status: Status) -> u32 {
    let before = |&other: &Status| (other as u32) < status as u32;
    Status::ALL.iter().filter(|&other| before(other) && layout::has(*other)).count() as u32
}

/// The status code of `act`, which is not called in a forked child, and which calls no function of a tool: a panic of
/// ours is an error.
pub fn of(act: impl FnOnce() -> Result) -> u32 {
    if process::is_forked() {
        return number(Status::Finalized);
    }
    // A half done change stays: nothing is broken by it but what the tool asked for.
    let done = catch_unwind(AssertUnwindSafe(act)).unwrap_or(Err(Status::Error));
    done.err().map_or(SUCCESS, number)
}

/// As [`of`], for a function that returns a value, which is written to `place`.
///
/// # Safety
///
/// `place` is valid for a write, or null.
pub unsafe fn to<T>(place: *mut T, act: impl FnOnce() -> Result<T>) -> u32 {
    of(|| {
        if place.is_null() {
            return Err(Status::InvalidArgument);
        }
        let given = act()?;
        // SAFETY: as the caller promises; not null.
        unsafe { place.write(given) };
        Ok(())
    })
}

/// The version of this library; each place may be null.
///
/// # Safety
///
/// Each is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_get_version(
    major: *mut u32,
    minor: *mut u32,
    patch: *mut u32,
) -> u32 {
    for (place, number) in [major, minor, patch].into_iter().zip(VERSION) {
        if !place.is_null() {
            // SAFETY: as the caller promises; not null.
            unsafe { place.write(number) };
        }
    }
    SUCCESS
}

/// The same, in a structure of major, minor and patch.
///
/// # Safety
///
/// `place` is valid for a write, or null.
#[cfg(feature = "v1")]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_get_version_triplet(place: *mut [u32; 3]) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { to(place, || Ok(VERSION)) }
}

/// Now, ns of CLOCK_BOOTTIME, as in all records.
///
/// # Safety
///
/// `time` is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_get_timestamp(time: *mut u64) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { to(time, || Ok(roctracer::timestamp_ns())) }
}

/// The number of the calling thread, as in all records.
///
/// # Safety
///
/// `thread` is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_get_thread_id(thread: *mut u64) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { to(thread, || Ok(u64::from(roctracer::thread::own_ids().thread))) }
}

fn status(code: u32) -> Option<Status> {
    Status::ALL.iter().copied().filter(|&status| layout::has(status)).nth(code as usize)
}

/// The name of a status; null if there is none of this number.
#[unsafe(no_mangle)]
extern "C-unwind" fn rocprofiler_get_status_name(code: u32) -> *const c_char {
    status(code).map_or(core::ptr::null(), |status| status.name().as_ptr().cast())
}

/// The meaning of a status; null if there is none of this number.
#[unsafe(no_mangle)]
extern "C-unwind" fn rocprofiler_get_status_string(code: u32) -> *const c_char {
    status(code).map_or(core::ptr::null(), |status| status.text().as_ptr().cast())
}
