//! The block of memory, and the request in it, with which the thread that roctap puts into the process comes.

#![expect(unsafe_code, reason = "the caller's addresses")]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tracer_common::shim::Attach;

use crate::sys;

/// The time that the thread that came with the block may take to end; if it takes longer, the block stays for ever.
const THREAD_ENDS_NS: u64 = 10_000_000_000;

/// Writes the status, which roctap reads from outside.
///
/// # Safety
///
/// `request` is valid.
pub unsafe fn answer(request: *mut Attach, status: u64) {
    // SAFETY: the caller's promise. Release: all else is done.
    unsafe { AtomicU64::from_ptr(&raw mut (*request).status) }.store(status, Ordering::Release);
}

/// Waits for the thread that runs in the block to be gone, then unmaps the block.
///
/// # Safety
///
/// The block and the word are as [`Attach`] says.
pub unsafe fn remove_block(asked: &Attach) {
    let deadline = sys::now_ns() + THREAD_ENDS_NS;
    let word = asked.thread_alive as *mut u32;
    // SAFETY: the caller's promise; the kernel writes it.
    while !word.is_null() && unsafe { AtomicU32::from_ptr(word) }.load(Ordering::Acquire) != 0 {
        if sys::now_ns() > deadline {
            return;
        }
        sys::sleep_ns(500_000);
    }
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(asked.block as *mut _, asked.block_bytes as usize) };
}
