//! The exported functions: each calls what is in its place of its table.

#![expect(unsafe_code, reason = "exports, and functions from tables")]

use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute;

use crate::register;
use crate::tables::{CONTROL, CORE, NAME};

/// Exports by table and place.
macro_rules! exports {
    ($(
        $(#[doc = $text:literal])*
        $table:ident $place:literal $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;
    )*) => {$(
        $(#[doc = $text])*
        ///
        /// # Safety
        ///
        /// As declared: strings and places are there, or null.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            type Function = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;
            register::once();
            // SAFETY: the function of this place has this type, ours and that of who records.
            let function = unsafe { transmute::<*mut c_void, Function>($table.function($place)) };
            // SAFETY: as the caller promises.
            unsafe { function($($argument),*) }
        }
    )*};
}

exports! {
    /// Marks a moment.
    CORE 0 roctxMarkA(message: *const c_char);
    /// Begins a range of this thread. Returns how many there were.
    CORE 1 roctxRangePushA(message: *const c_char) -> c_int;
    /// Ends a range of this thread. Returns how many are left, -1 if there was none.
    CORE 2 roctxRangePop() -> c_int;
    /// Begins a range of the process. Returns its id.
    CORE 3 roctxRangeStartA(message: *const c_char) -> u64;
    /// Ends a range of the process.
    CORE 4 roctxRangeStop(id: u64);
    /// Writes the number of the calling thread, as the kernel has it. Returns 0.
    CORE 5 roctxGetThreadId(thread: *mut u64) -> c_int;
    /// Asks tools to pause: for a thread, or for all if that is 0. Returns 0, or what a tool says.
    CONTROL 0 roctxProfilerPause(thread: u64) -> c_int;
    /// Asks tools to go on.
    CONTROL 1 roctxProfilerResume(thread: u64) -> c_int;
    /// Names the calling thread for tools. Returns 0, or what a tool says.
    NAME 0 roctxNameOsThread(name: *const c_char) -> c_int;
    /// Names an agent of HSA.
    NAME 1 roctxNameHsaAgent(name: *const c_char, agent: *const c_void) -> c_int;
    /// Names a device of HIP.
    NAME 2 roctxNameHipDevice(name: *const c_char, device: c_int) -> c_int;
    /// Names a stream of HIP.
    NAME 3 roctxNameHipStream(name: *const c_char, stream: *const c_void) -> c_int;
}
