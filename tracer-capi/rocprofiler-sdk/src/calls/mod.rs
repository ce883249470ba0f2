//! Calls of HIP, of HSA and of roctx become records.
//!
//! * [`tables`]: calls of the runtimes that pass through tables; [`open`]: the calls that a thread is in.
//! * [`hip`]: calls that HIP reports.
//! * [`markers`]: calls of roctx; [`marks`]: one that is recorded.
//! * [`ranges`]: ranges of roctx.
//! * [`record`]: the record of a call.
//! * [`callbacks`]: tools that are told of a call; [`payload`]: its arguments and its result, as they get them.
//! * [`memory`]: calls of HSA that allocate memory and give it back.
//! * [`operations`]: functions, as tools know them; [`streams`]: those that have a stream of HIP.

mod callbacks;
mod hip;
pub mod markers;
mod marks;
mod memory;
mod open;
mod operations;
mod payload;
mod ranges;
mod record;
mod streams;
mod tables;

use capi_sources::client_thread::InCallback;
use rocprofiler::callback::CorrelationIds;
use rocprofiler::kinds::Kind;
use rocprofiler::threads::{CallbackThread, ROCPROFILER_LIBRARY};
use roctracer::thread;
use tracer_common::slots;
use tracer_hooks::Tables;

use crate::SDK;
use crate::retirement::Use;

/// The wanted calls have changed, or a runtime has been loaded. HIP 5.2 and before may wait for calls to end, and these
/// for room in a buffer, or for a callback: a callback does not wait for that.
pub fn follow() {
    let is_callback = CallbackThread::is_any_current() || InCallback::is_current();
    if is_callback && hip::may_wait() {
        let start = || thread::start_named("rocprofiler", tables::follow_now);
        // Without a thread the recorded calls stay as they are.
        drop(SDK.watchers.around(ROCPROFILER_LIBRARY, start));
    } else {
        tables::follow_now();
    }
}

/// As [`patch`], for a tool that comes when programs use the runtimes: graphs may be launched already.
pub fn patch_late(tables: &Tables) {
    patch(tables);
    if tracer_hooks::calls::in_place() & slots::tables::HIP != 0 {
        capi_sources::hip::silence();
    }
}

/// Whether calls that pass through the tables of the runtimes are to be seen.
pub fn need_tables() -> bool {
    let kinds = [Kind::HsaCoreApi, Kind::HsaAmdExtApi, Kind::HsaImageExtApi];
    let others = [Kind::CodeObject, Kind::MemoryAllocation];
    kinds.into_iter().chain(others).any(|kind| SDK.is_wanted(kind)) || hip::need_tables()
}

/// Records calls that pass through these tables, if any are wanted. They have been patched for work of GPUs.
pub fn patch(tables: &Tables) {
    if need_tables() {
        tables::patch(tables);
    }
}

/// Whether the calling thread is in a call of HSA's of which tools are told.
pub fn is_in_hsa() -> bool {
    open::is_in_hsa()
}

/// The calling thread enqueues an operation of a GPU: the ids of the innermost call that it is in, and its use of the
/// call's; none if it is in none that is recorded.
pub fn enqueue() -> (CorrelationIds, Use) {
    record::share_innermost([hip::innermost(), open::innermost()])
}
