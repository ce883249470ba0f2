//! `hsa_api_data_t`: the arguments and the result of a call, as callbacks get them.
//!
//! Where its fields are is in [`capi_common::hsa`].

use std::ops::Range;

use capi_common::hsa::{Function, PHASE, PHASE_DATA, RESULT};
use tracer_records::api::ArgumentPlace;

/// Bytes of the structure, and some more.
const BYTES: usize = 256;

/// `hsa_api_data_t`.
#[repr(C, align(8))]
pub struct Data([u8; BYTES]);

impl Default for Data {
    fn default() -> Self {
        Self([0; BYTES])
    }
}

impl Data {
    /// A call begins, with these arguments: in registers and on the stack.
    pub fn begin(&mut self, id: u64, function: &Function, registers: &[u64; 6], stack: &[u64]) {
        self.0 = [0; BYTES];
        self.set(0..8, id);
        for field in &function.fields {
            let word = match field.place {
                ArgumentPlace::Register(n) => registers.get(usize::from(n)),
                ArgumentPlace::Stack(n) => stack.get(usize::from(n)),
                ArgumentPlace::Vector(_) => None,
            };
            let word = word.copied().unwrap_or(0);
            self.set(field.bytes.clone(), word);
            if let Some(copied) = &field.pointed_at
                && word != 0
            {
                self.copy(copied.clone(), word);
            }
        }
    }

    /// It has returned.
    pub fn end(&mut self, result: u64) {
        self.set(PHASE..PHASE + 4, 1);
        self.set(RESULT..RESULT + 8, result);
    }

    /// Where the client may keep a number from the begin of the call to its end.
    pub fn set_phase_data(&mut self, place: *mut u64) {
        let at = *PHASE_DATA;
        self.set(at..at + 8, place.expose_provenance() as u64);
    }

    fn set(&mut self, bytes: Range<usize>, word: u64) {
        if let Some(to) = self.0.get_mut(bytes) {
            to.iter_mut().zip(word.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
    }

    /// Copies what an argument points at.
    #[expect(unsafe_code, reason = "an argument of the program's")]
    fn copy(&mut self, bytes: Range<usize>, from: u64) {
        if let Some(to) = self.0.get_mut(bytes) {
            // SAFETY: the runtime reads as much there, too.
            unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capi_build::{clients::succeed, layouts::Language};
    use capi_common::hsa::{Functions, function};

    #[test]
    fn every_field_has_a_place() {
        assert!(*PHASE_DATA + 8 <= BYTES);
    }

    /// In C99 and C++11, by the headers of HSA that are installed: those of ROCm 5.2.3.
    #[test]
    fn rocm_fields_are_where_the_header_has_them() {
        if !std::path::Path::new("/usr/include/hsa/hsa_ext_amd.h").exists() {
            eprintln!("skipped: the headers of HSA are not installed");
            return;
        }
        let mut source =
            String::from("#include <roctracer/roctracer_hsa.h>\n#include <stddef.h>\n");
        let mut number = 0;
        let mut field = |name: &str, bytes: &Range<usize>| {
            number += 1;
            let (at, size) = (bytes.start, bytes.len());
            source += &format!(
                "typedef char is_{number}[(offsetof(hsa_api_data_t, {name}) == {at} && \
                 sizeof(((hsa_api_data_t*)0)->{name}) == {size}) ? 1 : -1];\n"
            );
        };
        field("phase", &(PHASE..PHASE + 4));
        for result in ["hsa_status_t", "hsa_signal_value_t", "uint32_t", "uint64_t"] {
            let size = if matches!(result, "hsa_status_t" | "uint32_t") { 4 } else { 8 };
            field(&format!("{result}_retval"), &(RESULT..RESULT + size));
        }
        for Function { operation, fields, .. } in Functions::found().all() {
            for (argument, place) in operation.args.iter().zip(fields) {
                let name = format!("args.{}.{}", operation.name, argument.name);
                field(&name, &place.bytes);
                if let Some(pointed_at) = &place.pointed_at {
                    field(&format!("{name}__val"), pointed_at);
                }
            }
        }
        field("phase_data", &(*PHASE_DATA..*PHASE_DATA + 8));
        assert!(number > 500, "{number}");
        source += "int main(void) { return 0; }\n";
        let directory = tempfile::tempdir().expect("a directory");
        for language in Language::ALL {
            let file = directory.path().join(format!("fields.{}", language.extension()));
            std::fs::write(&file, &source).expect("written");
            let mut compiler = language.compiler().expect("a compiler");
            succeed(compiler.arg("-fsyntax-only").arg(file)).expect("as the header has them");
        }
    }

    #[test]
    fn arguments_are_as_wide_as_they_are() {
        let mut data = Data::default();
        let create = function("hsa_queue_create").expect("a function");
        data.begin(77, create, &[1, u64::MAX, 3, 4, 5, 6], &[7, 8]);
        let word = |at: usize| u64::from_le_bytes(data.0[at..at + 8].try_into().expect("8 bytes"));
        assert_eq!((word(0), word(8), word(16)), (77, 0, 0));
        // hsa_agent_t, uint32_t and hsa_queue_type32_t, two pointers, two uint32_t, a pointer.
        let (max, words) = (u64::from(u32::MAX), [24, 32, 40, 48, 56, 64].map(word));
        assert_eq!(words, [1, max | 3 << 32, 4, 5, 6 | 7 << 32, 8]);
        data.end(9);
        assert_eq!((data.0[PHASE], data.0[RESULT]), (1, 9));
    }
}
