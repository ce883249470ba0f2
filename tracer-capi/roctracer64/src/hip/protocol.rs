//! How a runtime tells of calls, and what its functions are to do with them.

use roctracer::tracer::{Callback, Wanted};
use tracer_common::activity::Domain;

use crate::enabled::TRACER;

/// How a runtime tells of calls.
pub trait Protocol: Send + Sync {
    /// What is wanted of an operation has changed, or was asked for again. One at a time.
    fn follow(&self, op: u32, wanted: Wanted);

    /// The correlation id of the innermost call that the thread is in; 0 if it is in none that is traced.
    fn innermost_id(&self) -> u64;
}

/// Whether an operation is to be recorded.
pub fn is_recorded(op: u32) -> bool {
    TRACER.activity(Domain::HIP_API, op).is_some()
}

/// The client's callback of an operation.
pub fn callback(op: u32) -> Option<Callback> {
    TRACER.callback(Domain::HIP_API, op)
}
