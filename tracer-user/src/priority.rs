//! Scheduling: roctap's threads run before the target's, and the thread that empties rings before the one that joins
//! records.

use rustix::process::setpriority_process;

/// Prefers the calling thread, which empties rings, to all others: if it is scheduled late, records are lost, and it
/// needs little time.
pub fn prefer_for_rings() {
    prefer(&[-15, -10]);
}

/// Prefers the calling thread, which joins records, to the target's. It can need all of a CPU, which it leaves to the
/// thread that empties rings.
pub fn prefer_for_records() {
    prefer(&[-10]);
}

/// The first of these nice values that the process may have.
fn prefer(values: &[i32]) {
    // On Linux this sets the value of the calling thread.
    if !values.iter().any(|&nice| setpriority_process(None, nice).is_ok()) {
        tracing::debug!("keeping the normal priority");
    }
}
