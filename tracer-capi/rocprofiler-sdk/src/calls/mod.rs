//! Calls of HIP, of HSA and of roctx become records.
//!
//! * [`tables`]: calls of the runtimes that pass through tables; [`open`]: those that a thread is in.
//! * [`hip`]: calls that HIP tells of.
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

use core::sync::atomic::{AtomicBool, Ordering};

use capi_sources::client_thread::InCallback;
use capi_sources::hsa::Client as _;
use rocprofiler::kinds::Kind;
use rocprofiler::threads::{CallbackThread, ROCPROFILER_LIBRARY};
use roctracer::thread;
use tracer_common::slots;
use tracer_hooks::Tables;
use tracer_hooks::lock::Lock;

use crate::SDK;
use crate::retirement::Use;

/// How long one thread waits for another one that changes what is recorded.
const WAIT_NS: u64 = 1_000_000_000;

/// What is wanted has changed, or a runtime has been loaded. HIP 5.2 and before may wait for calls to end, and these for room
/// in a buffer, or for a callback: no callback waits for that.
pub fn follow() {
    let is_callback = CallbackThread::is_any_current() || InCallback::is_current();
    if is_callback && hip::may_wait() {
        let start = || thread::start_named("rocprofiler", || _ = follow_now());
        // Without a thread what is recorded stays as it is.
        drop(SDK.watchers.around(ROCPROFILER_LIBRARY, start));
    } else {
        follow_now();
    }
}

/// Where another thread is here for long, it looks once more itself before it leaves; false then.
fn follow_now() -> bool {
    static ONE_AT_A_TIME: Lock<()> = Lock::new(());
    static HAS_CHANGED: AtomicBool = AtomicBool::new(false);
    // Pairs with the exchange below: what is wanted by now is seen behind that.
    HAS_CHANGED.store(true, Ordering::Release);
    let Some(_one) = ONE_AT_A_TIME.lock_for(WAIT_NS) else { return false };
    while HAS_CHANGED.swap(false, Ordering::AcqRel) {
        hip::follow();
        tables::Calls.record_all();
    }
    true
}

/// As [`patch`], for a tool that comes when programs use the runtimes: graphs may be launched already.
pub fn patch_late(tables: &Tables) {
    patch(tables);
    if tracer_hooks::calls::in_place() & slots::tables::HIP != 0 {
        hip::silence();
    }
}

/// Whether calls are to be seen that pass through the tables of the runtimes.
pub fn need_tables() -> bool {
    let kinds = [Kind::HsaCoreApi, Kind::HsaAmdExtApi, Kind::HsaImageExtApi];
    let others = [Kind::CodeObject, Kind::MemoryAllocation];
    kinds.into_iter().chain(others).any(|kind| SDK.is_wanted(kind)) || hip::need_tables()
}

/// Has calls recorded that pass through these tables, if any are wanted. They have been patched for work of GPUs.
pub fn patch(tables: &Tables) {
    if need_tables() {
        tables::patch(tables);
    }
}

/// Whether the calling thread is in a call of HSA's of which tools are told.
pub fn is_in_hsa() -> bool {
    open::is_in_hsa()
}

/// The calling thread enqueues an operation of a GPU: the correlation id of the innermost call that it is in, and its use of
/// that; 0 if it is in none that is recorded.
pub fn enqueue() -> (u64, Use) {
    record::share_innermost([hip::innermost(), open::innermost()])
}
