//! The calls of HSA that a thread is in, and their data.

use capi_sources::calls_of_threads;
use capi_sources::open::OfThreads;

use super::data::Data;
use crate::table_calls::OpenCall;

pub const THREADS: OfThreads<OpenCall<Data>> = calls_of_threads!(OpenCall<Data>);

/// The correlation id of the innermost call that the thread is in; 0 if it is in none that is traced.
pub fn innermost_id() -> u64 {
    THREADS.innermost_id()
}
