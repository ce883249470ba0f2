//! Calls of HIP, for callbacks and records.
//!
//! * [`tables`]: calls that pass through the dispatch tables of HIP since 6.0.
//! * [`open`]: the calls that a thread is in, and their data.
//! * [`data`]: their arguments, as callbacks get them.
//!
//! HIP itself reports all others: those of earlier releases, and those that are made before there are tables. It
//! numbers and names many functions anew in each release.

mod data;
pub mod open;
pub mod tables;

use capi_sources::hip::{self, Client, OpenCall};
use capi_sources::open::OfThreads;
use roctracer::error::Error;
use roctracer::timestamp_ns;
use roctracer::tracer::{Callback, Source, Wanted};
use tracer_common::activity::Domain;
use tracer_hooks::calls;

use crate::call_record;
use crate::enabled::TRACER;

/// Calls of HIP.
pub struct Calls;

impl Source for Calls {
    /// A wish of before HIP is loaded is followed when it is asked for again.
    fn follow(&self, op: u32, wanted: Wanted) {
        tables::follow(op, wanted);
    }

    fn prepare(&self) -> Result<(), Error> {
        look()
    }

    fn begin(&self) {
        tables::begin();
    }
}

impl Client for Calls {
    type Begin = open::Begin;

    const CALLS: OfThreads<OpenCall<open::Begin>> = open::REPORTED;

    fn is_reported_by_tables(op: u32) -> bool {
        tables::is_in_call(op)
    }

    fn begin(op: u32) -> Option<Self::Begin> {
        // HIP has made its tables by now.
        calls::follow_hip();
        // Reading the time takes longer than everything else.
        let begin_ns = TRACER.activity(Domain::HIP_API, op).map(|_| timestamp_ns());
        let is_wanted = begin_ns.is_some() || TRACER.callback(Domain::HIP_API, op).is_some();
        is_wanted.then_some(begin_ns)
    }

    fn end(op: u32, correlation_id: u64, begin: Self::Begin) {
        if let Some(begin_ns) = begin {
            call_record::write(Domain::HIP_API, op, correlation_id, begin_ns, None);
        }
    }

    fn callback(op: u32, begin: Option<&Self::Begin>) -> Option<Callback> {
        begin.and_then(|_| TRACER.callback(Domain::HIP_API, op))
    }
}

/// Looks for the runtime that is loaded.
///
/// # Errors
///
/// If it is of a release that is not known.
pub fn look() -> Result<(), Error> {
    if hip::look::<Calls>()? && hip::has_tables() {
        tables::know();
    }
    Ok(())
}
