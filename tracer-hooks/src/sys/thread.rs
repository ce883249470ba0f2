//! The calling thread: its id, its signals, and whether it can be cancelled.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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

/// Where it is in glibc's `struct pthread`.
const TID_AT: usize = 0x2d0;

/// The number of threads that have seen libc keep a thread's id at the place of all its releases of x86-64.
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
    block_word(TID_AT)
}

fn asked_tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

const CANCEL_DISABLE: c_int = 1;
const CANCEL_DEFERRED: c_int = 0;
const CANCEL_ASYNCHRONOUS: c_int = 1;

unsafe extern "C-unwind" {
    // They may unwind: a thread that was cancelled meanwhile, and asked to be at any instruction, is.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

/// The place where libc keeps whether a thread may be cancelled at any instruction: bits of a word, and the word's
/// distance behind the begin of the thread's block, in the upper half; 0 while it is not known.
static ASYNCHRONOUS: AtomicU64 = AtomicU64::new(0);

/// Looks for that place, which differs between releases, by changing the setting: in a thread of ours whose signals
/// wait.
pub fn look_for_cancellation() {
    /// From the thread's id on, as far as the block is known to go in all releases, or may go.
    const WORDS: usize = (0x980 - TID_AT) / 4;
    const KNOWN_BYTES: usize = 0x800;
    /// Another word may change meanwhile.
    const TRIES: usize = 8;
    if kept_tid() != asked_tid() {
        return;
    }
    // SAFETY: a name; libc has a word there, for debuggers.
    let declared = unsafe {
        libc::dlsym(libc::RTLD_DEFAULT, c"_thread_db_sizeof_pthread".as_ptr())
            .cast::<u32>()
            .as_ref()
    };
    let bytes = declared.map_or(KNOWN_BYTES, |&bytes| bytes as usize);
    let count = (bytes.saturating_sub(TID_AT) / 4).min(WORDS);
    let words_of = |kind| {
        // SAFETY: nobody cancels this thread.
        unsafe { pthread_setcanceltype(kind, ptr::null_mut()) };
        let mut words = [0; WORDS];
        words
            .iter_mut()
            .take(count)
            .enumerate()
            .for_each(|(at, to)| *to = block_word(TID_AT + 4 * at));
        words
    };
    for _ in 0..TRIES {
        let kinds = [CANCEL_DEFERRED, CANCEL_ASYNCHRONOUS, CANCEL_DEFERRED];
        let [before, meanwhile, after] = kinds.map(words_of);
        let words = before.into_iter().zip(meanwhile).enumerate();
        let mut changed = words.filter(|(_, (was, is))| was != is);
        let (Some((at, (was, is))), None) = (changed.next(), changed.next()) else { continue };
        if before == after && is & !was == is ^ was {
            let place = (TID_AT + 4 * at) as u64;
            ASYNCHRONOUS.store(place << 32 | u64::from(is ^ was), Ordering::Relaxed);
            return;
        }
    }
}

/// A word of the calling thread's block, which is longer.
#[inline]
fn block_word(at: usize) -> u32 {
    // SAFETY: it lives as long as the thread. Other threads change words of it, too, in one step.
    unsafe { AtomicU32::from_ptr((thread_block() + at) as *mut u32) }.load(Ordering::Relaxed)
}

/// Whether the calling thread may be cancelled at any instruction, or it is not known; else it is at cancellation points
/// alone.
#[inline]
pub fn may_be_cancelled_anywhere() -> bool {
    let known = ASYNCHRONOUS.load(Ordering::Relaxed);
    known == 0 || block_word((known >> 32) as usize) & known as u32 != 0
}

/// While this exists, the calling thread is not cancelled (`pthread_cancel`): our code holds locks, and
/// cancelling unwinds the stack, which ends the process where it meets ours.
pub struct Uncancelled {
    state: c_int,
    kind: c_int,
}

impl Uncancelled {
    /// From now on.
    #[inline]
    pub fn begin() -> Self {
        let (mut state, mut kind) = (CANCEL_DISABLE, CANCEL_DEFERRED);
        // SAFETY: both are valid for writes.
        unsafe {
            pthread_setcancelstate(CANCEL_DISABLE, &raw mut state);
            if may_be_cancelled_anywhere() {
                pthread_setcanceltype(CANCEL_DEFERRED, &raw mut kind);
            }
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

/// Runs what may wait, or has cancellation points, without the thread being cancelled meanwhile.
pub fn uncancelled<R>(run: impl FnOnce() -> R) -> R {
    let own = Uncancelled::begin();
    let result = run();
    own.end();
    result
}

/// A set with every signal.
pub(super) fn all_signals() -> libc::sigset_t {
    // SAFETY: a set is made of words, and is filled here.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        all
    }
}

/// Blocks every signal in the calling thread.
pub fn block_signals() {
    let all = all_signals();
    // SAFETY: the set is valid; the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut()) };
}

/// Runs `call`, a function of the runtime that takes locks of its own, while signals wait: a handler that
/// left by `siglongjmp` would leave them taken, in a call that the program knows nothing of.
pub fn uninterrupted<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: both sets are valid, and the second is the thread's mask of before.
    unsafe {
        let all = all_signals();
        let mut old: libc::sigset_t = core::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        let result = call();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, ptr::null_mut());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_libc_keeps_how_a_thread_is_cancelled_is_found() {
        look_for_cancellation();
        assert_ne!(ASYNCHRONOUS.load(Ordering::Relaxed), 0);
        for kind in [CANCEL_ASYNCHRONOUS, CANCEL_DEFERRED] {
            // SAFETY: nobody cancels this thread.
            unsafe { pthread_setcanceltype(kind, ptr::null_mut()) };
            assert_eq!(may_be_cancelled_anywhere(), kind == CANCEL_ASYNCHRONOUS);
            std::thread::spawn(|| assert!(!may_be_cancelled_anywhere())).join().expect("deferred");
        }
    }
}
