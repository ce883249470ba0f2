//! Calls of HIP, as the runtime reports them.
//!
//! * [`runtime`]: the HIP runtime that is loaded.
//! * [`by_operation`]: it reports to functions of each operation, before ROCm 5.3.1;
//! * [`one_function`]: to one function, from then on.
//! * [`protocol`]: the operations of both.
//! * [`client`]: the client that receives calls, and the calls that a thread is in.

mod by_operation;
mod client;
mod one_function;
mod protocol;
mod runtime;

pub use client::{Client, OpenCall, innermost, innermost_id};
pub use runtime::{follow, has_tables, is_silent, look, silence, waits};
