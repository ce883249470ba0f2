//! The thread block that the new thread needs: the memory that libc finds at `fs`.
//!
//! It is made as glibc makes one: the static thread-local variables of all libraries, with their
//! initial values, then the thread descriptor, and the table of thread-local blocks (dtv). A block of
//! zeros is not enough: libc's locale pointer and the state of allocators such as jemalloc begin with
//! other values.
//!
//! Everything is read from outside, and nothing of it is trusted: each length is capped.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use super::{
    error::{Refusal, Refused},
    libc::is_libc,
};
use crate::clock::Patience;
use crate::discover::Image;
use crate::plan::{LiveProcess, ProcessMemory};

/// Libraries that are looked at.
const MAX_LIBRARIES: usize = 4096;
/// Bytes of glibc's `struct link_map` that are searched for the description of thread-local storage.
const LINK_MAP_BYTES: usize = 0x600;
/// How often the libraries are read again if they do not fit together.
const ATTEMPTS: u64 = 20;
/// Sanitizers by a function of their runtimes. They make the state of a thread where it is created by `pthread_create`; on
/// any other thread the first function that they intercept, `mmap` or `malloc`, faults.
const SANITIZERS: [(&str, &str); 3] = [
    ("__tsan_init", "ThreadSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
];
/// Largest static thread-local storage, bytes, of all libraries together.
const MAX_STATIC_BYTES: u64 = 64 << 20;
/// The longest time spent on looking for allocators.
const ALLOCATORS_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of glibc's `struct pthread`: 0x900 in 2.28, 0x940 from 2.36 to 2.44.
const DESCRIPTOR_BYTES: u64 = 0x1000;
/// The offset of its `tid`.
const TID: u64 = 0x2d0;
/// Modules that the table has room for beyond those that exist.
const SPARE_MODULES: u64 = 64;
/// The alignment of the thread pointer: larger than any alignment of thread-local storage that is believed.
const MAX_ALIGN: u64 = 4096;

/// One library's static thread-local storage.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Module {
    id: u64,
    /// How far below the thread pointer the storage begins.
    offset: u64,
    image: Vec<u8>,
}

/// The facts about a process from which a thread block is made.
pub struct Threads {
    modules: Vec<Module>,
    /// An allocator that is not libc's has thread-local storage: jemalloc, tcmalloc and the like. It learns of the new
    /// thread, and not of its end, so the thread's storage must stay for ever. Also set if this could not be found out
    /// in time.
    pub foreign_allocator: bool,
    static_bytes: u64,
    most_modules: u64,
}

/// A thread block made for an address.
pub struct Block {
    /// Its contents, from the address on.
    pub bytes: Vec<u8>,
    /// The thread pointer.
    pub pointer: u64,
    /// Where libc looks for the thread's id.
    pub tid_slot: u64,
}

impl Threads {
    /// Reads the process's libraries. The process may be loading or unloading one right now: if the parts do not fit
    /// together, they are read again.
    pub fn read(
        pid: u32,
        process: &LiveProcess,
        auxv: &BTreeMap<u64, u64>,
    ) -> Result<Self, Refused> {
        let mut attempts = 0;
        loop {
            match Self::read_once(pid, process, auxv) {
                read @ Err(Refused::Refusal(Refusal::Sanitizer(_))) => return read,
                Err(_) if attempts < ATTEMPTS => attempts += 1,
                read => return read,
            }
            std::thread::sleep(Duration::from_millis(attempts));
        }
    }

    fn read_once(
        pid: u32,
        process: &LiveProcess,
        auxv: &BTreeMap<u64, u64>,
    ) -> Result<Self, Refused> {
        let Storage { modules, images } = Storage::read(process, auxv)?;
        let foreign_allocator = has_foreign_allocator(pid, process, &images)?;
        Ok(Self::of(modules, foreign_allocator))
    }

    fn of(modules: Vec<Module>, foreign_allocator: bool) -> Self {
        let static_bytes = modules.iter().map(|m| m.offset).max().unwrap_or(0);
        let most_modules = modules.iter().map(|m| m.id).max().unwrap_or(0);
        Self { modules, foreign_allocator, static_bytes, most_modules }
    }

    /// Bytes of a thread block.
    pub fn block_bytes(&self) -> u64 {
        self.pointer_offset() + DESCRIPTOR_BYTES + (self.table_entries() + 1) * 16
    }

    fn pointer_offset(&self) -> u64 {
        self.static_bytes.next_multiple_of(MAX_ALIGN)
    }

    fn table_entries(&self) -> u64 {
        self.most_modules + SPARE_MODULES + 1
    }

    /// A thread block at `address`, a page's beginning, after the model of the thread whose thread
    /// pointer is `model`.
    pub fn block(&self, address: u64, model: &Model) -> Block {
        let mut bytes = vec![0; self.block_bytes() as usize];
        let mut put = |offset: u64, data: &[u8]| {
            let at = offset as usize;
            if let Some(room) = bytes.get_mut(at..at + data.len()) {
                room.copy_from_slice(data);
            }
        };
        let pointer = address + self.pointer_offset();
        let offset = |target: u64| target - address;
        let table = pointer + DESCRIPTOR_BYTES + 16;
        // tcbhead_t: tcb, dtv, self, …, stack guard, pointer guard.
        for (at, value) in [
            (0x00, pointer),
            (0x08, table),
            (0x10, pointer),
            (0x28, model.guards[0]),
            (0x30, model.guards[1]),
        ] {
            put(offset(pointer + at), &value.to_le_bytes());
        }
        // The entry before the table holds its number of entries, the first entry the generation of the table: later
        // than any, so that libc never brings the table up to date.
        put(offset(table - 16), &self.table_entries().to_le_bytes());
        put(offset(table), &(u64::MAX >> 2).to_le_bytes());
        for id in 1..self.table_entries() {
            // Not allocated yet.
            put(offset(table + id * 16), &u64::MAX.to_le_bytes());
        }
        for module in &self.modules {
            put(offset(pointer - module.offset), &module.image);
            put(offset(table + module.id * 16), &(pointer - module.offset).to_le_bytes());
        }
        Block { bytes, pointer, tid_slot: pointer + model.tid_at }
    }
}

/// The values that the new thread takes over from an existing thread.
pub struct Model {
    guards: [u64; 2],
    tid_at: u64,
}

impl Model {
    /// The model of the thread that calls itself `tid` and has this thread pointer.
    pub fn of(process: &LiveProcess, pointer: u64, tid: u32) -> Result<Self, Refused> {
        let mut descriptor = [0; DESCRIPTOR_BYTES as usize / 4];
        let known = process.read(pointer, &mut descriptor).is_ok();
        let word = |at: u64| {
            let bytes = descriptor.get(at as usize..at as usize + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let own = word(0x10) == Some(pointer) && word(TID).map(|w| w as u32) == Some(tid);
        match (known && own, word(0x28), word(0x30)) {
            (true, Some(stack), Some(pointer)) => {
                Ok(Self { guards: [stack, pointer], tid_at: TID })
            }
            _ => Err(Refusal::UnknownLinker("struct pthread").into()),
        }
    }
}

/// The thread-local storage of a process's libraries, as they describe it.
pub struct Storage {
    modules: Vec<Module>,
    /// The addresses of each library's initial values, also of libraries without static storage.
    images: Vec<u64>,
}

impl Storage {
    pub fn read(process: &dyn ProcessMemory, auxv: &BTreeMap<u64, u64>) -> Result<Self, Refusal> {
        let unknown = Refusal::UnknownLinker;
        let debug = r_debug(process, auxv).ok_or(unknown("no DT_DEBUG"))?;
        // struct r_debug { int r_version; struct link_map *r_map; … }
        let mut map = process.word(debug.wrapping_add(8)).ok_or(unknown("r_debug"))?;
        let (mut modules, mut images) = (Vec::new(), Vec::new());
        let (mut described_at, mut static_bytes) = (None, 0);
        let mut seen = HashSet::new();
        while map != 0 {
            if !seen.insert(map) || seen.len() > MAX_LIBRARIES {
                return Err(unknown("link_map without an end"));
            }
            // struct link_map: l_addr, l_name, l_ld, l_next.
            let word =
                |nth: u64| process.word(map.wrapping_add(nth * 8)).ok_or(unknown("link_map"));
            let (base, next) = (word(0)?, word(3)?);
            let header = segment(process, base).or_else(|| main_segment(process, auxv, base));
            if let Some(tls) = header {
                let at = match described_at {
                    Some(at) => at,
                    None => describe(process, map, &tls).ok_or(unknown("l_tls_initimage"))?,
                };
                described_at = Some(at);
                images.push(tls.image);
                let found = module(process, map.wrapping_add(at), &tls);
                if let Some(module) = found.ok_or(unknown("l_tls_offset"))? {
                    static_bytes += module.image.len() as u64;
                    if static_bytes > MAX_STATIC_BYTES {
                        return Err(unknown("thread-local storage"));
                    }
                    modules.push(module);
                }
            }
            map = next;
        }
        Ok(Self { modules, images })
    }

    /// Reads arbitrary bytes as a process's memory.
    ///
    /// # Panics
    ///
    /// When the result exceeds a limit, or does not fit into a thread block.
    pub fn fuzz(process: &dyn ProcessMemory, auxv: &BTreeMap<u64, u64>) {
        let Ok(Self { modules, images }) = Self::read(process, auxv) else { return };
        assert!(images.len() <= MAX_LIBRARIES && modules.len() <= images.len());
        let threads = Threads::of(modules, false);
        let total: usize = threads.modules.iter().map(|module| module.image.len()).sum();
        assert!(total as u64 <= MAX_STATIC_BYTES);
        let block = threads.block(1 << 46, &Model { guards: [1, 2], tid_at: TID });
        assert_eq!(block.bytes.len() as u64, threads.block_bytes());
    }
}

/// A PT_TLS header: the image's address, its size, the storage's size and alignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tls {
    image: u64,
    file_bytes: u64,
    memory_bytes: u64,
    align: u64,
}

/// Program headers in memory: type, address, file size, memory size, alignment of each.
fn program_headers(process: &dyn ProcessMemory, at: u64, count: u64) -> Vec<[u64; 5]> {
    const BYTES: usize = 56;
    let mut headers = vec![0; count.min(64) as usize * BYTES];
    if process.read(at, &mut headers).is_err() {
        return Vec::new();
    }
    let word = |header: &[u8], at: usize| {
        header.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
    };
    let each = headers
        .chunks_exact(BYTES)
        .map(|h| [word(h, 0) & 0xffff_ffff, word(h, 16), word(h, 32), word(h, 40), word(h, 48)]);
    each.collect()
}

fn tls_of(headers: &[[u64; 5]], base: u64) -> Option<Tls> {
    const PT_TLS: u64 = 7;
    let &[_, address, file_bytes, memory_bytes, align] = headers.iter().find(|h| h[0] == PT_TLS)?;
    Some(Tls { image: base.wrapping_add(address), file_bytes, memory_bytes, align })
}

/// The PT_TLS header of the library that is mapped at `base`.
fn segment(process: &dyn ProcessMemory, base: u64) -> Option<Tls> {
    let mut header = [0; 64];
    process.read(base, &mut header).ok()?;
    if !header.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let offset = u64::from_le_bytes(header[32..40].try_into().ok()?);
    let count = u16::from_le_bytes(header[56..58].try_into().ok()?);
    tls_of(&program_headers(process, base.checked_add(offset)?, count.into()), base)
}

const AT_PHDR: u64 = 3;
const AT_PHNUM: u64 = 5;

/// The PT_TLS header of the program, if `base` is the program's. The kernel tells where its headers are.
fn main_segment(process: &dyn ProcessMemory, auxv: &BTreeMap<u64, u64>, base: u64) -> Option<Tls> {
    (base == program_base(process, auxv)?)
        .then(|| {
            tls_of(&program_headers(process, *auxv.get(&AT_PHDR)?, *auxv.get(&AT_PHNUM)?), base)
        })
        .flatten()
}

fn program_base(process: &dyn ProcessMemory, auxv: &BTreeMap<u64, u64>) -> Option<u64> {
    const PT_PHDR: u64 = 6;
    let at = *auxv.get(&AT_PHDR)?;
    let headers = program_headers(process, at, *auxv.get(&AT_PHNUM)?);
    let own = headers.iter().find(|h| h[0] == PT_PHDR)?;
    Some(at.wrapping_sub(own[1]))
}

fn r_debug(process: &dyn ProcessMemory, auxv: &BTreeMap<u64, u64>) -> Option<u64> {
    const PT_DYNAMIC: u64 = 2;
    const DT_DEBUG: u64 = 21;
    let headers = program_headers(process, *auxv.get(&AT_PHDR)?, *auxv.get(&AT_PHNUM)?);
    let base = program_base(process, auxv)?;
    let dynamic = headers.iter().find(|h| h[0] == PT_DYNAMIC)?;
    let mut at = base.wrapping_add(dynamic[1]);
    for _ in 0..256 {
        match process.word(at)? {
            0 => return None,
            DT_DEBUG => {
                return process.word(at.wrapping_add(8)).filter(|&debug| debug != 0);
            }
            _ => at = at.wrapping_add(16),
        }
    }
    None
}

/// Whether a library whose thread-local variables begin at one of `images` exports `malloc`, and is not libc; true too
/// if looking takes too long.
///
/// # Errors
///
/// [`Refusal::Sanitizer`] where one of them is a sanitizer's.
fn has_foreign_allocator(pid: u32, process: &LiveProcess, images: &[u64]) -> Result<bool, Refusal> {
    let sanitizer = |function: &str| SANITIZERS.into_iter().find(|&(init, _)| init == function);
    let mut patience = Patience::of(ALLOCATORS_WITHIN);
    let (mut seen, mut is_foreign) = (BTreeSet::new(), false);
    for &image in images {
        let mut mappings = process.mappings().iter();
        let Some(mapping) = mappings.find(|m| m.start <= image && image < m.end) else { continue };
        let name = mapping.file.as_ref().and_then(|file| file.path.file_name());
        if name.is_some_and(|name| is_libc(&name.to_string_lossy())) || !seen.insert(mapping.start)
        {
            continue;
        }
        if patience.has_ended() {
            return Ok(true);
        }
        let path = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
        let is_meant = |name: &str| name == "malloc" || sanitizer(name).is_some();
        let exported = Image::open(path.as_ref()).and_then(|image| image.functions(is_meant));
        for function in exported.unwrap_or_default() {
            match sanitizer(&function.name) {
                Some((_, name)) => return Err(Refusal::Sanitizer(name)),
                None => is_foreign = true,
            }
        }
    }
    Ok(is_foreign)
}

/// The offset in a library's `struct link_map` at which its thread-local storage is described: four words that equal
/// those of its PT_TLS header. The structure's private part differs by release.
fn describe(process: &dyn ProcessMemory, map: u64, tls: &Tls) -> Option<u64> {
    let mut bytes = [0; LINK_MAP_BYTES];
    process.read(map, &mut bytes).ok()?;
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
        .collect();
    let wanted = [tls.image, tls.file_bytes, tls.memory_bytes, tls.align];
    words.windows(4).position(|window| window == wanted).map(|index| index as u64 * 8)
}

/// The library's module; an inner none if it has no static storage. `at` is the address of its description.
fn module(process: &dyn ProcessMemory, at: u64, tls: &Tls) -> Option<Option<Module>> {
    let word = |index: u64| process.word(at.wrapping_add(index * 8));
    // initimage, initimage_size, blocksize, align, firstbyte_offset, offset, modid
    if word(0)? != tls.image || word(2)? != tls.memory_bytes {
        return None;
    }
    let (offset, id) = (word(5)?, word(6)?);
    // NO_TLS_OFFSET and FORCED_DYNAMIC_TLS_OFFSET: the storage is allocated when it is first used.
    if offset == 0 || offset == u64::MAX {
        return Some(None);
    }
    if offset > MAX_STATIC_BYTES || tls.file_bytes > offset || id == 0 || id > MAX_LIBRARIES as u64
    {
        return None;
    }
    let mut image = vec![0; tls.file_bytes as usize];
    process.read(tls.image, &mut image).ok()?;
    Some(Some(Module { id, offset, image }))
}
