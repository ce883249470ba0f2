//! The functions whose calls the shim can record: a slot of [`crate::hsa_functions`] each, then one of
//! [`crate::hip_functions`] each.
//!
//! A slot is an index of words in the shared memory ([`crate::shim::control::CALLS`]): with their number
//! [`crate::shim::VERSION`] rises.

use core::ops::Range;

use crate::hip_functions;
use crate::hsa_functions::{self, Slot};

/// Slots of the HSA runtime's tables.
pub const HSA: Range<usize> = 0..hsa_functions::SLOT_COUNT;
/// Slots of HIP's tables.
pub const HIP: Range<usize> = HSA.end..HSA.end + hip_functions::SLOT_COUNT;
/// The number of slots.
pub const SLOT_COUNT: usize = HIP.end;

/// The function of a slot.
///
/// # Panics
///
/// When there is no such slot.
pub const fn function(slot: usize) -> Slot {
    if slot < HIP.start {
        hsa_functions::SLOTS[slot]
    } else {
        hip_functions::SLOTS[slot - HIP.start]
    }
}

/// Which tables a shim records the calls of: bits.
pub mod tables {
    use crate::activity::Domain;
    use crate::hip_functions::COMPILER;
    use crate::hsa_functions::IMAGE as IMAGES;

    /// The HSA runtime's `CoreApiTable` and `AmdExtTable`.
    pub const CORE: u8 = 1 << 0;
    /// Its `ImageExtTable`.
    pub const IMAGE: u8 = 1 << 1;
    /// HIP's `HipDispatchTable`.
    pub const HIP: u8 = 1 << 2;
    /// HIP's `HipCompilerDispatchTable`.
    pub const HIP_COMPILER: u8 = 1 << 3;

    /// The domain of a table's calls.
    pub const fn domain(table: u8) -> Domain {
        if table & (HIP | HIP_COMPILER) != 0 { Domain::HIP_API } else { Domain::HSA_API }
    }

    /// The bit of a slot's table.
    pub const fn of_slot(slot: usize) -> u8 {
        if slot < IMAGES.start {
            CORE
        } else if slot < super::HIP.start {
            IMAGE
        } else if slot < super::HIP.start + COMPILER.start {
            HIP
        } else {
            HIP_COMPILER
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_both_runtimes_are_told_apart() {
        assert_eq!(function(0).name, "hsa_init");
        assert_eq!(function(HIP.start).name, "hipApiName");
        assert_eq!(function(SLOT_COUNT - 1).name, "__hipUnregisterFatBinary");
        let table = |slot| tables::of_slot(slot);
        assert_eq!(table(hsa_functions::AMD_EXT.end - 1), tables::CORE);
        assert_eq!(table(hsa_functions::IMAGE.start), tables::IMAGE);
        assert_eq!((table(HSA.end - 1), table(HIP.start)), (tables::IMAGE, tables::HIP));
        assert_eq!(table(HIP.start + hip_functions::COMPILER.start), tables::HIP_COMPILER);
    }
}
