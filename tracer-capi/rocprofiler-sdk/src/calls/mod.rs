//! Calls of HIP and of HSA become records.
//!
//! * [`hip`], [`hsa`]: calls of the runtimes.
//! * [`record`]: the record of a call.
//! * [`callbacks`]: tools that are told of a call; [`payload`]: its arguments and its result, as they get them.
//! * [`operations`]: functions, as tools know them.

mod callbacks;
mod hip;
mod hsa;
mod operations;
mod payload;
mod record;

use capi_sources::client_thread::InCallback;
use capi_sources::hsa::Client as _;
use rocprofiler::kinds::Kind;
use rocprofiler::threads::{CallbackThread, ROCPROFILER_LIBRARY};
use roctracer::thread;
use tracer_hooks::Tables;
use tracer_hooks::lock::Lock;

use crate::SDK;

/// How long one thread waits for another one that changes what is recorded.
const WAIT_NS: u64 = 1_000_000_000;

/// What is wanted has changed, or a runtime has been loaded. HIP may wait for calls to end, and these for room in a buffer,
/// or for a callback: no callback waits for that.
pub fn follow() {
    if CallbackThread::is_any_current() || InCallback::is_current() {
        let start = || thread::start_named("rocprofiler", follow_now);
        // Without a thread what is recorded stays as it is.
        drop(SDK.watchers.around(ROCPROFILER_LIBRARY, start));
    } else {
        follow_now();
    }
}

/// Where another thread does not come back from here, what is recorded stays as it is.
fn follow_now() {
    static ONE_AT_A_TIME: Lock<()> = Lock::new(());
    if let Some(_one) = ONE_AT_A_TIME.lock_or_lose(WAIT_NS) {
        hip::follow();
        hsa::Calls.record_all();
    }
}

/// Whether calls are to be seen that pass through the tables of the HSA runtime.
pub fn need_tables() -> bool {
    [Kind::HsaCoreApi, Kind::HsaAmdExtApi, Kind::HsaImageExtApi, Kind::CodeObject]
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
