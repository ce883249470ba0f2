//! Exported functions of an ELF library, and their places in the file.

use std::path::{Path, PathBuf};

use object::{
    Endianness, Object as _, ObjectSymbol as _, SymbolKind,
    elf::FileHeader64,
    read::{
        ReadRef as _,
        elf::{Dyn as _, ElfFile64, ProgramHeader as _},
    },
};

use crate::foreign::{Contents, File, Source, View};

/// Longest function body that is read, bytes.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;
/// The most bytes that are read of an executable segment: a dynamic linker's has some 200 KiB.
const MAX_SEGMENT_BYTES: u64 = 1 << 20;
/// Segments that are considered; libraries have four to six.
const MAX_SEGMENTS: usize = 64;

/// Why a library's functions could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It cannot be opened.
    #[error("{path}: cannot be opened: {cause}")]
    Open {
        /// Its path.
        path: PathBuf,
        /// How. Part of the message, hence no `source`.
        cause: std::io::Error,
    },
    /// It is not a valid library.
    #[error("{path}: not a readable 64-bit x86 ELF library: {cause}")]
    Format {
        /// Its path.
        path: PathBuf,
        /// How. Part of the message, hence no `source`.
        cause: object::Error,
    },
    /// It is for another machine.
    #[error("{path}: built for {machine:?}; roctap traces x86-64 code only")]
    Machine {
        /// Its path.
        path: PathBuf,
        /// The machine.
        machine: object::Architecture,
    },
}

/// An exported function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name, without a version.
    pub name: String,
    /// Address in the image, before relocation.
    pub address: u64,
    /// Size in bytes, 0 when the symbol has none.
    pub size: u64,
    /// Offset of its first byte in the file.
    pub file_offset: u64,
}

/// The names by which a library and others refer to each other.
#[derive(Default, Debug)]
pub struct Links {
    /// The library's own name.
    pub soname: Option<String>,
    /// The names of the libraries that it needs itself, in their order.
    pub needed: Vec<String>,
}

/// An ELF library on disk.
pub struct Image<S: Source = File> {
    path: PathBuf,
    contents: Contents<S>,
}

/// Code of a library, as its file has it.
#[derive(Clone, Copy)]
pub struct Code<'d> {
    /// Its address in the image, before relocation.
    pub address: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// The code.
    pub bytes: &'d [u8],
}

struct Segment {
    address: u64,
    offset: u64,
    file_size: u64,
    executable: bool,
}

impl Image {
    /// Opens the library at `path`.
    ///
    /// # Errors
    ///
    /// [`ElfError::Open`].
    pub fn open(path: &Path) -> Result<Self, ElfError> {
        let file =
            File::open(path).map_err(|cause| ElfError::Open { path: path.to_owned(), cause })?;
        Ok(Self::of(file, path))
    }
}

impl<S: Source> Image<S> {
    /// A library that is known by `path`.
    pub(crate) fn of(source: S, path: &Path) -> Self {
        Self { path: path.to_owned(), contents: Contents::of(source) }
    }

    fn parse(&self) -> Result<ElfFile64<'_, Endianness, View<'_, S>>, ElfError> {
        let elf = ElfFile64::<Endianness, _>::parse(self.contents.view())
            .map_err(|cause| ElfError::Format { path: self.path.clone(), cause })?;
        match elf.architecture() {
            object::Architecture::X86_64 => Ok(elf),
            machine => Err(ElfError::Machine { path: self.path.clone(), machine }),
        }
    }

    /// The exported functions whose names `wanted` accepts, by address; each name once.
    ///
    /// # Errors
    ///
    /// When the file is not a readable x86-64 ELF library.
    pub fn functions(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Function>, ElfError> {
        let elf = self.parse()?;
        let segments = segments(&elf);
        let mut functions: Vec<Function> = elf
            .dynamic_symbols()
            .filter(|s| s.is_definition() && s.kind() == SymbolKind::Text)
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| wanted(name))?;
                let (address, size) = (symbol.address(), symbol.size());
                let file_offset = file_offset(&segments, address)?;
                Some(Function { name: name.to_owned(), address, size, file_offset })
            })
            .collect();
        functions.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
        // A versioned symbol can be exported twice under one name.
        functions.dedup_by(|a, b| a.name == b.name);
        Ok(functions)
    }

    /// The exported variables: name, and address in the image.
    ///
    /// # Errors
    ///
    /// When the file is not a readable x86-64 ELF library.
    pub fn variables(&self) -> Result<Vec<(String, u64)>, ElfError> {
        let elf = self.parse()?;
        let variables = elf
            .dynamic_symbols()
            .filter(|s| s.is_definition() && s.kind() == SymbolKind::Data)
            .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address())));
        Ok(variables.collect())
    }

    /// The names in the library's dynamic section; empty if it has none.
    ///
    /// # Errors
    ///
    /// When the file is not a readable x86-64 ELF library.
    pub fn links(&self) -> Result<Links, ElfError> {
        let failed = |cause| ElfError::Format { path: self.path.clone(), cause };
        let (elf, data) = (self.parse()?, self.contents.view());
        let (endian, sections) = (elf.endian(), elf.elf_section_table());
        let mut links = Links::default();
        let Some((entries, strings)) = sections.dynamic(endian, data).map_err(failed)? else {
            return Ok(links);
        };
        let strings = sections.strings(endian, data, strings).map_err(failed)?;
        for entry in entries {
            let name = || {
                let name = entry.val32(endian).and_then(|offset| strings.get(offset).ok());
                String::from_utf8_lossy(name.unwrap_or_default()).into_owned()
            };
            match entry.tag32(endian) {
                Some(object::elf::DT_NULL) => break,
                Some(object::elf::DT_SONAME) => links.soname = Some(name()),
                Some(object::elf::DT_NEEDED) => links.needed.push(name()),
                _ => {}
            }
        }
        Ok(links)
    }

    /// The executable segments, at most [`MAX_SEGMENT_BYTES`] of each.
    ///
    /// # Errors
    ///
    /// When the file is not a readable x86-64 ELF library.
    pub fn code_segments(&self) -> Result<Vec<Code<'_>>, ElfError> {
        let segments = segments(&self.parse()?);
        let code = segments.iter().filter(|segment| segment.executable).filter_map(|segment| {
            let Segment { address, offset, file_size, .. } = *segment;
            let size = file_size.min(MAX_SEGMENT_BYTES);
            let bytes = self.contents.view().read_bytes_at(offset, size).ok()?;
            Some(Code { address, offset, bytes })
        });
        Ok(code.collect())
    }

    /// The address in the image of the part that only the dynamic linker writes to (RELRO); none if there is no such
    /// part.
    ///
    /// # Errors
    ///
    /// When the file is not a readable x86-64 ELF library.
    pub fn relro(&self) -> Result<Option<u64>, ElfError> {
        let elf = self.parse()?;
        let endian = elf.endian();
        let mut headers = elf.elf_program_headers().iter();
        let found = headers.find(|header| header.p_type(endian) == object::elf::PT_GNU_RELRO);
        Ok(found.map(|header| header.p_vaddr(endian)))
    }

    /// The code of `function`, at most a mebibyte of it.
    pub fn code(&self, function: &Function) -> Option<&[u8]> {
        let size = function.size.clamp(16, MAX_FUNCTION_BYTES);
        self.contents.view().read_bytes_at(function.file_offset, size).ok()
    }
}

fn segments<'d, S: Source>(elf: &ElfFile64<'d, Endianness, View<'d, S>>) -> Vec<Segment> {
    let endian = elf.endian();
    elf.elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == object::elf::PT_LOAD)
        .take(MAX_SEGMENTS)
        .map(|header: &<FileHeader64<Endianness> as object::read::elf::FileHeader>::ProgramHeader| {
            Segment {
                address: header.p_vaddr(endian),
                offset: header.p_offset(endian),
                file_size: header.p_filesz(endian),
                executable: header.p_flags(endian) & object::elf::PF_X != 0,
            }
        })
        .collect()
}

/// The offset of `address` in the file; none when it is not in executable file contents.
fn file_offset(segments: &[Segment], address: u64) -> Option<u64> {
    let segment = segments
        .iter()
        .find(|s| s.executable && address >= s.address && address - s.address < s.file_size)?;
    segment.offset.checked_add(address - segment.address)
}

/// Reads arbitrary `bytes` as a library: the body of a fuzz target.
///
/// # Panics
///
/// When the functions are not in order.
pub fn fuzz_elf(bytes: &[u8]) {
    let image = Image::of(bytes, Path::new("input"));
    let _ = (image.variables(), image.links());
    let functions = image.functions(|_| true).unwrap_or_default();
    assert!(functions.is_sorted_by_key(|function| function.address));
    for function in &functions {
        let _ = image.code(function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_blocks_are_those_of_the_file() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().find(|line| line.ends_with("/libc.so.6")).unwrap();
        let path = Path::new(&libc[libc.find('/').unwrap()..]);
        let bytes = std::fs::read(path).unwrap();
        let elf = ElfFile64::<Endianness, _>::parse(&bytes[..]).unwrap();
        let defined = elf.dynamic_symbols().filter(|s| s.is_definition());
        let functions = defined.filter(|s| s.kind() == SymbolKind::Text);
        let mut expected: Vec<&str> = functions.map(|s| s.name().unwrap()).collect();
        expected.sort_unstable();
        expected.dedup();
        let found = Image::open(path).unwrap().functions(|_| true).unwrap();
        let mut found: Vec<&str> = found.iter().map(|f| f.name.as_str()).collect();
        found.sort_unstable();
        found.dedup();
        assert!(found.len() > 1000);
        assert_eq!(found, expected);
        let links = Image::open(path).unwrap().links().unwrap();
        assert_eq!(links.soname.as_deref(), Some("libc.so.6"));
        assert_eq!(links.needed, ["ld-linux-x86-64.so.2"]);
    }
}
