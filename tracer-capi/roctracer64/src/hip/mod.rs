//! Calls of HIP: what the runtime tells of them becomes callbacks and records.
//!
//! * [`runtime`]: the HIP runtime that is loaded.
//! * [`protocol`]: what there is of every release of how it tells of calls:
//! * [`by_operation`]: by functions for each operation, before ROCm 5.3.1;
//! * [`one_function`]: by one function, from then on.

mod by_operation;
mod one_function;
mod protocol;
mod runtime;

use roctracer::error::Error;
use roctracer::tracer::{Source, Wanted};

use protocol::Protocol;

pub use runtime::look;

/// Calls of HIP.
pub struct Calls;

impl Source for Calls {
    /// What is wanted before HIP is loaded is followed when it is asked for again.
    fn follow(&self, op: u32, wanted: Wanted) {
        if let Some(runtime) = runtime::get() {
            runtime.follow(op, wanted);
        }
    }

    fn prepare(&self) -> Result<(), Error> {
        look()
    }
}

/// The correlation id of the innermost call that the thread is in; 0 if it is in none that is traced.
pub fn innermost_id() -> u64 {
    runtime::get().map_or(0, Protocol::innermost_id)
}
