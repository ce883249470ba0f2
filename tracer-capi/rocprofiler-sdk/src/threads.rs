//! Threads that the runtimes create, of which tools are told before and after: where the runtimes' libraries import the
//! functions that create threads, they find ours.

#![expect(unsafe_code, reason = "functions of the C and C++ libraries that are stood in for")]

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicUsize, Ordering};

use capi_common::loaded::Loaded;
use capi_common::{hip, hsa};
use libc::{pthread_attr_t, pthread_t};
use tracer_hooks::lock::Lock;

use crate::{SDK, log, process};

/// The time that another thread that does the same is waited for, ns.
const WAIT_NS: u64 = 1_000_000_000;

/// A runtime's library: its file, and its bit of `rocprofiler_runtime_library_t`.
const HSA: (&[u8], u32) = (hsa::LIBRARY, 2);
const HIP: (&[u8], u32) = (hip::LIBRARY, 4);

const PTHREAD_CREATE: &CStr = c"pthread_create";
/// `std::thread::_M_start_thread`
const START_THREAD: &CStr =
    c"_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE";

type Begin = extern "C" fn(*mut c_void) -> *mut c_void;
type PthreadCreate =
    unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Begin, *mut c_void) -> c_int;
/// Arguments: the thread, the state that it is to run, and a function that is there for the linker alone. It throws
/// where there is no thread.
type StartThread = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void);

/// A function that creates threads, as a library imports it.
struct Creator {
    library: (&'static [u8], u32),
    name: &'static CStr,
    /// The function of ours that stands in for it.
    ours: fn() -> usize,
    /// The function itself; 0 until ours stands in for it, [`ABSENT`] if the library does not import it.
    function: AtomicUsize,
}

const ABSENT: usize = 1;

static CREATORS: [Creator; 4] = [
    Creator::new(HSA, PTHREAD_CREATE, || pthread_create::<0> as *const () as usize),
    Creator::new(HIP, PTHREAD_CREATE, || pthread_create::<1> as *const () as usize),
    Creator::new(HSA, START_THREAD, || start_thread::<2> as *const () as usize),
    Creator::new(HIP, START_THREAD, || start_thread::<3> as *const () as usize),
];

/// Has tools told of threads of the loaded runtimes, if any tool wants to be.
pub fn follow() {
    static ONE_AT_A_TIME: Lock<()> = Lock::new(());
    let is_missing = |creator: &&Creator| {
        creator.function.load(Ordering::Relaxed) == 0 && SDK.watchers.mean(creator.library.1)
    };
    if CREATORS.iter().any(|creator| is_missing(&creator))
        && let Some(_one) = ONE_AT_A_TIME.lock_for(WAIT_NS)
    {
        CREATORS.iter().filter(is_missing).for_each(Creator::stand_in);
    }
}

impl Creator {
    const fn new(library: (&'static [u8], u32), name: &'static CStr, ours: fn() -> usize) -> Self {
        Self { library, name, ours, function: AtomicUsize::new(0) }
    }

    /// Has the library find ours, if it is loaded and imports the function.
    fn stand_in(&self) {
        let Some(library) = Loaded::find(self.library.0) else { return };
        let Some(import) = library.import(self.name) else {
            return self.function.store(ABSENT, Ordering::Relaxed);
        };
        // Of a function that was not called yet, the one that the dynamic linker would find: another library's may come
        // first.
        let function = import.function().or_else(|| {
            // SAFETY: a name.
            let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr()) };
            let found = if first.is_null() { library.function(self.name) } else { Some(first) };
            found.map(|function| function as usize)
        });
        let Some(function) = function else { return };
        self.function.store(function, Ordering::Release);
        // SAFETY: it takes what the function takes.
        if let Err(why) = unsafe { import.replace((self.ours)()) } {
            let path = library.path().to_string_lossy();
            log::error(format_args!(
                "tools are not notified of threads that {path} creates: {why}"
            ));
        }
    }

    /// Tells tools of the thread that `create` creates, in the process that has the tools.
    fn around<T>(&self, create: impl FnOnce() -> T) -> T {
        if process::is_forked() { create() } else { SDK.watchers.around(self.library.1, create) }
    }
}

/// Stands in for `pthread_create`. An exception of a tool's ends the process here.
///
/// # Safety
///
/// As of that function.
unsafe extern "C" fn pthread_create<const CREATOR: usize>(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    begin: Begin,
    argument: *mut c_void,
) -> c_int {
    let creator = &CREATORS[CREATOR];
    // SAFETY: it is the function, and was there before this one was found; the caller's arguments.
    creator.around(|| unsafe {
        let function: PthreadCreate = transmute(creator.function.load(Ordering::Acquire));
        function(thread, attributes, begin, argument)
    })
}

/// Stands in for the function that begins the thread of a `std::thread`.
///
/// # Safety
///
/// As of that function.
unsafe extern "C-unwind" fn start_thread<const CREATOR: usize>(
    thread: *mut c_void,
    state: *mut c_void,
    unused: *mut c_void,
) {
    let creator = &CREATORS[CREATOR];
    // SAFETY: it is the function, and was there before this one was found; the caller's arguments.
    creator.around(|| unsafe {
        let function: StartThread = transmute(creator.function.load(Ordering::Acquire));
        function(thread, state, unused);
    });
}
