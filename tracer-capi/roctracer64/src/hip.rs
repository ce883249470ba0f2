//! Calls of HIP, for callbacks and records.

use capi_sources::calls_of_threads;
use capi_sources::hip::{self, Client, Kept};
use capi_sources::open::OfThreads;
use roctracer::error::Error;
use roctracer::timestamp_ns;
use roctracer::tracer::{Callback, Source, Wanted};
use tracer_common::activity::Domain;

use crate::call_record;
use crate::enabled::TRACER;

/// Calls of HIP.
pub struct Calls;

impl Source for Calls {
    /// What is wanted before HIP is loaded is followed when it is asked for again.
    fn follow(&self, op: u32, wanted: Wanted) {
        hip::follow(op, wanted);
    }

    fn prepare(&self) -> Result<(), Error> {
        look()
    }
}

impl Client for Calls {
    /// When it began, ns of CLOCK_BOOTTIME.
    type Begin = u64;

    const CALLS: OfThreads<Kept<u64>> = calls_of_threads!(Kept<u64>);

    fn begin(op: u32) -> Option<u64> {
        // The time takes longer than all else.
        TRACER.activity(Domain::HIP_API, op).map(|_| timestamp_ns())
    }

    fn end(op: u32, correlation_id: u64, begin_ns: u64) {
        call_record::write(Domain::HIP_API, op, correlation_id, begin_ns);
    }

    fn callback(op: u32, _begin: Option<&u64>) -> Option<Callback> {
        TRACER.callback(Domain::HIP_API, op)
    }
}

/// Looks for the runtime that is loaded.
///
/// # Errors
///
/// If it is of a release that is not known.
pub fn look() -> Result<(), Error> {
    hip::look::<Calls>().map(drop)
}

/// The correlation id of the innermost call that the thread is in; 0 if it is in none that is traced.
pub fn innermost_id() -> u64 {
    hip::innermost_id::<Calls>()
}
