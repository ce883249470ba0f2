//! Kernels that are loaded, and their numbers.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use tracer_common::shim::MAX_NAME_BYTES;
use tracer_hooks::lock::Lock;

/// How long a thread waits for another one that gives a number. One that does not come back from that is the last to be
/// waited for: from then on kernels have none.
const WAIT_NS: u64 = 1_000_000_000;

/// A kernel that is loaded.
#[derive(Debug)]
pub struct Kernel {
    /// Its number, from 1 on.
    pub number: u64,
    /// Its name, with NUL.
    pub name: Box<[u8]>,
    /// What it takes of the hardware, once that is known.
    pub registers: OnceLock<Registers>,
}

/// Registers that the hardware allocates.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Registers {
    /// For a wavefront.
    pub scalar: u32,
    /// For a work-item.
    pub vector: u32,
    /// Likewise.
    pub accumulation: u32,
}

/// Kernels by the addresses of their descriptors.
pub struct Kernels(Lock<Known>);

impl Default for Kernels {
    fn default() -> Self {
        Self::new()
    }
}

struct Known {
    by_address: BTreeMap<u64, Arc<Kernel>>,
    numbered: u64,
}

impl Kernels {
    /// None is loaded.
    pub const fn new() -> Self {
        Self(Lock::new(Known { by_address: BTreeMap::new(), numbered: 0 }))
    }

    /// The kernel of this name at this address: one that was told of, or a new one. An address may get another kernel.
    pub fn number(&self, address: u64, name: &[u8]) -> Option<Arc<Kernel>> {
        let name = plain(name);
        let mut known = self.0.lock_or_lose(WAIT_NS)?;
        if let Some(same) = known.by_address.get(&address)
            && same.name.strip_suffix(&[0]) == Some(name)
        {
            return Some(Arc::clone(same));
        }
        known.numbered += 1;
        let name = name.iter().copied().chain([0]).collect();
        let kernel = Kernel { number: known.numbered, name, registers: OnceLock::new() };
        let kernel = Arc::new(kernel);
        known.by_address.insert(address, Arc::clone(&kernel));
        Some(kernel)
    }

    /// The kernel at an address, if it was told of.
    pub fn find(&self, address: u64) -> Option<Arc<Kernel>> {
        self.0.lock_or_lose(WAIT_NS)?.by_address.get(&address).cloned()
    }

    /// The kernel at an address is unloaded: one that comes there has another number.
    pub fn forget(&self, address: u64) {
        if let Some(mut known) = self.0.lock_or_lose(WAIT_NS) {
            known.by_address.remove(&address);
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
        let number = |address, name: &[u8]| kernels.number(address, name).expect("free").number;
        assert_eq!([number(1, b"one.kd\0"), number(1, b"one"), number(2, b"one")], [1, 1, 2]);
        // Another one, where the first was.
        assert_eq!([number(1, b"other"), number(1, b"other\0"), number(1, b"one")], [3, 3, 4]);
        let found = kernels.find(1).expect("known");
        assert_eq!((found.number, &*found.name), (4, &b"one\0"[..]));
        kernels.forget(1);
        assert!(kernels.find(1).is_none());
        assert_eq!(number(1, b"one"), 5);
    }

    #[test]
    fn long_names_are_cut_as_those_of_operations_are() {
        let long = vec![b'a'; MAX_NAME_BYTES + 10];
        let kernels = Kernels::new();
        let first = kernels.number(1, &long).expect("free");
        assert_eq!(first.name.len(), MAX_NAME_BYTES + 1);
        assert_eq!(kernels.number(1, &long[..MAX_NAME_BYTES]).expect("free").number, first.number);
    }
}
