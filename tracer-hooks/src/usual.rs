//! The times that kernels usually run, so that the worker need not look before they can be done.
//!
//! It is a guess, from nothing but the last times. A wrong one costs a look too many, or the worker relays a
//! completion some per cent later, if no thread that waits for it does.

use core::sync::atomic::{AtomicU32, Ordering};

const KEYS: usize = 1024;
/// The last time counts for one part in so many of the mean.
const SHARE: u32 = 8;

/// Means by key. Kernels that share one spoil each other's guess.
pub struct Usual([AtomicU32; KEYS]);

impl Usual {
    /// Nothing known.
    pub const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; KEYS])
    }

    /// The key of a kernel, by its kernel object (the address of its descriptor); 0 is that of all else.
    #[inline]
    pub fn key(kernel_object: u64) -> u16 {
        let hash = (kernel_object >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        (hash as usize % (KEYS - 1) + 1) as u16
    }

    /// The time that kernels of this key usually run, ns; 0 when unknown.
    pub fn ns(&self, key: u16) -> u64 {
        self.0.get(usize::from(key)).map_or(0, |mean| u64::from(mean.load(Ordering::Relaxed)))
    }

    /// A kernel of this key ran for `ns`. Only the holder of [`crate::harvest::WORK`] calls this.
    pub fn note(&self, key: u16, ns: u64) {
        let Some(mean) = self.0.get(usize::from(key)).filter(|_| key != 0) else { return };
        let ns = u32::try_from(ns).unwrap_or(u32::MAX);
        let before = mean.load(Ordering::Relaxed);
        let after = if before == 0 { ns } else { before - before / SHARE + ns / SHARE };
        mean.store(after, Ordering::Relaxed);
    }
}

impl Default for Usual {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_what_is_noted() {
        let usual: Box<Usual> = Box::default();
        let key = Usual::key(0x7f00_1234_5680);
        assert!(key != 0 && usual.ns(key) == 0);
        usual.note(key, 20_000);
        assert_eq!(usual.ns(key), 20_000);
        (0..100).for_each(|_| usual.note(key, 40_000));
        assert!((39_000..=40_000).contains(&usual.ns(key)));
        (0..200).for_each(|_| usual.note(key, u64::MAX));
        assert!(usual.ns(key) > u64::from(u32::MAX / 2));
        usual.note(0, 5);
        assert_eq!(usual.ns(0), 0, "of what is not a kernel nothing is known");
    }
}
