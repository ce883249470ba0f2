//! Calls of HIP, as the runtime tells tracers of them: of ROCm before 6.0 all, and from then on those that were made before
//! its tables were there ([`super::tables`]). Before a program uses graphs, such a HIP is told to tell no more: that of 7.2
//! has it crash else, with any tracer, also one that does nothing.

use core::array;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::rc::Rc;
use std::sync::LazyLock;

use capi_common::hip::{Data, uses_graphs};
use capi_sources::calls_of_threads;
use capi_sources::hip::{self, Client, OpenCall};
use capi_sources::open::OfThreads;
use rocprofiler::kinds::Kind;
use roctracer::timestamp_ns;
use roctracer::tracer::{Callback, Wanted};
use tracer_common::slots::{SLOT_COUNT, function};

use super::callbacks::Callbacks;
use super::operations::{OF_HIP, Operation};
use super::record::Begun;
use super::{open, payload, streams};
use crate::layout::ID_WORDS;
use crate::{SDK, log};

const KINDS: [Kind; 3] = [Kind::HipRuntimeApi, Kind::HipCompilerApi, Kind::HipStream];

/// Calls of HIP.
pub struct Calls;

fn operation(op: u32) -> Option<Operation> {
    OF_HIP.get(op as usize).copied().flatten()
}

impl Client for Calls {
    type Begin = Begun;

    const CALLS: OfThreads<OpenCall<Begun>> = calls_of_threads!(OpenCall<Begun>);

    fn is_reported_by_tables(_op: u32) -> bool {
        open::is_in_hip()
    }

    fn begin(op: u32) -> Option<Begun> {
        let operation = operation(op)?;
        let streams = || {
            streams::StreamCallbacks::of(operation).filter(|streams| payload::has(op, streams.at()))
        };
        let here = 0_u8;
        Begun::new(operation, ancestor(ptr::from_ref(&here).addr()), streams, timestamp_ns)
    }

    fn end(_op: u32, correlation_id: u64, mut begin: Begun) {
        begin.end(correlation_id, timestamp_ns());
    }

    /// One whose stream alone is told has no id for anybody.
    fn is_traced(begin: &Begun) -> bool {
        begin.is_traced()
    }

    fn leave(correlation_id: u64, mut begin: Begun) {
        begin.leave(correlation_id);
    }

    /// It is called with the callbacks of the call, which stay until it has ended.
    fn callback(_op: u32, begin: Option<&Begun>) -> Option<Callback> {
        let callbacks = begin?.callbacks.as_ref()?;
        Some(Callback { function: tell, argument: Rc::as_ptr(callbacks).cast_mut().cast() })
    }
}

/// A call begins, or has ended: its callbacks are called, which may throw.
///
/// # Safety
///
/// `data` is `hip_api_data_t`, and `callbacks` are those of the call.
#[expect(unsafe_code, reason = "data of HIP's")]
unsafe extern "C-unwind" fn tell(
    _domain: u32,
    op: u32,
    data: *const c_void,
    callbacks: *mut c_void,
) {
    let callbacks = callbacks.cast_const().cast::<Callbacks>();
    // SAFETY: as the caller promises; they are kept here, too, whatever becomes of the call meanwhile.
    let callbacks = unsafe {
        Rc::increment_strong_count(callbacks);
        Rc::from_raw(callbacks)
    };
    // SAFETY: as the caller promises.
    let Some(data) = (unsafe { Data::at(data) }) else { return };
    let id = data.correlation_id();
    if data.has_returned() {
        // The runtime does not tell the result.
        callbacks.exit(id, None, |_| {});
    } else {
        callbacks.enter(id, |payload| payload.set_arguments(op, data));
    }
}

/// By place in the tables.
static USES_GRAPHS: LazyLock<[bool; SLOT_COUNT]> =
    LazyLock::new(|| array::from_fn(|slot| uses_graphs(function(slot).name)));

/// Whether HIP is to be silent before a function runs, and is not yet.
#[inline]
pub fn need(slot: usize) -> bool {
    !hip::is_silent() && USES_GRAPHS.get(slot).copied().unwrap_or(false)
}

/// Looks for the runtime, if any calls are wanted. An error is told by who follows.
fn look() -> bool {
    let is_wanted = KINDS.into_iter().any(|kind| SDK.is_wanted(kind));
    is_wanted && matches!(hip::look::<Calls>(), Ok(true))
}

/// Whether [`follow`] may wait for calls to end.
pub fn may_wait() -> bool {
    look();
    hip::waits()
}

/// Whether calls are wanted that pass through tables.
pub fn need_tables() -> bool {
    look() && hip::has_tables()
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
    payload::prepare_reported();
    streams::prepare();
    for (op, operation) in (0..).zip(&*OF_HIP) {
        if let Some(operation) = operation {
            let has_stream = streams::are_followed(*operation);
            let callback = operation.has_callback() || has_stream;
            let activity = operation.is_wanted() || has_stream;
            hip::follow(op, Wanted { callback, activity });
        }
    }
}

/// The innermost call that the thread is in, if it is in one: its id, and what is kept of it.
pub fn innermost<'a>() -> Option<(u64, Option<&'a mut Begun>)> {
    hip::innermost::<Calls>()
}

/// The id of the innermost call that is recorded, of those that the calling thread is in around a frame of its: as HIP
/// reports them, or through tables. 0 if there is none, or the interface does not tell of it.
pub fn ancestor(at: usize) -> u64 {
    if ID_WORDS < 3 {
        return 0;
    }
    // Ids of a thread ascend.
    innermost().map_or(0, |(id, _)| id).max(open::around(at))
}
