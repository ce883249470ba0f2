//! Names of kernels, read from outside through the runtime's debugger interface.
//!
//! The HSA runtime keeps a list of loaded code objects for debuggers, in the form in which `ld.so` keeps its libraries:
//! the exported `_amdgpu_r_debug` leads to a chain of `link_map`, whose names are URIs of ELF files
//! (`memory://PID#offset=…&size=…` or `file://PATH#offset=…&size=…`). A kernel's descriptor is the symbol `NAME.kd`;
//! packets carry its address in the process.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use object::{Endianness, Object as _, ObjectSymbol as _, read::elf::ElfFile64};
use percent_encoding::percent_decode_str;

use crate::{
    foreign::{Contents, File, Source},
    plan::{Echo, ProcessMemory},
    shown,
};

/// The exported variable of the HSA runtime.
pub const DEBUGGER_LIST: &str = "_amdgpu_r_debug";
/// The most code objects that are looked at.
const MAX_OBJECTS: usize = 1 << 16;
/// Longest URI.
const MAX_URI_BYTES: usize = 4096;
/// The most bytes of all URIs together.
const MAX_LIST_BYTES: usize = 16 << 20;
/// Bytes of an URI that are read at once.
const PIECE_BYTES: usize = 256;
/// The most symbols that are looked at in one table of a code object.
const MAX_SYMBOLS: usize = 1 << 20;
/// The most kernels that a process can name in all.
const MAX_KERNELS: usize = 1 << 20;
/// The most bytes of their names together.
const MAX_NAMES_BYTES: usize = 64 << 20;
/// The longest time for which code objects are read in one go; the first one is always read.
const READ_FOR: Duration = Duration::from_millis(200);

/// A kernel: the address of its descriptor, and its raw name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    pub object: u64,
    pub name: String,
}

/// The code objects of one process.
pub struct CodeObjects {
    pid: u32,
    /// Address of the list.
    list: u64,
    /// The code objects that have been read, with the round in which each was last listed.
    known: HashMap<(u64, String), u64>,
    round: u64,
    room: Room,
    /// Whether some of the listed code objects have not been read yet.
    unfinished: bool,
}

/// The number of kernels, and of bytes of their names, that a process may still send.
#[derive(Clone, Copy)]
struct Room {
    kernels: usize,
    names_bytes: usize,
}

impl Room {
    const ALL: Self = Self { kernels: MAX_KERNELS, names_bytes: MAX_NAMES_BYTES };

    fn is_full(&self) -> bool {
        self.kernels == 0
    }

    /// Takes a name, if there is room for it.
    fn take(&mut self, name: &str) -> Option<String> {
        match (self.kernels.checked_sub(1), self.names_bytes.checked_sub(name.len())) {
            (Some(kernels), Some(names_bytes)) => {
                *self = Self { kernels, names_bytes };
                Some(name.to_owned())
            }
            _ => {
                self.kernels = 0;
                None
            }
        }
    }
}

impl CodeObjects {
    /// The code objects of process `pid`, listed at address `list`.
    pub fn new(pid: u32, list: u64) -> Self {
        let known = HashMap::new();
        Self { pid, list, known, round: 0, room: Room::ALL, unfinished: false }
    }

    /// Whether the next look surely finds something.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// The kernels of code objects that have been loaded since the last look, as far as they could be read
    /// in a short time.
    pub fn news(&mut self, process: &dyn ProcessMemory) -> Vec<Kernel> {
        self.round += 1;
        self.unfinished = false;
        let listed = listed(process, self.list);
        let list_is_whole = !process.was_cut_short();
        let (began, mut read) = (Instant::now(), 0);
        let mut kernels = Vec::new();
        for (base, uri) in listed {
            let key = (base, uri);
            if let Some(round) = self.known.get_mut(&key) {
                *round = self.round;
                continue;
            }
            if self.room.is_full() {
                break;
            }
            // One is always read: so all of them are in the end, however slow this is.
            if read > 0 && began.elapsed() > READ_FOR {
                self.unfinished = true;
                continue;
            }
            read += 1;
            let mut room = self.room;
            let found = kernels_of(process, self.pid, base, &key.1, &mut room);
            let in_memory = matches!(place(&key.1), Some(Location::Memory { .. }));
            if in_memory && process.was_cut_short() {
                // The next look may have the time, unless this one had all of it.
                if read > 1 || !list_is_whole {
                    self.unfinished = true;
                    continue;
                }
                tracing::warn!(
                    "process {}: reading code object {} takes too long: its kernels have no names",
                    self.pid,
                    shown::line(&key.1)
                );
            }
            self.room = room;
            match found {
                Ok(more) => kernels.extend(more),
                Err(error) => tracing::debug!("process {}: {}: {error}", self.pid, key.1),
            }
            if self.room.is_full() {
                tracing::warn!(
                    "process {}: its kernels' names fill {} MiB, or are a million; further ones are not read",
                    self.pid,
                    MAX_NAMES_BYTES >> 20
                );
            }
            self.known.insert(key, self.round);
        }
        // A code object that comes back at the same address is another one.
        if list_is_whole {
            self.known.retain(|_, round| *round == self.round);
        }
        kernels
    }
}

/// The list: load address and URI of each code object.
fn listed(process: &dyn ProcessMemory, list: u64) -> Vec<(u64, String)> {
    // struct r_debug: int r_version; struct link_map *r_map.
    let mut next = process.word(list.wrapping_add(8)).unwrap_or(0);
    let (mut objects, mut seen, mut bytes) = (Vec::new(), HashSet::new(), 0);
    while next != 0 && seen.len() < MAX_OBJECTS && bytes < MAX_LIST_BYTES && seen.insert(next) {
        // struct link_map: l_addr, l_name, l_ld, l_next.
        let mut entry = [[0; 8]; 4];
        if process.read(next, entry.as_flattened_mut()).is_err() {
            break;
        }
        let [base, name, _, following] = entry.map(u64::from_le_bytes);
        if let Some(uri) = text(process, name) {
            bytes += uri.len();
            objects.push((base, uri));
        }
        next = following;
    }
    objects
}

/// The NUL-terminated text at an address, if it is not too long.
fn text(process: &dyn ProcessMemory, mut address: u64) -> Option<String> {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_URI_BYTES {
        // Up to the end of a page at most: the next page may not be there.
        let mut piece = [0; PIECE_BYTES];
        let piece = &mut piece[..PIECE_BYTES - address as usize % PIECE_BYTES];
        process.read(address, piece).ok()?;
        let end = piece.iter().position(|&byte| byte == 0);
        bytes.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
        if end.is_some() {
            return String::from_utf8(bytes).ok();
        }
        address = address.checked_add(piece.len() as u64)?;
    }
    None
}

/// The bytes to which a URI leads.
#[derive(PartialEq, Eq, Debug)]
enum Location {
    /// A range of a file, as the process sees the file; without a size, up to the file's end.
    File { path: PathBuf, offset: u64, bytes: Option<u64> },
    /// A range of the process's memory.
    Memory { address: u64, bytes: u64 },
}

fn place(uri: &str) -> Option<Location> {
    let (location, range) = uri.split_once('#').unwrap_or((uri, ""));
    let field = |name: &str| {
        let value = range.split('&').find_map(|f| f.strip_prefix(name)?.strip_prefix('='))?;
        match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => value.parse().ok(),
        }
    };
    let (offset, bytes) = (field("offset"), field("size"));
    if let Some(path) = location.strip_prefix("file://") {
        let path = OsString::from_vec(percent_decode_str(path).collect()).into();
        return Some(Location::File { path, offset: offset.unwrap_or(0), bytes });
    }
    location.strip_prefix("memory://")?;
    Some(Location::Memory { address: offset?, bytes: bytes? })
}

/// A range of a process's memory.
struct MemoryRange<'a> {
    process: &'a dyn ProcessMemory,
    address: u64,
    bytes: u64,
}

impl Source for MemoryRange<'_> {
    fn length(&self) -> u64 {
        self.bytes
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.process.read(self.address.wrapping_add(offset), bytes)
    }
}

fn kernels_of(
    process: &dyn ProcessMemory,
    pid: u32,
    base: u64,
    uri: &str,
    room: &mut Room,
) -> io::Result<Vec<Kernel>> {
    let kernels = match place(uri).ok_or_else(|| io::Error::other("no such URI is known"))? {
        Location::File { path, offset, bytes } => {
            let file = File::of_process(pid, &path)?;
            kernels(&Contents::range(file, offset, bytes.unwrap_or(u64::MAX)), base, room)
        }
        Location::Memory { address, bytes } => {
            kernels(&Contents::of(MemoryRange { process, address, bytes }), base, room)
        }
    };
    kernels.map_err(io::Error::other)
}

fn kernels<S: Source>(
    contents: &Contents<S>,
    base: u64,
    room: &mut Room,
) -> Result<Vec<Kernel>, object::Error> {
    let elf = ElfFile64::<Endianness, _>::parse(contents.view())?;
    // Symbols that are not exported are in the larger table alone.
    let symbols = elf.symbols().take(MAX_SYMBOLS).chain(elf.dynamic_symbols().take(MAX_SYMBOLS));
    let mut kernels = Vec::new();
    for symbol in symbols {
        if let Some(name) = symbol.name().ok().and_then(|name| name.strip_suffix(".kd")) {
            let Some(name) = room.take(name) else { break };
            kernels.push(Kernel { object: base.wrapping_add(symbol.address()), name });
        }
    }
    kernels.sort_by(|a, b| (a.object, &a.name).cmp(&(b.object, &b.name)));
    kernels.dedup();
    Ok(kernels)
}

/// Reads arbitrary `bytes` as a code object: the body of a fuzz target.
///
/// # Panics
///
/// When the result exceeds a limit, or is in another order.
pub fn fuzz_code_object(bytes: &[u8]) {
    let mut room = Room::ALL;
    let found = kernels(&Contents::of(bytes), 0, &mut room).unwrap_or_default();
    assert!(found.is_sorted_by_key(|kernel| kernel.object));
    assert!(found.iter().map(|kernel| kernel.name.len()).sum::<usize>() <= MAX_NAMES_BYTES);
}

/// Reads arbitrary `bytes` as the memory of a process that lists code objects in it: the body of a fuzz target. Its
/// files are not opened.
///
/// # Panics
///
/// When the result exceeds a limit.
pub fn fuzz_code_object_list(bytes: &[u8]) {
    let process = Echo::new(bytes);
    let listed = listed(&process, 0);
    assert!(
        listed.iter().map(|(_, uri)| uri.len()).sum::<usize>() <= MAX_LIST_BYTES + MAX_URI_BYTES
    );
    let mut room = Room::ALL;
    for (base, uri) in listed.iter().take(4) {
        if matches!(place(uri), Some(Location::Memory { .. })) {
            let found = kernels_of(&process, 0, *base, uri, &mut room).unwrap_or_default();
            assert!(found.iter().all(|kernel| !kernel.name.ends_with('\0')));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, ffi::OsStr, os::unix::ffi::OsStrExt as _};

    use super::*;
    use crate::plan::{LiveProcess, Mapping};
    use proptest::prelude::*;

    proptest! {
        /// A program of our own with some bytes changed.
        #[test]
        fn any_code_object_is_read(changes in prop::collection::vec(any::<(usize, u8)>(), 0..50)) {
            let program = File::open("/proc/self/exe".as_ref()).unwrap();
            let mut bytes = program.beginning(1 << 20).unwrap();
            for (at, value) in changes {
                let at = at % 4096;
                bytes[at] = value;
            }
            fuzz_code_object(&bytes);
        }
    }

    #[test]
    fn uris() {
        let file = |path: &str, offset, bytes| {
            Some(Location::File { path: PathBuf::from(path), offset, bytes })
        };
        assert_eq!(
            place("memory://7#offset=0x1000&size=64"),
            Some(Location::Memory { address: 4096, bytes: 64 })
        );
        assert_eq!(
            place("file:///opt/a%20b.so#offset=8&size=0x10"),
            file("/opt/a b.so", 8, Some(16))
        );
        assert_eq!(place("file:///x"), file("/x", 0, None));
        let path = PathBuf::from(OsStr::from_bytes(b"/caf\xe9"));
        assert_eq!(place("file:///caf%E9"), Some(Location::File { path, offset: 0, bytes: None }));
        for wrong in ["memory://7#offset=1", "http://x", ""] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
    }

    /// A process of which only this many pieces can be read.
    struct Hurried {
        process: LiveProcess,
        left: Cell<usize>,
        cut_short: Cell<bool>,
    }

    impl Hurried {
        fn read_at_most(&self, pieces: usize) {
            self.left.set(pieces);
            self.cut_short.set(false);
        }
    }

    impl ProcessMemory for Hurried {
        fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
            let Some(left) = self.left.get().checked_sub(1) else {
                self.cut_short.set(true);
                return Err(io::ErrorKind::TimedOut.into());
            };
            self.left.set(left);
            self.process.read(address, buffer)
        }

        fn was_cut_short(&self) -> bool {
            self.cut_short.get()
        }

        fn mappings(&self) -> &[Mapping] {
            self.process.mappings()
        }
    }

    #[test]
    fn what_there_was_no_time_for_is_read_the_next_time() {
        let bytes = [0u8; 64];
        let uri = format!("memory://1#offset={:#x}&size=64\0", bytes.as_ptr() as u64);
        let last = [0x2000, uri.as_ptr() as u64, 0, 0];
        let first = [0x1000, uri.as_ptr() as u64, 0, last.as_ptr() as u64];
        let debug = [1u64, first.as_ptr() as u64];
        let list = debug.as_ptr() as u64;
        let process = LiveProcess::open(std::process::id()).unwrap();
        let process = Hurried { process, left: Cell::new(99), cut_short: Cell::new(false) };
        assert_eq!(listed(&process, list).len(), 2);
        let of_list = 99 - process.left.get();
        let look = |objects: &mut CodeObjects, pieces| {
            process.read_at_most(pieces);
            assert_eq!(objects.news(&process), []);
            (objects.known.len(), objects.is_unfinished())
        };
        // One at a time.
        let mut objects = CodeObjects::new(1, list);
        assert_eq!(look(&mut objects, of_list + 1), (1, true));
        assert_eq!(look(&mut objects, of_list + 1), (2, false));
        // There is time for the list alone, or less: only in the first case a code object can have had all the time.
        let mut objects = CodeObjects::new(1, list);
        assert_eq!(look(&mut objects, of_list - 1), (0, true));
        assert_eq!(look(&mut objects, of_list), (1, true), "the first is given up");
        assert_eq!(look(&mut objects, of_list), (2, false), "and the other one");
        // Known code objects stay known if not all of the list could be read.
        assert_eq!(look(&mut objects, of_list - 1), (2, false));
    }

    /// A list of our own, with a cycle, an unreadable name and our own executable.
    #[test]
    fn any_list_is_read() {
        let program = std::env::current_exe().unwrap();
        let uris = [format!("file://{}\0", program.display()), "x\0".to_owned()];
        let mut maps: Vec<[u64; 4]> = vec![[0; 4]; 3];
        let address = |map: &[u64; 4]| map.as_ptr() as u64;
        let (first, second) = (address(&maps[0]), address(&maps[1]));
        maps[0] = [0x1000, uris[0].as_ptr() as u64, 0, second];
        maps[1] = [0x2000, 8, 0, first];
        let debug = [1u64, first];
        let process = LiveProcess::open(std::process::id()).unwrap();
        let listed = listed(&process, debug.as_ptr() as u64);
        assert_eq!(listed.len(), 1, "the cycle ends");
        assert!(listed.iter().all(|(base, uri)| *base == 0x1000 && uri.starts_with("file://")));
        let mut objects = CodeObjects::new(std::process::id(), debug.as_ptr() as u64);
        assert_eq!(objects.news(&process), [], "no kernels in it");
    }
}
