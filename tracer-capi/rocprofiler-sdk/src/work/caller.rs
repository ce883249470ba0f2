//! The thread that enqueues an operation.

use rocprofiler::callback::CorrelationIds;
use rocprofiler::sdk::Externals;

use crate::retirement::Use;

/// The thread that enqueues an operation.
#[derive(Default)]
pub struct Caller {
    /// The ids of the innermost call that it is in.
    pub ids: CorrelationIds,
    pub id_use: Use,
    pub thread: u32,
    pub externals: Externals,
}
