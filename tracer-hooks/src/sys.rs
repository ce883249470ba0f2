//! The operating system, as far as it is needed: clock, futex, thread, pages.
//!
//! Everything goes through libc and nothing through `std::thread` or `std::sync`: a standard thread
//! brings thread-locals with destructors, which must not exist in a library that lives in somebody
//! else's process until the very end of it.
//!
//! Each part has a file, and callers name everything as `sys::` alone:
//!
//! * [`process`]: what the kernel tells of the process, and functions that are called when it forks or exits.
//! * [`thread`]: the calling thread; [`spawning`]: threads of our own.
//! * [`time`]: clocks, and waiting for a time or for a word to change.
//! * [`memory`]: reads that cannot fault, allocations that can fail, and pages.
//! * [`library`]: libraries that are loaded, and their functions.

mod library;
mod memory;
mod process;
mod spawning;
mod thread;
mod time;

pub use library::{Extent, Library, library_of, pin, the_only_library};
pub use memory::{
    PAGE_BYTES, Zeroed, boxed, is_readable, leaves_room, map_pages, open_pages, push, read_code,
    read_words, sealed_bytes, zeroed_slice,
};
pub use process::{at_exit, at_fork, getpid, is_confined, pid_in_proc};
pub use spawning::{name_thread, own_thread, spawn};
pub use thread::{
    Uncancelled, block_signals, gettid, look_for_cancellation, look_for_tid,
    may_be_cancelled_anywhere, thread_mark, uncancelled, uninterrupted,
};
pub use time::{
    ahead_ns, awake_ns, futex_wait, futex_wake, now_ns, relax, sleep_ns, take_machines_time,
};
