//! Names of kernels, read from outside through the runtime's debugger interface.
//!
//! The HSA runtime keeps a list of loaded code objects for debuggers, in the form that `ld.so` keeps its
//! libraries in: the exported `_amdgpu_r_debug` leads to a chain of `link_map`, whose names are URIs of
//! ELF files (`memory://PID#offset=…&size=…` or `file://PATH#offset=…&size=…`). A kernel's descriptor
//! is the symbol `NAME.kd`; its address in the process is what packets carry.

use std::{collections::HashMap, fs::File, path::PathBuf};

use object::{
    Endianness, Object as _, ObjectSymbol as _, ReadCache, ReadRef, read::elf::ElfFile64,
};
use percent_encoding::percent_decode_str;

use crate::plan::{Process, ProcessMemory as _};

/// The exported variable of the HSA runtime.
pub const DEBUGGER_LIST: &str = "_amdgpu_r_debug";
/// Code objects that are looked at.
const MAX_OBJECTS: usize = 1 << 16;
/// Longest URI.
const MAX_URI_BYTES: usize = 4096;
/// Largest code object in memory, which is copied.
const MAX_OBJECT_BYTES: u64 = 1 << 29;
/// Kernels that are taken of one code object.
const MAX_KERNELS: usize = 1 << 20;

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
    /// Those that have been read, with the round in which they were last listed.
    known: HashMap<(u64, String), u64>,
    round: u64,
}

impl CodeObjects {
    /// The code objects of process `pid`, listed at address `list`.
    pub fn new(pid: u32, list: u64) -> Self {
        Self { pid, list, known: HashMap::new(), round: 0 }
    }

    /// The kernels of code objects that have been loaded since the last look.
    pub fn news(&mut self, process: &Process) -> Vec<Kernel> {
        self.round += 1;
        let mut kernels = Vec::new();
        for (base, uri) in listed(process, self.list) {
            let seen = self.known.insert((base, uri.clone()), self.round);
            if seen.is_none() {
                match kernels_of(process, self.pid, base, &uri) {
                    Some(more) => kernels.extend(more),
                    None => tracing::debug!("process {}: {uri}: not readable", self.pid),
                }
            }
        }
        // One that comes back at the same address is another one.
        self.known.retain(|_, round| *round == self.round);
        kernels
    }
}

/// The list: load address and URI of each.
fn listed(process: &Process, list: u64) -> Vec<(u64, String)> {
    // struct r_debug: int r_version; struct link_map *r_map.
    let mut next = process.word(list.wrapping_add(8));
    let mut objects = Vec::new();
    while let Some(entry) = next.filter(|&entry| entry != 0 && objects.len() < MAX_OBJECTS) {
        // struct link_map: l_addr, l_name, l_ld, l_next.
        let word = |nth: u64| process.word(entry.wrapping_add(nth * 8));
        if let (Some(base), Some(name)) = (word(0), word(1))
            && let Some(uri) = text(process, name)
        {
            objects.push((base, uri));
        }
        next = word(3);
    }
    objects
}

/// The NUL-terminated text at an address, if it is not too long.
fn text(process: &Process, address: u64) -> Option<String> {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_URI_BYTES {
        let word = process.word(address.wrapping_add(bytes.len() as u64))?.to_le_bytes();
        match word.iter().position(|&byte| byte == 0) {
            Some(length) => {
                bytes.extend_from_slice(&word[..length]);
                return String::from_utf8(bytes).ok();
            }
            None => bytes.extend_from_slice(&word),
        }
    }
    None
}

/// Where a URI leads.
#[derive(PartialEq, Eq, Debug)]
enum Place {
    /// A range of a file, as the process sees it; up to its end without a size.
    File { path: PathBuf, offset: u64, bytes: Option<u64> },
    /// A range of the process's memory.
    Memory { address: u64, bytes: u64 },
}

fn place(pid: u32, uri: &str) -> Option<Place> {
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
        let path = percent_decode_str(path).decode_utf8().ok()?;
        let path = PathBuf::from(format!("/proc/{pid}/root/{}", path.trim_start_matches('/')));
        return Some(Place::File { path, offset: offset.unwrap_or(0), bytes });
    }
    location.strip_prefix("memory://")?;
    Some(Place::Memory { address: offset?, bytes: bytes? })
}

fn kernels_of(process: &Process, pid: u32, base: u64, uri: &str) -> Option<Vec<Kernel>> {
    match place(pid, uri)? {
        Place::File { path, offset, bytes } => {
            let file = File::open(path).ok()?;
            let bytes = bytes.unwrap_or(file.metadata().ok()?.len().checked_sub(offset)?);
            kernels(ReadCache::new(file).range(offset, bytes), base)
        }
        Place::Memory { address, bytes } if bytes <= MAX_OBJECT_BYTES => {
            let mut object = vec![0; bytes as usize];
            process.read(address, &mut object).ok()?;
            kernels(&object[..], base)
        }
        Place::Memory { .. } => None,
    }
}

fn kernels<'d>(elf: impl ReadRef<'d>, base: u64) -> Option<Vec<Kernel>> {
    let elf = ElfFile64::<Endianness, _>::parse(elf).ok()?;
    // What is not exported is in the larger table alone.
    let symbols = elf.symbols().chain(elf.dynamic_symbols());
    let kernels = symbols.filter_map(|symbol| {
        let name = symbol.name().ok()?.strip_suffix(".kd")?.to_owned();
        Some(Kernel { object: base.wrapping_add(symbol.address()), name })
    });
    let mut kernels: Vec<Kernel> = kernels.take(MAX_KERNELS).collect();
    kernels.sort_by(|a, b| (a.object, &a.name).cmp(&(b.object, &b.name)));
    kernels.dedup();
    Some(kernels)
}

/// Reads whatever `bytes` are as a code object: the body of a fuzz target.
pub fn fuzz_code_object(bytes: &[u8]) {
    let found = kernels(bytes, 0).unwrap_or_default();
    assert!(found.is_sorted_by_key(|kernel| kernel.object));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A program of our own with some bytes changed.
        #[test]
        fn any_code_object_is_read(changes in prop::collection::vec(any::<(usize, u8)>(), 0..50)) {
            let mut bytes = std::fs::read("/proc/self/exe").unwrap();
            bytes.truncate(1 << 20);
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
            Some(Place::File { path: PathBuf::from(path), offset, bytes })
        };
        assert_eq!(
            place(7, "memory://7#offset=0x1000&size=64"),
            Some(Place::Memory { address: 4096, bytes: 64 })
        );
        assert_eq!(
            place(7, "file:///opt/a%20b.so#offset=8&size=0x10"),
            file("/proc/7/root/opt/a b.so", 8, Some(16))
        );
        assert_eq!(place(7, "file:///x"), file("/proc/7/root/x", 0, None));
        for wrong in ["memory://7#offset=1", "http://x", ""] {
            assert_eq!(place(7, wrong), None, "{wrong}");
        }
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
        let process = Process::open(std::process::id()).unwrap();
        let listed = listed(&process, debug.as_ptr() as u64);
        assert_eq!(listed.len(), MAX_OBJECTS, "the cycle ends");
        assert!(listed.iter().all(|(base, uri)| *base == 0x1000 && uri.starts_with("file://")));
        let mut objects = CodeObjects::new(std::process::id(), debug.as_ptr() as u64);
        assert_eq!(objects.news(&process), [], "no kernels in it");
    }
}
