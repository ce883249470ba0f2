//! Names of kinds and of operations, and iterating over them: for buffers and for callbacks.

#![expect(unsafe_code, reason = "exports, and functions of tools")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use rocprofiler::kinds::Kind;
use rocprofiler::status::{Result, Status};

use crate::answer;
use crate::layout::{self, BUFFER_KINDS, CALLBACK_KINDS, kind};

/// Takes a kind. Not 0 ends the iteration. It may throw.
type KindFunction = unsafe extern "C-unwind" fn(u32, *mut c_void) -> c_int;
/// Takes a kind and an operation.
type OperationFunction = unsafe extern "C-unwind" fn(u32, i32, *mut c_void) -> c_int;

/// Writes a name and its length to places that may be null; null and 0 where there is none.
///
/// # Safety
///
/// Each place is valid for a write, or null.
unsafe fn tell(named: Result<&CStr>, name: *mut *const c_char, length: *mut u64) -> u32 {
    let text = named.ok();
    if !name.is_null() {
        // SAFETY: as the caller promises; not null.
        unsafe { name.write(text.map_or(ptr::null(), CStr::as_ptr)) };
    }
    if !length.is_null() {
        // SAFETY: as above.
        unsafe { length.write(text.map_or(0, CStr::count_bytes) as u64) };
    }
    answer::of(|| named.map(|_| ()))
}

fn name(kinds: &[Kind], number: u32) -> Result<&'static CStr> {
    Ok(kind(kinds, number)?.map_or(c"NONE", Kind::name))
}

fn operation_name(kinds: &[Kind], number: u32, operation: i32) -> Result<&'static CStr> {
    let operations = layout::operations(kind(kinds, number)?.ok_or(Status::InvalidArgument)?)?;
    let operation = usize::try_from(operation).ok().and_then(|at| operations.get(at));
    operation.map(|name| name.as_c_str()).ok_or(Status::OperationNotFound)
}

/// # Safety
///
/// `function` is the tool's, and takes `data`.
unsafe fn iterate(kinds: &[Kind], function: Option<KindFunction>, data: *mut c_void) -> u32 {
    let Some(function) = function else { return answer::number(Status::InvalidArgument) };
    // SAFETY: as the caller promises.
    let goes_on = |number: u32| unsafe { function(number, data) } == 0;
    let _ = (0..=kinds.len() as u32).all(goes_on);
    answer::SUCCESS
}

/// # Safety
///
/// As of [`iterate`].
unsafe fn iterate_operations(
    kinds: &[Kind],
    number: u32,
    function: Option<OperationFunction>,
    data: *mut c_void,
) -> u32 {
    let known = kind(kinds, number).ok().flatten();
    let (Some(kind), Some(function)) = (known, function) else {
        return answer::number(Status::InvalidArgument);
    };
    let operations = match layout::operations(kind) {
        Ok(operations) => operations,
        Err(status) => return answer::number(status),
    };
    // SAFETY: as the caller promises.
    let goes_on = |operation: i32| unsafe { function(number, operation, data) } == 0;
    let _ = (0..operations.len() as i32).all(goes_on);
    answer::SUCCESS
}

/// The exports for a list of kinds.
macro_rules! exports {
    ($kinds:ident $name:ident $operation_name:ident $iterate:ident $iterate_operations:ident) => {
        /// The name of a kind.
        ///
        /// # Safety
        ///
        /// Each place is valid for a write, or null.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            number: u32,
            place: *mut *const c_char,
            length: *mut u64,
        ) -> u32 {
            // SAFETY: as the caller promises.
            unsafe { tell(name(&$kinds, number), place, length) }
        }

        /// The name of an operation of a kind.
        ///
        /// # Safety
        ///
        /// Each place is valid for a write, or null.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $operation_name(
            number: u32,
            operation: i32,
            place: *mut *const c_char,
            length: *mut u64,
        ) -> u32 {
            // SAFETY: as the caller promises.
            unsafe { tell(operation_name(&$kinds, number, operation), place, length) }
        }

        /// Calls a function with each kind, 0 first.
        ///
        /// # Safety
        ///
        /// `function` takes `data`.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $iterate(
            function: Option<KindFunction>,
            data: *mut c_void,
        ) -> u32 {
            // SAFETY: as the caller promises.
            unsafe { iterate(&$kinds, function, data) }
        }

        /// Calls a function with each operation of a kind.
        ///
        /// # Safety
        ///
        /// `function` takes `data`.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $iterate_operations(
            number: u32,
            function: Option<OperationFunction>,
            data: *mut c_void,
        ) -> u32 {
            // SAFETY: as the caller promises.
            unsafe { iterate_operations(&$kinds, number, function, data) }
        }
    };
}

/// The name of a kind of requests.
///
/// # Safety
///
/// Each place is valid for a write, or null.
#[cfg(feature = "v1")]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_query_external_correlation_id_request_kind_name(
    number: u32,
    place: *mut *const c_char,
    length: *mut u64,
) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { tell(name(&layout::REQUEST_KINDS, number), place, length) }
}

exports!(BUFFER_KINDS
    rocprofiler_query_buffer_tracing_kind_name
    rocprofiler_query_buffer_tracing_kind_operation_name
    rocprofiler_iterate_buffer_tracing_kinds
    rocprofiler_iterate_buffer_tracing_kind_operations);
exports!(CALLBACK_KINDS
    rocprofiler_query_callback_tracing_kind_name
    rocprofiler_query_callback_tracing_kind_operation_name
    rocprofiler_iterate_callback_tracing_kinds
    rocprofiler_iterate_callback_tracing_kind_operations);
