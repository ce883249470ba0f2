//! The HIP runtime of the process, and its functions for tracers.

#![expect(unsafe_code, reason = "calls functions of a library that is loaded")]

use core::ffi::{c_int, c_void};
use std::sync::OnceLock;

use roctracer::tracer::CallbackFunction;
use tracer_common::activity::ActivityRecord;

use crate::loaded::Loaded;

/// `activity_sync_callback_t`, which returns the place for a call's arguments here.
pub type ActivityFunction = unsafe extern "C-unwind" fn(
    u32,
    *mut ActivityRecord,
    *const c_void,
    *mut c_void,
) -> *mut c_void;

type RegisterCallback = unsafe extern "C" fn(u32, CallbackFunction, *mut c_void) -> c_int;
type RegisterActivity = unsafe extern "C" fn(u32, Option<ActivityFunction>, *mut c_void) -> c_int;
type Remove = unsafe extern "C" fn(u32) -> c_int;

/// What the file of the runtime is called, but for its version.
const NAME: &[u8] = b"libamdhip64.so";

/// What was found: a library, or one without these functions.
static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// A runtime of before ROCm 5.3.1.
pub struct Runtime {
    register_callback: RegisterCallback,
    remove_callback: Remove,
    register_activity: RegisterActivity,
}

impl Runtime {
    /// Looks for the one that is loaded, unless one was found. It stays loaded from then on.
    pub fn look() {
        if RUNTIME.get().is_none()
            && let Some(library) = Loaded::find(NAME)
        {
            let _ = RUNTIME.set(Self::of(&library));
        }
    }

    /// The one that was found; none if there was none, or a later one.
    pub fn get() -> Option<&'static Self> {
        RUNTIME.get()?.as_ref()
    }

    fn of(library: &Loaded) -> Option<Self> {
        let callback = library.function(c"hipRegisterApiCallback")?;
        let no_callback = library.function(c"hipRemoveApiCallback")?;
        let activity = library.function(c"hipRegisterActivityCallback")?;
        // SAFETY: functions of these types, by their names.
        unsafe {
            Some(Self {
                register_callback: core::mem::transmute::<*mut c_void, RegisterCallback>(callback),
                remove_callback: core::mem::transmute::<*mut c_void, Remove>(no_callback),
                register_activity: core::mem::transmute::<*mut c_void, RegisterActivity>(activity),
            })
        }
    }

    /// Sets the function that is called with the arguments of an operation, or none. It fails for an operation that
    /// the runtime does not have, of which nothing will be told.
    pub fn set_callback(&self, op: u32, function: Option<(CallbackFunction, *mut c_void)>) {
        // SAFETY: HIP's functions, and functions of ours that stay.
        let _ = unsafe {
            match function {
                Some((function, argument)) => (self.register_callback)(op, function, argument),
                None => (self.remove_callback)(op),
            }
        };
    }

    /// The same for the function that is called at the begin and at the end, with `argument` at the end. The runtime
    /// may read the function while it is set, and the argument of before: that is the same always, and set once
    /// without a function.
    pub fn set_activity(&self, op: u32, function: Option<ActivityFunction>, argument: *mut c_void) {
        // SAFETY: HIP's function, and one of ours that stays.
        unsafe { (self.register_activity)(op, function, argument) };
    }
}
