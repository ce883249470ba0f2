//! The frame around everything that we do in a thread of the application.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::state::STATE;
use crate::sys;

/// Runs our own code: the thread is not cancelled in it, and a panic, which is a bug, ends here and
/// switches everything off.
#[inline]
pub fn contained<R: Copy>(run: impl FnOnce() -> R) -> Option<R> {
    let uncancelled = sys::Uncancelled::begin();
    let result = caught(run);
    // Last, and with nothing to be dropped: the thread may end here.
    uncancelled.end();
    result
}

/// The same where nothing that is run is a cancellation point, for what every call costs: a thread that is cancelled at such
/// points alone, as nearly all are, need not be kept from it.
#[inline]
pub fn contained_without_points<R: Copy>(run: impl FnOnce() -> R) -> Option<R> {
    if sys::may_be_cancelled_anywhere() { contained(run) } else { caught(run) }
}

fn caught<R>(run: impl FnOnce() -> R) -> Option<R> {
    let result = catch_unwind(AssertUnwindSafe(run)).ok();
    if result.is_none() {
        STATE.give_up();
    }
    result
}
