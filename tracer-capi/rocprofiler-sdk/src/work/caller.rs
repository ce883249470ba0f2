//! The thread that enqueues an operation.

use rocprofiler::sdk::Externals;

use crate::retirement::Use;

/// The thread that enqueues an operation.
#[derive(Default)]
pub struct Caller {
    /// The id of the innermost call that it is in; 0 if it is in none.
    pub correlation_id: u64,
    pub id_use: Use,
    pub thread: u32,
    pub externals: Externals,
}
