//! From `kernel_object` to a symbol name, as a debugger does it.
//!
//! The runtime hands its `r_debug` to `hsaKmtRuntimeEnable`. The link map under it lists the loaded
//! code objects: the load address and a URI that leads to the ELF file, in this process's memory or
//! in a file. The runtime's threads change the list at any time: HIP's take modules out of it that were
//! unloaded while another one's kernel runs already. So every read may fail, and whoever meets an entry
//! that is being taken out sees nothing of what is behind it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStringExt as _;

use object::{Object as _, ObjectSymbol as _};

use crate::sys;

/// Longest list that is followed, in case of a loop in a torn read.
const MAX_MODULES: usize = 100_000;
/// How often the list is read for a kernel that is not in it.
const MAX_READS: usize = 100;
/// Largest code object that is read.
const MAX_OBJECT_BYTES: u64 = 1 << 30;

/// A loaded code object.
#[derive(Debug)]
struct Module {
    load_addr: u64,
    uri: String,
    kernels: HashMap<u64, String>,
}

/// The loaded code objects, as far as they have been looked at.
#[derive(Debug, Default)]
pub struct Names {
    r_debug: u64,
    modules: Vec<Module>,
}

impl Names {
    /// Sets the address of the runtime's `r_debug`.
    pub fn set_r_debug(&mut self, addr: u64) {
        self.r_debug = addr;
    }

    /// Forgets what has been read. A code object can be loaded where another one was, from the place in
    /// memory where the other's file was.
    pub fn forget(&mut self) {
        self.modules.clear();
    }

    /// The symbol of a kernel descriptor, without its `.kd`. Brings the list of modules up to date.
    pub fn resolve(&mut self, kernel_object: u64) -> Option<String> {
        (0..MAX_READS).find_map(|_| {
            self.refresh();
            self.modules.iter().find_map(|m| m.kernels.get(&kernel_object)).cloned()
        })
    }

    /// Where the loaded code objects came from.
    pub fn uris(&self) -> Vec<&str> {
        self.modules.iter().map(|m| m.uri.as_str()).collect()
    }

    /// Follows the link map: drops what is gone, reads what is new.
    fn refresh(&mut self) {
        let mut old = std::mem::take(&mut self.modules);
        for (load_addr, uri) in link_map(self.r_debug) {
            match old.iter().position(|m| m.load_addr == load_addr && m.uri == uri) {
                Some(i) => self.modules.push(old.swap_remove(i)),
                None => {
                    let kernels =
                        read_uri(&uri).map(|elf| kernels_of(&elf, load_addr)).unwrap_or_default();
                    self.modules.push(Module { load_addr, uri, kernels });
                }
            }
        }
    }
}

/// (load address, URI) of each entry.
fn link_map(r_debug: u64) -> Vec<(u64, String)> {
    const R_MAP: u64 = 8; // after `int r_version`
    let word = |addr: u64| {
        let bytes = sys::read_fallible(addr, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let mut out = Vec::new();
    let mut next = if r_debug == 0 { None } else { word(r_debug + R_MAP) };
    while let Some(entry) = next.filter(|&e| e != 0 && out.len() < MAX_MODULES) {
        // struct link_map: l_addr, l_name, l_ld, l_next.
        if let (Some(addr), Some(name)) =
            (word(entry), word(entry + 8).and_then(sys::read_fallible_str))
        {
            out.push((addr, name));
        }
        next = word(entry + 24);
    }
    out
}

/// Reads the ELF file behind `file://path#offset=&size=` or `memory://pid#offset=&size=`.
fn read_uri(uri: &str) -> Option<Vec<u8>> {
    let (location, range) = uri.split_once('#').unwrap_or((uri, ""));
    let field = |name: &str| {
        let value = range.split('&').find_map(|f| f.strip_prefix(name)?.strip_prefix('='))?;
        match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => value.parse().ok(),
        }
    };
    let (offset, size) = (field("offset").unwrap_or(0), field("size"));
    if let Some(path) = location.strip_prefix("file://") {
        let mut file = File::open(percent_decoded(path)).ok()?;
        file.seek(SeekFrom::Start(offset)).ok()?;
        let mut out = Vec::new();
        file.take(size.unwrap_or(MAX_OBJECT_BYTES).min(MAX_OBJECT_BYTES))
            .read_to_end(&mut out)
            .ok()?;
        Some(out)
    } else if location.starts_with("memory://") {
        sys::read_fallible(offset, usize::try_from(size.filter(|&s| s <= MAX_OBJECT_BYTES)?).ok()?)
    } else {
        None
    }
}

fn percent_decoded(path: &str) -> OsString {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = path.get(i + 1..i + 3).and_then(|h| u8::from_str_radix(h, 16).ok());
        match hex.filter(|_| bytes[i] == b'%') {
            Some(byte) => {
                out.push(byte);
                i += 3;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    OsString::from_vec(out)
}

/// Kernel descriptors (`name.kd`) of a code object, by their address once loaded.
fn kernels_of(elf: &[u8], load_addr: u64) -> HashMap<u64, String> {
    let Ok(file) = object::File::parse(elf) else { return HashMap::new() };
    let descriptor = |s: object::Symbol<'_, '_>| {
        let name = s.name().ok()?.strip_suffix(".kd")?;
        Some((load_addr.wrapping_add(s.address()), name.to_owned()))
    };
    file.dynamic_symbols().chain(file.symbols()).filter_map(descriptor).collect()
}

#[cfg(test)]
mod tests {
    use super::{link_map, percent_decoded, read_uri};

    #[test]
    fn memory_uris_are_read_from_this_process() {
        let bytes = b"\x7fELF and more";
        let uri = format!("memory://1#offset={:#x}&size=4", bytes.as_ptr() as u64);
        assert_eq!(read_uri(&uri).unwrap(), b"\x7fELF");
        assert!(read_uri("memory://1#offset=0x10&size=4").is_none());
        assert!(read_uri("memory://1#offset=0x10").is_none());
    }

    #[test]
    fn file_uris_have_escapes_and_a_range() {
        assert_eq!(percent_decoded("/a%20b%2"), "/a b%2");
        assert_eq!(percent_decoded("/caf%E9").as_encoded_bytes(), b"/caf\xe9");
        assert!(read_uri("file:///nonexistent%20file").is_none());
        let own = std::env::current_exe().unwrap();
        let uri = format!("file://{}#offset=1&size=3", own.display());
        assert_eq!(read_uri(&uri).unwrap(), b"ELF");
    }

    #[test]
    fn a_link_map_is_followed() {
        let name = c"memory://1";
        let last = [0x2000_u64, name.as_ptr() as u64, 0, 0, 0];
        let first = [0x1000_u64, name.as_ptr() as u64, 0, last.as_ptr() as u64, 0];
        let r_debug = [7_u64, first.as_ptr() as u64, 0, 0, 0];
        let list = link_map(r_debug.as_ptr() as u64);
        assert_eq!(list, [(0x1000, "memory://1".to_owned()), (0x2000, "memory://1".to_owned())]);
        assert!(link_map(0).is_empty());
    }
}
