//! Calls of roctx: its library hands over tables of its functions, into which functions of ours are put, which record and
//! call on.

#![expect(unsafe_code, reason = "functions of other libraries, and their tables")]

use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use capi_common::loaded::Loaded;
use capi_sources::client_thread::{InCallback, next_id};
use rocprofiler::kinds::Kind;
use rocprofiler::status::{Result, Status};
use roctracer::timestamp_ns;
use tracer_hooks::contained;
use tracer_hooks::lock::Lock;

use super::callbacks::Callbacks;
use super::operations::Operation;
use super::payload::Payload;
use super::ranges;
use super::record::Begun;

/// What the file of the library is called, but for its version.
const NAME: &[u8] = b"librocprofiler-sdk-roctx.so";
/// So many libraries of this kind are recorded in a process: each has ranges and ids of its own.
pub const LIBRARIES: usize = 4;
/// How long one library's tables wait for another one's.
const WAIT_NS: u64 = 1_000_000_000;

/// The tables of a library, by how many functions each has.
const TABLES: [usize; 3] = [6, 2, 4];

/// The functions that were in the tables of each library.
static THEIRS: [[[AtomicPtr<c_void>; 6]; TABLES.len()]; LIBRARIES] =
    [const { [const { [const { AtomicPtr::new(ptr::null_mut()) }; 6] }; TABLES.len()] }; LIBRARIES];

/// An argument or a result, as a word.
pub trait Word {
    fn word(&self) -> u64;
}

impl Word for () {
    fn word(&self) -> u64 {
        0
    }
}

impl Word for c_int {
    fn word(&self) -> u64 {
        self.cast_unsigned().into()
    }
}

impl Word for u64 {
    fn word(&self) -> u64 {
        *self
    }
}

impl<T> Word for *const T {
    fn word(&self) -> u64 {
        self.expose_provenance() as u64
    }
}

impl<T> Word for *mut T {
    fn word(&self) -> u64 {
        self.expose_provenance() as u64
    }
}

/// A call that somebody wants to have recorded, and its id. It ends when this is dropped, also by an exception.
pub struct Open {
    operation: Operation,
    begun: Option<(Begun, u64)>,
}

impl Open {
    /// It begins now.
    pub fn begin(operation: Operation) -> Self {
        let mut open = Self { operation, begun: None };
        contained(|| {
            let begun = Begun::new(operation, || None, timestamp_ns);
            open.begun = begun.map(|begun| (begun, next_id()));
        });
        open
    }

    /// Whether anybody wants it.
    pub fn is_recorded(&self) -> bool {
        self.begun.is_some()
    }

    /// Tools are told of its begin, with its arguments.
    pub fn enter(&self, words: &[u64]) {
        self.tell(|callbacks, id| {
            callbacks.enter(id, None, |payload| payload.set_words(self.operation, words, &[]));
        });
    }

    /// Tools are told of its end, with what `fill` adds.
    pub fn exit(&self, fill: impl FnOnce(&mut Payload, Operation)) {
        self.tell(|callbacks, id| {
            callbacks.exit(id, None, |payload| fill(payload, self.operation))
        });
    }

    /// Tools are told, unless the thread is in a callback.
    fn tell(&self, tell: impl FnOnce(&Callbacks, u64)) {
        if let Some((begun, id)) = &self.begun
            && let Some(callbacks) = &begun.callbacks
            && let Some(_inside) = InCallback::enter(ptr::from_ref(self).addr())
        {
            tell(callbacks, *id);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some((begun, id)) = self.begun.take() {
            let end_ns = timestamp_ns();
            contained(|| begun.end(id, end_ns));
        }
    }
}

/// A call, which is recorded if somebody wants it.
pub fn record<R: Word>(operation: Operation, words: &[u64], call: impl FnOnce() -> R) -> R {
    let open = Open::begin(operation);
    open.enter(words);
    let result = call();
    open.exit(|payload, operation| payload.set_result(operation.kind, result.word()));
    result
}

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
/// [`Status::OutOfResources`] if it is one too many; [`Status::Error`] if another one does not come back from here.
///
/// # Safety
///
/// They are the library's, stay, and begin with their bytes.
pub unsafe fn take_over(tables: [*mut c_void; TABLES.len()]) -> Result {
    /// The libraries that have, by their first tables.
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

/// Asks a library that was called before this one was there for its tables. AMD's only tells its version then: it hands
/// them over by rocprofiler-register, or not at all.
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
