//! The exported functions, and the tracer that they tell.

#![expect(unsafe_code, reason = "exports, and a function pointer of the tracer's")]

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use tracer_common::activity::Domain;

use crate::{next_id, pop, push};

/// `ROCTX_VERSION_MAJOR`, `ROCTX_VERSION_MINOR`.
const VERSION: (u32, u32) = (4, 1);

/// `roctx_api_id_t`.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Operation {
    Mark = 0,
    Push = 1,
    Pop = 2,
    Start = 3,
    Stop = 4,
}

/// `roctx_api_data_t`.
#[repr(C)]
struct Data {
    message: *const c_char,
    id: u64,
}

/// The function that a tracer registers. It may throw: the tracer is C++, or calls such.
type Callback = unsafe extern "C-unwind" fn(u32, u32, *mut c_void) -> c_int;

/// The tracer's callback, null for none.
static CALLBACK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Tells the tracer, if there is one.
fn tell(operation: Operation, message: *const c_char, id: u64) {
    // Pairs with the store in `roctxRegisterTracerCallback`: the tracer's state that was prepared before is there.
    let callback = CALLBACK.load(Ordering::Acquire);
    // SAFETY: nothing but a `Callback`, or null, is ever stored.
    let callback = unsafe { core::mem::transmute::<*mut c_void, Option<Callback>>(callback) };
    if let Some(callback) = callback {
        let mut data = Data { message, id };
        // SAFETY: the tracer's function, with what its kind is promised.
        unsafe { callback(Domain::ROCTX.0, operation as u32, (&raw mut data).cast()) };
    }
}

/// Registers a tracer in the place of the one before, if any; null for none.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctxRegisterTracerCallback(callback: Option<Callback>) {
    let callback = callback.map_or(ptr::null_mut(), |callback| callback as *mut c_void);
    CALLBACK.store(callback, Ordering::Release);
}

/// The major version of this library.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctx_version_major() -> u32 {
    VERSION.0
}

/// The minor version of this library.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctx_version_minor() -> u32 {
    VERSION.1
}

/// Marks a moment.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctxMarkA(message: *const c_char) {
    tell(Operation::Mark, message, 0);
}

/// Begins a range of this thread. Returns the number of ranges before.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctxRangePushA(message: *const c_char) -> c_int {
    tell(Operation::Push, message, 0);
    push()
}

/// Ends a range of this thread. Returns the number of ranges that are left, -1 if there was none.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctxRangePop() -> c_int {
    tell(Operation::Pop, ptr::null(), 0);
    pop()
}

/// Begins a range of the process. Returns its id.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctxRangeStartA(message: *const c_char) -> u64 {
    let id = next_id();
    tell(Operation::Start, message, id);
    id
}

/// Ends a range of the process.
#[unsafe(no_mangle)]
extern "C-unwind" fn roctxRangeStop(id: u64) {
    tell(Operation::Stop, ptr::null(), id);
}
