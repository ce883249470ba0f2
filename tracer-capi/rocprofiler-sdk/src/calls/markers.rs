//! Calls of roctx: its library hands over tables of its functions, into which functions of ours are put, which record and
//! call on.

#![expect(unsafe_code, reason = "functions of other libraries, and their tables")]

use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use capi_common::loaded::Loaded;
use rocprofiler::kinds::Kind;
use rocprofiler::status::{Result, Status};
use tracer_hooks::lock::Lock;

use super::marks::{LIBRARIES, Word, record};
use super::operations::Operation;
use super::ranges;

/// The name of the library's file, without its version.
const NAME: &[u8] = b"librocprofiler-sdk-roctx.so";
/// The time that one library's tables wait for another one's.
const WAIT_NS: u64 = 1_000_000_000;

/// The tables of a library, by how many functions each has.
const TABLES: [usize; 3] = [6, 2, 4];

/// The functions that were in the tables of each library.
static THEIRS: [[[AtomicPtr<c_void>; 6]; TABLES.len()]; LIBRARIES] =
    [const { [const { [const { AtomicPtr::new(ptr::null_mut()) }; 6] }; TABLES.len()] }; LIBRARIES];

/// Functions of ours, by table and place: of each library by its number.
macro_rules! functions {
    ($(
        $table:literal $kind:ident {
            $($place:literal $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*
        }
    )*) => {
        mod ours {
            use super::*;
            $($(
                /// # Safety
                ///
                /// As of the library's own.
                #[expect(non_snake_case, reason = "the name of theirs")]
                pub unsafe extern "C-unwind" fn $name<const LIBRARY: usize>(
                    $($argument: $type),*
                ) $(-> $result)? {
                    type Function = unsafe extern "C-unwind" fn($($type),*) $(-> $result)?;
                    // Acquire pairs with the Release in `take_over`.
                    let theirs = THEIRS[LIBRARY][$table][$place].load(Ordering::Acquire);
                    // SAFETY: the library's function of this type: it was there before ours.
                    let theirs = unsafe { transmute::<*mut c_void, Function>(theirs) };
                    // SAFETY: as the caller promises.
                    let call = || unsafe { theirs($($argument),*) };
                    let operation = Operation { kind: Kind::$kind, number: $place };
                    let words = [$($argument.word()),*];
                    let recorded = || record(operation, &words, call);
                    match operation.kind {
                        Kind::MarkerCoreApi => ranges::around(LIBRARY, $place, &words, recorded),
                        _ => recorded(),
                    }
                }
            )*)*
        }

        /// Those of a library, table by table.
        fn of_library<const LIBRARY: usize>() -> [Vec<*mut c_void>; TABLES.len()] {
            [$(vec![$(ours::$name::<LIBRARY> as *mut c_void),*]),*]
        }
    };
}

functions! {
    0 MarkerCoreApi {
        0 roctxMarkA(message: *const c_char);
        1 roctxRangePushA(message: *const c_char) -> c_int;
        2 roctxRangePop() -> c_int;
        3 roctxRangeStartA(message: *const c_char) -> u64;
        4 roctxRangeStop(id: u64);
        5 roctxGetThreadId(thread: *mut u64) -> c_int;
    }
    1 MarkerControlApi {
        0 roctxProfilerPause(thread: u64) -> c_int;
        1 roctxProfilerResume(thread: u64) -> c_int;
    }
    2 MarkerNameApi {
        0 roctxNameOsThread(name: *const c_char) -> c_int;
        1 roctxNameHsaAgent(name: *const c_char, agent: *const c_void) -> c_int;
        2 roctxNameHipDevice(name: *const c_char, device: c_int) -> c_int;
        3 roctxNameHipStream(name: *const c_char, stream: *const c_void) -> c_int;
    }
}

/// A library hands its tables over.
///
/// # Errors
///
/// [`Status::OutOfResources`] if it is one library too many; [`Status::Error`] if another thread does not come back
/// from here.
///
/// # Safety
///
/// They are the library's, stay, and begin with their bytes.
pub unsafe fn take_over(tables: [*mut c_void; TABLES.len()]) -> Result {
    /// The libraries that have handed tables over, by their first tables.
    static KNOWN: Lock<Vec<usize>> = Lock::new(Vec::new());
    let mut known = KNOWN.lock_for(WAIT_NS).ok_or(Status::Error)?;
    if known.contains(&tables[0].addr()) {
        return Ok(());
    }
    let ours = match known.len() {
        0 => of_library::<0>(),
        1 => of_library::<1>(),
        2 => of_library::<2>(),
        3 => of_library::<3>(),
        _ => return Err(Status::OutOfResources),
    };
    let theirs = &THEIRS[known.len()];
    for ((table, ours), theirs) in tables.into_iter().zip(ours).zip(theirs) {
        // SAFETY: as the caller promises.
        unsafe { exchange(table, &ours, theirs) };
    }
    known.push(tables[0].addr());
    Ok(())
}

/// Puts functions of ours into a table, as far as it has functions.
///
/// # Safety
///
/// The table stays, and begins with its bytes.
unsafe fn exchange(table: *mut c_void, ours: &[*mut c_void], theirs: &[AtomicPtr<c_void>]) {
    // SAFETY: as the caller promises.
    let bytes = unsafe { table.cast::<u64>().read() } as usize;
    let places = (bytes / size_of::<u64>()).saturating_sub(1);
    for (place, (&ours, theirs)) in ours.iter().zip(theirs).enumerate().take(places) {
        // SAFETY: within the table, where others only read, and write whole pointers.
        let function = unsafe { AtomicPtr::from_ptr(table.cast::<*mut c_void>().add(1 + place)) };
        let before = function.load(Ordering::Acquire);
        if !before.is_null() {
            // Release pairs with the Acquire in a function of ours, which is called from now on.
            theirs.store(before, Ordering::Release);
            function.store(ours, Ordering::Release);
        }
    }
}

/// Asks a library that was called before this one was there for its tables. AMD's library only tells its version then:
/// it hands its tables over by rocprofiler-register, or not at all.
pub fn ask() {
    type Import = unsafe extern "C-unwind" fn() -> u32;
    let library = Loaded::find(NAME);
    let import = library.and_then(|library| library.function(c"rocprofiler_register_import_roctx"));
    if let Some(import) = import {
        // SAFETY: a function of this type, by its name.
        let import = unsafe { transmute::<*mut c_void, Import>(import) };
        // SAFETY: it takes nothing.
        unsafe { import() };
    }
}
