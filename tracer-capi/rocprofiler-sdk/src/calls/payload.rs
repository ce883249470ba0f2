//! `rocprofiler_callback_tracing_hip_api_data_t`, and those of HSA and of roctx: the arguments and the result of a call.

use std::collections::HashMap;
use std::sync::LazyLock;

use capi_common::hip::{self, Data, Field, Functions, Kind as FieldKind, Release};
use capi_common::{errno, memory};
use rocprofiler::arguments::{Argument, Class, arguments};
use rocprofiler::kinds::Kind;

use super::operations::{OF_HIP, Operation};
use crate::layout::{HSA_CALL, call_data};
use crate::records::HipWords;

/// The place of the arguments: behind the size.
const ARGUMENTS: usize = 8;
/// Bytes of the largest one.
const MOST: usize = HSA_CALL.bytes;

/// Makes the data that calls need before they are made: a thread that stops while it makes that data would hold up
/// others.
pub fn prepare() {
    LazyLock::force(&OF_HIP_FUNCTIONS);
    let _known = arguments(Kind::HipRuntimeApi, 0);
}

/// As [`prepare`], for calls that HIP reports, when HIP was found.
pub fn prepare_reported() {
    LazyLock::force(&OF_OPERATIONS);
}

/// The data of a call.
#[repr(C, align(8))]
pub struct Payload([u8; MOST]);

impl Payload {
    /// The data of a call of this kind, without arguments and result.
    pub fn new(kind: Kind) -> Self {
        let mut payload = Self([0; MOST]);
        payload.set(0, call_data(kind).bytes as u64, ARGUMENTS);
        payload
    }

    /// The arguments of a call, as they are passed: in registers and on the stack.
    pub fn set_words(&mut self, operation: Operation, registers: &[u64], stack: &[u64]) {
        for (argument, words) in passed(operation, registers, stack) {
            for (at, word) in (0..argument.bytes).step_by(8).zip(words) {
                self.set(ARGUMENTS + argument.at + at, word, (argument.bytes - at).min(8));
            }
        }
    }

    /// Sets the result of a function.
    pub fn set_result(&mut self, operation: Operation, word: u64) {
        let at = call_data(operation.kind).result;
        match Returns::of(operation) {
            Returns::Nothing => {}
            Returns::Number => self.set(at, word, size_of::<u32>()),
            Returns::Word => self.set(at, word, size_of::<u64>()),
            Returns::Structure(bytes) => {
                if let Some(to) = self.0.get_mut(at..at + bytes)
                    && !errno::kept(|| memory::copy(word, to))
                {
                    to.fill(0);
                }
            }
        }
    }

    /// The argument at a place among all.
    pub fn word(&self, at: usize) -> u64 {
        let word = self.0.get(ARGUMENTS + at..).and_then(<[u8]>::first_chunk);
        word.map_or(0, |&word| u64::from_le_bytes(word))
    }

    /// The arguments of a call that HIP tells of, by the id that it has for the function.
    pub fn set_arguments(&mut self, op: u32, data: Data) {
        for copied in OF_OPERATIONS.get(op as usize).into_iter().flatten() {
            let to = ARGUMENTS + copied.to;
            if let Some(to) = self.0.get_mut(to..to + copied.bytes) {
                data.copy(copied.from, to);
            }
        }
    }

    /// Arguments and result of a call of HIP.
    pub fn hip_words(&self) -> HipWords {
        let (words, _) = self.0[ARGUMENTS..].as_chunks();
        std::array::from_fn(|nth| u64::from_le_bytes(words[nth]))
    }

    fn set(&mut self, at: usize, word: u64, bytes: usize) {
        if let Some(to) = self.0.get_mut(at..at + bytes) {
            to.iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
    }
}

/// The type of a function's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Returns {
    Nothing,
    /// In 32 bits, as a status.
    Number,
    Word,
    /// This many bytes, at an address that the function was called with and returns.
    Structure(usize),
}

impl Returns {
    fn of(operation: Operation) -> Self {
        if !matches!(operation.kind, Kind::HipRuntimeApi | Kind::HipCompilerApi) {
            return Self::Word;
        }
        OF_HIP_FUNCTIONS.get(&operation).copied().unwrap_or(Self::Number)
    }

    fn of_function(name: &[u8]) -> Self {
        match name {
            // `hipChannelFormatDesc`.
            b"hipCreateChannelDesc" => Self::Structure(20),
            b"hipApiName" | b"hipGetErrorName" | b"hipGetErrorString" => Self::Word,
            b"hipKernelNameRef" | b"hipKernelNameRefByPtr" | b"__hipRegisterFatBinary" => {
                Self::Word
            }
            _ if name.starts_with(b"__hipRegister") || name == b"__hipUnregisterFatBinary" => {
                Self::Nothing
            }
            _ => Self::Number,
        }
    }
}

/// The types of the results of HIP's functions that return no number.
static OF_HIP_FUNCTIONS: LazyLock<HashMap<Operation, Returns>> = LazyLock::new(|| {
    let of = |kind: Kind| {
        let names = kind.operations().unwrap_or_default().iter().zip(0..);
        names.map(move |(name, number)| {
            (Operation { kind, number }, Returns::of_function(name.to_bytes()))
        })
    };
    let all = [Kind::HipRuntimeApi, Kind::HipCompilerApi].into_iter().flat_map(of);
    all.filter(|&(_, returns)| returns != Returns::Number).collect()
});

/// The words of each argument, as the System V ABI for x86-64 passes them: up to 16 bytes in registers, as long as there
/// are any, and else on the stack. No function that is recorded has arguments in floating point.
fn passed<'a>(
    operation: Operation,
    registers: &'a [u64],
    stack: &'a [u64],
) -> impl Iterator<Item = (&'static Argument, impl Iterator<Item = u64> + use<'a>)> + use<'a> {
    let is_address = matches!(Returns::of(operation), Returns::Structure(_));
    let (mut registers, mut stack) = (registers.get(usize::from(is_address)..), Some(stack));
    arguments(operation.kind, operation.number).iter().map(move |argument| {
        let words = argument.bytes.div_ceil(8);
        let is_in_registers = words <= 2 && registers.is_some_and(|left| left.len() >= words);
        let from = if is_in_registers { &mut registers } else { &mut stack };
        let (own, left) = from.and_then(|from| from.split_at_checked(words)).unzip();
        *from = left;
        (argument, own.unwrap_or_default().iter().copied())
    })
}

/// An argument that HIP reports.
struct Copied {
    /// Its place in `hip_api_data_t`.
    from: u16,
    /// Its place among the arguments here.
    to: usize,
    bytes: usize,
}

/// By the ids that the loaded runtime has for functions. The arguments are those that tools know as long as there are
/// as many, each of the same size: a later release may change them.
static OF_OPERATIONS: LazyLock<Vec<Vec<Copied>>> = LazyLock::new(|| {
    let functions = Functions::find();
    let of = |op: u32| {
        let operation = OF_HIP.get(op as usize).copied().flatten()?;
        let name = functions.name(op)?.to_str().ok()?;
        Some(copied_fields(name, operation, functions.release()))
    };
    (0..functions.end()).map(|op| of(op).unwrap_or_default()).collect()
});

/// Whether HIP reports the argument at a place among all, by the id that HIP has for the function.
pub fn has(op: u32, at: usize) -> bool {
    OF_OPERATIONS.get(op as usize).into_iter().flatten().any(|copied| copied.to == at)
}

/// As [`has`], by the function's name.
#[cfg(test)]
pub fn is_reported(name: &str, operation: Operation, release: Release, at: usize) -> bool {
    copied_fields(name, operation, release).iter().any(|copied| copied.to == at)
}

fn copied_fields(name: &str, operation: Operation, release: Release) -> Vec<Copied> {
    pair(hip::fields(name, release), arguments(operation.kind, operation.number))
}

fn pair(fields: &[Field], arguments: &[Argument]) -> Vec<Copied> {
    if fields.len() != arguments.len() {
        return Vec::new();
    }
    let pairs = fields.iter().zip(arguments).filter(|(field, to)| is_same(field.kind, to));
    pairs.map(|(field, to)| Copied { from: field.at, to: to.at, bytes: to.bytes }).collect()
}

fn is_same(kind: FieldKind, argument: &Argument) -> bool {
    match kind {
        FieldKind::Signed(bytes) | FieldKind::Unsigned(bytes) | FieldKind::Float(bytes) => {
            usize::from(bytes) == argument.bytes
        }
        FieldKind::Pointer | FieldKind::Text => argument.bytes == size_of::<u64>(),
        FieldKind::Dim3 => argument.class == Class::Dim3,
        FieldKind::Struct => argument.class == Class::Struct,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::operations::OF_TABLES;
    use tracer_common::hip_functions::LEFT_OUT;
    use tracer_common::slots::{SLOT_COUNT, function};

    /// All arguments, and the largest of each.
    #[test]
    fn every_call_has_room() {
        for kinds in [
            &[Kind::HipRuntimeApi, Kind::HipCompilerApi][..],
            &[Kind::HsaCoreApi, Kind::HsaAmdExtApi, Kind::HsaImageExtApi, Kind::HsaFinalizeExtApi],
            &[Kind::MarkerCoreApi, Kind::MarkerControlApi, Kind::MarkerNameApi],
        ] {
            let layout = call_data(kinds[0]);
            assert!(layout.bytes <= MOST && kinds.iter().all(|&kind| call_data(kind) == layout));
            let ends = kinds.iter().flat_map(|&kind| {
                let all = 0..kind.operations().expect("some").len() as u32;
                all.filter_map(move |number| arguments(kind, number).last())
            });
            let end = ends.map(|last| last.at + last.bytes).max().expect("some");
            assert_eq!(layout.result, ARGUMENTS + end.next_multiple_of(8), "{kinds:?}");
        }
    }

    /// As many words on the stack as the functions in the tables pass on.
    #[test]
    fn arguments_are_where_they_are_passed() {
        let registers = [1, 2, 3, 4, 5, 6];
        let stack = [7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        let mut functions = 0;
        for slot in 0..SLOT_COUNT {
            let (function, Some(operation)) = (function(slot), OF_TABLES[slot]) else { continue };
            if LEFT_OUT.contains(&function.name) {
                continue;
            }
            let words = passed(operation, &registers, &stack).flat_map(|(_, words)| words);
            let last = words.max().unwrap_or_default();
            let expected = match function.stack_words {
                0 => last <= 6,
                count => last == 6 + count as u64,
            };
            assert!(expected, "{}: {last}, not {}", function.name, function.stack_words);
            functions += 1;
        }
        assert!(functions > 550, "{functions}");
    }

    #[test]
    fn structures_are_passed_in_words() {
        let of = |name: &str| {
            let all = Kind::HipRuntimeApi.operations().expect("some");
            let number = all.iter().position(|one| one.to_str() == Ok(name)).expect("a function");
            Operation { kind: Kind::HipRuntimeApi, number: number as u32 }
        };
        let argument = |payload: &Payload, operation: Operation, nth: usize| {
            payload.word(arguments(operation.kind, operation.number)[nth].at)
        };
        // A function, two structures of 12 bytes in two registers each, the arguments; the last on the stack are none.
        let launch = of("hipLaunchKernel");
        let mut payload = Payload::new(launch.kind);
        payload.set_words(launch, &[1, 3 << 32 | 2, 4, 6 << 32 | 5, 7, 8], &[9, 10]);
        assert_eq!([0, 3, 4, 5].map(|nth| argument(&payload, launch, nth)), [1, 8, 9, 10]);
        assert_eq!(argument(&payload, launch, 1), 3 << 32 | 2);
        assert_eq!(argument(&payload, launch, 2), 6 << 32 | 5);
        let result = call_data(launch.kind).result;
        payload.set_result(launch, u64::MAX << 32 | 709);
        assert_eq!(payload.0[result..result + 8], 709_u64.to_le_bytes());
        // The first register is the place for the result.
        let describes = of("hipCreateChannelDesc");
        let place: [i32; 5] = [8, 9, 10, 11, 2];
        let mut payload = Payload::new(describes.kind);
        let address = (&raw const place).addr() as u64;
        payload.set_words(describes, &[address, 8, 9, 10, 11, 2], &[]);
        assert_eq!([0, 1, 4].map(|nth| argument(&payload, describes, nth) as u32), [8, 9, 2]);
        payload.set_result(describes, address);
        let (words, _) = payload.0[result..].as_chunks();
        assert_eq!([0, 3, 4].map(|nth| i32::from_le_bytes(words[nth])), [8, 11, 2]);
    }

    fn of(name: &str, release: Release) -> Vec<(u16, usize, usize)> {
        let all = Kind::HipRuntimeApi.operations().expect("some");
        let number = all.iter().position(|n| n.to_str() == Ok(name)).expect("a function") as u32;
        let copied = copied_fields(name, Operation { kind: Kind::HipRuntimeApi, number }, release);
        copied.iter().map(|copied| (copied.from, copied.to, copied.bytes)).collect()
    }

    /// The data that a release reports of a function has all of its arguments.
    #[test]
    fn arguments_of_hip_are_copied_to_where_tools_have_them() {
        for release in [Release::First, Release::Five, Release::Later] {
            let mut functions = 0;
            for kind in [Kind::HipRuntimeApi, Kind::HipCompilerApi] {
                for (number, name) in (0..).zip(kind.operations().expect("some")) {
                    let fields = hip::fields(name.to_str().expect("UTF-8"), release);
                    let copied = pair(fields, arguments(kind, number));
                    assert_eq!(copied.len(), fields.len(), "{name:?} {release:?}");
                    functions += usize::from(!copied.is_empty());
                }
            }
            assert!(functions > 250, "{functions}");
            let malloc = of("hipMalloc", release);
            assert_eq!(malloc, [(16, 0, 8), (32, 8, 8)]);
            let launch = of("hipLaunchKernel", release);
            assert_eq!(launch.len(), 6);
            assert_eq!(launch[1], (24, 8, 12));
        }
    }
}
