//! Calls of HIP.

use core::sync::atomic::{AtomicBool, Ordering};

use capi_sources::calls_of_threads;
use capi_sources::hip::{self, Client, Kept};
use capi_sources::open::OfThreads;
use rocprofiler::kinds::Kind;
use roctracer::timestamp_ns;
use roctracer::tracer::Wanted;

use super::operations::{OF_HIP, Operation};
use super::record::Begun;
use crate::{SDK, log};

const KINDS: [Kind; 2] = [Kind::HipRuntimeApi, Kind::HipCompilerApi];

/// Calls of HIP.
pub struct Calls;

fn operation(op: u32) -> Option<Operation> {
    OF_HIP.get(op as usize).copied().flatten()
}

impl Client for Calls {
    type Begin = Begun;

    const CALLS: OfThreads<Kept<Begun>> = calls_of_threads!(Kept<Begun>);

    fn begin(op: u32) -> Option<Begun> {
        Begun::new(operation(op)?, timestamp_ns)
    }

    fn end(_op: u32, correlation_id: u64, begin: Begun) {
        begin.end(correlation_id, timestamp_ns());
    }
}

/// Has calls recorded that are wanted from now on, if a runtime is loaded, and no others. One at a time.
pub fn follow() {
    /// Some were wanted.
    static EVER: AtomicBool = AtomicBool::new(false);
    let is_wanted = KINDS.into_iter().any(|kind| SDK.is_wanted(kind));
    // A runtime that nobody wants to know of is left alone.
    if !EVER.fetch_or(is_wanted, Ordering::Relaxed) && !is_wanted {
        return;
    }
    match hip::look::<Calls>() {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => return log::error(format_args!("calls of HIP are not recorded: {error}")),
    }
    for (op, operation) in (0..).zip(&*OF_HIP) {
        if let Some(operation) = operation {
            let activity = operation.is_wanted();
            hip::follow(op, Wanted { callback: false, activity });
        }
    }
}

/// The innermost call that the thread is in, if it is in one: its id, and what is kept of it.
pub fn innermost<'a>() -> Option<(u64, Option<&'a mut Begun>)> {
    hip::innermost::<Calls>()
}
