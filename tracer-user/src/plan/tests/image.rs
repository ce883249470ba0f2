//! Small ELF libraries made by the tests, and processes that have them mapped.

use std::{collections::BTreeMap, io, path::Path};

use super::super::{Binary, Identity, MappedFile, Mapping, ProcessMemory};
use crate::discover::Function;

/// Where code begins, in the file and in the image.
pub const CODE: u64 = 0x1000;
/// Where the unwind tables are.
const TABLES: u64 = 0x8000;
/// Where constants are, switches' tables for one.
pub const CONSTANTS: u64 = 0xa000;
/// Where variables are.
pub const DATA: u64 = 0xb000;
/// Where the dynamic section is; empty unless words are put there.
pub const DYNAMIC: u64 = DATA + 0x800;
/// Address in the process minus address in the image.
pub const BIAS: u64 = 0x7f12_3450_0000;
pub const IDENTITY: Identity = Identity { device_major: 8, device_minor: 1, inode: 4711 };
pub const PATH: &str = "/opt/rocm/lib/libtest.so.1";

/// `DW_CFA_def_cfa_offset` and `DW_CFA_advance_loc`.
pub const CFA_OFFSET: u8 = 0x0e;
pub const ADVANCE: u8 = 0x40;

/// A function of a library to make: its code, and its unwind instructions after `CFA = rsp + 8`.
pub struct Part {
    pub code: Vec<u8>,
    /// Call frame instructions; if none, the tables have no entry for the function.
    pub frame: Option<Vec<u8>>,
    /// The length in the tables, if it is not the code's.
    pub stated: Option<u32>,
}

impl Part {
    pub fn new(code: &[u8]) -> Self {
        Self { code: code.to_vec(), frame: Some(Vec::new()), stated: None }
    }

    pub fn framed(code: &[u8], frame: &[u8]) -> Self {
        Self { frame: Some(frame.to_vec()), ..Self::new(code) }
    }
}

/// The bytes of a library with these functions, 16-byte aligned, and where they are.
pub fn library(parts: &[Part], constants: &[u8]) -> (Vec<u8>, Vec<Function>) {
    library_with(parts, constants, &[])
}

/// As [`library`], with these words, by address.
fn library_with(
    parts: &[Part],
    constants: &[u8],
    words: &[(u64, u64)],
) -> (Vec<u8>, Vec<Function>) {
    let mut file = vec![0; 0xc000];
    let mut functions = Vec::new();
    let mut frames = cie();
    let mut at = CODE;
    for part in parts {
        let size = part.code.len() as u64;
        put(&mut file, at, &part.code);
        let name = format!("function_{}", functions.len());
        functions.push(Function { name, address: at, size, file_offset: at });
        if let Some(frame) = &part.frame {
            let stated = part.stated.unwrap_or(size as u32);
            fde(&mut frames, at, stated, frame);
        }
        at = (at + size).next_multiple_of(16);
    }
    assert!(at < TABLES);
    frames.extend([0; 4]);
    // .eh_frame_hdr: version 1, address of .eh_frame relative to here, no search table.
    put(&mut file, TABLES, &[1, 0x1b, 0xff, 0xff]);
    put(&mut file, TABLES + 4, &4i32.to_le_bytes());
    put(&mut file, TABLES + 8, &frames);
    put(&mut file, CONSTANTS, constants);
    put(&mut file, 0, &header());
    words.iter().for_each(|(at, word)| put(&mut file, *at, &word.to_le_bytes()));
    let segments: [(u32, u32, u64, u64); 6] = [
        (1, 4, 0, CODE),
        (1, 5, CODE, TABLES - CODE),
        (1, 4, TABLES, DATA - TABLES),
        (1, 6, DATA, 0x1000),
        (0x6474_e550, 4, TABLES, 8),
        (2, 6, DYNAMIC, 0x100),
    ];
    for (index, (kind, flags, offset, size)) in segments.into_iter().enumerate() {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        for word in [offset, offset, offset, size, size, 0x1000] {
            bytes.extend(word.to_le_bytes());
        }
        put(&mut file, 64 + 56 * index as u64, &bytes);
    }
    (file, functions)
}

/// As [`library`], opened.
pub fn binary(parts: &[Part], constants: &[u8]) -> (Binary, Vec<Function>) {
    let (bytes, functions) = library(parts, constants);
    (Binary::from_bytes(bytes, Path::new(PATH), Some(IDENTITY)).unwrap(), functions)
}

/// As [`binary`], with these words, by address.
pub fn binary_with(parts: &[Part], words: &[(u64, u64)]) -> (Binary, Vec<Function>) {
    let (bytes, functions) = library_with(parts, &[], words);
    (Binary::from_bytes(bytes, Path::new(PATH), Some(IDENTITY)).unwrap(), functions)
}

fn put(file: &mut [u8], at: u64, bytes: &[u8]) {
    file[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
}

fn header() -> Vec<u8> {
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(3u16.to_le_bytes());
    bytes.extend(62u16.to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    for word in [0u64, 64, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 6, 64, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    bytes
}

/// Version 1, augmentation "zR", addresses relative and of 32 bits, `CFA = rsp + 8`.
fn cie() -> Vec<u8> {
    let body: &[u8] =
        &[0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(body);
    bytes
}

fn fde(frames: &mut Vec<u8>, address: u64, size: u32, instructions: &[u8]) {
    let begin = frames.len();
    let mut body = ((begin + 4) as u32).to_le_bytes().to_vec();
    let here = TABLES + 8 + begin as u64 + 8;
    body.extend((address as i64 - here as i64).to_le_bytes()[..4].iter());
    body.extend(size.to_le_bytes());
    body.push(0);
    body.extend(instructions);
    body.resize(body.len().next_multiple_of(4), 0);
    frames.extend((body.len() as u32).to_le_bytes());
    frames.extend(body);
}

/// A process that has the library mapped at [`BIAS`], another library behind it, and these words in
/// memory.
pub struct Fake {
    pub words: BTreeMap<u64, u64>,
    pub mappings: Vec<Mapping>,
}

/// Where the other library's code is.
pub const OTHER: u64 = 0x7f99_0000_0000;
/// The offset of the other library's code in its file.
pub const OTHER_OFFSET: u64 = 0x3000;
pub const OTHER_PATH: &str = "/usr/lib/libtool.so";

impl Fake {
    pub fn new(words: &[(u64, u64)]) -> Self {
        let file = |path: &str, inode| {
            Some(MappedFile { path: path.into(), identity: Identity { inode, ..IDENTITY } })
        };
        let ours = |start: u64, end: u64, executable| Mapping {
            start: BIAS + start,
            end: BIAS + end,
            file_offset: start,
            executable,
            file: file(PATH, IDENTITY.inode),
        };
        let other = Mapping {
            start: OTHER,
            end: OTHER + 0x2000,
            file_offset: OTHER_OFFSET,
            executable: true,
            file: file(OTHER_PATH, 12),
        };
        let mappings = vec![
            ours(0, CODE, false),
            ours(CODE, TABLES, true),
            ours(TABLES, DATA, false),
            ours(DATA, 0xc000, false),
            other,
        ];
        Self { words: words.iter().copied().collect(), mappings }
    }
}

impl ProcessMemory for Fake {
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        let word = self.words.get(&address).ok_or(io::ErrorKind::InvalidInput)?;
        assert_eq!(buffer.len(), 8);
        buffer.copy_from_slice(&word.to_le_bytes());
        Ok(())
    }

    fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}
