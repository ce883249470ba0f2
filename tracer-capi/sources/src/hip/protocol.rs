//! How a runtime tells of calls.

use roctracer::tracer::Wanted;

/// How a runtime tells of calls.
pub trait Protocol: Send + Sync {
    /// What is wanted of an operation has changed, or was asked for again. One at a time.
    fn follow(&self, op: u32, wanted: Wanted);

    /// Whether that may wait for calls to end.
    fn waits(&self) -> bool;

    /// Whether the runtime has dispatch tables, through which its calls pass.
    fn has_tables(&self) -> bool;
}
