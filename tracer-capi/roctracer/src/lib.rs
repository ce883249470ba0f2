//! The functions of roctracer 4.1, as a Rust library: the pools that receive records of activities, the callbacks that
//! are called, and the names of operations. The facts are those of its specification and of AMD's library.
//!
//! * [`pool`]: pools of activity records, which are delivered to a callback in buffers.
//! * [`tracer`]: which callbacks and pools are enabled for which operations; the default pool; start and stop.
//! * [`domains`]: the domains and how many operations each has; names of operations.
//! * [`external`]: correlation ids that the program gives regions of its own.
//! * [`queue`]: a queue in which nobody waits.
//! * [`thread`]: a thread of ours, a forked child, the calling thread's numbers.
//! * [`error`]: status codes, and the text of a thread's last error.
//!
//! Imports go downwards only:
//!
//! ```text
//! tracer           what is enabled
//! pool, external   where records go; ids of a thread
//! pair, domains    a callback and its argument as one; operations
//! error, thread    status codes; a thread of ours, a forked child
//! queue            of anything
//! ```
//!
//! Its C interface is `libroctracer64.so.4` (`tracer-capi/roctracer64`), which also calls the callbacks and writes the
//! records.

#![deny(unsafe_code)]

pub mod domains;
pub mod error;
pub mod external;
mod pair;
pub mod pool;
pub mod queue;
pub mod thread;
pub mod tracer;

pub use tracer_hooks::sys::now_ns as timestamp_ns;
