//! Marks and ranges of roctx, of which its library tells one tracer.

#![expect(unsafe_code, reason = "a function of a library that is loaded, and one that it calls")]

use core::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use roctracer::error::Error;
use roctracer::tracer::{Callback, Source, Wanted};
use tracer_common::activity::Domain;

use crate::enabled::TRACER;
use capi_common::loaded::Loaded;

/// The name of the library's file, without its version.
const NAME: &[u8] = b"libroctx64.so";

type Function = unsafe extern "C-unwind" fn(u32, u32, *mut c_void) -> c_int;
type Register = unsafe extern "C" fn(Option<Function>);

/// Marks and ranges.
pub struct Marks {
    /// A bit for each operation that has a callback.
    wanted: AtomicU32,
    /// The library reports to us.
    registered: AtomicBool,
}

/// The one source of them.
pub static MARKS: Marks = Marks { wanted: AtomicU32::new(0), registered: AtomicBool::new(false) };

impl Source for Marks {
    /// A wish of before the library is loaded is followed when it is asked for again.
    fn follow(&self, op: u32, wanted: Wanted) {
        // One at a time.
        let others = self.wanted.load(Ordering::Relaxed) & !(1 << op);
        let now = others | u32::from(wanted.callback) << op;
        self.wanted.store(now, Ordering::Relaxed);
        // Once, and once back: meanwhile another tracer may have come.
        if let Some(register) = REGISTER.get().copied().flatten()
            && self.registered.swap(now != 0, Ordering::Relaxed) != (now != 0)
        {
            // SAFETY: roctx's function, and one of ours that stays.
            unsafe { register((now != 0).then_some(on_mark as Function)) };
        }
    }

    fn prepare(&self) -> Result<(), Error> {
        if REGISTER.get().is_none()
            && let Some(library) = Loaded::find(NAME)
        {
            let found = library.function(c"roctxRegisterTracerCallback");
            // SAFETY: it is of that type, by its name.
            let of_type = |found| unsafe { core::mem::transmute::<*mut c_void, Register>(found) };
            let _ = REGISTER.set(found.map(of_type));
        }
        Ok(())
    }
}

/// The function of the library that was found, if it has it.
static REGISTER: OnceLock<Option<Register>> = OnceLock::new();

/// Called before each mark, and each begin and end of a range. The result means nothing.
unsafe extern "C-unwind" fn on_mark(_domain: u32, op: u32, data: *mut c_void) -> c_int {
    if let Some(Callback { function, argument }) = TRACER.callback(Domain::ROCTX, op) {
        // SAFETY: the client's function, with the data of its domain.
        unsafe { function(Domain::ROCTX.0, op, data, argument) };
    }
    0
}
