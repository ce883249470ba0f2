//! `hip_api_data_t` of ROCm 6 and 7: the arguments of a call, as callbacks get them.
//!
//! Where its fields are is in [`capi_common::hip`].

use std::ops::Range;

use capi_common::hip::{Field, Kind, Release, fields};
use tracer_records::api::{self, ArgumentPlace};

/// The places of the fields around the arguments, bytes from the beginning.
const PHASE: usize = 8;
const PHASE_DATA: usize = 16 + 187 * size_of::<u64>();

/// `hip_api_data_t`. HIP does not initialize words that are no argument of the function either.
#[repr(C, align(8))]
pub struct Data([u8; PHASE_DATA + size_of::<u64>()]);

impl Default for Data {
    fn default() -> Self {
        Self([0; PHASE_DATA + size_of::<u64>()])
    }
}

/// An argument.
pub struct Argument {
    /// Where it is when the function is entered.
    place: ArgumentPlace,
    /// Bytes of the structure.
    bytes: Range<usize>,
}

/// The arguments of a function of the tables, of which HIP tells by another name; `None` if they are not known for sure.
pub fn arguments(function: &str, reported: &str) -> Option<Vec<Argument>> {
    let fields = match fields(reported, Release::Later) {
        [] => fields(function, Release::Later),
        known => known,
    };
    let passed = api::by_name(function).map_or(&[][..], |operation| operation.args);
    // HIP has arguments of some functions not told.
    if fields.is_empty() {
        return Some(Vec::new());
    }
    if fields.len() != passed.len() {
        return None;
    }
    let argument = |(field, argument): (&Field, &api::Argument)| {
        let at = usize::from(field.at);
        let bytes = match (field.kind, argument.ty.kind) {
            (Kind::Signed(bytes) | Kind::Unsigned(bytes) | Kind::Float(bytes), _) => bytes.into(),
            (Kind::Pointer | Kind::Text, _) => size_of::<u64>(),
            (Kind::Dim3, _) => 3 * size_of::<u32>(),
            (Kind::Struct, api::Kind::Struct(bytes)) => bytes.into(),
            (Kind::Struct, _) => size_of::<u64>(),
        };
        Argument { place: argument.place, bytes: at..at + bytes }
    };
    Some(fields.iter().zip(passed).map(argument).collect())
}

impl Data {
    /// A call begins. The client may keep a number at `phase_data` until it ends.
    pub fn begin(&mut self, id: u64, phase_data: *mut u64) {
        self.set(0..8, &[id]);
        self.set(PHASE..PHASE + 4, &[0]);
        let phase_data = phase_data.expose_provenance() as u64;
        self.set(PHASE_DATA..PHASE_DATA + 8, &[phase_data]);
    }

    /// It has returned.
    pub fn end(&mut self) {
        self.set(PHASE..PHASE + 4, &[1]);
    }

    /// Sets an argument from what was passed in registers and on the stack.
    pub fn set_argument(&mut self, argument: &Argument, registers: &[u64; 6], stack: &[u64]) {
        let words = match argument.place {
            ArgumentPlace::Register(first) => registers.get(usize::from(first)..),
            ArgumentPlace::Stack(first) => stack.get(usize::from(first)..),
            ArgumentPlace::Vector(_) => None,
        };
        self.set(argument.bytes.clone(), words.unwrap_or_default());
    }

    fn set(&mut self, bytes: Range<usize>, words: &[u64]) {
        let to = self.0.get_mut(bytes).unwrap_or_default();
        for (to, word) in to.chunks_mut(size_of::<u64>()).zip(words) {
            to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracer_common::hip_functions::{LEFT_OUT, SLOTS};

    /// Each in its own bytes, and all of those that HIP tells.
    #[test]
    fn arguments_are_those_of_the_functions() {
        let (mut functions, mut unknown) = (0, Vec::new());
        for name in SLOTS.iter().map(|slot| slot.name).filter(|name| !LEFT_OUT.contains(name)) {
            let plain = name.strip_suffix("_spt").unwrap_or(name);
            let reported = if name == "hipChooseDevice" { "hipChooseDeviceR0600" } else { plain };
            let Some(all) = arguments(name, reported) else {
                unknown.push(name);
                continue;
            };
            let mut end = 16;
            for Argument { place, bytes } in &all {
                assert!(bytes.start >= end && bytes.end <= PHASE_DATA, "{name}: {bytes:?}");
                assert!(!matches!(place, ArgumentPlace::Vector(_)), "{name}");
                end = bytes.end;
            }
            functions += usize::from(!all.is_empty());
        }
        assert!(functions > 450, "{functions}");
        assert_eq!(unknown, ["hipExternalMemoryGetMappedMipmappedArray"]);
    }

    #[test]
    fn arguments_are_as_wide_as_they_are() {
        let mut data = Data::default();
        let mut phase_data = 0;
        data.begin(77, &raw mut phase_data);
        // A function, two structures of 12 bytes in two registers each, the arguments, of which there is a copy; bytes and a
        // stream on the stack.
        for argument in arguments("hipLaunchKernel", "hipLaunchKernel").expect("known") {
            data.set_argument(&argument, &[1, 3 << 32 | 2, 4, 6 << 32 | 5, 7, 8], &[9, 10]);
        }
        let word = |at: usize| u64::from_le_bytes(data.0[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!((word(0), word(PHASE) as u32), (77, 0));
        assert_eq!(word(PHASE_DATA), (&raw mut phase_data).addr() as u64);
        let words = [16, 24, 32, 40, 48, 64, 72].map(word);
        assert_eq!(words, [1, 3 << 32 | 2, 5 << 32 | 4, 7 << 32 | 6, 8, 9, 10]);
        data.end();
        assert_eq!(data.0[PHASE..PHASE + 4], [1, 0, 0, 0]);
        // 24 bytes on the stack.
        let all = arguments("hipMalloc3D", "hipMalloc3D").expect("known");
        data.set_argument(&all[1], &[0; 6], &[20, 21, 22]);
        let at = all[1].bytes.start;
        let word = |at: usize| u64::from_le_bytes(data.0[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!([at, at + 8, at + 16].map(word), [20, 21, 22]);
    }
}
