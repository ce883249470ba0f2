//! What is kept of the calls of HSA that a thread is in.

use super::data::Data;
use capi_sources::calls_of_threads;
use capi_sources::open::{CallbackState, OfThreads};

/// What is kept of a call.
#[derive(Default)]
pub struct Kept {
    pub callback: CallbackState,
    pub data: Data,
    /// The client's, from the begin to the end.
    pub phase_data: u64,
}

pub const THREADS: OfThreads<Kept> = calls_of_threads!(Kept);

/// A call begins, whose frame is there; false if there is no memory.
pub fn begin(at: usize, id: u64) -> bool {
    let kept = THREADS.begin(at, id);
    kept.map(|kept| (kept.callback, kept.phase_data) = (CallbackState::NotCalled, 0)).is_some()
}

/// The correlation id of the innermost call that the thread is in; 0 if it is in none that is traced.
pub fn innermost_id() -> u64 {
    THREADS.innermost_id()
}
