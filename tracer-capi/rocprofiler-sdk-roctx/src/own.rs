//! The functions' own work, where no tool records them.

#![expect(unsafe_code, reason = "functions of C, and a place of the caller's")]

use core::cell::Cell;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// The number of ranges that the thread has begun and not ended. Without a destructor: it can be used to the very
    /// end of its thread.
    static DEPTH: Cell<c_int> = const { Cell::new(0) };
}

/// The last id that a range got; 0 is none.
static LAST_ID: AtomicU64 = AtomicU64::new(0);

/// Success, as far as this library knows: a tool may return something else.
const DONE: c_int = 0;
const FAILED: c_int = -1;

pub unsafe extern "C-unwind" fn mark(_message: *const c_char) {}

/// Returns the number of ranges before.
pub unsafe extern "C-unwind" fn push(_message: *const c_char) -> c_int {
    let depth = DEPTH.get();
    DEPTH.set(depth.saturating_add(1));
    depth
}

/// Returns the number of ranges that are left, -1 if there was none.
pub unsafe extern "C-unwind" fn pop() -> c_int {
    let left = DEPTH.get() - 1;
    DEPTH.set(left.max(0));
    left
}

pub unsafe extern "C-unwind" fn start(_message: *const c_char) -> u64 {
    // Ids need to be different, not ordered with anything else.
    LAST_ID.fetch_add(1, Ordering::Relaxed) + 1
}

pub unsafe extern "C-unwind" fn stop(_id: u64) {}

/// # Safety
///
/// `thread` is valid for a write, or null.
pub unsafe extern "C-unwind" fn thread_id(thread: *mut u64) -> c_int {
    if thread.is_null() {
        return FAILED;
    }
    // SAFETY: it takes nothing; the place is valid, as the caller promises.
    unsafe { thread.write(libc::gettid() as u64) };
    DONE
}

/// For pausing and resuming.
pub unsafe extern "C-unwind" fn control(_thread: u64) -> c_int {
    DONE
}

pub unsafe extern "C-unwind" fn name_thread(_name: *const c_char) -> c_int {
    DONE
}

pub unsafe extern "C-unwind" fn name_agent(_name: *const c_char, _agent: *const c_void) -> c_int {
    DONE
}

pub unsafe extern "C-unwind" fn name_device(_name: *const c_char, _device: c_int) -> c_int {
    DONE
}

pub unsafe extern "C-unwind" fn name_stream(_name: *const c_char, _stream: *const c_void) -> c_int {
    DONE
}
