//! The arguments of a call as text, as `hipApiString` of HIP's header has them.

use std::fmt::Write as _;

use super::data::Data;
use super::table::{Copy, Field, Kind};
use crate::memory;

/// The arguments: `ptr=0x7f0012340000, size=4096`.
///
/// * Numbers and enumerations in decimal, pointers in hexadecimal, those that are null as `0`.
/// * Of an argument that points at something which the data has a copy of, the copy; `NULL` if it points
///   at nothing.
/// * Strings in quotation marks, `?` where they cannot be read; `dim3` as `{x,y,z}`; other structures, as
///   by AMD's file plugin, as `{}`.
pub fn arguments(data: Data, fields: &[Field]) -> String {
    let mut text = String::new();
    for (nth, field) in fields.iter().enumerate() {
        // Writing into a string cannot fail.
        let _ = write!(text, "{}{}=", if nth > 0 { ", " } else { "" }, field.name);
        argument(&mut text, data, field);
    }
    text
}

fn argument(text: &mut String, data: Data, field: &Field) {
    let address = data.word(field.at, 8);
    match (field.kind, field.copy) {
        (Kind::Text, _) if address == 0 => text.push_str("NULL"),
        (Kind::Text, _) => match memory::string(address) {
            Some(string) => push(text, format_args!("{string:?}")),
            None => text.push('?'),
        },
        (_, Some(_)) if address == 0 => text.push_str("NULL"),
        (_, Some(Copy { at, kind, .. })) => value(text, data, at, kind),
        (kind, None) => value(text, data, field.at, kind),
    }
}

fn value(text: &mut String, data: Data, at: u16, kind: Kind) {
    match kind {
        Kind::Signed(bytes) => {
            let unused = 64 - 8 * u32::from(bytes.clamp(1, 8));
            let extended = data.word(at, bytes.into()).cast_signed() << unused >> unused;
            push(text, format_args!("{extended}"));
        }
        Kind::Unsigned(bytes) => push(text, format_args!("{}", data.word(at, bytes.into()))),
        Kind::Float(4) => push(text, format_args!("{}", f32::from_le_bytes(data.bytes(at)))),
        Kind::Float(_) => push(text, format_args!("{}", f64::from_le_bytes(data.bytes(at)))),
        Kind::Pointer | Kind::Text => match data.word(at, 8) {
            0 => text.push('0'),
            address => push(text, format_args!("{address:#x}")),
        },
        Kind::Dim3 => {
            let [x, y, z] = [0, 4, 8].map(|offset| data.word(at + offset, 4));
            push(text, format_args!("{{{x},{y},{z}}}"));
        }
        Kind::Struct => text.push_str("{}"),
    }
}

/// Writing into a string cannot fail.
fn push(text: &mut String, written: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(written);
}

#[cfg(test)]
#[expect(unsafe_code, reason = "data that is made here")]
mod tests {
    use super::*;
    use crate::hip::{Release, fields};

    /// `hip_api_data_t` of a call that has returned, with these words of arguments.
    fn data(words: &[u64]) -> [u64; 64] {
        let mut data = [0; 64];
        (data[0], data[1]) = (77, 1);
        data[2..2 + words.len()].copy_from_slice(words);
        data
    }

    fn at(data: &mut [u64; 64]) -> Data {
        // SAFETY: as large as those of the functions here.
        unsafe { Data::at(std::ptr::from_mut(data).cast()) }.expect("not null")
    }

    fn text(function: &str, words: &[u64]) -> String {
        let mut data = data(words);
        let (data, fields) = (at(&mut data), fields(function, Release::First));
        assert_eq!((data.correlation_id(), data.has_returned()), (77, true));
        data.fill(fields);
        arguments(data, fields)
    }

    #[test]
    fn calls_are_written_as_by_the_file_plugin() {
        let allocated = 0x7f00_u64;
        let address = (&raw const allocated).expose_provenance() as u64;
        // A place for the copy is between pointer and size.
        assert_eq!(text("hipMalloc", &[address, 5, 4096]), "ptr=0x7f00, size=4096");
        assert_eq!(text("hipMalloc", &[0, 5, 4096]), "ptr=NULL, size=4096");
        assert_eq!(text("hipMalloc", &[8, 5, 4096]), "ptr=0, size=4096");
        assert_eq!(
            text("hipMemcpy", &[0x10, 0x20, 64, 1]),
            "dst=0x10, src=0x20, sizeBytes=64, kind=1"
        );
        assert_eq!(text("hipSetDevice", &[u64::from(u32::MAX)]), "deviceId=-1");
        assert_eq!(text("hipDeviceSynchronize", &[]), "");
        assert_eq!(text("hipNothing", &[1]), "");
    }

    #[test]
    fn dimensions_and_strings() {
        // dim3 is aligned to 4 bytes: two of them are three words.
        let dimensions = [2 << 32 | 1, 4 << 32 | 3, 6 << 32 | 5];
        let first = 0x30_u64;
        let arguments = (&raw const first).expose_provenance() as u64;
        let words = [&[0x10][..], &dimensions, &[arguments, 0, 64, 0]].concat();
        assert_eq!(
            text("hipLaunchKernel", &words),
            "function_address=0x10, numBlocks={1,2,3}, dimBlocks={4,5,6}, args=0x30, \
             sharedMemBytes=64, stream=0"
        );
        let (module, name) = (9_u64, c"a \"b\".co");
        let address = (&raw const module).expose_provenance() as u64;
        let name = name.as_ptr().expose_provenance() as u64;
        assert_eq!(
            text("hipModuleLoad", &[address, 0, name]),
            "module=0x9, fname=\"a \\\"b\\\".co\""
        );
        assert_eq!(text("hipModuleLoad", &[address, 0, 8]), "module=0x9, fname=?");
    }
}
