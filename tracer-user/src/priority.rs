//! Scheduling: whoever empties the rings goes before the target.

use rustix::process::setpriority_process;

/// Prefers the calling thread to the target's: one that is scheduled late loses records, and it needs
/// little.
pub fn prefer_this_thread() {
    // On Linux the calling thread is meant.
    if let Err(error) = setpriority_process(None, -10) {
        tracing::debug!("keeping the normal priority: {error}");
    }
}
