//! `rocprofiler_callback_tracing_hip_api_data_t`, and those of HSA and of roctx: the arguments and the result of a call.

use std::sync::LazyLock;

use capi_common::hip::{self, Data, Field, Functions, Kind as FieldKind};
use rocprofiler::arguments::{Argument, Class, arguments};
use rocprofiler::kinds::Kind;
use roctracer::domains::{MOST_HIP_FUNCTIONS, loaded_hip_function};

use super::operations::{OF_HIP, Operation};
use crate::layout::{HSA_CALL, call_data};
use crate::records::HipWords;

/// Where the arguments are: behind the size.
const ARGUMENTS: usize = 8;
/// Bytes of the largest one.
const MOST: usize = HSA_CALL.bytes;

/// The data of a call.
#[repr(C, align(8))]
pub struct Payload([u8; MOST]);

impl Payload {
    /// That of a kind, without arguments and result.
    pub fn new(kind: Kind) -> Self {
        let mut payload = Self([0; MOST]);
        payload.set(0, call_data(kind).bytes as u64, ARGUMENTS);
        payload
    }

    /// The arguments of a call of HSA or of roctx: in registers and on the stack, where each takes a word.
    pub fn set_words(&mut self, operation: Operation, registers: &[u64], stack: &[u64]) {
        let words = registers.iter().chain(stack);
        for (argument, &word) in arguments(operation.kind, operation.number).iter().zip(words) {
            self.set(ARGUMENTS + argument.at, word, argument.bytes);
        }
    }

    /// What a function of HSA or of roctx has returned.
    pub fn set_result(&mut self, kind: Kind, word: u64) {
        self.set(call_data(kind).result, word, size_of::<u64>());
    }

    /// The arguments of a call of HIP, by the id that the runtime has for the function.
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

/// An argument that HIP tells.
struct Copied {
    /// Where it is in `hip_api_data_t`.
    from: u16,
    /// Where it is among the arguments here.
    to: usize,
    bytes: usize,
}

/// By the ids that the runtime that is loaded has for functions. Its arguments are those that tools know as long as there are
/// as many, each of the same size: a later release may change them.
static OF_OPERATIONS: LazyLock<Vec<Vec<Copied>>> = LazyLock::new(|| {
    let release = Functions::find().release();
    let of = |op: u32| {
        let operation = OF_HIP.get(op as usize).copied().flatten()?;
        let name = loaded_hip_function(op)?.to_str().ok()?;
        Some(pair(hip::fields(name, release), arguments(operation.kind, operation.number)))
    };
    (0..MOST_HIP_FUNCTIONS).map(|op| of(op).unwrap_or_default()).collect()
});

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
    use capi_common::hip::Release;

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

    fn of(name: &str, release: Release) -> Vec<(u16, usize, usize)> {
        let all = Kind::HipRuntimeApi.operations().expect("some");
        let number = all.iter().position(|n| n.to_str() == Ok(name)).expect("a function") as u32;
        let copied = pair(hip::fields(name, release), arguments(Kind::HipRuntimeApi, number));
        copied.iter().map(|copied| (copied.from, copied.to, copied.bytes)).collect()
    }

    /// What a release tells of a function is all of its arguments.
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
