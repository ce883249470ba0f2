//! Exceptions that a tool's function throws on a thread of ours, where nobody else would catch them: they end here.
//!
//! Rust does not catch an exception that is thrown in another language: `catch_unwind` ends the process. So the
//! function is called by a frame of its own. When an exception comes to this frame, the unwinder asks it, as every
//! frame, what to do. A panic and the end of the thread pass through. See
//! `docs/decisions/0048-exceptions-end-in-a-frame-of-ours.md`.

#![expect(unsafe_code, reason = "what the unwinder calls, and is told")]

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr;
use std::sync::OnceLock;

use capi_common::loaded::Loaded;
use tracer_hooks::sys;

// `_Unwind_Action`: where a handler is looked for; where the thread is unwound to its end.
const SEARCHES: c_int = 1;
const IS_FORCED: c_int = 8;

// `_Unwind_Reason_Code`: here is a handler; the frame goes on; the frame has nothing to do with it.
const FOUND: c_int = 6;
const GOES_ON: c_int = 7;
const PASSES: c_int = 8;

/// The class of a panic.
const PANIC: u64 = u64::from_ne_bytes(*b"MOZ\0RUST");

/// The register of a function's result, by the numbers of DWARF.
const RAX: c_int = 0;

unsafe extern "C" {
    fn _Unwind_SetGR(context: *mut c_void, register: c_int, value: *mut c_void);
    fn _Unwind_DeleteException(exception: *mut c_void);
}

/// `_Unwind_Personality_Fn`: version of the interface, actions, class of the exception, exception, frame.
type Personality = unsafe extern "C" fn(c_int, c_int, u64, *mut c_void, *mut c_void) -> c_int;

/// The personality of [`call`], which has a single place to go on at: behind its call.
static PERSONALITY: Personality = personality;

/// # Safety
///
/// The unwinder asks, of the frame of [`call`].
unsafe extern "C" fn personality(
    version: c_int,
    actions: c_int,
    class: u64,
    exception: *mut c_void,
    frame: *mut c_void,
) -> c_int {
    if version != 1 || class == PANIC || actions & IS_FORCED != 0 {
        return PASSES;
    }
    if actions & SEARCHES != 0 {
        return FOUND;
    }
    // SAFETY: the frame goes on as if its call had returned the exception.
    unsafe { _Unwind_SetGR(frame, RAX, exception) };
    GOES_ON
}

/// Calls `function` with `data`. Returns the result, or the exception that the function throws.
///
/// # Safety
///
/// As of `function`.
#[unsafe(naked)]
unsafe extern "C-unwind" fn call(
    data: *mut c_void,
    function: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        // By a pointer, which is as far from here as a word of 4 bytes says.
        ".cfi_personality 0x9b, {personality}",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call rsi",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        personality = sym PERSONALITY,
    )
}

/// Calls a function of a tool's. Returns whether it has thrown nothing.
pub fn returns<F: FnOnce()>(function: F) -> bool {
    /// # Safety
    ///
    /// `function` is a place with an `F`, or empty.
    unsafe extern "C-unwind" fn run<F: FnOnce()>(function: *mut c_void) -> *mut c_void {
        // SAFETY: as the caller promises.
        let function = unsafe { &mut *function.cast::<Option<F>>() };
        if let Some(function) = function.take() {
            function();
        }
        ptr::null_mut()
    }
    let mut function = Some(function);
    // SAFETY: the place is there until this returns.
    let thrown = unsafe { call((&raw mut function).cast(), run::<F>) };
    if thrown.is_null() {
        return true;
    }
    // SAFETY: an exception that was caught just now.
    unsafe { end(thrown) };
    false
}

/// An exception is over. The library of C++ that has made it counts those that are not.
///
/// # Safety
///
/// It was caught by [`call`].
unsafe fn end(exception: *mut c_void) {
    type Begin = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
    type End = unsafe extern "C-unwind" fn();
    /// The place of its functions, once they were found.
    static FUNCTIONS: OnceLock<[usize; 2]> = OnceLock::new();
    let find = || {
        let library = Loaded::find(b"libstdc++.so")?;
        let function = |name| library.function(name).map(|found| found as usize);
        let found = [function(c"__cxa_begin_catch")?, function(c"__cxa_end_catch")?];
        Some(*FUNCTIONS.get_or_init(|| found))
    };
    // Behind the class: the function that deletes it, which is of the library that has made it.
    // SAFETY: an exception is as long.
    let deletes = unsafe { exception.cast::<usize>().add(1).read() };
    let made_it = |[begins, _]: &[usize; 2]| sys::library_of(*begins) == sys::library_of(deletes);
    // SAFETY: functions of these types, by their names, and an exception that nobody else has.
    unsafe {
        match FUNCTIONS.get().copied().or_else(find).filter(made_it) {
            Some([begins, ends]) => {
                transmute::<usize, Begin>(begins)(exception);
                transmute::<usize, End>(ends)();
            }
            None => _Unwind_DeleteException(exception),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// `_Unwind_Exception`.
    #[repr(C, align(16))]
    struct Exception {
        class: u64,
        cleanup: extern "C" fn(c_int, *mut c_void),
        private: [usize; 2],
    }

    unsafe extern "C-unwind" {
        fn _Unwind_RaiseException(exception: *mut Exception) -> c_int;
    }

    static DELETED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn deleted(_reason: c_int, exception: *mut c_void) {
        DELETED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: it was boxed below.
        drop(unsafe { Box::from_raw(exception.cast::<Exception>()) });
    }

    fn throw() {
        let class = u64::from_be_bytes(*b"TESTTEST");
        let exception = Exception { class, cleanup: deleted, private: [0; 2] };
        // SAFETY: an exception, which is deleted by who catches it.
        unsafe { _Unwind_RaiseException(Box::into_raw(Box::new(exception))) };
    }

    #[test]
    fn what_a_function_throws_ends_here() {
        struct Dropped<'a>(&'a AtomicUsize);
        impl Drop for Dropped<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let dropped = AtomicUsize::new(0);
        for times in 1..=1000 {
            let own = Dropped(&dropped);
            assert!(!returns(|| {
                let _own = own;
                throw();
            }));
            assert_eq!(dropped.load(Ordering::Relaxed), times);
            assert_eq!(DELETED.load(Ordering::Relaxed), times);
        }
        let mut called = 0;
        assert!(returns(|| called += 1));
        assert_eq!(called, 1);
    }

    #[test]
    fn a_panic_passes() {
        let panics = || returns(|| panic!("ours"));
        assert!(std::panic::catch_unwind(panics).is_err());
    }
}
