//! The frame around everything that we do in a thread of the application.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::state::STATE;
use crate::sys;

/// Runs our own code: the thread is not cancelled in it, and a panic, which is a bug, ends here and
/// switches everything off.
#[inline]
pub fn contained<R: core::marker::Copy>(run: impl FnOnce() -> R) -> Option<R> {
    let uncancelled = sys::Uncancelled::begin();
    let result = catch_unwind(AssertUnwindSafe(run)).ok();
    if result.is_none() {
        STATE.give_up();
    }
    // Last, and with nothing to be dropped: the thread may end here.
    uncancelled.end();
    result
}
