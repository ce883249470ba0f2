//! `librocprofiler-register.so.0`: runtimes hand their tables over to `librocprofiler-sdk`, ours or AMD's, for programs that
//! are linked against AMD's library of that name.
//!
//! Where `librocprofiler-sdk` is loaded it gets the tables. It is loaded where a tool wants tables: the environment
//! names tools (`ROCP_TOOL_LIBRARIES`), or one is loaded. Otherwise nothing happens.
//!
//! `ROCPROFILER_REGISTER_LIBRARY` names another file of `librocprofiler-sdk`, and `ROCPROFILER_REGISTER_FORCE_LOAD` has
//! it loaded in any case. For a program that gives more rights than its caller has, the environment does not count.
//!
//! The functions are declared in `tracer-capi/include/rocprofiler-register/rocprofiler-register.h`.

#![deny(unsafe_code)]
#![expect(unsafe_code, reason = "exports, and functions of the dynamic linker")]

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `rocprofiler_register_error_code_t`, by number, and the meaning of each.
const TEXTS: [&CStr; 8] = [
    c"Success",
    c"No tool wants the tables",
    c"The thread hands over tables already",
    c"There is no table",
    c"Tables of this name are not known",
    c"There is no function of the library's",
    c"librocprofiler-sdk has refused the tables",
    c"There were too many libraries of this name before",
];
const SUCCESS: u32 = 0;
const NO_TOOLS: u32 = 1;
const DEADLOCK: u32 = 2;
const BAD_LENGTH: u32 = 3;
const UNSUPPORTED: u32 = 4;
const INVALID_ADDRESS: u32 = 5;
const REFUSED: u32 = 6;
const EXCESS: u32 = 7;

/// The names of tables.
const NAMES: [&CStr; 7] =
    [c"hsa", c"hip", c"hip_compiler", c"roctx", c"rccl", c"rocdecode", c"rocjpeg"];
/// The most libraries of a name.
const MOST: u64 = 8;
/// The number of libraries of each name so far.
static KNOWN: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// The tables that were handed over, in this order: the version, the number of tables, and one more than the place of
/// the name; 0 where nothing was handed over yet.
static HANDED: [AtomicU64; NAMES.len() * MOST as usize] =
    [const { AtomicU64::new(0) }; NAMES.len() * MOST as usize];

/// The libraries that may take the tables: of each interface one.
const TAKERS: [&CStr; 2] = [c"librocprofiler-sdk.so.0", c"librocprofiler-sdk.so.1"];
const TAKE: &CStr = c"rocprofiler_set_api_table";

/// A thread hands tables over. Another thread does not wait for it for ever: the first may wait for the other.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
const LOOKS: u32 = 10_000;
const PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };

thread_local! {
    /// The calling thread is that one.
    static HANDS_OVER: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: as the C library declares it.
unsafe extern "C" {
    /// A function of the C library: null where the program gives more rights than its caller has.
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// `rocprofiler_set_api_table`: name, version, which library of the name it is, tables. Returns 0, or a status.
type Take = unsafe extern "C-unwind" fn(*const c_char, u64, u64, *mut *mut c_void, u64) -> c_int;

/// Hands the tables of a library over.
///
/// # Safety
///
/// `name` is null or a string, and so many tables are at `tables`; `id` is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_register_library_api_table(
    name: *const c_char,
    import: Option<extern "C" fn() -> u32>,
    version: u32,
    tables: *mut *mut c_void,
    count: u64,
    id: *mut u64,
) -> u32 {
    if count == 0 || tables.is_null() {
        return BAD_LENGTH;
    }
    if import.is_none() {
        return INVALID_ADDRESS;
    }
    // SAFETY: as the caller promises.
    let called = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
    let Some(place) = NAMES.iter().position(|&known| Some(known) == called) else {
        return UNSUPPORTED;
    };
    let Some(_turn) = Turn::wait() else { return DEADLOCK };
    let instance = KNOWN[place].load(Ordering::Relaxed);
    if instance >= MOST {
        return EXCESS;
    }
    KNOWN[place].store(instance + 1, Ordering::Relaxed);
    if !id.is_null() {
        // SAFETY: as the caller promises; not null.
        unsafe { id.write(MOST * place as u64 + instance) };
    }
    let entry = u64::from(version) << 32 | count.min(0xFF_FFFF) << 8 | (place as u64 + 1);
    let is_free = |one: &&AtomicU64| {
        one.compare_exchange(0, entry, Ordering::Release, Ordering::Relaxed).is_ok()
    };
    // There are as many places as tables that may be handed over.
    let _ = HANDED.iter().find(is_free);
    let Some(take) = taker() else { return NO_TOOLS };
    // SAFETY: a function of this type, by its name, and what the caller promises. A tool may throw.
    match unsafe { take(name, version.into(), instance, tables, count) } {
        0 => SUCCESS,
        _ => REFUSED,
    }
}

/// `rocprofiler_register_registration_info_t`
#[repr(C)]
struct Info {
    size: usize,
    name: *const c_char,
    version: u32,
    tables: u64,
}

/// Not 0 ends the iteration. It may throw.
type Callback = unsafe extern "C-unwind" fn(*mut Info, *mut c_void) -> c_int;

/// Reports the tables that were handed over, whether a library took them or not.
///
/// # Safety
///
/// The function takes `data`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_register_iterate_registration_info(
    tell: Option<Callback>,
    data: *mut c_void,
) -> u32 {
    let Some(tell) = tell else { return INVALID_ADDRESS };
    // Acquire pairs with the Release above.
    let handed = HANDED.iter().map(|one| one.load(Ordering::Acquire));
    for entry in handed.take_while(|&entry| entry != 0) {
        let Some(name) = NAMES.get((entry as usize & 0xFF) - 1) else { continue };
        let (version, tables) = ((entry >> 32) as u32, entry >> 8 & 0xFF_FFFF);
        let mut info = Info { size: size_of::<Info>(), name: name.as_ptr(), version, tables };
        // SAFETY: as the caller promises; the structure is there until it returns.
        if unsafe { tell(&raw mut info, data) } != 0 {
            break;
        }
    }
    SUCCESS
}

/// The meaning of a code; null if there is none of this number.
#[unsafe(no_mangle)]
extern "C-unwind" fn rocprofiler_register_error_string(code: u32) -> *const c_char {
    TEXTS.get(code as usize).map_or(ptr::null(), |text| text.as_ptr())
}

/// It is the calling thread's turn, until this is dropped: also when a tool throws.
struct Turn {
    is_alone: bool,
}

impl Turn {
    /// None: the thread has the turn already.
    fn wait() -> Option<Self> {
        if HANDS_OVER.replace(true) {
            return None;
        }
        // Acquire pairs with the Release below.
        let take =
            || IS_BUSY.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let mut is_alone = take();
        for _ in 0..LOOKS {
            if is_alone {
                break;
            }
            // SAFETY: a time, and no place for what is left of it.
            unsafe { libc::nanosleep(&PAUSE, ptr::null_mut()) };
            is_alone = take();
        }
        Some(Self { is_alone })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        HANDS_OVER.set(false);
        if self.is_alone {
            IS_BUSY.store(false, Ordering::Release);
        }
    }
}

/// The function that takes tables: none, if no tool wants them.
fn taker() -> Option<Take> {
    let is_loaded = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    let named = variable(c"ROCPROFILER_REGISTER_LIBRARY");
    let all = || named.into_iter().chain(TAKERS);
    if let Some(take) = all().find_map(|library| function(library, is_loaded)) {
        return Some(take);
    }
    let is_wanted = variable(c"ROCP_TOOL_LIBRARIES").is_some()
        || variable(c"ROCPROFILER_REGISTER_FORCE_LOAD").is_some_and(|word| is_yes(word.to_bytes()))
        || is_tool_there();
    let load = libc::RTLD_LAZY | libc::RTLD_GLOBAL;
    is_wanted.then(|| all().find_map(|library| function(library, load))).flatten()
}

fn is_yes(word: &[u8]) -> bool {
    !matches!(word, b"0" | b"false" | b"off" | b"no" | b"n" | b"f" | b"FALSE" | b"OFF" | b"NO")
}

/// A variable of the environment that is not empty, unless the program gives more rights than its caller has.
fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a string. The value is there as long as nobody changes the variable, as for every reader of it.
    let value = unsafe { secure_getenv(name.as_ptr()).as_ref().map(|at| CStr::from_ptr(at)) };
    value.filter(|value| !value.is_empty())
}

/// Whether a tool is loaded, or the program is one.
fn is_tool_there() -> bool {
    // SAFETY: a string.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"rocprofiler_configure".as_ptr()) }.is_null()
}

/// The function of a library by which it takes tables.
fn function(library: &CStr, flags: c_int) -> Option<Take> {
    // SAFETY: the library that the user has chosen, as the dynamic linker loads it. It stays loaded.
    let handle = unsafe { libc::dlopen(library.as_ptr(), flags) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: a handle that is open.
    let found = unsafe { libc::dlsym(handle, TAKE.as_ptr()) };
    // SAFETY: a function of this type, by its name.
    (!found.is_null()).then(|| unsafe { transmute::<*mut c_void, Take>(found) })
}
