//! An ELF library as the planner sees it: executable segments and unwind tables.
//!
//! The file is not trusted: every length that it states is bounded, every range checked.

use std::{
    ffi::{OsStr, OsString},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian, Pointer};
use object::{
    Endianness, elf,
    elf::FileHeader64,
    read::{
        ReadRef,
        elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _},
    },
};

use super::unwind::Unwind;
use crate::foreign::{Contents, File, Source as _};

/// Segments that are considered; libraries have four to six.
const MAX_SEGMENTS: usize = 64;
/// Unwind tables that are read, bytes; large libraries have a few mebibytes.
const MAX_UNWIND_BYTES: u64 = 64 << 20;
/// Longest function that is read, bytes.
pub(super) const MAX_FUNCTION_BYTES: u64 = 1 << 20;
/// Code that is read of one library in all, bytes: all of it is decoded, some of it again and again.
const MAX_CODE_BYTES: u64 = 512 << 20;
/// The least number of bytes that each piece of code counts for.
const PIECE_BYTES: u64 = 16 << 10;

/// Why a library cannot be planned for.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It cannot be opened.
    #[error("{path}: cannot be opened: {cause}")]
    Open {
        /// Its path.
        path: PathBuf,
        /// How. Part of the message, hence no `source`.
        cause: std::io::Error,
    },
    /// It is not a 64-bit ELF file with program headers.
    #[error("{path}: not a readable 64-bit ELF file: {cause}")]
    Format {
        /// Its path.
        path: PathBuf,
        /// How. Part of the message, hence no `source`.
        cause: object::Error,
    },
    /// It is for another machine.
    #[error("{path}: for another machine (ELF machine {machine}); roctap plans x86-64 code only")]
    Machine {
        /// Its path.
        path: PathBuf,
        /// The ELF header's machine number.
        machine: u16,
    },
    /// No part of it is executable.
    #[error("{path}: has no executable segment")]
    NoCode {
        /// Its path.
        path: PathBuf,
    },
    /// A process's mappings cannot be read.
    #[error("process {pid}: its memory cannot be read: {cause}")]
    Process {
        /// Which process.
        pid: u32,
        /// How. Part of the message, hence no `source`.
        cause: std::io::Error,
    },
}

/// A loadable segment with contents in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// Address in the image, before relocation.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory: those beyond the file's are zero.
    pub memory_size: u64,
    /// Whether it can be executed.
    pub executable: bool,
    /// Whether it can be written to. The kernel places no probes in such mappings (`valid_vma`).
    pub writable: bool,
}

impl Segment {
    fn contains(&self, address: u64) -> bool {
        address >= self.address && address - self.address < self.file_size
    }
}

/// The identity of a library's file, as `/proc/PID/maps` names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// Device number, major.
    pub device_major: u32,
    /// Device number, minor.
    pub device_minor: u32,
    /// Inode number.
    pub inode: u64,
}

/// The last part of a path as the kernel shows it, also for a file that was deleted.
pub(super) fn file_name(path: &Path) -> OsString {
    let name = path.file_name().unwrap_or_default();
    name.as_bytes().strip_suffix(b" (deleted)").map_or(name, OsStr::from_bytes).to_owned()
}

enum Source {
    File(File),
    Bytes(Vec<u8>),
}

/// A library whose functions are to be probed.
pub struct Binary {
    source: Source,
    path: PathBuf,
    /// The file's own name: `path` may be a link, or lead through `/proc/PID/map_files`.
    name: OsString,
    identity: Option<Identity>,
    segments: Vec<Segment>,
    /// Address and size of the dynamic section.
    dynamic: Option<(u64, u64)>,
    unwind: Unwind,
    /// The number of bytes of code that may still be read.
    code_left: AtomicU64,
}

impl Binary {
    /// Opens the library at `path`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is no x86-64 ELF file with code in it.
    pub fn open(path: &Path) -> Result<Self, PlanError> {
        let opened = |cause| PlanError::Open { path: path.to_owned(), cause };
        let file = File::open(path).map_err(opened)?;
        let attributes = file.attributes();
        let identity = Identity {
            device_major: rustix::fs::major(attributes.dev()),
            device_minor: rustix::fs::minor(attributes.dev()),
            inode: attributes.ino(),
        };
        let layout = Layout::read(Contents::of(&file).view(), path)?;
        let name = file_name(file.real_path().as_deref().unwrap_or(path));
        Ok(Self { name, ..Self::new(Source::File(file), path, Some(identity), layout) })
    }

    /// A library in memory, known by `path`.
    ///
    /// # Errors
    ///
    /// When the bytes are no x86-64 ELF file with code in it.
    pub fn from_bytes(
        bytes: Vec<u8>,
        path: &Path,
        identity: Option<Identity>,
    ) -> Result<Self, PlanError> {
        let layout = Layout::read(bytes.as_slice(), path)?;
        Ok(Self::new(Source::Bytes(bytes), path, identity, layout))
    }

    fn new(source: Source, path: &Path, identity: Option<Identity>, layout: Layout) -> Self {
        let Layout { segments, dynamic, unwind } = layout;
        Self {
            source,
            path: path.to_owned(),
            name: file_name(path),
            identity,
            segments,
            dynamic,
            unwind,
            code_left: AtomicU64::new(MAX_CODE_BYTES),
        }
    }

    /// The library's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// The file's name, without its directory.
    pub(super) fn file_name(&self) -> &OsStr {
        &self.name
    }

    pub(super) fn unwind(&self) -> &Unwind {
        &self.unwind
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Address and size of the dynamic section.
    pub(super) fn dynamic(&self) -> Option<(u64, u64)> {
        self.dynamic
    }

    /// Whether the unwind tables say that a function begins at `address`.
    pub(super) fn begins_function(&self, address: u64) -> bool {
        self.unwind.covering(address).is_some_and(|extent| extent.start == address)
    }

    /// The executable segment that holds `address`.
    pub(super) fn code_segment(&self, address: u64) -> Option<&Segment> {
        self.segments.iter().find(|s| s.executable && s.contains(address))
    }

    /// The offset in the file of `address`, an address of code.
    pub(super) fn file_offset(&self, address: u64) -> Option<u64> {
        let segment = self.code_segment(address)?;
        segment.offset.checked_add(address - segment.address)
    }

    /// The address of the code that is at `offset` in the file.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        let segment = self
            .segments
            .iter()
            .find(|s| s.executable && offset >= s.offset && offset - s.offset < s.file_size)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// Code from `address` on, at most `size` bytes and not past its segment's end.
    pub(super) fn code(&self, address: u64, size: u64) -> Option<Vec<u8>> {
        self.contents(self.code_segment(address)?, address, size)
    }

    /// `size` bytes at `address` that are read-only in a process.
    pub(super) fn constant(&self, address: u64, size: u64) -> Option<Vec<u8>> {
        let segment = self.segments.iter().find(|s| s.contains(address) && !s.writable)?;
        self.contents(segment, address, size).filter(|bytes| bytes.len() as u64 == size)
    }

    /// `size` bytes at `address`, as the file has them.
    pub(super) fn bytes(&self, address: u64, size: u64) -> Option<Vec<u8>> {
        let segment = self.segments.iter().find(|s| s.contains(address))?;
        self.contents(segment, address, size).filter(|bytes| bytes.len() as u64 == size)
    }

    /// The word at `address` of an image that has not been relocated.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let end = address.checked_add(8)?;
        let in_memory = |s: &&Segment| s.address <= address && end - s.address <= s.memory_size;
        let segment = self.segments.iter().find(in_memory)?;
        match address - segment.address {
            skipped if skipped >= segment.file_size => Some(0),
            _ => Some(u64::from_le_bytes(self.bytes(address, 8)?.try_into().ok()?)),
        }
    }

    fn contents(&self, segment: &Segment, address: u64, size: u64) -> Option<Vec<u8>> {
        let skipped = address - segment.address;
        let rest = segment.file_size - skipped;
        let size = size.min(rest).min(MAX_FUNCTION_BYTES);
        let take = |left: u64| left.checked_sub(size.max(PIECE_BYTES));
        self.code_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        let size = usize::try_from(size).ok()?;
        let offset = segment.offset.checked_add(skipped)?;
        match &self.source {
            Source::File(file) => {
                let mut bytes = vec![0; size];
                file.read(&mut bytes, offset).ok()?;
                Some(bytes)
            }
            Source::Bytes(bytes) => {
                let start = usize::try_from(offset).ok()?;
                bytes.get(start..start.checked_add(size)?).map(<[u8]>::to_vec)
            }
        }
    }
}

struct Layout {
    segments: Vec<Segment>,
    dynamic: Option<(u64, u64)>,
    unwind: Unwind,
}

impl Layout {
    fn read<'d, R: ReadRef<'d>>(data: R, path: &Path) -> Result<Self, PlanError> {
        let format = |cause| PlanError::Format { path: path.to_owned(), cause };
        let header = FileHeader64::<Endianness>::parse(data).map_err(format)?;
        let endian = header.endian().map_err(format)?;
        let machine = header.e_machine(endian);
        if machine != elf::EM_X86_64 || endian != Endianness::Little {
            return Err(PlanError::Machine { path: path.to_owned(), machine });
        }
        let headers = header.program_headers(endian, data).map_err(format)?;
        let size = data.len().unwrap_or(0);
        let segments: Vec<Segment> = headers
            .iter()
            .filter(|h| h.p_type(endian) == elf::PT_LOAD)
            .take(MAX_SEGMENTS)
            .map(|h| Segment {
                address: h.p_vaddr(endian),
                offset: h.p_offset(endian),
                file_size: h.p_filesz(endian).min(size.saturating_sub(h.p_offset(endian))),
                memory_size: h.p_memsz(endian),
                executable: h.p_flags(endian) & elf::PF_X != 0,
                writable: h.p_flags(endian) & elf::PF_W != 0,
            })
            .collect();
        if !segments.iter().any(|s| s.executable && s.file_size > 0) {
            return Err(PlanError::NoCode { path: path.to_owned() });
        }
        let dynamic = headers.iter().find(|h| h.p_type(endian) == elf::PT_DYNAMIC);
        let dynamic = dynamic.map(|h| (h.p_vaddr(endian), h.p_filesz(endian)));
        let index = headers
            .iter()
            .find(|h| h.p_type(endian) == elf::PT_GNU_EH_FRAME)
            .and_then(|h| unwind_by_index(data, &segments, h.p_vaddr(endian), h.p_filesz(endian)));
        let found = index.or_else(|| unwind_by_section(header, endian, data));
        let unwind = found.map(|(at, bytes)| Unwind::new(at, bytes)).unwrap_or_default();
        Ok(Self { segments, dynamic, unwind })
    }
}

/// Contents at `address` of the image, at most `limit` bytes, fewer where its segment ends.
fn contents<'d, R: ReadRef<'d>>(
    data: R,
    segments: &[Segment],
    address: u64,
    limit: u64,
) -> Option<&'d [u8]> {
    let segment = segments.iter().find(|s| s.contains(address))?;
    let skipped = address - segment.address;
    let size = limit.min(segment.file_size - skipped);
    data.read_bytes_at(segment.offset.checked_add(skipped)?, size).ok()
}

/// `.eh_frame` by way of `.eh_frame_hdr`, which is at `address`: the section's own address, and the bytes from there up
/// to the segment's end (an entry of length zero ends the section before).
fn unwind_by_index<'d, R: ReadRef<'d>>(
    data: R,
    segments: &[Segment],
    address: u64,
    size: u64,
) -> Option<(u64, Vec<u8>)> {
    let bytes = contents(data, segments, address, size.min(MAX_UNWIND_BYTES))?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let parsed = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()?;
    let Pointer::Direct(at) = parsed.eh_frame_ptr() else { return None };
    Some((at, contents(data, segments, at, MAX_UNWIND_BYTES)?.to_vec()))
}

fn unwind_by_section<'d, R: ReadRef<'d>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
) -> Option<(u64, Vec<u8>)> {
    let sections = header.sections(endian, data).ok()?;
    let (_, section) = sections.section_by_name(endian, b".eh_frame")?;
    let bytes = section.data(endian, data).ok()?;
    let size = bytes.len().min(usize::try_from(MAX_UNWIND_BYTES).ok()?);
    Some((section.sh_addr(endian), bytes[..size].to_vec()))
}
