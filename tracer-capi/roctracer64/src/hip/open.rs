//! The calls of HIP that a thread is in, and their data.

use capi_sources::calls_of_threads;
use capi_sources::hip;
use capi_sources::open::{Calls, OfThreads};

use super::data::Data;
use crate::table_calls::OpenCall;

/// For a call that HIP reports: the time of its begin, ns of CLOCK_BOOTTIME, if it is recorded.
pub type Begin = Option<u64>;

/// The calls that HIP reports.
pub const REPORTED: OfThreads<hip::OpenCall<Begin>> = calls_of_threads!(hip::OpenCall<Option<u64>>);
/// The calls that pass through its tables.
pub const IN_TABLES: OfThreads<OpenCall<Data>> = calls_of_threads!(OpenCall<Data>);

/// The correlation id of the innermost call that the thread is in; 0 if it is in none that is traced.
pub fn innermost_id() -> u64 {
    let reported = REPORTED.known().map_or(0, Calls::innermost_id);
    // A thread's later calls have higher ids.
    IN_TABLES.innermost_id().max(reported)
}
