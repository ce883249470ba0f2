//! The HIP runtime of the process, and how it tells of calls.

#![expect(unsafe_code, reason = "calls a function of a library that is loaded")]

use core::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use roctracer::domains::set_hip_functions;
use roctracer::error::Error;
use roctracer::tracer::Wanted;

use super::by_operation::ByOperation;
use super::client::Client;
use super::one_function::OneFunction;
use super::protocol::Protocol;
use capi_common::hip::LIBRARY;
use capi_common::loaded::Loaded;

/// What was found: a runtime, or one of a release that is not known.
static RUNTIME: OnceLock<Result<Box<dyn Protocol>, Error>> = OnceLock::new();

/// Looks for the runtime that is loaded, unless one was found; whether there is one. It stays loaded from then on.
///
/// # Errors
///
/// If it is of a release that is not known.
pub fn look<C: Client>() -> Result<bool, Error> {
    if RUNTIME.get().is_none()
        && let Some(library) = Loaded::find(LIBRARY)
    {
        set_functions(&library);
        let found = protocol::<C>(&library).ok_or_else(|| Error::UnknownRuntime {
            library: library.path().to_string_lossy().into_owned(),
            latest: "ROCm 7.2",
        });
        let _ = RUNTIME.set(found);
    }
    RUNTIME.get().map_or(Ok(false), |found| found.as_ref().map(|_| true).map_err(Clone::clone))
}

/// What is wanted of an operation has changed, or was asked for again. One at a time. Nothing happens before a runtime
/// was found.
pub fn follow(op: u32, wanted: Wanted) {
    if let Some(Ok(runtime)) = RUNTIME.get() {
        runtime.follow(op, wanted);
    }
}

/// Whether [`follow`] may wait for calls to end.
pub fn waits() -> bool {
    matches!(RUNTIME.get(), Some(Ok(runtime)) if runtime.waits())
}

/// Whether it has dispatch tables, through which its calls pass.
pub fn has_tables() -> bool {
    matches!(RUNTIME.get(), Some(Ok(runtime)) if runtime.has_tables())
}

fn protocol<C: Client>(library: &Loaded) -> Option<Box<dyn Protocol>> {
    Some(match ByOperation::of::<C>(library) {
        Some(found) => Box::new(found),
        None => Box::new(OneFunction::of::<C>(library)?),
    })
}

/// Takes ids and names of functions from the library, which has one of its own for that.
fn set_functions(library: &Loaded) {
    type Name = unsafe extern "C" fn(u32) -> *const c_char;
    let Some(found) = library.function(c"hipApiName") else { return };
    // SAFETY: a function of this type, by its name.
    let name = unsafe { core::mem::transmute::<*mut c_void, Name>(found) };
    set_hip_functions(|op| {
        // SAFETY: HIP's function, which takes any number, and returns a string that stays.
        let name = unsafe { CStr::from_ptr(name(op)) };
        Some(name).filter(|&name| name != c"unknown")
    });
}
