//! The ways in which runtimes report calls.

use roctracer::tracer::Wanted;

/// The way in which a runtime reports calls.
pub trait Protocol: Send + Sync {
    /// The wanted parts of an operation have changed, or were asked for again. One thread at a time calls this.
    fn follow(&self, op: u32, wanted: Wanted);

    /// Whether [`Self::follow`] may wait for calls to end.
    fn waits(&self) -> bool;

    /// Whether the runtime has dispatch tables, through which its calls pass.
    fn has_tables(&self) -> bool;
}
