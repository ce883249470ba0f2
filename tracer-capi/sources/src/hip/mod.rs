//! Calls of HIP: what the runtime tells of them.
//!
//! * [`runtime`]: the HIP runtime that is loaded.
//! * [`by_operation`]: it tells by functions for each operation, before ROCm 5.3.1;
//! * [`one_function`]: by one function, from then on.
//! * [`protocol`]: what both can do.
//! * [`client`]: whose records they are, and the calls that a thread is in.

mod by_operation;
mod client;
mod one_function;
mod protocol;
mod runtime;

pub use client::{Client, Kept, innermost, innermost_id};
pub use runtime::{follow, has_tables, is_silent, look, silence, waits};
