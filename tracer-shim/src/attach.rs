//! Beginning to record in a process that runs already, as often as somebody asks.
//!
//! roctap gets a thread into the process that calls `roctap_attach` with an [`Attach`], or, when the shim is there
//! already, `roctap_attach_again`: the worker then starts the thread, so that only threads of ours meet the process's
//! allocator. The remains of an earlier recording are put away first: its memory is given up when nobody reads it any
//! more, and its operations in flight end unrecorded.

#![expect(unsafe_code, reason = "the caller's addresses")]

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use tracer_common::shim::{Attach, VERSION, attach_status, control, state};
use tracer_hooks::attach_block::{answer, remove_block};
use tracer_hooks::lock::Lock;
use tracer_hooks::{InstallError, Tables, Timing, Unsupported, contained, deactivate, sys, usable};

use crate::memory::{self, SharedMemory};
use crate::recorder::RECORDER;
use crate::{calls, exports};

/// The time that the block of memory that we came with stays when the status cannot be told otherwise.
const STATUS_STAYS_NS: u64 = 1_000_000_000;

/// One attach at a time.
static ATTACHING: Lock<()> = Lock::new(());
/// The request for which the worker is to start a thread.
static REQUEST: AtomicPtr<Attach> = AtomicPtr::new(ptr::null_mut());

/// The outcome of an attach.
#[derive(Clone, Copy)]
struct Outcome {
    status: u64,
    /// The status is in the shared memory as well.
    is_in_memory: bool,
}

impl Outcome {
    /// Tells a memory that is ours alone; it may be unmapped afterwards.
    fn tell(memory: &SharedMemory, status: u64) -> Self {
        memory.set_control(control::ATTACH_STATUS, status);
        Self { status, is_in_memory: true }
    }
}

/// Hands `request` to the worker. Runs on a thread that libc does not know.
///
/// # Safety
///
/// As for [`attach`].
pub unsafe fn again(request: *mut Attach) {
    let none = ptr::null_mut();
    let free = REQUEST.compare_exchange(none, request, Ordering::AcqRel, Ordering::Acquire);
    let refused = match free {
        Ok(_) if tracer_hooks::call_worker() => return,
        Ok(_) => attach_status::UNUSABLE,
        Err(_) => attach_status::BUSY,
    };
    if free.is_ok() {
        // Pairs with the exchange of the next thread that asks.
        REQUEST.store(none, Ordering::Release);
    }
    // SAFETY: the caller's promise.
    unsafe { answer(request, refused) };
}

/// Starts a thread for the request that waits. Called by the worker.
pub fn start_waiting() {
    extern "C" fn run(name: *mut c_void) -> *mut c_void {
        sys::name_thread(name);
        let request = REQUEST.swap(ptr::null_mut(), Ordering::AcqRel);
        if !request.is_null() {
            // SAFETY: it was given to `again`.
            unsafe { attach(request) };
        }
        ptr::null_mut()
    }
    // Acquire pairs with the exchange in `again`: the request was written before. So do the swaps.
    if !REQUEST.load(Ordering::Acquire).is_null() && !sys::spawn(c"roctap-attach", run) {
        let request = REQUEST.swap(ptr::null_mut(), Ordering::AcqRel);
        if !request.is_null() {
            // SAFETY: it was given to `again`.
            unsafe { answer(request, attach_status::THREAD) };
        }
    }
}

/// Fulfils `request`, answers it, and puts the block away that it came in.
///
/// # Safety
///
/// `request` is valid until the block is unmapped, which is done here, as is what it points at.
pub unsafe fn attach(request: *mut Attach) {
    // SAFETY: the caller's promise; it is not touched again but for the status.
    let asked = unsafe { request.read() };
    let outcome = contained(|| begin(&asked))
        .unwrap_or(Outcome { status: attach_status::UNUSABLE, is_in_memory: false });
    // SAFETY: the caller's promise.
    unsafe { answer(request, outcome.status) };
    if !outcome.is_in_memory {
        sys::sleep_ns(STATUS_STAYS_NS);
    }
    if asked.version == VERSION && asked.block_bytes != 0 {
        // SAFETY: the caller's promise; nothing of the block is used any more.
        unsafe { remove_block(&asked) };
    }
}

fn begin(asked: &Attach) -> Outcome {
    if asked.version != VERSION {
        // In another version the descriptor may be at another place.
        return Outcome { status: attach_status::VERSION, is_in_memory: false };
    }
    let refused = Outcome { status: attach_status::MEMORY, is_in_memory: false };
    // Closes the descriptor in any case.
    let Ok(memory) = i32::try_from(asked.memory_fd).map(memory::map_file) else { return refused };
    match memory.and_then(|memory| memory.claim(sys::getpid()).map(|()| memory)) {
        Ok(memory) => begin_with(asked, memory),
        Err(_) => refused,
    }
}

fn begin_with(asked: &Attach, memory: SharedMemory) -> Outcome {
    if !usable() {
        return Outcome::tell(&memory, attach_status::UNUSABLE);
    }
    // Before any function of the runtimes is called.
    exports::tell_own_code();
    // Later recordings begin by the worker, whatever becomes of this one.
    if let Err(error) = tracer_hooks::prepare_process(&RECORDER) {
        return Outcome::tell(&memory, status_of(error));
    }
    let attaching = ATTACHING.try_lock();
    if attaching.is_none() || RECORDER.is_read() {
        return Outcome::tell(&memory, attach_status::BUSY);
    }
    begin_with_tables(asked, memory)
}

/// Puts away the remains of an earlier recording, whose reader is gone. Without its memory nobody begins it anew. False
/// if that is not possible.
fn put_away_the_last() -> bool {
    RECORDER.disconnect() && deactivate()
}

/// Uses `memory` from now on. Fails with the answer if another `OnLoad` came in between, with a memory of the
/// environment.
fn connect(memory: SharedMemory) -> Result<(), Outcome> {
    let busy = Outcome { status: attach_status::BUSY, is_in_memory: false };
    if RECORDER.connect(memory) { Ok(()) } else { Err(busy) }
}

/// Tells the memory that is recorded into. Without one, roctap has ended the recording meanwhile.
fn tell_current(status: u64) -> Outcome {
    match RECORDER.memory() {
        Some(memory) => Outcome::tell(&memory, status),
        None => Outcome { status, is_in_memory: false },
    }
}

fn begin_with_tables(asked: &Attach, memory: SharedMemory) -> Outcome {
    // SAFETY: roctap found the addresses in the runtime's own code.
    let tables = match unsafe { Tables::at(asked.core_table, asked.amd_ext_table) } {
        Ok(tables) => tables,
        Err(_) => return unsupported(&memory),
    };
    if !put_away_the_last() {
        return Outcome::tell(&memory, attach_status::BUSY);
    }
    tracer_hooks::may_read(asked.may_read != 0);
    if let Err(outcome) = connect(memory) {
        return outcome;
    }
    match calls::install(Ok(tables), Timing::Live) {
        Ok(()) => tell_current(attach_status::RECORDING),
        Err(error) => {
            let outcome = tell_current(status_of(error));
            RECORDER.disconnect();
            outcome
        }
    }
}

fn status_of(error: InstallError) -> u64 {
    match error {
        InstallError::Unsupported(Unsupported::Second) => attach_status::SECOND_RUNTIME,
        InstallError::Unsupported(Unsupported::Covered) => attach_status::COVERED,
        InstallError::Unsupported(_) => attach_status::UNSUPPORTED,
        InstallError::Thread => attach_status::THREAD,
        InstallError::Sink
        | InstallError::Forked
        | InstallError::Ended
        | InstallError::Broken
        | InstallError::Stuck => attach_status::UNUSABLE,
    }
}

fn unsupported(memory: &SharedMemory) -> Outcome {
    memory.set_control(control::STATE, state::UNSUPPORTED);
    Outcome::tell(memory, attach_status::UNSUPPORTED)
}
