//! The record of a call.

use roctracer::thread::own_ids;
use roctracer::{external, timestamp_ns};
use tracer_common::activity::{ActivityRecord, Domain};

use crate::enabled::TRACER;

/// A call of the calling thread has ended: it is recorded, if its activities are, behind the external id of the thread.
/// If it is not said when it has ended, it has ended now.
pub fn write(domain: Domain, op: u32, correlation_id: u64, begin_ns: u64, end_ns: Option<u64>) {
    let Some(pool) = TRACER.activity(domain, op) else { return };
    let end_ns = end_ns.unwrap_or_else(timestamp_ns);
    let ids = own_ids();
    let record = ActivityRecord {
        domain,
        op,
        correlation_id,
        begin_ns,
        end_ns,
        process_or_device: ids.process,
        thread_id: ids.thread,
        ..ActivityRecord::default()
    };
    // A closed pool takes none: it was closed just now.
    let _ = match external::record_before(&record) {
        Some(before) => pool.write_pair(&before, &record),
        None => pool.write(&record),
    };
}
