//! Calls of HIP and of HSA become records.
//!
//! * [`hip`], [`hsa`]: calls of the runtimes.
//! * [`record`]: the record of a call.
//! * [`operations`]: functions, as tools know them.

mod hip;
mod hsa;
mod operations;
mod record;

use std::sync::{Mutex, PoisonError};

use capi_sources::hsa::Client as _;
use rocprofiler::kinds::Kind;
use tracer_hooks::Tables;

use crate::SDK;

/// What is wanted has changed, or a runtime has been loaded.
pub fn follow() {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    hip::follow();
    hsa::Calls.record_all();
}

/// Whether calls are wanted that pass through the tables of the HSA runtime.
pub fn need_tables() -> bool {
    [Kind::HsaCoreApi, Kind::HsaAmdExtApi, Kind::HsaImageExtApi]
        .into_iter()
        .any(|kind| SDK.is_wanted(kind))
}

/// Has calls recorded that pass through these tables, if any are wanted. They have been patched for work of GPUs.
pub fn patch(tables: &Tables) {
    if need_tables() {
        hsa::Calls.patch(tables);
    }
}

/// The correlation id of the innermost call that the calling thread is in; 0 if it is in none that is recorded.
pub fn innermost_id() -> u64 {
    // Ids of a thread ascend.
    hip::innermost_id().max(hsa::innermost_id())
}
