//! Memory as the driver hands it out: device memory, pinned host memory, and registered user memory.
//!
//! All of it is ordinary memory of the process. What is allocated here has one address for the host
//! and for every GPU. Registered memory has another one for the GPUs, as with the real driver (HIP
//! 5.2.3 aborts in hipHostUnregister if they are equal): a reserved range that is translated when a
//! copy touches it. Device memory counts against the size of its GPU.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys;

/// What a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Allocated here.
    Allocated,
    /// The program's own memory, made known to the driver.
    Registered,
}

/// A known range.
#[derive(Clone, Debug)]
pub struct Range {
    /// First address.
    pub base: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// Node whose memory it is.
    pub node: u32,
    /// `HsaMemFlags` of the request.
    pub flags: u32,
    /// Nodes that have it mapped.
    pub mapped: Vec<u32>,
    /// The runtime's own word.
    pub user_data: u64,
    // How often it was registered, and its GPU addresses so far: the last one has the full length.
    registrations: u32,
    aliases: Vec<u64>,
    // Whether it counts against a GPU's memory.
    charged: bool,
}

#[derive(Debug, Default)]
struct Tables {
    allocated: BTreeMap<u64, Range>,
    registered: BTreeMap<u64, Range>,
    // GPU address of registered memory → (length, host address).
    aliases: BTreeMap<u64, (u64, u64)>,
    used: BTreeMap<u32, u64>,
}

/// All ranges of the process.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Tables>);

const PAGE: u64 = 4096;

/// `HsaMemFlags` bits (hsakmttypes.h).
pub mod flags {
    /// Reserved for scratch; never touched here.
    pub const SCRATCH: u32 = 1 << 9;
    /// The ring of an AQL queue on targets before gfx9: mapped twice in a row.
    pub const AQL_QUEUE: u32 = 1 << 14;
    /// At exactly the address passed in.
    pub const FIXED_ADDRESS: u32 = 1 << 15;
    /// Reachable by the host.
    pub const HOST_ACCESS: u32 = 1 << 6;
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates zeroed memory of a node. `limit` is the size of that GPU's memory, none for the host.
    pub fn allocate(&self, node: u32, bytes: u64, flags: u32, limit: Option<u64>) -> Option<u64> {
        let bytes = bytes.checked_next_multiple_of(PAGE).filter(|&b| b > 0)?;
        let mut t = self.lock();
        let charged = t.charge(node, bytes, flags, limit)?;
        let align = if bytes >= 2 << 20 { 2 << 20 } else { PAGE };
        let Some(base) = sys::map_anonymous(bytes, align) else {
            t.give_back(node, bytes, charged);
            return None;
        };
        t.allocated.insert(base, Range { charged, node, ..Range::new(base, bytes, flags) });
        Some(base)
    }

    /// Makes memory known that a front has mapped at `base` itself; false when there is no room for it.
    pub fn adopt(&self, base: u64, node: u32, bytes: u64, flags: u32, limit: Option<u64>) -> bool {
        let mut t = self.lock();
        let Some(charged) = t.charge(node, bytes, flags, limit) else { return false };
        t.allocated.insert(base, Range { charged, node, ..Range::new(base, bytes, flags) });
        true
    }

    /// Frees an allocation; whether there was one at `base`.
    pub fn free(&self, base: u64) -> bool {
        let forgotten = self.forget(base);
        if let Some(bytes) = forgotten {
            sys::unmap(base, bytes);
        }
        forgotten.is_some()
    }

    /// Takes back what `adopt` did; the length of what was at `base`.
    pub fn forget(&self, base: u64) -> Option<u64> {
        let mut t = self.lock();
        let range = t.allocated.remove(&base)?;
        t.give_back(range.node, range.bytes, range.charged);
        Some(range.bytes)
    }

    /// Memory in use of a node.
    pub fn used(&self, node: u32) -> u64 {
        self.lock().used.get(&node).copied().unwrap_or_default()
    }

    /// Gives memory of the program an address for the GPUs.
    pub fn add_alias(&self, gpu: u64, bytes: u64, host: u64) {
        self.lock().aliases.insert(gpu, (bytes, host));
    }

    /// Takes it back.
    pub fn remove_alias(&self, gpu: u64) {
        self.lock().aliases.remove(&gpu);
    }

    /// Makes memory of the program known; false when it has no GPU address. The same base may be
    /// registered several times.
    pub fn register(&self, base: u64, bytes: u64, flags: u32) -> bool {
        let mut guard = self.lock();
        let t = &mut *guard;
        // Memory from `allocate` needs no registration.
        if covering(&t.allocated, base).is_some() {
            return true;
        }
        let flags = flags | self::flags::HOST_ACCESS;
        let known = t.registered.entry(base);
        let range = known
            .or_insert_with(|| Range { origin: Origin::Registered, ..Range::new(base, 0, flags) });
        range.registrations += 1;
        if bytes > range.bytes {
            let Some(reserved) = sys::reserve(base % PAGE + bytes) else { return false };
            let alias = reserved + base % PAGE;
            range.bytes = bytes;
            range.aliases.push(alias);
            t.aliases.insert(alias, (bytes, base));
        }
        true
    }

    /// Undoes one registration; whether there was one.
    pub fn deregister(&self, addr: u64) -> bool {
        let mut guard = self.lock();
        let t = &mut *guard;
        if covering(&t.allocated, addr).is_some() {
            return true;
        }
        let base = t.host_address(addr);
        let Some(range) = t.registered.get_mut(&base) else { return false };
        range.registrations -= 1;
        if range.registrations == 0 {
            for alias in std::mem::take(&mut range.aliases) {
                if let Some((bytes, _)) = t.aliases.remove(&alias) {
                    sys::unmap(alias - alias % PAGE, alias % PAGE + bytes);
                }
            }
            t.registered.remove(&base);
        }
        true
    }

    /// Runs `f` on the range that holds `addr`, the host's address or the GPU's.
    pub fn with<R>(&self, addr: u64, f: impl FnOnce(&mut Range) -> R) -> Option<R> {
        let mut guard = self.lock();
        let t = &mut *guard;
        let addr = t.host_address(addr);
        let table = if covering(&t.allocated, addr).is_some() {
            &mut t.allocated
        } else {
            &mut t.registered
        };
        let key = covering(table, addr)?.base;
        table.get_mut(&key).map(f)
    }

    /// Where the bytes at a GPU's address are.
    pub fn host_address(&self, addr: u64) -> u64 {
        self.lock().host_address(addr)
    }

    /// The node whose memory holds `addr`; unknown memory is the host's.
    pub fn node_of(&self, addr: u64) -> u32 {
        self.with(addr, |r| r.node).unwrap_or(0)
    }
}

impl Tables {
    /// Counts memory against the size of a GPU, if there is one; none when it has too little left.
    fn charge(&mut self, node: u32, bytes: u64, flags: u32, limit: Option<u64>) -> Option<bool> {
        let Some(limit) = limit.filter(|_| flags & flags::SCRATCH == 0) else { return Some(false) };
        let used = self.used.entry(node).or_default();
        *used = used.checked_add(bytes).filter(|&sum| sum <= limit)?;
        Some(true)
    }

    fn give_back(&mut self, node: u32, bytes: u64, charged: bool) {
        if charged {
            *self.used.entry(node).or_default() -= bytes;
        }
    }

    fn host_address(&self, addr: u64) -> u64 {
        match self.aliases.range(..=addr).next_back() {
            Some((alias, (bytes, host))) if addr - alias < *bytes => host + (addr - alias),
            _ => addr,
        }
    }
}

impl Range {
    fn new(base: u64, bytes: u64, flags: u32) -> Self {
        let (mapped, aliases) = (Vec::new(), Vec::new());
        Range {
            base,
            bytes,
            origin: Origin::Allocated,
            node: 0,
            flags,
            mapped,
            user_data: 0,
            registrations: 0,
            aliases,
            charged: false,
        }
    }

    /// Address of the first byte for the GPUs.
    pub fn gpu_base(&self) -> u64 {
        self.aliases.last().copied().unwrap_or(self.base)
    }
}

fn covering(table: &BTreeMap<u64, Range>, addr: u64) -> Option<&Range> {
    table.range(..=addr).next_back().map(|(_, r)| r).filter(|r| addr - r.base < r.bytes)
}

#[cfg(test)]
mod tests {
    use super::Memory;

    #[test]
    fn device_memory_is_limited_and_comes_back() {
        let m = Memory::default();
        let a = m.allocate(1, 3 << 20, 0, Some(4 << 20)).unwrap();
        assert_eq!(a % (2 << 20), 0);
        assert!(m.allocate(1, 2 << 20, 0, Some(4 << 20)).is_none());
        assert_eq!((m.node_of(a + 100), m.node_of(a - 1)), (1, 0));
        assert!(m.free(a) && !m.free(a));
        assert!(m.allocate(1, 4 << 20, 0, Some(4 << 20)).is_some());
    }

    #[test]
    fn registrations_are_counted() {
        let m = Memory::default();
        let mine = vec![0_u8; 8192];
        let base = mine.as_ptr() as u64;
        assert!(m.register(base, 4096, 0) && m.register(base, 8192, 0));
        let alias = m.with(base, |r| r.gpu_base()).unwrap();
        assert_eq!((alias % 4096, m.host_address(alias + 5000)), (base % 4096, base + 5000));
        assert_ne!(alias, base);
        assert_eq!(m.with(base + 8000, |r| r.bytes), Some(8192));
        assert!(m.deregister(base) && m.with(base, |_| ()).is_some());
        assert!(m.deregister(base) && m.with(base, |_| ()).is_none() && !m.deregister(base));
    }
}
