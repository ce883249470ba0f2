//! The calling thread: its id, its signals, and whether it can be cancelled.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

/// A number for the calling thread, not 0, below 2^31 - 1: from where its thread block is, without a call.
/// That two threads that live have the same takes blocks that are a multiple of 128 GiB apart.
#[inline]
pub fn thread_mark() -> u32 {
    ((thread_block() >> 6) as u32 | 1) & 0x7FFF_FFFD
}

/// Where the calling thread's block is.
#[inline]
fn thread_block() -> usize {
    let block: usize;
    // SAFETY: on x86-64 the thread pointer points at itself.
    unsafe {
        core::arch::asm!("mov {}, fs:0", out(reg) block, options(nostack, pure, readonly));
    }
    block
}

/// How many threads have seen that libc keeps a thread's id where it has in all its releases of x86-64.
static TIDS_SEEN: AtomicU32 = AtomicU32::new(0);

/// Looks where libc keeps the calling thread's id. When two threads have, [`gettid`] makes no system call any more, for
/// which a seccomp filter may kill.
pub fn look_for_tid() {
    if kept_tid() == asked_tid() {
        TIDS_SEEN.fetch_add(1, Ordering::Relaxed);
    }
}

/// Thread id of the caller.
pub fn gettid() -> u32 {
    if TIDS_SEEN.load(Ordering::Relaxed) >= 2 { kept_tid() } else { asked_tid() }
}

/// By libc, in the calling thread's block.
fn kept_tid() -> u32 {
    /// In glibc's `struct pthread`.
    const AT: usize = 0x2d0;
    // SAFETY: the thread's own block, which is longer; only the thread itself changes it, in a child after a fork.
    unsafe { ((thread_block() + AT) as *const u32).read() }
}

fn asked_tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// While this exists, the calling thread is not cancelled (`pthread_cancel`): our code holds locks, and
/// cancelling unwinds the stack, which ends the process where it meets ours.
pub struct Uncancelled {
    state: c_int,
    kind: c_int,
}

const CANCEL_DISABLE: c_int = 1;
const CANCEL_DEFERRED: c_int = 0;
const CANCEL_ASYNCHRONOUS: c_int = 1;

unsafe extern "C-unwind" {
    // They may unwind: a thread that was cancelled meanwhile, and asked to be at any instruction, is.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

impl Uncancelled {
    /// From now on.
    #[inline]
    pub fn begin() -> Self {
        let (mut state, mut kind) = (CANCEL_DISABLE, CANCEL_DEFERRED);
        // SAFETY: both are valid for writes.
        unsafe {
            pthread_setcancelstate(CANCEL_DISABLE, &raw mut state);
            pthread_setcanceltype(CANCEL_DEFERRED, &raw mut kind);
        }
        Self { state, kind }
    }

    /// As before. It need not return: nothing of ours may be held.
    #[inline]
    pub fn end(self) {
        // SAFETY: what the thread was.
        unsafe {
            pthread_setcancelstate(self.state, ptr::null_mut());
            if self.kind == CANCEL_ASYNCHRONOUS {
                // Of the two only this looks whether the thread was cancelled meanwhile, in glibc from
                // 2.34 to 2.40.
                pthread_setcanceltype(self.kind, ptr::null_mut());
            }
        }
    }
}

/// Blocks every signal in the calling thread.
pub fn block_signals() {
    // SAFETY: the set is filled before it is used; the old mask is not asked for.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

/// Runs `call`, a function of the runtime that takes locks of its own, while signals wait: a handler that
/// left by `siglongjmp` would leave them taken, in a call that the program knows nothing of.
pub fn uninterrupted<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: both sets are valid, and the second is the thread's mask of before.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut old: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        let result = call();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, ptr::null_mut());
        result
    }
}
