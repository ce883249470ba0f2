//! The result of a function, and the error text that it leaves.

#![expect(unsafe_code, reason = "exports")]

use core::ffi::{c_char, c_int};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use roctracer::error::{self, Error, Status};

/// The major version of this library, which is that of the interface (3.2).
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_version_major() -> u32 {
    4
}

/// The minor version of this library.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_version_minor() -> u32 {
    1
}

/// The text of the calling thread's last error, empty if there was none; it stays the last one (3.3.3.1). The
/// caller gives it back to `free`. Null if there is no memory.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctracer_error_string() -> *const c_char {
    let text = CString::new(error::last()).unwrap_or_default();
    // SAFETY: a string that is there during the call.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// The status code of function `name`, of which `done` is the result. An error stays as the thread's last one.
pub fn of(name: &str, done: Result<(), Error>) -> c_int {
    match done {
        Ok(()) => Status::SUCCESS.0,
        Err(error) => {
            error::keep(name, &error);
            error.status().0
        }
    }
}

/// As [`of`], for a function that calls no function of the client's: a panic is an error.
pub fn to(name: &str, act: impl FnOnce() -> Result<(), Error>) -> c_int {
    of(name, guarded(act))
}

/// The result of `act`, or an error if it has panicked.
pub fn guarded<T>(act: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    // A half done change stays: nothing is broken by it but what the client asked for.
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(Err(Error::Internal))
}
