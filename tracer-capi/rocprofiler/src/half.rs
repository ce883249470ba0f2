//! Memory for records: one of the halves of a buffer.

#![expect(unsafe_code, reason = "memory that several threads write into")]

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(loom))]
use tracer_hooks::sys;

use crate::status::{Result, Status};

/// Records one after the other.
///
/// A thread that writes takes a place first, and waits for nobody: places are taken in an order, and filled in any.
/// Nobody takes a place any more once the half is closed, and when all places that were taken are filled it can be
/// read.
pub struct Half {
    begin: NonNull<u64>,
    bytes: usize,
    /// Bytes that are taken, and [`CLOSED`].
    taken: AtomicU64,
    /// Bytes that are filled.
    filled: AtomicU64,
}

/// Nothing can be taken.
const CLOSED: u64 = 1 << 63;

// SAFETY: the memory is its own. Each word is written by the thread that has taken it, once, and read when that is
// done.
unsafe impl Send for Half {}
// SAFETY: as above.
unsafe impl Sync for Half {}

/// A place for a record.
pub struct Reservation<'a> {
    half: &'a Half,
    at: NonNull<u64>,
    words: usize,
    /// Bytes that were taken before it.
    pub before: usize,
    /// Bytes that are taken with it.
    pub after: usize,
}

impl Half {
    /// A half that is closed, and lives for ever. Its pages come as they are used.
    ///
    /// # Errors
    ///
    /// [`Status::OutOfResources`]; [`Status::InvalidArgument`] for one without a byte.
    pub fn new(bytes: usize) -> Result<&'static Self> {
        let layout = Layout::array::<u64>(bytes.div_ceil(size_of::<u64>()));
        let layout = layout.map_err(|_| Status::OutOfResources)?;
        if layout.size() == 0 {
            return Err(Status::InvalidArgument);
        }
        // SAFETY: it has a size.
        let begin = NonNull::new(unsafe { alloc_zeroed(layout) }.cast());
        let begin = begin.ok_or(Status::OutOfResources)?;
        let (taken, filled) = (AtomicU64::new(CLOSED), AtomicU64::new(0));
        Ok(Box::leak(Box::new(Self { begin, bytes: layout.size(), taken, filled })))
    }

    /// Whether no place is taken in it.
    pub fn is_empty(&self) -> bool {
        self.taken.load(Ordering::Relaxed) & !CLOSED == 0
    }

    /// Whether there is a place for a record of this many words.
    pub fn has_room(&self, words: usize) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        taken & CLOSED == 0 && words <= (self.bytes - taken as usize) / size_of::<u64>()
    }

    /// Empties it; from now on places can be taken. It was closed, and nobody reads it any more.
    pub fn open(&self) {
        self.filled.store(0, Ordering::Relaxed);
        // Pairs with the Acquire in `take`.
        self.taken.store(0, Ordering::Release);
    }

    /// Empties it, and leaves it closed. Nobody reads it any more.
    pub fn discard(&self) {
        self.filled.store(0, Ordering::Relaxed);
        self.taken.store(CLOSED, Ordering::Relaxed);
    }

    /// From now on no place can be taken.
    pub fn close(&self) {
        self.taken.fetch_or(CLOSED, Ordering::Relaxed);
    }

    /// Takes a place for a record of this many words; none if the half is closed or has no room.
    #[inline]
    pub fn take(&self, words: usize) -> Option<Reservation<'_>> {
        let bytes = words.checked_mul(size_of::<u64>())?;
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            if taken & CLOSED != 0 || bytes > self.bytes - taken as usize {
                return None;
            }
            let more = taken + bytes as u64;
            // Acquire pairs with the Release in `open`: the words of before have been read.
            let exchanged =
                self.taken.compare_exchange_weak(taken, more, Ordering::Acquire, Ordering::Relaxed);
            if let Err(now) = exchanged {
                taken = now;
                continue;
            }
            let (before, after) = (taken as usize, more as usize);
            // SAFETY: within the memory, which has room for the record there.
            let at = unsafe { self.begin.byte_add(before) };
            return Some(Reservation { half: self, at, words, before, after });
        }
    }

    /// The words in it. It is closed; this waits for threads that have taken a place.
    pub fn words(&self) -> &[u64] {
        loop {
            if let Some(words) = self.filled() {
                return words;
            }
            #[cfg(loom)]
            loom::thread::yield_now();
            #[cfg(not(loom))]
            sys::sleep_ns(10_000);
        }
    }

    /// As [`Self::words`], without waiting: none while a place is taken and not filled.
    pub fn filled(&self) -> Option<&[u64]> {
        let taken = self.taken.load(Ordering::Relaxed) & !CLOSED;
        let words = taken as usize / size_of::<u64>();
        // Acquire pairs with the Release in `fill`.
        let is_filled = self.filled.load(Ordering::Acquire) == taken;
        // SAFETY: so many were filled from the begin on.
        is_filled.then(|| unsafe { std::slice::from_raw_parts(self.begin.as_ptr(), words) })
    }
}

impl Reservation<'_> {
    /// Fills the place with a record, of as many words as it was taken for.
    #[inline]
    pub fn fill(self, record: &[u64]) {
        assert!(record.len() == self.words);
        // SAFETY: the place is as large, and its own.
        unsafe { self.at.copy_from_nonoverlapping(NonNull::from(record).cast(), record.len()) };
        // Pairs with the Acquire in `words`.
        let bytes = (self.after - self.before) as u64;
        self.half.filled.fetch_add(bytes, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// Two threads write while the half is read twice, emptied in between: every record that was taken is read, once,
    /// and whole.
    #[test]
    fn each_record_is_read_once_by_who_has_closed() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let half = Half::new(32).expect("memory");
            half.open();
            let writers = [1, 2].map(|id| {
                thread::spawn(move || half.take(2).map(|place| place.fill(&[16, id])).map(|()| id))
            });
            let mut read = Vec::new();
            for round in 0..2 {
                if round > 0 {
                    half.open();
                }
                half.close();
                for record in half.words().chunks(2) {
                    assert_eq!(record[0], 16);
                    read.push(record[1]);
                }
            }
            let written = writers.map(|writer| writer.join().expect("no panic"));
            let mut written: Vec<u64> = written.into_iter().flatten().collect();
            written.sort_unstable();
            read.sort_unstable();
            assert_eq!(read, written);
        });
    }
}
