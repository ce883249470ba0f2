//! Scheduling: roctap's threads go before the target's, and who empties rings before who joins records.

use rustix::process::setpriority_process;

/// Prefers the calling thread, which empties rings, to all others: one that is scheduled late loses records,
/// and it needs little.
pub fn prefer_for_rings() {
    prefer(&[-15, -10]);
}

/// Prefers the calling thread, which joins records, to the target's. It can need all of a CPU, which it leaves
/// to the one that empties rings.
pub fn prefer_for_records() {
    prefer(&[-10]);
}

/// The first of these nice values that the process may have.
fn prefer(values: &[i32]) {
    // On Linux the calling thread is meant.
    if !values.iter().any(|&nice| setpriority_process(None, nice).is_ok()) {
        tracing::debug!("keeping the normal priority");
    }
}
