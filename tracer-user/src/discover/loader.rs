//! The dynamic linker of a process, and where it tells debuggers that it changes what is loaded.
//!
//! For them it calls a function that does nothing, `_dl_debug_state`, when it begins to change that and when it
//! has: a library is mapped then, nothing of it has been relocated or initialised, and nobody has a handle. Such
//! calls are probed, not the function: a debugger has its breakpoint there.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind, Register};
use procfs::process::Process;

use super::{DiscoverError, ElfError, File, Image, Library, PlannedFile};
use crate::foreign::{Map, Maps, Source};

/// The function that the dynamic linker calls.
const TOLD: &str = "_dl_debug_state";
/// Where it notes before what it has to tell, in `struct r_debug` (`link.h`): `r_state`.
const STATE_AT: u64 = 24;
/// The note when it has changed what is loaded: `RT_CONSISTENT`.
const CONSISTENT: u32 = 0;
/// In the auxiliary vector: where the kernel has mapped the dynamic linker.
const AT_BASE: u64 = 7;
/// Calls that are probed; glibc has three.
const MAX_CALLS: usize = 16;

/// A dynamic linker.
#[derive(Debug)]
pub struct Loader {
    /// Its file.
    pub file: PlannedFile,
    /// Offsets in the file of the calls by which it tells that libraries are mapped; none where that is not
    /// known.
    pub calls: Vec<u64>,
}

impl Loader {
    /// That of a file.
    ///
    /// # Errors
    ///
    /// When it is not a readable x86-64 ELF library.
    pub fn read(file: PlannedFile) -> Result<Self, ElfError> {
        let image = Image::open(&file.path())?;
        let calls = calls(&image)?;
        Ok(Self { file, calls })
    }
}

fn calls<S: Source>(image: &Image<S>) -> Result<Vec<u64>, ElfError> {
    let told = image.functions(|name| name == TOLD)?;
    let Some(told) = told.first() else { return Ok(Vec::new()) };
    let mut calls = Vec::new();
    for code in image.code_segments()? {
        let mut noted = None;
        for found in &mut Decoder::with_ip(64, code.bytes, code.address, DecoderOptions::NONE) {
            let calls_it = matches!(found.code(), Code::Call_rel32_64 | Code::Jmp_rel32_64)
                && found.near_branch_target() == told.address;
            if calls_it && noted == Some(CONSISTENT) && calls.len() < MAX_CALLS {
                calls.push(code.offset + (found.ip() - code.address));
            }
            match note(&found) {
                Some(state) => noted = Some(state),
                None if found.near_branch_target() != 0 => noted = None,
                None => {}
            }
        }
    }
    Ok(calls)
}

/// What an instruction stores where the linker notes what it has to tell.
fn note(instruction: &Instruction) -> Option<u32> {
    let stores = instruction.code() == Code::Mov_rm32_imm32
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() != Register::RIP
        && instruction.memory_displacement64() == STATE_AT;
    stores.then(|| instruction.immediate32())
}

/// Whether the dynamic linker has done with a library that process `pid` maps, so that it can be called: it
/// protects the part that it alone writes to (RELRO) when it has relocated everything else.
pub fn may_be_called(pid: u32, library: &Library) -> bool {
    let Ok(Some(protected)) = Image::open(&library.open_path).and_then(|image| image.relro())
    else {
        return true;
    };
    let Ok(maps) = Maps::of(pid) else { return true };
    let of_it = |map: &Map<'_>| map.inode == library.id.inode();
    let Some(first) = maps.iter().find(|map| of_it(map) && map.offset == 0) else { return true };
    let at = first.range.start.wrapping_add(protected);
    !maps.iter().any(|map| of_it(&map) && map.range.contains(&at) && map.writable)
}

/// The file of process `pid`'s dynamic linker; none where it has none of its own, as one that is linked
/// statically, or where the file cannot be opened.
///
/// # Errors
///
/// When the process does not exist or may not be read.
pub fn mapped_loader(pid: u32) -> Result<Option<PlannedFile>, DiscoverError> {
    let id = i32::try_from(pid).map_err(|_| DiscoverError::NoProcess { pid })?;
    let auxv = Process::new(id).and_then(|process| process.auxv());
    let auxv = auxv.map_err(|e| DiscoverError::proc(pid, "auxv", e))?;
    let Some(&base) = auxv.get(&AT_BASE).filter(|&&base| base != 0) else { return Ok(None) };
    let maps = Maps::of(pid).map_err(|e| DiscoverError::proc(pid, "maps", e.into()))?;
    let own = maps.iter().find(|map: &Map<'_>| map.range.contains(&base));
    Ok(own.and_then(|map| File::mapped(pid, &map)).map(|found| found.file))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rustix::mm::{MapFlags, ProtFlags, mmap};

    use super::*;
    use crate::discover::{FileId, Runtime};

    #[test]
    fn our_own_dynamic_linker_tells_where_it_calls() {
        let file = mapped_loader(std::process::id()).unwrap().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        let loader = Loader::read(file).unwrap();
        // When a program begins, after dlopen, after dlclose.
        assert_eq!(loader.calls.len(), 3, "{loader:?}");
        let image = Image::open(&loader.file.path()).unwrap();
        let told = image.functions(|name| name == TOLD).unwrap().remove(0);
        let code = image.code_segments().unwrap().remove(0);
        for offset in loader.calls {
            let at = offset as usize;
            let distance = i32::from_le_bytes(bytes[at + 1..at + 5].try_into().unwrap());
            let next = code.address + (offset - code.offset) + 5;
            assert_eq!(next.wrapping_add_signed(distance.into()), told.address);
        }
    }

    fn libc() -> PathBuf {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().find(|line| line.ends_with("/libc.so.6")).unwrap();
        libc[libc.find('/').unwrap()..].into()
    }

    #[test]
    #[expect(unsafe_code, reason = "maps a file")]
    fn what_is_mapped_may_be_called_when_it_is_protected() {
        let may_be_called = |path: PathBuf| {
            let id = FileId::of(&path).unwrap();
            let open_path = path.clone();
            let library = Library { runtime: Runtime::Hip, path, open_path, id, held: None };
            may_be_called(std::process::id(), &library)
        };
        assert!(may_be_called(libc()));
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("libc.so.6");
        std::fs::copy(libc(), &copy).unwrap();
        let (file, length) = (std::fs::File::open(&copy).unwrap(), copy.metadata().unwrap().len());
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, which nobody refers to.
        unsafe { mmap(std::ptr::null_mut(), length as usize, access, flags, &file, 0) }.unwrap();
        assert!(!may_be_called(copy));
    }

    #[test]
    fn a_library_that_tells_nothing_has_no_calls() {
        let file = PlannedFile::open(&libc()).unwrap();
        assert!(Loader::read(file).unwrap().calls.is_empty());
    }
}
