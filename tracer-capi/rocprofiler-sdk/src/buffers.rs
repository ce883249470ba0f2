//! Buffers: made, flushed, destroyed; the services that write into them; the threads that call their callbacks.

#![expect(unsafe_code, reason = "exports, and functions of tools")]

use core::ffi::{c_int, c_void};

use rocprofiler::buffer::{Consumer, Header, Policy};
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::stage;
use rocprofiler::status::Status;
use rocprofiler::threads::Watcher;

use crate::layout::{BUFFER_KINDS, kind, number};
use crate::tools::{self, Argument};
use crate::{SDK, answer, caught, log, registration, sources, threads, work};

/// `rocprofiler_buffer_tracing_cb_t`. It may throw.
type BufferFunction =
    unsafe extern "C-unwind" fn(u64, u64, *mut *mut Header, usize, *mut c_void, u64);

/// `rocprofiler_buffer_policy_t`.
fn policy(number: u32) -> Option<Policy> {
    match number {
        1 => Some(Policy::Discard),
        2 => Some(Policy::Lossless),
        _ => None,
    }
}

/// Threads write at the same time, each where it has room: the retirement of an id can be in front of the records that have
/// the id. These were written before.
fn put_retirements_last(headers: &mut [*mut Header]) {
    let retirement = number(Kind::CorrelationIdRetirement);
    // SAFETY: the buffer's, which stay until the callback has returned.
    let is_retirement = |header: &*mut Header| unsafe { (**header).kind } == retirement;
    if headers.iter().any(is_retirement) {
        headers.sort_by_key(is_retirement);
    }
}

/// Makes a buffer of a context, whose records `function` receives.
///
/// # Safety
///
/// `function` takes `data`; `id` is valid for a read and a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_create_buffer(
    context: u64,
    bytes: usize,
    watermark: usize,
    action: u32,
    function: Option<BufferFunction>,
    data: *mut c_void,
    id: *mut u64,
) -> u32 {
    answer::of(|| {
        // SAFETY: as the caller promises.
        let id = unsafe { id.as_mut() }.ok_or(Status::InvalidArgument)?;
        if SDK.buffer(*id).is_ok() {
            return Err(Status::ServiceAlreadyConfigured);
        }
        let function = function.ok_or(Status::InvalidArgument)?;
        let policy = policy(action).ok_or(Status::InvalidArgument)?;
        let data = Argument(data);
        let consumer = |id| -> Consumer {
            Box::new(move |headers: &mut [*mut Header], dropped| {
                put_retirements_last(headers);
                let (first, count) = (headers.as_mut_ptr(), headers.len());
                // SAFETY: the tool's function, with what its kind is promised.
                let call = || unsafe { function(context, id, first, count, data.get(), dropped) };
                if !caught::returns(call) {
                    log::error(format_args!(
                        "the callback of a buffer has thrown an exception: its {count} records count as delivered"
                    ));
                }
            })
        };
        *id = SDK.create_buffer(context, bytes, watermark, policy, consumer)?;
        Ok(())
    })
}

/// Waits until work of GPUs that is under way is done, or one has taken too long; then delivers the records in a
/// buffer, and waits until they were delivered.
#[unsafe(no_mangle)]
extern "C-unwind" fn rocprofiler_flush_buffer(id: u64) -> u32 {
    answer::of(|| {
        if SDK.finalized() == stage::OVER {
            return Err(Status::Finalized);
        }
        let buffer = SDK.buffer(id)?;
        work::drain(buffer);
        buffer.flush(None);
        Ok(())
    })
}

/// Delivers the records in a buffer, and takes none into it any more.
#[unsafe(no_mangle)]
extern "C-unwind" fn rocprofiler_destroy_buffer(id: u64) -> u32 {
    answer::of(|| SDK.buffer(id)?.destroy())
}

/// Has records of a kind written into a buffer: of some operations, of all if there are none.
///
/// # Safety
///
/// So many operations are at `operations`, or it is null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_configure_buffer_tracing_service(
    context: u64,
    number: u32,
    operations: *const i32,
    count: usize,
    buffer: u64,
) -> u32 {
    answer::of(|| {
        if SDK.initialized() != stage::DURING {
            return Err(Status::ConfigurationLocked);
        }
        let kind = kind(&BUFFER_KINDS, number)?.ok_or(Status::KindNotFound)?;
        if let Some((status, reason)) = sources::refused(kind) {
            log::warn(format_args!("{} is not traced: {reason}", kind.name().to_string_lossy()));
            return Err(status);
        }
        // SAFETY: as the caller promises.
        let operations = unsafe { tools::operations(kind, operations, count) }?;
        SDK.configure_service(context, kind, operations, buffer)
    })
}

/// Starts a thread that calls callbacks of buffers.
///
/// # Safety
///
/// `id` is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_create_callback_thread(id: *mut u64) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { answer::to(id, || SDK.create_callback_thread()) }
}

/// Has a thread call the callback of a buffer.
#[unsafe(no_mangle)]
extern "C-unwind" fn rocprofiler_assign_callback_thread(buffer: u64, thread: u64) -> u32 {
    answer::of(|| SDK.assign_callback_thread(buffer, thread))
}

/// `rocprofiler_internal_thread_library_cb_t`. It may throw.
type ThreadFunction = unsafe extern "C-unwind" fn(u32, *mut c_void);

/// Tells a tool of each thread that libraries create, before and after: those of `libraries`, of all if there are none.
///
/// # Safety
///
/// The functions take `data`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_at_internal_thread_create(
    before: Option<ThreadFunction>,
    after: Option<ThreadFunction>,
    libraries: c_int,
    data: *mut c_void,
) -> u32 {
    answer::of(|| {
        let data = Argument(data);
        /// An exception of the tool's ends the process here.
        unsafe extern "C" fn tell(function: ThreadFunction, library: u32, data: *mut c_void) {
            // SAFETY: as the caller promises.
            unsafe { function(library, data) };
        }
        let call = |function: Option<ThreadFunction>| -> Box<dyn Fn(u32) + Send + Sync> {
            Box::new(move |library| {
                if let Some(function) = function {
                    // SAFETY: as the caller promises.
                    unsafe { tell(function, library, data.get()) };
                }
            })
        };
        let function = before.or(after).map_or(0, |function| function as usize);
        let (client, libraries) = (registration::client_of(function), libraries as u32);
        let (before, after) = (call(before), call(after));
        SDK.watchers.add(Watcher { client, libraries, before, after });
        threads::follow();
        Ok(())
    })
}
