//! The tables are handed over to `librocprofiler-sdk`, which puts its functions into them: once, at the first call of any
//! function.
//!
//! The library hands them over directly where `librocprofiler-sdk` is loaded, and by rocprofiler-register where that is
//! loaded. Where neither is, because a runtime loads it later, `librocprofiler-sdk` asks for the tables when it begins,
//! by the function by which rocprofiler-register knows this library. Nothing is loaded for it.
//!
//! Tools are initialized meanwhile. Calls of other threads wait for that, and are recorded; they do not wait for ever,
//! since a tool may wait for such a thread.

#![expect(unsafe_code, reason = "functions of the dynamic linker, and of libraries that it finds")]

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::tables::{CONTROL, CORE, NAME};

/// 10000 * major + 100 * minor + patch.
const VERSION: u32 = 500;
const LIBRARY: &CStr = c"roctx";

/// The state of handing the tables over.
mod state {
    pub const NOT_YET: u8 = 0;
    /// A thread hands them over.
    pub const GOES_ON: u8 = 1;
    /// A thread hands them over, and is to try again if nobody takes them.
    pub const IS_ASKED: u8 = 2;
    /// Nobody took them.
    pub const NOBODY: u8 = 3;
    pub const DONE: u8 = 4;
}

static STATE: AtomicU8 = AtomicU8::new(state::NOT_YET);
/// A thread was waited for in vain, and no thread waits for it any more.
static IS_SLOW: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The calling thread hands the tables over.
    static HANDS_OVER: Cell<bool> = const { Cell::new(false) };
}

/// The number of looks at a thread that hands the tables over, and the time between two looks, ns: 1 s in all.
const LOOKS: u32 = 10_000;
const PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };

/// Hands the tables over, unless that was tried before.
#[inline]
pub fn once() {
    // Acquire pairs with the Release in `hand_over`: the functions that were put into the tables are there.
    if STATE.load(Ordering::Acquire) < state::NOBODY {
        first();
    }
}

#[cold]
fn first() {
    if STATE.load(Ordering::Relaxed) == state::NOT_YET {
        hand_over();
    }
    let is_going_on = || STATE.load(Ordering::Acquire) < state::NOBODY;
    let is_waited_for = !HANDS_OVER.get() && !IS_SLOW.load(Ordering::Relaxed);
    for _ in 0..LOOKS {
        if !is_waited_for || !is_going_on() {
            return;
        }
        // SAFETY: a time, and no place for what is left of it.
        unsafe { libc::nanosleep(&PAUSE, ptr::null_mut()) };
    }
    IS_SLOW.store(true, Ordering::Relaxed);
}

/// The version of this library. `librocprofiler-sdk` calls it when it begins, and may have the tables from now on.
#[unsafe(no_mangle)]
extern "C-unwind" fn rocprofiler_register_import_roctx() -> u32 {
    hand_over();
    VERSION
}

/// Hands the tables over, or has the thread that does it try again; once they are handed over they stay so.
#[cold]
fn hand_over() {
    let goes =
        |from, to| STATE.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    loop {
        let now = STATE.load(Ordering::Relaxed);
        match now {
            state::NOT_YET | state::NOBODY if goes(now, state::GOES_ON) => break,
            state::GOES_ON if goes(now, state::IS_ASKED) => return,
            state::IS_ASKED | state::DONE => return,
            _ => {}
        }
    }
    HANDS_OVER.set(true);
    let is_taken = loop {
        if offer() {
            break true;
        }
        if goes(state::GOES_ON, state::NOBODY) {
            break false;
        }
        STATE.store(state::GOES_ON, Ordering::Relaxed);
    };
    HANDS_OVER.set(false);
    if is_taken {
        STATE.store(state::DONE, Ordering::Release);
    }
}

/// The libraries that may take the tables. `roctap tool` puts the first one into a process from memory: it has no file
/// of that name.
const SDK: [&CStr; 2] = [c"librocprofiler-sdk.so.0", c"librocprofiler-sdk.so.1"];
const REGISTER: [&CStr; 1] = [c"librocprofiler-register.so.0"];

/// `rocprofiler_set_api_table`: name, version, which library of the name it is, tables. Returns 0, or a status.
type SetTables =
    unsafe extern "C-unwind" fn(*const c_char, u64, u64, *mut *mut c_void, u64) -> c_int;
/// `rocprofiler_register_library_api_table`: the same, with the library's function for its version, and a place for an id.
type Register = unsafe extern "C-unwind" fn(
    *const c_char,
    extern "C-unwind" fn() -> u32,
    u32,
    *mut *mut c_void,
    u64,
    *mut u64,
) -> c_int;

/// Whether a library has taken the tables.
fn offer() -> bool {
    let mut tables = [
        (&raw const CORE).cast_mut().cast(),
        (&raw const CONTROL).cast_mut().cast(),
        (&raw const NAME).cast_mut().cast(),
    ];
    let (first, count) = (tables.as_mut_ptr(), tables.len() as u64);
    if let Some(set) = function(&SDK, c"rocprofiler_set_api_table") {
        // SAFETY: a function of this type, by its name.
        let set = unsafe { transmute::<*mut c_void, SetTables>(set) };
        // SAFETY: so many tables, which stay.
        return unsafe { set(LIBRARY.as_ptr(), VERSION.into(), 0, first, count) } == 0;
    }
    let name = c"rocprofiler_register_library_api_table";
    let Some(register) = function(&REGISTER, name) else { return false };
    let mut id = 0;
    // SAFETY: a function of this type, by its name.
    let register = unsafe { transmute::<*mut c_void, Register>(register) };
    let import = rocprofiler_register_import_roctx;
    // SAFETY: so many tables, which stay, and a place for the id.
    unsafe { register(LIBRARY.as_ptr(), import, VERSION, first, count, &raw mut id) == 0 }
}

/// A function of a library that is loaded, whatever its file is called.
fn function(sonames: &[&CStr], name: &CStr) -> Option<*mut c_void> {
    let find = |soname: &&CStr| {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: it loads nothing. The handle is kept for ever.
        let handle = unsafe { libc::dlopen(soname.as_ptr(), flags) };
        // SAFETY: a library that is loaded, and a name.
        let found = (!handle.is_null()).then(|| unsafe { libc::dlsym(handle, name.as_ptr()) })?;
        (!found.is_null()).then_some(found)
    };
    sonames.iter().find_map(find)
}
