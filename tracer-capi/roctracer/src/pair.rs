//! A callback and its argument, exchanged as one.
//!
//! A thread that calls the callback reads both without a lock, and never gets the one of a registration with the other
//! of the next. There are two places. The number of exchanges says which one is valid; a new pair is written into the
//! other one, which no thread reads that has come since the last exchange. A thread that came earlier sees by the
//! number that it has changed, and reads again. So a reader waits for nobody: it begins anew only when a whole exchange
//! has happened meanwhile, and a writer that is stopped in the middle holds up nobody.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Two words that belong together.
pub struct Pair {
    exchanges: AtomicU64,
    places: [[AtomicUsize; 2]; 2],
}

impl Pair {
    /// Two zeros.
    pub fn zero() -> Self {
        let place = || [AtomicUsize::new(0), AtomicUsize::new(0)];
        Self { exchanges: AtomicU64::new(0), places: [place(), place()] }
    }

    /// Both words.
    #[inline]
    pub fn read(&self) -> [usize; 2] {
        loop {
            // Acquire pairs with the Release in `write`: the words of that exchange are there.
            let exchanges = self.exchanges.load(Ordering::Acquire);
            let [first, second] = &self.places[(exchanges & 1) as usize];
            let words = [first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)];
            // Pairs with the fence in `write`: if one of the words was of a later exchange, the number of
            // the exchange before that is seen here.
            fence(Ordering::Acquire);
            if self.exchanges.load(Ordering::Relaxed) == exchanges {
                return words;
            }
            #[cfg(loom)]
            loom::thread::yield_now();
        }
    }

    /// Exchanges both words. By one thread at a time: the caller holds a lock.
    pub fn write(&self, words: [usize; 2]) {
        let exchanges = self.exchanges.load(Ordering::Relaxed).wrapping_add(1);
        let [first, second] = &self.places[(exchanges & 1) as usize];
        // Pairs with the fence in `read`.
        fence(Ordering::Release);
        first.store(words[0], Ordering::Relaxed);
        second.store(words[1], Ordering::Relaxed);
        // Pairs with the Acquire in `read`.
        self.exchanges.store(exchanges, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    /// Four threads write, four read until each has seen pairs of every writer.
    #[test]
    fn words_of_different_pairs_never_meet() {
        let pair = Pair::zero();
        let lock = Mutex::new(());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut seen = [0u32; 4];
                        while seen.iter().any(|&times| times < 1000) {
                            let [first, second] = pair.read();
                            assert_eq!(second, first.wrapping_mul(3));
                            seen[first % 4] += 1;
                        }
                    })
                })
                .collect();
            for writer in 0..4 {
                let (pair, lock, done) = (&pair, &lock, &done);
                scope.spawn(move || {
                    for count in (0..).step_by(4) {
                        if done.load(Ordering::Relaxed) {
                            break;
                        }
                        let first: usize = count + writer;
                        let guard = lock.lock().expect("no panic");
                        pair.write([first, first.wrapping_mul(3)]);
                        drop(guard);
                    }
                });
            }
            let results: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            done.store(true, Ordering::Relaxed);
            assert!(results.iter().all(Result::is_ok));
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use std::sync::{Arc, atomic::AtomicUsize as Count};

    /// Three exchanges, so that each place is written while it may be read.
    #[test]
    fn words_of_different_pairs_never_meet() {
        let schedules = Arc::new(Count::new(0));
        let counted = Arc::clone(&schedules);
        loom::model(move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let pair = loom::sync::Arc::new(Pair::zero());
            let theirs = loom::sync::Arc::clone(&pair);
            let writer = loom::thread::spawn(move || {
                for n in 1..=3 {
                    theirs.write([n, n + 10]);
                }
            });
            let theirs = loom::sync::Arc::clone(&pair);
            let reader = loom::thread::spawn(move || {
                let [first, second] = theirs.read();
                assert!(second == first + 10 || [first, second] == [0, 0]);
            });
            writer.join().expect("no panic");
            reader.join().expect("no panic");
            assert_eq!(pair.read(), [3, 13]);
        });
        let schedules = schedules.load(std::sync::atomic::Ordering::Relaxed);
        assert!(schedules > 10, "{schedules} schedules are no test");
    }
}
