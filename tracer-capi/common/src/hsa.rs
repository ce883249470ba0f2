//! The functions of HSA by roctracer's numbers, and `hsa_api_data_t`: a correlation id, a phase, a result, and the
//! arguments of a function.
//!
//! A function's number is its place in the runtime's tables, of which one follows the other: those of AMD's extensions
//! grow with each release, and functions behind them move.
//!
//! The fields of the data are those of `tracer-capi/include/roctracer/hsa_prof_str.h`, which is written from the same
//! table of functions ([`tracer_records::api`]).

#![expect(unsafe_code, reason = "memory of the tracer's")]

use core::ffi::c_void;
use std::ffi::CString;
use std::fmt::Write as _;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{LazyLock, OnceLock};

use tracer_common::hsa_functions::SLOTS;
use tracer_common::hsa_layout;
use tracer_records::api::{self, Argument, ArgumentPlace, Kind, Operation};

use crate::loaded::Loaded;

/// The name of the runtime's file, without its version.
pub const LIBRARY: &[u8] = b"libhsa-runtime64.so";
/// More functions than the tables have in any release.
pub const MOST_FUNCTIONS: u32 = 256;

/// The place of the phase, bytes from the beginning.
pub const PHASE: usize = 8;
/// The place of the result.
pub const RESULT: usize = 16;
const ARGUMENTS: usize = 24;
/// The field that roctracer adds behind an argument: the value that this points at, three 32-bit numbers.
const POINTED_AT: (&str, &str, usize) = ("hsa_amd_memory_async_copy_rect", "range", 12);

/// An argument's field.
#[derive(Debug)]
pub struct Field {
    /// The place of the argument when the function is entered.
    pub place: ArgumentPlace,
    /// The kind of its type.
    kind: Kind,
    /// Bytes of the structure.
    pub bytes: Range<usize>,
    /// The place of the value that it points at, if that is kept.
    pub pointed_at: Option<Range<usize>>,
}

/// A function of the runtime's tables.
#[derive(Debug)]
pub struct Function {
    /// Its place in [`SLOTS`].
    pub slot: usize,
    /// Its name and arguments.
    pub operation: &'static Operation,
    /// The places of the arguments in the data.
    pub fields: Vec<Field>,
}

/// The functions of a release by their numbers.
#[derive(Debug)]
pub struct Functions {
    by_number: Vec<&'static Function>,
    are_loaded: bool,
}

/// The functions of all releases, in the order of the tables.
pub static ALL: LazyLock<Vec<Function>> = LazyLock::new(|| {
    let function = |(slot, name): (usize, &str)| {
        let operation = api::by_name(name)?;
        Some(Function { slot, operation, fields: fields(operation) })
    };
    SLOTS.iter().map(|slot| slot.name).enumerate().filter_map(function).collect()
});

/// A function of the tables, of whichever release.
pub fn function(name: &str) -> Option<&'static Function> {
    ALL.iter().find(|function| function.operation.name == name)
}

/// The place of the last field, a pointer, in the data of every release.
pub static PHASE_DATA: LazyLock<usize> = LazyLock::new(|| end_of(ALL.iter()));

static FIRST: LazyLock<Functions> = LazyLock::new(|| Functions::of(is_of_first_release, false));
static LOADED: OnceLock<Functions> = OnceLock::new();

impl Functions {
    /// The functions that count in this process: of the runtime that it has loaded; if it has none, of ROCm 5.2.3. May
    /// wait for the dynamic linker.
    pub fn find() -> &'static Self {
        if LOADED.get().is_none()
            && let Some(library) = Loaded::find(LIBRARY)
        {
            let exports =
                |name: &str| CString::new(name).is_ok_and(|name| library.function(&name).is_some());
            // Of two threads one is the first.
            let _ = LOADED.set(Self::of(exports, true));
        }
        Self::found()
    }

    /// The functions that [`Functions::find`] has found.
    pub fn found() -> &'static Self {
        LOADED.get().unwrap_or_else(|| &FIRST)
    }

    fn of(exports: impl Fn(&'static str) -> bool, are_loaded: bool) -> Self {
        let slots: Vec<usize> = hsa_layout::slots_of_release(exports).collect();
        let has = |function: &&Function| slots.contains(&function.slot);
        Self { by_number: ALL.iter().filter(has).collect(), are_loaded }
    }

    /// Whether they are those of a runtime that is loaded.
    pub fn are_loaded(&self) -> bool {
        self.are_loaded
    }

    /// The number of functions.
    pub fn count(&self) -> u32 {
        self.by_number.len() as u32
    }

    /// The function of a number.
    pub fn get(&self, number: u32) -> Option<&'static Function> {
        self.by_number.get(number as usize).copied()
    }

    /// All, in the order of their numbers.
    pub fn all(&self) -> impl Iterator<Item = &'static Function> {
        self.by_number.iter().copied()
    }

    /// The number of a function, by its name.
    pub fn number_of(&self, name: &str) -> Option<u32> {
        let is_it = |function: &&Function| function.operation.name == name;
        self.by_number.iter().position(is_it).map(|number| number as u32)
    }

    /// The number of a function, by its place in [`SLOTS`].
    pub fn number_of_slot(&self, slot: usize) -> Option<u32> {
        // They are in the order of the slots.
        let found = self.by_number.binary_search_by_key(&slot, |function| function.slot);
        found.ok().map(|number| number as u32)
    }
}

/// Whether ROCm 5.2.3 has a function: the ids of its functions are the numbers that roctracer has for them.
fn is_of_first_release(name: &str) -> bool {
    api::by_name(name).is_some_and(|function| u32::from(function.id) < MOST_FUNCTIONS)
}

fn end_of<'a>(functions: impl Iterator<Item = &'a Function>) -> usize {
    let end = |field: &Field| field.pointed_at.as_ref().unwrap_or(&field.bytes).end;
    let end = functions.flat_map(|function| &function.fields).map(end).max();
    end.unwrap_or(ARGUMENTS).next_multiple_of(8)
}

/// Bytes of a value, which is aligned to as many; none of a value that has no size.
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

/// A call's data. The code that makes one promises that the data is there.
#[derive(Clone, Copy, Debug)]
pub struct Data(NonNull<u8>);

/// A call as the file plugin writes it.
#[derive(Debug)]
pub struct Text {
    /// The function.
    pub name: &'static str,
    /// Its arguments, without names: null ones as `0`, handles as `{handle=1}`, enumerations as numbers.
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

    /// The call, of a function.
    #[must_use]
    pub fn text(self, function: &Function) -> Text {
        let Function { operation, fields, .. } = function;
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
        if !matches!(operation.ret.kind, Kind::Void) {
            push(&mut result, operation.ret.kind, self.word(&(RESULT..RESULT + 8)));
        }
        Text { name: operation.name, args, result }
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
        let function = super::function(function).expect("a function");
        let mut data = [0_u64; 32];
        (data[0], data[1], data[2]) = (77, 1, result);
        data[3..3 + words.len()].copy_from_slice(words);
        // SAFETY: as large as a `hsa_api_data_t`.
        let data = unsafe { Data::at((&raw const data).cast()) }.expect("not null");
        assert_eq!((data.correlation_id(), data.has_returned()), (77, true));
        let Text { name, args, result } = data.text(function);
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
    fn every_function_of_the_tables_is_there() {
        assert_eq!(ALL.len(), SLOTS.len());
        assert!(ALL.iter().enumerate().all(|(slot, function)| function.slot == slot));
        for function in ALL.iter() {
            let known = function.operation.args.iter().all(|arg| bytes_of(arg.ty.kind).is_some());
            assert!(known, "{}", function.operation.name);
        }
    }

    #[test]
    fn without_a_runtime_those_of_the_first_release_count() {
        let functions = Functions::find();
        assert!(!functions.are_loaded());
        assert_eq!((functions.count(), functions.all().count()), (186, 186));
        for (number, function) in (0..).zip(functions.all()) {
            assert_eq!(u32::from(function.operation.id), number);
            assert_eq!(functions.get(number).map(|found| found.slot), Some(function.slot));
            assert_eq!(functions.number_of(function.operation.name), Some(number));
            assert_eq!(functions.number_of_slot(function.slot), Some(number));
        }
        assert!(functions.get(186).is_none());
        assert_eq!(functions.number_of("hsa_amd_memory_async_copy_on_engine"), None);
    }

    /// The numbers that AMD's header has in these releases, by the later functions that their runtimes do not export.
    #[test]
    fn numbers_are_those_of_each_release() {
        let number = |missing: &[&str], name| {
            Functions::of(|name| !missing.contains(&name), true).number_of(name)
        };
        const OF_7_2: [&str; 4] = [
            "hsa_amd_memory_get_preferred_copy_engine",
            "hsa_amd_portable_export_dmabuf_v2",
            "hsa_amd_ais_file_write",
            "hsa_amd_ais_file_read",
        ];
        for (name, in_6_4, in_7_2) in [
            ("hsa_executable_iterate_program_symbols", 124, 124),
            ("hsa_amd_memory_async_copy_on_engine", 141, 141),
            ("hsa_amd_signal_wait_all", 196, 196),
            ("hsa_ext_image_get_capability", 197, 201),
            ("hsa_ext_sampler_create_v2", 210, 214),
        ] {
            assert_eq!(number(&[], name), Some(in_7_2), "{name}");
            assert_eq!(number(&OF_7_2, name), Some(in_6_4), "{name}");
        }
    }

    #[test]
    fn the_last_field_is_at_the_same_place_in_every_release() {
        assert_eq!(end_of(FIRST.all()), *PHASE_DATA);
    }
}
