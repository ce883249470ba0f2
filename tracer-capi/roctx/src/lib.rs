//! `libroctx64.so.4`: marks and ranges that a program puts into its trace, for programs that are linked
//! against AMD's library of that name.
//!
//! It records nothing. Each function tells the tracer that has registered itself, roctracer in most cases,
//! and does what it does afterwards: counting the ranges of a thread, giving out ids. Probes on its
//! functions see the same.
//!
//! The functions are declared in `tracer-capi/include/roctracer/roctx.h`. Nothing here allocates, locks
//! or panics, and an exception that a tracer's callback throws passes through to the program.

#![deny(unsafe_code)]

mod exports;

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// How many ranges the thread has begun and not ended. Without a destructor: it can be used to the
    /// very end of its thread, and does not keep the library loaded.
    static DEPTH: Cell<i32> = const { Cell::new(0) };
}

/// The id that the next range gets; 0 is none.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// Begins a range of this thread. Returns the number of ranges before.
fn push() -> i32 {
    let depth = DEPTH.get();
    DEPTH.set(depth.saturating_add(1));
    depth
}

/// Ends a range of this thread. Returns the number of ranges that are left, -1 if there was none.
fn pop() -> i32 {
    match DEPTH.get() {
        0 => -1,
        depth => {
            DEPTH.set(depth - 1);
            depth - 1
        }
    }
}

fn next_id() -> u64 {
    // Ids need to be different, not ordered with anything else.
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}
