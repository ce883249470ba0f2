//! The dynamic linker of a process, and the places at which it tells debuggers that it changes what is loaded.
//!
//! For debuggers it calls a function that does nothing, `_dl_debug_state`, when it begins such a change and when it has
//! finished it: a library is mapped then, and no code has a handle of it. The calls are probed, not the function: a
//! debugger has its breakpoint there.
//!
//! Before each call glibc stores the state that it reports. Up to 2.36 at least the calling function does so itself,
//! when nothing of the library has been relocated. In Debian's 2.41, in 2.43 and 2.44 one function does both,
//! `_dl_debug_change_state(r_debug, state)`, which has no symbol: its calls are probed. In these releases the library
//! has been relocated by then, and only constructors run before it can be called.

use std::ops::RangeInclusive;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use procfs::process::Process;

use super::{DiscoverError, ElfError, File, Image, Library, PlannedFile, elf};
use crate::foreign::{Map, Maps, Source};

/// The function that the dynamic linker calls.
const STATE_FUNCTION: &str = "_dl_debug_state";
/// The offset in `struct r_debug` (`link.h`) at which it stores the state before the call: `r_state`.
const STATE_AT: u64 = 24;
/// The state when it has changed what is loaded: `RT_CONSISTENT`.
const CONSISTENT: u32 = 0;
/// The entry of the auxiliary vector that tells where the kernel has mapped the dynamic linker.
const AT_BASE: u64 = 7;
/// Calls that are probed; glibc has three or four.
const MAX_CALLS: usize = 16;
/// In the function that stores its argument: the largest distance of the store from the function's beginning, and of
/// the jump from the store, bytes.
const NEAR: u64 = 16;

/// A dynamic linker.
#[derive(Debug)]
pub struct Loader {
    /// Its file.
    pub file: PlannedFile,
    /// Offsets in the file of the calls by which it tells that libraries are mapped; none if that is not known.
    pub calls: Vec<u64>,
}

impl Loader {
    /// Reads the dynamic linker in a file.
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
    let state_function = image.functions(|name| name == STATE_FUNCTION)?;
    let Some(state_function) = state_function.first() else { return Ok(Vec::new()) };
    let segments = image.code_segments()?;
    let calls = segments.iter().flat_map(|code| calls_in(code, state_function.address));
    Ok(calls.take(MAX_CALLS).collect())
}

fn decoder<'d>(code: &elf::Code<'d>) -> Decoder<'d> {
    Decoder::with_ip(64, code.bytes, code.address, DecoderOptions::NONE)
}

/// Offsets in the file of the calls of `state_function` by which code tells that it has changed what is loaded.
fn calls_in(code: &elf::Code<'_>, state_function: u64) -> Vec<u64> {
    let notes_argument = notes_argument(code, state_function);
    let mut calls = Vec::new();
    let (mut noted, mut argument) = (None, None);
    for found in &mut decoder(code) {
        let target = found.near_branch_target();
        let tells = if target == state_function {
            noted
        } else {
            argument.filter(|_| notes_argument.as_ref().is_some_and(|at| at.contains(&target)))
        };
        let is_call = matches!(found.code(), Code::Call_rel32_64 | Code::Jmp_rel32_64);
        if is_call && tells == Some(CONSISTENT) && calls.len() < MAX_CALLS {
            calls.push(code.offset + (found.ip() - code.address));
        }
        if found.flow_control() != FlowControl::Next {
            (noted, argument) = (None, None);
        }
        noted = note(&found).or(noted);
        if found.op0_register().full_register() == Register::RSI {
            argument = constant(&found);
        }
    }
    calls
}

/// The constant that an instruction stores as the linker's state, if it does.
fn note(instruction: &Instruction) -> Option<u32> {
    let stores = instruction.code() == Code::Mov_rm32_imm32 && is_state(instruction);
    stores.then(|| instruction.immediate32())
}

/// Whether the first operand may be the linker's state.
fn is_state(instruction: &Instruction) -> bool {
    instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() != Register::RIP
        && instruction.memory_displacement64() == STATE_AT
}

/// The value that an instruction puts into its first operand, if the instruction alone determines it.
fn constant(instruction: &Instruction) -> Option<u32> {
    match instruction.code() {
        Code::Xor_rm32_r32 | Code::Xor_r32_rm32
            if instruction.op0_register() == instruction.op1_register() =>
        {
            Some(0)
        }
        Code::Mov_r32_imm32 => Some(instruction.immediate32()),
        _ => None,
    }
}

/// The beginning of the function that stores its second argument and goes on with `state_function`.
fn notes_argument(code: &elf::Code<'_>, state_function: u64) -> Option<RangeInclusive<u64>> {
    let mut noted_at = None;
    for found in &mut decoder(code) {
        if found.code() == Code::Mov_rm32_r32
            && is_state(&found)
            && found.memory_base() == Register::RDI
            && found.op1_register() == Register::ESI
        {
            noted_at = Some(found.ip());
        }
        if found.code() == Code::Jmp_rel32_64
            && found.near_branch_target() == state_function
            && let Some(at) = noted_at.filter(|at| found.ip() - at <= NEAR)
        {
            return Some(at.saturating_sub(NEAR)..=at);
        }
    }
    None
}

/// Whether the dynamic linker has finished with a library that process `pid` maps, so that the library can be called:
/// the linker protects the part that it alone writes to (RELRO) when it has relocated everything else.
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

/// The file of process `pid`'s dynamic linker; none if the process has none of its own, as a statically linked one, or
/// if the file cannot be opened.
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
    use std::{collections::BTreeSet, path::PathBuf};

    use iced_x86::{
        BlockEncoderOptions,
        code_asm::{CodeAssembler, dword_ptr, ebx, esi, qword_ptr, r14d, rax, rbx, rdi},
    };
    use rustix::mm::{MapFlags, ProtFlags, mmap};

    use super::*;
    use crate::discover::{FileId, Runtime};

    #[test]
    fn our_own_dynamic_linker_tells_where_it_calls() {
        let file = mapped_loader(std::process::id()).unwrap().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        let loader = Loader::read(file).unwrap();
        // Called when a program begins, after dlopen, after dlclose; in later releases also when dlopen fails.
        assert!(matches!(loader.calls.len(), 3 | 4), "{loader:?}");
        let called = loader.calls.iter().map(|&offset| {
            let at = offset as usize;
            let distance = i32::from_le_bytes(bytes[at + 1..at + 5].try_into().unwrap());
            assert_eq!(bytes[at], 0xe8);
            offset.wrapping_add_signed(distance.into())
        });
        assert_eq!(called.collect::<BTreeSet<_>>().len(), 1, "{loader:?}");
    }

    /// As glibc 2.43 does it.
    #[test]
    fn calls_are_found_of_a_function_that_notes_its_argument() {
        const STATE_FUNCTION: u64 = 0x3730;
        const BEGIN: u64 = 0x1000;
        let mut code = CodeAssembler::new(64).unwrap();
        let mut labels = std::array::from_fn(|_| code.create_label());
        let [change, tell, other, opened, closed] = &mut labels;
        // Begins to load a library.
        code.mov(esi, 1).unwrap();
        code.mov(rdi, rbx).unwrap();
        code.call(*change).unwrap();
        // Has loaded it.
        code.xor(esi, esi).unwrap();
        code.mov(rdi, rax).unwrap();
        code.mov(r14d, dword_ptr(rax + STATE_AT as i32)).unwrap();
        code.set_label(opened).unwrap();
        code.call(*change).unwrap();
        // Other calls with 0, and one of this function with an unknown argument.
        code.xor(esi, esi).unwrap();
        code.call(STATE_FUNCTION + 16).unwrap();
        code.call(*change).unwrap();
        code.xor(esi, esi).unwrap();
        code.mov(esi, ebx).unwrap();
        code.call(*change).unwrap();
        // Has unloaded it.
        code.mov(esi, 0).unwrap();
        code.set_label(closed).unwrap();
        code.call(*change).unwrap();
        code.set_label(change).unwrap();
        code.endbr64().unwrap();
        code.lea(rax, qword_ptr(rbx + 8)).unwrap();
        code.mov(dword_ptr(rdi + STATE_AT as i32), esi).unwrap();
        code.cmp(rdi, rax).unwrap();
        code.je(*other).unwrap();
        code.set_label(tell).unwrap();
        code.jmp(STATE_FUNCTION).unwrap();
        code.set_label(other).unwrap();
        code.mov(dword_ptr(rax + STATE_AT as i32), esi).unwrap();
        code.jmp(*tell).unwrap();
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let assembled = code.assemble_options(BEGIN, options).unwrap();
        let expected = [opened, closed].map(|label| assembled.label_ip(label).unwrap() - BEGIN);
        let bytes = &assembled.inner.code_buffer;
        let calls = calls_in(&elf::Code { address: BEGIN, offset: 0x700, bytes }, STATE_FUNCTION);
        assert_eq!(calls, expected.map(|at| at + 0x700));
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
