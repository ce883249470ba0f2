//! Commands that HIP created and has not reported yet, by HIP's own number of them.
//!
//! HIP counts its commands and keeps no word for us, so what was known when one was created waits here
//! for its report. A place is taken by writing its key last and freed by whoever swaps the key.
//! Commands that are never synchronised are never reported; when their places are needed again, they
//! are lost.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use crate::sys;

/// Commands that can wait; a power of two. Their pages are touched as they are used: 4 MiB.
const PLACES: usize = 1 << 16;
/// In place of a key: somebody reads or writes the place. HIP's count does not get there.
const BUSY: u64 = u64::MAX;

/// What was known of a command when it was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Command {
    /// Which recording it belongs to.
    pub epoch: u32,
    /// Its number in the trace.
    pub sequence: u64,
    /// When it was created, ns of CLOCK_BOOTTIME.
    pub enqueue_ns: u64,
    /// Its kernel as the trace knows it; 0 when it is none, or has no name.
    pub kernel: u64,
    /// In work-items.
    pub grid: [u32; 3],
    /// In work-items.
    pub workgroup: [u16; 3],
}

impl Command {
    fn words(self) -> [u64; 6] {
        let [gx, gy, gz] = self.grid.map(u64::from);
        let [wx, wy, wz] = self.workgroup.map(u64::from);
        let grid = gx | gy << 32;
        let rest = gz | u64::from(self.epoch) << 32;
        [self.sequence, self.enqueue_ns, self.kernel, grid, rest, wx | wy << 16 | wz << 32]
    }

    fn of([sequence, enqueue_ns, kernel, grid, rest, group]: [u64; 6]) -> Self {
        Self {
            epoch: (rest >> 32) as u32,
            sequence,
            enqueue_ns,
            kernel,
            grid: [grid as u32, (grid >> 32) as u32, rest as u32],
            workgroup: [group as u16, (group >> 16) as u16, (group >> 32) as u16],
        }
    }
}

#[repr(align(64))]
struct Place {
    /// 0 when free, [`BUSY`], or one more than HIP's number.
    key: AtomicU64,
    words: [AtomicU64; 6],
}

#[expect(unsafe_code, reason = "pages of zeros")]
// SAFETY: integers.
unsafe impl sys::Zeroed for Place {}

/// The places.
pub struct Pending(OnceLock<Option<&'static [Place]>>);

impl Pending {
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn place(&self, number: u64) -> Option<&'static Place> {
        (*self.0.get_or_init(|| sys::zeroed_slice(PLACES)))?.get(number as usize % PLACES)
    }

    /// Makes sure that there is memory for them.
    pub fn is_ready(&self) -> bool {
        self.place(0).is_some()
    }

    /// Remembers a command; the one that had the place before, if it was never reported. An error when
    /// the place cannot be taken.
    pub fn put(&self, number: u64, command: Command) -> Result<Option<Command>, ()> {
        let place = self.place(number).ok_or(())?;
        let key = place.key.load(Ordering::Relaxed);
        let ours = key != BUSY
            && place.key.compare_exchange(key, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !ours {
            return Err(());
        }
        let before = (key != 0).then(|| place.read());
        for (word, value) in place.words.iter().zip(command.words()) {
            word.store(value, Ordering::Relaxed);
        }
        // Pairs with the Acquire of whoever takes it.
        place.key.store(number.wrapping_add(1), Ordering::Release);
        Ok(before)
    }

    /// Takes a command out.
    pub fn take(&self, number: u64) -> Option<Command> {
        let place = self.place(number)?;
        let key = number.checked_add(1).filter(|&key| key != BUSY)?;
        place.key.compare_exchange(key, BUSY, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let command = place.read();
        // Whoever takes the place next writes it after this.
        place.key.store(0, Ordering::Release);
        Some(command)
    }
}

impl Place {
    fn read(&self) -> Command {
        let mut words = [0; 6];
        for (to, from) in words.iter_mut().zip(&self.words) {
            *to = from.load(Ordering::Relaxed);
        }
        Command::of(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(sequence: u64) -> Command {
        Command {
            epoch: 7,
            sequence,
            enqueue_ns: sequence + 1,
            kernel: u64::MAX - sequence,
            grid: [u32::MAX, 2, 3],
            workgroup: [4, 5, u16::MAX],
        }
    }

    #[test]
    fn what_is_put_is_taken_once() {
        let pending = Pending::new();
        assert_eq!(pending.put(5, command(50)), Ok(None));
        assert_eq!(pending.take(6), None);
        assert_eq!(pending.take(5 + PLACES as u64), None, "another one at this place");
        assert_eq!(pending.take(5), Some(command(50)));
        assert_eq!(pending.take(5), None);
        assert_eq!(pending.take(u64::MAX), None);
    }

    #[test]
    fn who_was_never_reported_gives_way() {
        let pending = Pending::new();
        assert_eq!(pending.put(5, command(50)), Ok(None));
        let next = 5 + PLACES as u64;
        assert_eq!(pending.put(next, command(51)), Ok(Some(command(50))));
        assert_eq!(pending.take(5), None);
        assert_eq!(pending.take(next), Some(command(51)));
    }

    #[test]
    fn many_threads_lose_none() {
        let pending = Pending::new();
        let number = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..PLACES / 4 {
                        let mine = number.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(pending.put(mine, command(mine)), Ok(None));
                        assert_eq!(pending.take(mine), Some(command(mine)));
                    }
                });
            }
        });
    }
}
