//! Kernels that are loaded, and their numbers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, OnceLock};

use tracer_common::shim::MAX_NAME_BYTES;
use tracer_hooks::lock::Lock;

/// The time that a thread waits for another one that gives a number. The first thread that never comes back from that
/// is the last to be waited for: from then on kernels have no numbers.
const WAIT_NS: u64 = 1_000_000_000;

/// A kernel that is loaded.
#[derive(Debug)]
pub struct Kernel {
    /// Its number, from 1 on.
    pub number: u64,
    /// Its name, with NUL.
    pub name: Box<[u8]>,
    /// What its descriptor says, once that is known.
    pub descriptor: OnceLock<Descriptor>,
}

/// What the descriptor of a kernel says. Registers are those that the hardware allocates.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Descriptor {
    /// For a wavefront.
    pub scalar_registers: u32,
    /// For a work-item.
    pub vector_registers: u32,
    /// Likewise.
    pub accumulation_registers: u32,
    /// Bytes from the descriptor to the begin of the code; 0 if that is not known.
    pub entry_offset: i64,
}

/// Kernels by the addresses of their descriptors.
pub struct Kernels(Lock<KernelNames>);

impl Default for Kernels {
    fn default() -> Self {
        Self::new()
    }
}

struct KernelNames {
    /// The kernels, and the time since when each is there, ns.
    by_address: BTreeMap<u64, (u64, Arc<Kernel>)>,
    numbered: u64,
}

impl Kernels {
    /// None is loaded.
    pub const fn new() -> Self {
        Self(Lock::new(KernelNames { by_address: BTreeMap::new(), numbered: 0 }))
    }

    /// The kernel of this name at this address, where it is from `since_ns` on: a known one, or a new one. An address
    /// may get another kernel, and that one may be announced first.
    pub fn number(&self, address: u64, name: &[u8], since_ns: u64) -> Option<Arc<Kernel>> {
        let name = plain(name);
        let mut known = self.0.lock_or_lose(WAIT_NS)?;
        let there = known.by_address.get_mut(&address);
        let is_former = there.as_ref().is_some_and(|(since, _)| *since > since_ns);
        if let Some((since, same)) = there
            && same.name.strip_suffix(&[0]) == Some(name)
        {
            *since = since_ns.max(*since);
            return Some(Arc::clone(same));
        }
        known.numbered += 1;
        let name = name.iter().copied().chain([0]).collect();
        let kernel = Kernel { number: known.numbered, name, descriptor: OnceLock::new() };
        let kernel = Arc::new(kernel);
        if !is_former {
            known.by_address.insert(address, (since_ns, Arc::clone(&kernel)));
        }
        Some(kernel)
    }

    /// The kernel at an address, if it was announced.
    pub fn find(&self, address: u64) -> Option<Arc<Kernel>> {
        let known = self.0.lock_or_lose(WAIT_NS)?;
        known.by_address.get(&address).map(|(_, kernel)| Arc::clone(kernel))
    }

    /// The kernel of this number is unloaded: one that comes to its address has another number.
    pub fn forget(&self, address: u64, number: u64) {
        if let Some(mut known) = self.0.lock_or_lose(WAIT_NS)
            && let Entry::Occupied(there) = known.by_address.entry(address)
            && there.get().1.number == number
        {
            there.remove();
        }
    }
}

/// A name as operations have it: without NUL, and without the ending of a descriptor's.
fn plain(name: &[u8]) -> &[u8] {
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let name = name.strip_suffix(b".kd").unwrap_or(name);
    name.get(..MAX_NAME_BYTES).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_told_of_again_is_the_same() {
        let kernels = Kernels::new();
        let number = |address, name: &[u8]| kernels.number(address, name, 5).expect("free").number;
        assert_eq!([number(1, b"one.kd\0"), number(1, b"one"), number(2, b"one")], [1, 1, 2]);
        // Another one, where the first was.
        assert_eq!([number(1, b"other"), number(1, b"other\0"), number(1, b"one")], [3, 3, 4]);
        let found = kernels.find(1).expect("known");
        assert_eq!((found.number, &*found.name), (4, &b"one\0"[..]));
        // One that was there before, and is told of later.
        assert_eq!(kernels.number(1, b"former", 4).expect("free").number, 5);
        assert_eq!(kernels.find(1).expect("known").number, 4);
        kernels.forget(1, 3);
        assert!(kernels.find(1).is_some());
        kernels.forget(1, 4);
        assert!(kernels.find(1).is_none());
        assert_eq!(number(1, b"one"), 6);
    }

    #[test]
    fn long_names_are_cut_as_those_of_operations_are() {
        let long = vec![b'a'; MAX_NAME_BYTES + 10];
        let kernels = Kernels::new();
        let first = kernels.number(1, &long, 0).expect("free");
        assert_eq!(first.name.len(), MAX_NAME_BYTES + 1);
        let second = kernels.number(1, &long[..MAX_NAME_BYTES], 0).expect("free");
        assert_eq!(second.number, first.number);
    }
}
