//! `hsa_api_data_t`: a correlation id, a phase, a result, and the arguments of a function.
//!
//! Its fields are those of `tracer-capi/include/roctracer/hsa_prof_str.h`, which is written from the same
//! table of functions ([`tracer_records::api`]).

#![expect(unsafe_code, reason = "memory of the tracer's")]

use core::ffi::c_void;
use std::fmt::Write as _;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::LazyLock;

use tracer_common::activity::Domain;
use tracer_records::api::{self, Argument, Kind, Operation, Place};

/// Where the first fields are, bytes from the beginning.
pub const PHASE: usize = 8;
/// The same of the result.
pub const RESULT: usize = 16;
const ARGUMENTS: usize = 24;
/// The field that roctracer adds behind an argument: what this points at, three 32-bit numbers.
const POINTED_AT: (&str, &str, usize) = ("hsa_amd_memory_async_copy_rect", "range", 12);

/// An argument's field.
#[derive(Debug)]
pub struct Field {
    /// Where it is when the function is entered.
    pub place: Place,
    /// What it is.
    kind: Kind,
    /// Bytes of the structure.
    pub bytes: Range<usize>,
    /// Where what it points at is kept, if it is.
    pub pointed_at: Option<Range<usize>>,
}

/// Where all arguments are.
#[derive(Debug)]
pub struct Layout {
    /// By operation.
    pub functions: Vec<Vec<Field>>,
    /// Where the last field is, a pointer.
    pub phase_data: usize,
}

/// Bytes of a value, which is aligned to as many; none of what has no size.
#[must_use]
pub fn bytes_of(kind: Kind) -> Option<usize> {
    Some(match kind {
        Kind::Bool => 1,
        Kind::Signed(bits) | Kind::Unsigned(bits) => usize::from(bits) / 8,
        Kind::Enumeration(_) => 4,
        Kind::Pointer | Kind::Function | Kind::Stream | Kind::Handle => 8,
        Kind::Unknown | Kind::Void | Kind::Float | Kind::Dim3 | Kind::Struct(_) => return None,
    })
}

/// The functions of the domain, by operation.
pub fn functions() -> impl Iterator<Item = &'static Operation> {
    // What has a larger id roctracer has none for.
    (0..).map_while(|id| api::by_id(Domain::HSA_API, id))
}

/// The one layout.
pub static LAYOUT: LazyLock<Layout> = LazyLock::new(|| {
    let functions: Vec<Vec<Field>> = functions().map(fields).collect();
    let end = |field: &Field| field.pointed_at.as_ref().unwrap_or(&field.bytes).end;
    let end = functions.iter().flatten().map(end).max().unwrap_or(ARGUMENTS);
    Layout { functions, phase_data: end.next_multiple_of(8) }
});

fn fields(function: &Operation) -> Vec<Field> {
    let mut end = ARGUMENTS;
    let mut next = |bytes: usize, alignment: usize| {
        let at = end.next_multiple_of(alignment);
        end = at + bytes;
        at..end
    };
    let field = |argument: &Argument| {
        let kind = argument.ty.kind;
        let size = bytes_of(kind).unwrap_or(8);
        let bytes = next(size, size);
        let (name, pointer, extra) = POINTED_AT;
        let pointed_at =
            (function.name == name && argument.name == pointer).then(|| next(extra, 4));
        Field { place: argument.place, kind, bytes, pointed_at }
    };
    function.args.iter().map(field).collect()
}

/// A call's data. Whoever makes one says that it is there.
#[derive(Clone, Copy, Debug)]
pub struct Data(NonNull<u8>);

/// A call as the file plugin writes it.
#[derive(Debug)]
pub struct Text {
    /// The function.
    pub name: &'static str,
    /// Its arguments, without names: those that are null as `0`, handles as `{handle=1}`, enumerations as
    /// numbers.
    pub args: String,
    /// Its result; empty where it has none.
    pub result: String,
}

impl Data {
    /// The data at an address; none if that is null.
    ///
    /// # Safety
    ///
    /// It is a `hsa_api_data_t`, as long as this is used.
    pub unsafe fn at(data: *const c_void) -> Option<Self> {
        NonNull::new(data.cast_mut().cast()).map(Self)
    }

    /// The call's correlation id.
    #[must_use]
    pub fn correlation_id(self) -> u64 {
        self.word(&(0..8))
    }

    /// Whether the call has returned.
    #[must_use]
    pub fn has_returned(self) -> bool {
        self.word(&(PHASE..PHASE + 4)) == 1
    }

    /// The call, of an operation; none of an operation that there is not.
    #[must_use]
    pub fn text(self, op: u32) -> Option<Text> {
        let function = api::by_id(Domain::HSA_API, u16::try_from(op).ok()?)?;
        let fields = LAYOUT.functions.get(op as usize)?;
        let mut args = String::new();
        for (nth, field) in fields.iter().enumerate() {
            if nth > 0 {
                args.push_str(", ");
            }
            push(&mut args, field.kind, self.word(&field.bytes));
            if let Some(at) = &field.pointed_at {
                let [x, y, z] =
                    [0, 4, 8].map(|offset| self.word(&(at.start + offset..at.start + offset + 4)));
                // Writing into a string cannot fail.
                let _ = write!(args, ", {{z={z}, y={y}, x={x}}}");
            }
        }
        let mut result = String::new();
        if !matches!(function.ret.kind, Kind::Void) {
            push(&mut result, function.ret.kind, self.word(&(RESULT..RESULT + 8)));
        }
        Some(Text { name: function.name, args, result })
    }

    fn word(self, bytes: &Range<usize>) -> u64 {
        let mut word = [0; 8];
        let count = bytes.len().min(word.len());
        // SAFETY: a field of the data's, as is promised in `Data::at`; `word` is ours.
        unsafe {
            self.0.add(bytes.start).as_ptr().copy_to_nonoverlapping(word.as_mut_ptr(), count);
        }
        u64::from_le_bytes(word)
    }
}

fn push(text: &mut String, kind: Kind, word: u64) {
    // Writing into a string cannot fail.
    let _ = match kind {
        Kind::Signed(64) => write!(text, "{}", word.cast_signed()),
        Kind::Signed(bits) => {
            let unused = 64 - u32::from(bits.clamp(1, 64));
            write!(text, "{}", word.cast_signed() << unused >> unused)
        }
        Kind::Unsigned(32) | Kind::Enumeration(_) => write!(text, "{}", word as u32),
        Kind::Bool | Kind::Unsigned(_) => write!(text, "{word}"),
        Kind::Handle => write!(text, "{{handle={word}}}"),
        _ if word == 0 => write!(text, "0"),
        _ => write!(text, "{word:#x}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a call, whose data has the result and these words of arguments.
    fn text(function: &str, result: u64, words: &[u64]) -> String {
        let op = api::by_name(function).expect("a function").id;
        let mut data = [0_u64; 32];
        (data[0], data[1], data[2]) = (77, 1, result);
        data[3..3 + words.len()].copy_from_slice(words);
        // SAFETY: as large as a `hsa_api_data_t`.
        let data = unsafe { Data::at((&raw const data).cast()) }.expect("not null");
        assert_eq!((data.correlation_id(), data.has_returned()), (77, true));
        let Text { name, args, result } = data.text(op.into()).expect("known");
        format!("{name}({args}) = {result}")
    }

    #[test]
    fn calls_are_written_as_by_the_file_plugin() {
        assert_eq!(text("hsa_init", 0, &[]), "hsa_init() = 0");
        assert_eq!(
            text("hsa_queue_create", 4097, &[7, 2 << 32 | 4096, 0x10, 0, 6 << 32 | 5, 0x20]),
            "hsa_queue_create({handle=7}, 4096, 2, 0x10, 0, 5, 6, 0x20) = 4097"
        );
        assert_eq!(
            text("hsa_signal_store_relaxed", 9, &[7, u64::MAX]),
            "hsa_signal_store_relaxed({handle=7}, -1) = "
        );
        // dst, dst_agent, src, src_agent, size, dependencies, their signals, completion.
        assert_eq!(
            text("hsa_amd_memory_async_copy", 0, &[0x10, 1, 0x20, 2, 64, 0, 0, 3]),
            "hsa_amd_memory_async_copy(0x10, {handle=1}, 0x20, {handle=2}, 64, 0, 0, {handle=3}) = 0"
        );
        let rectangle = [0x10, 0x11, 0x20, 0x21, 0x30, 2 << 32 | 1, 3, 8, 1, 0, 9];
        assert_eq!(
            text("hsa_amd_memory_async_copy_rect", 0, &rectangle),
            "hsa_amd_memory_async_copy_rect(0x10, 0x11, 0x20, 0x21, 0x30, {z=3, y=2, x=1}, {handle=8}, \
             1, 0, 0, {handle=9}) = 0"
        );
    }

    #[test]
    fn operations_that_there_are_not_have_no_text() {
        let data = [0_u64; 32];
        // SAFETY: as large as a `hsa_api_data_t`.
        let data = unsafe { Data::at((&raw const data).cast()) }.expect("not null");
        assert!(data.text(100_000).is_none() && data.text(1024).is_none());
    }
}
