//! Kernels by name.
//!
//! HIP's records name no kernel object, so a kernel is known by its name: its number is a hash of it,
//! of no address that exists, and one [`Symbol`] for each name in each recording tells what it means.

use core::sync::atomic::{AtomicU64, Ordering};

use tracer_common::shim::{MAX_NAME_BYTES, Symbol};

use crate::sink::Sink;

/// Names of one recording that are remembered; a power of two. Further ones are told each time.
const NAMES: usize = 1 << 14;
/// Places that are looked at for a name.
const REACH: usize = 16;
/// Tells a hash from an address: none of x86-64 has this bit alone set.
const NO_ADDRESS: u64 = 1 << 63;

/// Names that were told.
pub struct Names([AtomicU64; NAMES]);

impl Names {
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; NAMES])
    }

    /// Another recording begins, which was told none.
    pub fn clear(&self) {
        for place in &self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }

    /// The number of the kernel of this name, which `sink` is told unless it was.
    pub fn kernel(&self, name: &[u8], sink: &dyn Sink) -> u64 {
        let name = name.strip_suffix(b".kd").unwrap_or(name);
        let name = name.get(..MAX_NAME_BYTES).unwrap_or(name);
        let kernel_object = hash(name) & !(1 << 62) | NO_ADDRESS;
        if !self.is_told(kernel_object) {
            let name_bytes = name.len() as u32;
            sink.symbol(Symbol { kernel_object, name_bytes, ..Symbol::default() }, name);
        }
        kernel_object
    }

    /// Whether it was told; from now on it was, if there is a place to note it.
    fn is_told(&self, kernel: u64) -> bool {
        for step in 0..REACH {
            let Some(place) = self.0.get((kernel as usize).wrapping_add(step) % NAMES) else {
                return false;
            };
            match place.compare_exchange(0, kernel, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return false,
                Err(there) if there == kernel => return true,
                Err(_) => {}
            }
        }
        false
    }
}

/// Eight bytes at a time: names of templates are hundreds of bytes long, and hashed at each launch.
fn hash(name: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut hash = name.len() as u64;
    for part in name.chunks(8) {
        let word = part.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        hash = (hash ^ word).wrapping_mul(FACTOR);
        hash ^= hash >> 29;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_differ_and_are_no_addresses() {
        let mut seen = BTreeSet::new();
        for i in 0..20_000 {
            for name in [format!("k{i}"), format!("_Z{i}kernelILi{i}EEvPfS_"), format!("k{i}\0")] {
                seen.insert(hash(name.as_bytes()) & !(1 << 62) | NO_ADDRESS);
            }
        }
        assert_eq!(seen.len(), 60_000);
        assert!(seen.iter().all(|kernel| kernel >> 62 == 2), "not canonical, in neither half");
    }

    #[test]
    fn what_was_told_is_told_again_only_in_another_recording() {
        let names = Names::new();
        assert!(!names.is_told(5) && names.is_told(5));
        // The same place, and then none left.
        for other in 1..REACH as u64 {
            let kernel = 5 + other * NAMES as u64;
            assert!(!names.is_told(kernel) && names.is_told(kernel));
        }
        let beyond = 5 + REACH as u64 * NAMES as u64;
        assert!(!names.is_told(beyond) && !names.is_told(beyond));
        names.clear();
        assert!(!names.is_told(5));
    }
}
