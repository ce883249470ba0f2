//! Contexts: made, started, stopped.

#![expect(unsafe_code, reason = "exports")]

use core::ffi::c_int;

use rocprofiler::status::Status;

use crate::layout::NO_CONTEXT;
use crate::{SDK, answer, calls, code_objects, sources, tools};

/// Makes a context for the tool that is being initialized.
///
/// # Safety
///
/// `id` is valid for a read and a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_create_context(id: *mut u64) -> u32 {
    answer::of(|| {
        // SAFETY: as the caller promises.
        let id = unsafe { id.as_mut() }.ok_or(Status::InvalidArgument)?;
        // A place that is not empty: later interfaces refuse any, this one refuses the id of a context. A tool that is
        // put in again has static variables as it left them.
        if cfg!(feature = "v1") && *id != NO_CONTEXT && !SDK.is_former_context(*id) {
            return Err(Status::ContextIdNotZero);
        }
        if SDK.context(*id).is_ok() {
            return Err(Status::ContextInvalid);
        }
        *id = NO_CONTEXT;
        *id = SDK.create_context(tools::current())?;
        Ok(())
    })
}

/// Starts a context.
#[unsafe(no_mangle)]
extern "C-unwind" fn rocprofiler_start_context(id: u64) -> u32 {
    let started = answer::of(|| {
        SDK.start_context(id)?;
        // Not while tools are initialized: no service wants anything before the end of that.
        sources::begin();
        Ok(())
    });
    if started == answer::SUCCESS {
        // A tool's callback may throw.
        code_objects::tell_all(calls::is_in_hsa);
    }
    started
}

/// Stops a context.
#[unsafe(no_mangle)]
extern "C-unwind" fn rocprofiler_stop_context(id: u64) -> u32 {
    answer::of(|| {
        SDK.stop_context(id)?;
        calls::follow();
        Ok(())
    })
}

/// Writes 1 where `has` holds for a context, else 0; also on an error.
///
/// # Safety
///
/// `place` is valid for a write, or null.
unsafe fn tell(
    place: *mut c_int,
    id: u64,
    has: impl FnOnce(&rocprofiler::sdk::Context) -> bool,
) -> u32 {
    answer::of(|| {
        // SAFETY: as the caller promises.
        let place = unsafe { place.as_mut() }.ok_or(Status::InvalidArgument)?;
        *place = 0;
        *place = c_int::from(has(SDK.context(id)?));
        Ok(())
    })
}

/// Whether a context is started.
///
/// # Safety
///
/// `is_active` is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_context_is_active(id: u64, is_active: *mut c_int) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { tell(is_active, id, rocprofiler::sdk::Context::is_active) }
}

/// Whether a context can be started.
///
/// # Safety
///
/// `is_valid` is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_context_is_valid(id: u64, is_valid: *mut c_int) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { tell(is_valid, id, |context| SDK.can_start(context)) }
}

/// The work of a thread belongs to an id of the program's from now on, in a context. Any thread may call this for any
/// thread.
#[unsafe(no_mangle)]
extern "C-unwind" fn rocprofiler_push_external_correlation_id(
    context: u64,
    thread: u64,
    id: u64,
) -> u32 {
    answer::of(|| {
        SDK.context(context)?.external.push(thread, id).then_some(()).ok_or(Status::Error)
    })
}

/// The work of a thread belongs to the id of before again. `id` receives the one that ends, 0 if there was none.
///
/// # Safety
///
/// `id` is valid for a write, or null.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_pop_external_correlation_id(
    context: u64,
    thread: u64,
    id: *mut u64,
) -> u32 {
    answer::of(|| {
        let former = SDK.context(context)?.external.pop(thread);
        if !id.is_null() {
            // SAFETY: as the caller promises; not null.
            unsafe { id.write(former) };
        }
        Ok(())
    })
}
