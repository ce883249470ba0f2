//! Callbacks: tools are told of something on the thread that does it.

#![expect(unsafe_code, reason = "exports, and functions of tools")]

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;

use capi_common::memory;
use rocprofiler::arguments::{Class, arguments};
#[cfg(feature = "v1")]
use rocprofiler::buffer::Header;
use rocprofiler::callback::{Callback, Event};
use rocprofiler::kinds::Kind;
use rocprofiler::sdk::stage;
use rocprofiler::status::Status;

#[cfg(feature = "v1")]
use crate::layout::BUFFER_KINDS;
use crate::layout::{CALLBACK_KINDS, ID_WORDS, callback_number, kind};
use crate::{SDK, answer, log, records, sources, tools};

/// `rocprofiler_callback_tracing_record_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Record {
    context: u64,
    thread: u64,
    correlation_id: [u64; ID_WORDS],
    kind: u32,
    operation: u32,
    phase: u32,
    payload: *mut c_void,
}

const _: () = assert!(size_of::<Record>() == 40 + 8 * ID_WORDS);

/// `rocprofiler_callback_tracing_cb_t`. It may throw.
type CallbackFunction = unsafe extern "C-unwind" fn(Record, *mut u64, *mut c_void);

/// A tool's function, of a context.
fn callback(context: u64, function: CallbackFunction, data: *mut c_void) -> Callback {
    let data = tools::Argument(data);
    Box::new(move |event: &Event, kept| {
        let &Event { thread, ids, external_id, kind, operation, phase, payload } = event;
        let record = Record {
            context,
            thread,
            correlation_id: records::correlation_id(ids, external_id),
            kind: callback_number(kind),
            operation,
            phase: phase as u32,
            payload,
        };
        // SAFETY: the tool's function, with what its kind is promised.
        unsafe { function(record, kept, data.get()) };
    })
}

/// Has a function called for a kind: for some operations, for all if there are none.
///
/// # Safety
///
/// So many operations are at `operations`, or it is null; `function` takes `data`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_configure_callback_tracing_service(
    context: u64,
    number: u32,
    operations: *const i32,
    count: usize,
    function: Option<CallbackFunction>,
    data: *mut c_void,
) -> u32 {
    answer::of(|| {
        if SDK.initialized() != stage::DURING {
            return Err(Status::ConfigurationLocked);
        }
        let kind = kind(&CALLBACK_KINDS, number)?.ok_or(Status::KindNotFound)?;
        if let Some((status, reason)) = sources::refused_to_callbacks(kind) {
            log::warn(format_args!(
                "callbacks are not called for {}: {reason}",
                kind.name().to_string_lossy()
            ));
            return Err(status);
        }
        let function = function.ok_or(Status::InvalidArgument)?;
        // SAFETY: as the caller promises.
        let operations = unsafe { tools::operations(kind, operations, count) }?;
        SDK.configure_callback(context, kind, operations, callback(context, function, data))
    })
}

/// `rocprofiler_callback_tracing_operation_args_cb_t`: kind, operation, index of the argument, its address, the number
/// of times that it can be followed, its type, its name, its value as text, the number of times that it was followed
/// for the text, data. Not 0 ends the iteration.
type ArgumentFunction = unsafe extern "C-unwind" fn(
    u32,
    i32,
    u32,
    *const c_void,
    i32,
    *const c_char,
    *const c_char,
    *const c_char,
    i32,
    *mut c_void,
) -> c_int;

/// Calls a function with each argument of a call that a callback was told of.
///
/// # Safety
///
/// The record is the one of a callback that has not returned; `function` takes `data`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_iterate_callback_tracing_kind_operation_args(
    record: Record,
    function: Option<ArgumentFunction>,
    _max_dereference_count: i32,
    data: *mut c_void,
) -> u32 {
    let known = kind(&CALLBACK_KINDS, record.kind).ok().flatten();
    let (Some(kind), Some(function)) = (known, function) else {
        return answer::number(Status::InvalidArgument);
    };
    if !is_call(kind) {
        return answer::number(Status::NotImplemented);
    }
    if record.payload.is_null() {
        return answer::number(Status::InvalidArgument);
    }
    // SAFETY: the arguments of this function are there, behind the size; `function` takes what it is promised.
    unsafe {
        let place = record.payload.byte_add(size_of::<u64>());
        each_argument((kind, record.operation), place, Class::Text, |number, argument| {
            let &DescribedArgument { place, indirections, ty, name, value } = argument;
            let operation = record.operation.cast_signed();
            function(record.kind, operation, number, place, indirections, ty, name, value, 0, data)
        });
    }
    answer::SUCCESS
}

/// `rocprofiler_buffer_tracing_operation_args_cb_t`: the same without the number of times that it was followed.
#[cfg(feature = "v1")]
type RecordArgumentFunction = unsafe extern "C-unwind" fn(
    u32,
    i32,
    u32,
    *const c_void,
    i32,
    *const c_char,
    *const c_char,
    *const c_char,
    *mut c_void,
) -> c_int;

/// Calls a function with each argument of a call that is recorded with them. No pointer is followed: the memory behind
/// it may have changed since.
///
/// # Safety
///
/// The header is one of those that a buffer's callback gets, and that has not returned; `function` takes `data`.
#[cfg(feature = "v1")]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_iterate_buffer_tracing_record_args(
    header: Header,
    function: Option<RecordArgumentFunction>,
    data: *mut c_void,
) -> u32 {
    let known = kind(&BUFFER_KINDS, header.kind).ok().flatten();
    let (Some(kind), Some(function)) = (known, function) else {
        return answer::number(Status::InvalidArgument);
    };
    if kind.without_arguments() == kind {
        return answer::number(Status::NotImplemented);
    }
    if header.payload.is_null() {
        return answer::number(Status::InvalidArgument);
    }
    // SAFETY: the second word of a record is its kind and its operation.
    let operation = unsafe { header.payload.cast::<u32>().add(3).read() };
    // SAFETY: the arguments of this function are there, behind what all records of calls have; `function` takes what it is
    // promised.
    unsafe {
        let place = header.payload.byte_add(records::CALL_BYTES);
        each_argument((kind, operation), place, Class::Pointer, |number, argument| {
            let &DescribedArgument { place, indirections, ty, name, value } = argument;
            let operation = operation.cast_signed();
            function(header.kind, operation, number, place, indirections, ty, name, value, data)
        });
    }
    answer::SUCCESS
}

/// An argument of a call, as tools are told of it.
struct DescribedArgument {
    place: *const c_void,
    indirections: i32,
    ty: *const c_char,
    name: *const c_char,
    value: *const c_char,
}

/// Tells of each argument of a function, which are at `place`, until it is not to go on. The text of a string is
/// what it says, or its address, as if it were of class `strings`.
///
/// # Safety
///
/// They are there.
unsafe fn each_argument(
    (kind, operation): (Kind, u32),
    place: *const c_void,
    strings: Class,
    mut tell: impl FnMut(u32, &DescribedArgument) -> c_int,
) {
    for (number, argument) in (0..).zip(arguments(kind, operation)) {
        // SAFETY: as the caller promises.
        let (place, word) = unsafe {
            let place = place.byte_add(argument.at);
            (place, word(place, argument.bytes))
        };
        let class = if argument.class == Class::Text { strings } else { argument.class };
        let value = CString::new(text(class, argument.bytes, word)).unwrap_or_default();
        let described = DescribedArgument {
            place,
            indirections: argument.indirections() as i32,
            ty: argument.ty.as_ptr(),
            name: argument.name.as_ptr(),
            value: value.as_ptr(),
        };
        if tell(number, &described) != 0 {
            break;
        }
    }
}

fn is_call(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::HipRuntimeApi
            | Kind::HipCompilerApi
            | Kind::HsaCoreApi
            | Kind::HsaAmdExtApi
            | Kind::HsaImageExtApi
            | Kind::MarkerCoreApi
            | Kind::MarkerControlApi
            | Kind::MarkerNameApi
            | Kind::MarkerCoreRangeApi
    )
}

/// # Safety
///
/// As many bytes are there.
unsafe fn word(place: *const c_void, bytes: usize) -> [u8; 16] {
    let mut word = [0; 16];
    let bytes = bytes.min(word.len());
    // SAFETY: as the caller promises; `word` is ours.
    unsafe { place.cast::<u8>().copy_to_nonoverlapping(word.as_mut_ptr(), bytes) };
    word
}

/// A value as text. Nothing is followed but strings, of which it is asked first whether they can be read.
fn text(class: Class, bytes: usize, value: [u8; 16]) -> String {
    let part = |at: usize| {
        let four = value.get(at..at + 4).and_then(|four| four.try_into().ok());
        u32::from_le_bytes(four.unwrap_or_default())
    };
    let word = u64::from(part(0)) | u64::from(part(4)) << 32;
    match class {
        Class::Unsigned => word.to_string(),
        Class::Signed if bytes == 4 => part(0).cast_signed().to_string(),
        Class::Signed => word.cast_signed().to_string(),
        Class::Bool => (word != 0).to_string(),
        Class::Float => f32::from_bits(part(0)).to_string(),
        Class::Text | Class::Pointer if word == 0 => "(null)".to_owned(),
        Class::Text => memory::string(word).unwrap_or_else(|| format!("{word:#x}")),
        Class::Pointer => format!("{word:#x}"),
        Class::Dim3 => format!("{{z={}, y={}, x={}}}", part(8), part(4), part(0)),
        Class::Struct => "{}".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rocprofiler::arguments::Argument;

    #[test]
    fn values_are_told_as_text() {
        let of = |kind: Kind, name: &str| {
            let all = kind.operations().expect("some");
            let number = all.iter().position(|n| n.to_str() == Ok(name)).expect("a function");
            arguments(kind, number as u32)
        };
        let value = |argument: &Argument, words: [u64; 2]| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&words[0].to_le_bytes());
            bytes[8..].copy_from_slice(&words[1].to_le_bytes());
            text(argument.class, argument.bytes, bytes)
        };
        let runtime = Kind::HipRuntimeApi;
        let [_, grid, _, _, bytes, stream] = of(runtime, "hipLaunchKernel") else { panic!("six") };
        assert_eq!(value(grid, [2 << 32 | 1, 3]), "{z=3, y=2, x=1}");
        assert_eq!(value(bytes, [u64::MAX, 0]), u64::MAX.to_string());
        assert_eq!(
            (value(stream, [0, 0]), value(stream, [16, 0])),
            ("(null)".into(), "0x10".into())
        );
        let [_, name] = of(runtime, "hipModuleLoad") else { panic!("two") };
        let file = c"a.co";
        assert_eq!(value(name, [file.as_ptr().expose_provenance() as u64, 0]), "a.co");
        // It leads nowhere.
        assert_eq!(value(name, [8, 0]), "0x8");
        let [device] = of(runtime, "hipSetDevice") else { panic!("one") };
        assert_eq!(value(device, [u64::from(u32::MAX), 0]), "-1");
        let [signal, store] = of(Kind::HsaCoreApi, "hsa_signal_store_relaxed") else {
            panic!("two")
        };
        assert_eq!((value(signal, [7, 0]), value(store, [u64::MAX, 0])), ("7".into(), "-1".into()));
    }
}
