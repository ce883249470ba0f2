//! Exported functions of an ELF library, and where they are in the file.

use std::{
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
};

use object::{
    Endianness, Object as _, ObjectSymbol as _, SymbolKind,
    elf::FileHeader64,
    read::{
        ReadCache, ReadRef,
        elf::{ElfFile64, ProgramHeader as _},
    },
};

/// Longest function body that is read, bytes.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;

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
    /// It is not what it should be.
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
        /// For what.
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

/// An ELF library on disk.
pub struct Image {
    path: PathBuf,
    file: ReadCache<File>,
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
        Ok(Self { path: path.to_owned(), file: ReadCache::new(file) })
    }

    fn parse(&self) -> Result<ElfFile64<'_, Endianness, Blocks<'_>>, ElfError> {
        let elf = ElfFile64::<Endianness, _>::parse(Blocks(&self.file))
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

    /// The code of `function`, at most a mebibyte of it.
    pub fn code(&self, function: &Function) -> Option<&[u8]> {
        let size = function.size.clamp(16, MAX_FUNCTION_BYTES);
        (&self.file).read_bytes_at(function.file_offset, size).ok()
    }
}

/// A file whose strings are read by the block: one by one, each costs two system calls, and a library
/// has up to some 100,000 names.
#[derive(Clone, Copy)]
struct Blocks<'d>(&'d ReadCache<File>);

/// Bytes of a block.
const BLOCK: u64 = 64 << 10;

impl<'d> ReadRef<'d> for Blocks<'d> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
        self.0.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
        let start = range.start - range.start % BLOCK;
        let bytes = self.len()?.saturating_sub(start).min(BLOCK);
        let block = self.read_bytes_at(start, bytes)?;
        let end = block.len().min(range.end.saturating_sub(start) as usize);
        let here = block.get((range.start - start) as usize..end).unwrap_or_default();
        match here.iter().position(|&byte| byte == delimiter) {
            Some(length) => Ok(&here[..length]),
            None => self.0.read_bytes_at_until(range, delimiter),
        }
    }
}

fn segments<'d>(elf: &ElfFile64<'d, Endianness, Blocks<'d>>) -> Vec<Segment> {
    let endian = elf.endian();
    elf.elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == object::elf::PT_LOAD)
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

/// Where `address` is in the file; none when it is not in executable file contents.
fn file_offset(segments: &[Segment], address: u64) -> Option<u64> {
    let segment = segments
        .iter()
        .find(|s| s.executable && address >= s.address && address - s.address < s.file_size)?;
    segment.offset.checked_add(address - segment.address)
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
    }

    #[test]
    fn strings_at_the_ends_of_blocks_and_of_the_file() {
        let mut bytes = vec![b'x'; 3 * BLOCK as usize];
        for at in [BLOCK - 1, BLOCK + 5, 2 * BLOCK + 5] {
            bytes[at as usize] = 0;
        }
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        let cache = ReadCache::new(file);
        let until = |start: u64, end: u64| Blocks(&cache).read_bytes_at_until(start..end, 0);
        let end = bytes.len() as u64;
        assert_eq!(until(BLOCK - 3, end).unwrap().len(), 2);
        assert_eq!(until(BLOCK - 1, end).unwrap().len(), 0);
        assert_eq!(until(BLOCK, end).unwrap().len(), 5);
        // Over the border of two blocks.
        assert_eq!(until(2 * BLOCK - 7, end).unwrap().len(), 12);
        // No end: of the range, of the file; and nothing there.
        for (start, end) in [(BLOCK, BLOCK + 5), (2 * BLOCK + 6, end), (end, end + 9), (9, 3)] {
            until(start, end).unwrap_err();
        }
    }
}
