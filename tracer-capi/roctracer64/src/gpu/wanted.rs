//! The wanted calls and operations that pass through the tables of the HSA runtime.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The wanted calls and operations that pass through the runtime's tables: a bit for each operation of the two domains,
/// 8 of each, [`CALLS_OF_HSA`] and [`CALLS_OF_HIP`].
pub static WANTED: AtomicU32 = AtomicU32::new(0);
/// A bit of [`WANTED`].
pub const CALLS_OF_HSA: u32 = 1;
/// A bit of [`WANTED`]: calls of HIP since 6.0, which are recorded while the hooks in the HSA runtime are there.
pub const CALLS_OF_HIP: u32 = 2;
/// HIP is loaded.
pub static HAS_HIP: AtomicBool = AtomicBool::new(false);

/// Calls or operations that pass through the tables are wanted from now on, or not any more: `bits` of [`WANTED`].
pub fn want(bits: u32, on: bool) {
    // Relaxed: `begin` comes after it on this thread; a thread that ends a recording may be late.
    match on {
        true => WANTED.fetch_or(bits, Ordering::Relaxed),
        false => WANTED.fetch_and(!bits, Ordering::Relaxed),
    };
}
