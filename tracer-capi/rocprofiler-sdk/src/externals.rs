//! External correlation ids of the calling thread: those that were pushed, and those that tools are asked for.

#![expect(unsafe_code, reason = "an export, and functions of tools")]

use core::ffi::{c_int, c_void};

use rocprofiler::callback::{ExternalIdRequest, Request};
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::Externals;
use rocprofiler::status::{Result, Status};
use roctracer::thread::{Ids, own_ids};

use crate::layout::{REQUEST_KINDS, kind, request_number};
use crate::tools::Argument;
use crate::{SDK, answer};

/// Those that its calls and its work belong to, in every context.
#[inline]
pub fn own() -> Externals {
    of(own_ids())
}

/// The same of a thread whose numbers are known.
#[inline]
pub fn of(ids: Ids) -> Externals {
    SDK.externals(ids.thread.into(), ids.process.into())
}

/// `rocprofiler_external_correlation_id_request_cb_t`: thread, context, kind, operation, correlation id, where the answer
/// goes, data. Not 0: there is none. It may throw.
type Function =
    unsafe extern "C-unwind" fn(u64, u64, u32, i32, u64, *mut u64, *mut c_void) -> c_int;

/// Asks a tool, for a context.
fn ask(context: u64, function: Function, data: *mut c_void) -> ExternalIdRequest {
    let data = Argument(data);
    Box::new(move |request: &Request| {
        let &Request { thread, kind, operation, correlation_id } = request;
        let (kind, operation) = (request_number(kind), operation.cast_signed());
        let mut id = 0;
        // SAFETY: the tool's function, with what it is promised.
        let refused = unsafe {
            function(thread, context, kind, operation, correlation_id, &raw mut id, data.get())
        };
        (refused == 0).then_some(id)
    })
}

/// Has a function asked for external ids: of these kinds, or of all if there are none.
///
/// # Safety
///
/// So many kinds are at `kinds`, or it is null; `function` takes `data`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_configure_external_correlation_id_request_service(
    context: u64,
    kinds: *const u32,
    count: usize,
    function: Option<Function>,
    data: *mut c_void,
) -> u32 {
    answer::of(|| {
        let function = function.ok_or(Status::InvalidArgument)?;
        let numbers = match kinds.is_null() {
            true if count > 0 => return Err(Status::InvalidArgument),
            true => &[],
            false if count == 0 => return Err(Status::InvalidArgument),
            // SAFETY: as the caller promises.
            false => unsafe { core::slice::from_raw_parts(kinds, count) },
        };
        let known = |&number: &u32| kind(&REQUEST_KINDS, number)?.ok_or(Status::KindNotFound);
        let some: Result<Vec<Kind>> = numbers.iter().map(known).collect();
        let some = some?;
        let kinds = if some.is_empty() { &REQUEST_KINDS[..] } else { &some };
        SDK.configure_ask(context, kinds, ask(context, function, data))
    })
}
