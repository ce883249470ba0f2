//! Memory for records: one of the halves of a buffer.

#![expect(unsafe_code, reason = "memory that several threads write into")]

use std::alloc::{Layout, alloc_zeroed};
use std::ops::Range;
use std::ptr::NonNull;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(loom))]
use tracer_hooks::sys;

use crate::status::{Result, Status};

/// Lanes of a half.
const LANES: usize = if cfg!(loom) { 2 } else { 16 };
/// A region has one of [`REGIONS`] parts of the half at most, and [`MOST_REGION_WORDS`] words at most.
const REGIONS: usize = 256;
const MOST_REGION_WORDS: usize = 512;
/// A region has so many records at least; else each record has one.
const LEAST_RECORDS: usize = 8;

/// Records one after the other, and gaps between them.
///
/// A thread that writes takes a place first, and waits for nobody: places are taken in an order, and filled in any.
/// Nobody takes a place any more once the half is closed, and when all places that were taken are filled it can be
/// read.
///
/// In a large half each [`Lane`] takes places in a region of its own, so that threads of several lanes write to no word
/// that others write to. What is left of a region is a gap.
pub struct Half {
    begin: NonNull<u64>,
    words: usize,
    /// Words from which on it is to be read.
    watermark: usize,
    /// Words of regions that are taken, and [`CLOSED`].
    taken: AtomicU64,
    lanes: [Lane; LANES],
}

/// The place of some threads in a half. On cache lines of its own.
#[repr(align(128))]
struct Lane {
    /// What is left of its region: the first word, in the lower half, and the one behind the last; and [`CLOSED`].
    left: AtomicU64,
    /// Words in regions of its threads that are filled, or gaps.
    filled: AtomicU64,
}

/// Nothing can be taken.
const CLOSED: u64 = 1 << 63;
/// In the first word of a gap, with its bytes: no record is as large.
const GAP: u64 = 1 << 63;
/// Words of the largest half: positions have 31 bits.
const MOST_WORDS: usize = (1 << 31) - 1;

// SAFETY: the memory is its own. Each word is written by the thread that has taken it, once, and read when that is
// done.
unsafe impl Send for Half {}
// SAFETY: as above.
unsafe impl Sync for Half {}

/// A place for a record.
pub struct Reservation<'a> {
    lane: &'a Lane,
    at: NonNull<u64>,
    words: usize,
    /// As many words as the watermark are taken with it, and were not before.
    pub reaches_watermark: bool,
}

impl Half {
    /// A half that is closed, and lives for ever; `watermark` bytes in it are to be read. Its pages come as they are used.
    ///
    /// # Errors
    ///
    /// [`Status::OutOfResources`]; [`Status::InvalidArgument`] for one without a byte.
    pub fn new(bytes: usize, watermark: usize) -> Result<&'static Self> {
        let words = bytes.div_ceil(size_of::<u64>());
        let layout = Layout::array::<u64>(words).ok().filter(|_| words <= MOST_WORDS);
        let layout = layout.ok_or(Status::OutOfResources)?;
        if layout.size() == 0 {
            return Err(Status::InvalidArgument);
        }
        // SAFETY: it has a size.
        let begin = NonNull::new(unsafe { alloc_zeroed(layout) }.cast());
        let begin = begin.ok_or(Status::OutOfResources)?;
        let lane = |_| Lane { left: AtomicU64::new(CLOSED), filled: AtomicU64::new(0) };
        let (taken, lanes) = (AtomicU64::new(CLOSED), std::array::from_fn(lane));
        let watermark = watermark.div_ceil(size_of::<u64>());
        Ok(Box::leak(Box::new(Self { begin, words, watermark, taken, lanes })))
    }

    /// Whether no place is taken in it.
    pub fn is_empty(&self) -> bool {
        self.taken.load(Ordering::Relaxed) & !CLOSED == 0
    }

    /// Whether there is a place for a record of this many words, beside those that lanes have left.
    pub fn has_room(&self, words: usize) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        taken & CLOSED == 0 && words <= self.words - taken as usize
    }

    /// Empties it; from now on places can be taken. It was closed, and nobody reads it any more.
    pub fn open(&self) {
        self.reset_lanes(0);
        // Pairs with the Acquire in `take_region`.
        self.taken.store(0, Ordering::Release);
    }

    /// Empties it, and leaves it closed. Nobody reads it any more.
    pub fn discard(&self) {
        self.reset_lanes(CLOSED);
        self.taken.store(CLOSED, Ordering::Relaxed);
    }

    fn reset_lanes(&self, left: u64) {
        for lane in &self.lanes {
            lane.filled.store(0, Ordering::Relaxed);
            lane.left.store(left, Ordering::Relaxed);
        }
    }

    /// From now on no place can be taken.
    pub fn close(&self) {
        self.taken.fetch_or(CLOSED, Ordering::Relaxed);
        for lane in &self.lanes {
            // Acquire pairs with the Release in `take_region`.
            let left = lane.left.fetch_or(CLOSED, Ordering::Acquire);
            if left & CLOSED == 0 {
                self.leave_gap(lane, range(left));
            }
        }
    }

    /// Takes a place for a record of this many words, in the lane of this number; none if the half is closed or has no
    /// room.
    #[inline]
    pub fn take(&self, lane: usize, words: usize) -> Option<Reservation<'_>> {
        let lane = self.lanes.get(lane % LANES)?;
        let mut left = lane.left.load(Ordering::Relaxed);
        loop {
            if left & CLOSED != 0 {
                return None;
            }
            let Range { start, end } = range(left);
            if words > end - start {
                return self.take_region(lane, left, words);
            }
            // Acquire pairs with the Release in `take_region`.
            let (more, order) = (left + words as u64, Ordering::Acquire);
            match lane.left.compare_exchange_weak(left, more, order, Ordering::Relaxed) {
                Ok(_) => {
                    let at = self.at(start);
                    return Some(Reservation { lane, at, words, reaches_watermark: false });
                }
                Err(now) => left = now,
            }
        }
    }

    /// Takes a place at the begin of another region, whose rest is the lane's from then on.
    fn take_region<'a>(&self, lane: &'a Lane, left: u64, words: usize) -> Option<Reservation<'a>> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        let region = loop {
            if taken & CLOSED != 0 || words > self.words - taken as usize {
                return None;
            }
            let start = taken as usize;
            let end = start + self.region(start, words);
            // Acquire pairs with the Release in `open`: the words of before have been read.
            let order = Ordering::Acquire;
            match self.taken.compare_exchange_weak(taken, end as u64, order, Ordering::Relaxed) {
                Ok(_) => break start..end,
                Err(now) => taken = now,
            }
        };
        let rest = region.start + words..region.end;
        let new = (rest.end as u64) << 32 | rest.start as u64;
        // Release pairs with the Acquire in `take` and `close`.
        let gap = match lane.left.compare_exchange(left, new, Ordering::Release, Ordering::Relaxed)
        {
            Ok(_) => range(left),
            // The lane has another region by now, or is closed.
            Err(_) => rest,
        };
        self.leave_gap(lane, gap);
        let (at, Range { start, end }) = (self.at(region.start), region);
        let reaches_watermark = start < self.watermark.max(1) && end >= self.watermark;
        Some(Reservation { lane, at, words, reaches_watermark })
    }

    /// Words of a new region from `start` on, for records of this many: as many as one record has, or many records. The
    /// watermark and the end are reached by a record.
    fn region(&self, start: usize, words: usize) -> usize {
        let records = (self.words / REGIONS).min(MOST_REGION_WORDS) / words.max(1);
        let next = if start < self.watermark { self.watermark.min(self.words) } else { self.words };
        let is_large = records >= LEAST_RECORDS && records * words < next - start;
        if is_large { records * words } else { words }
    }

    /// Marks the rest of a lane's region as a gap, and counts its words as filled.
    fn leave_gap(&self, lane: &Lane, gap: Range<usize>) {
        if gap.is_empty() {
            return;
        }
        // SAFETY: within the memory, and the caller's own.
        unsafe { self.at(gap.start).write(GAP | (gap.len() * size_of::<u64>()) as u64) };
        // Pairs with the Acquire in `filled`.
        lane.filled.fetch_add(gap.len() as u64, Ordering::Release);
    }

    fn at(&self, word: usize) -> NonNull<u64> {
        // SAFETY: within the memory.
        unsafe { self.begin.add(word) }
    }

    /// The records in it. It is closed; this waits for threads that have taken a place.
    pub fn records(&self) -> Records<'_> {
        loop {
            if let Some(records) = self.filled() {
                return records;
            }
            #[cfg(loom)]
            loom::thread::yield_now();
            #[cfg(not(loom))]
            sys::sleep_ns(10_000);
        }
    }

    /// As [`Self::records`], without waiting: none while a place is taken and not filled.
    pub fn filled(&self) -> Option<Records<'_>> {
        let taken = self.taken.load(Ordering::Relaxed) & !CLOSED;
        // Acquire pairs with the Release in `fill` and `leave_gap`.
        let filled: u64 = self.lanes.iter().map(|lane| lane.filled.load(Ordering::Acquire)).sum();
        // SAFETY: so many were filled from the begin on.
        let words = || unsafe { std::slice::from_raw_parts(self.begin.as_ptr(), taken as usize) };
        (filled == taken).then(|| Records(words()))
    }
}

/// The words that a lane has left.
fn range(left: u64) -> Range<usize> {
    left as u32 as usize..(left >> 32 & MOST_WORDS as u64) as usize
}

impl Reservation<'_> {
    /// Fills the place with a record, of as many words as it was taken for.
    #[inline]
    pub fn fill(self, record: &[u64]) {
        assert!(record.len() == self.words);
        // SAFETY: the place is as large, and its own.
        unsafe { self.at.copy_from_nonoverlapping(NonNull::from(record).cast(), record.len()) };
        // Pairs with the Acquire in `filled`.
        self.lane.filled.fetch_add(self.words as u64, Ordering::Release);
    }
}

/// Iterates over the records: each item begins with the record's first word, its bytes, and goes on to the end of the
/// words that are taken. The first word is the record's size in bytes.
pub struct Records<'a>(&'a [u64]);

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u64];

    fn next(&mut self) -> Option<&'a [u64]> {
        loop {
            let record = self.0;
            let bytes = (record.first()? & !GAP) as usize;
            self.0 = record.get((bytes / size_of::<u64>()).max(1)..).unwrap_or_default();
            if record.first()? & GAP == 0 {
                return Some(record);
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    /// Two threads write while the half is read twice, emptied in between: every record that was taken is read, once,
    /// and whole.
    fn each_record_is_read_once(bytes: usize, lanes: [usize; 2]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let half = Half::new(bytes, bytes).expect("memory");
            half.open();
            let writers = [1, 2].map(|id| {
                let lane = lanes[id as usize - 1];
                let write = move |id| half.take(lane, 2).map(|place| place.fill(&[16, id]));
                thread::spawn(move || write(id).map(|()| id))
            });
            let mut read = Vec::new();
            for round in 0..2 {
                if round > 0 {
                    half.open();
                }
                half.close();
                for record in half.records() {
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

    /// Each record has a region of its own.
    #[test]
    fn of_two_lanes() {
        each_record_is_read_once(32, [0, 1]);
    }

    /// Each region has room for both records.
    #[test]
    fn of_a_lane_with_regions() {
        each_record_is_read_once(REGIONS * LEAST_RECORDS * 16, [0, 0]);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ids(half: &Half) -> Vec<u64> {
        half.records().map(|record| record[1]).collect()
    }

    const BYTES: usize = REGIONS * LEAST_RECORDS * 16;

    /// The last word of each half can be used, and a record of another size leaves a gap.
    #[test]
    fn regions_are_used_up() {
        let half = Half::new(BYTES, BYTES).expect("memory");
        half.open();
        let records = REGIONS * LEAST_RECORDS;
        let write = |id: u64| half.take(3, 2).map(|place| place.fill(&[16, id]));
        let taken = (0..).map_while(write).count();
        assert_eq!(taken, records);
        half.close();
        assert_eq!(ids(half), (0..records as u64).collect::<Vec<_>>());
        half.open();
        for (lane, id) in [(0, 1), (1, 2), (0, 3)] {
            half.take(lane, 2).expect("room").fill(&[16, id]);
        }
        let mut record = [0; 13];
        record[..2].copy_from_slice(&[13 * 8, 4]);
        half.take(0, 13).expect("room").fill(&record);
        half.close();
        half.close();
        assert_eq!(ids(half), [1, 3, 2, 4]);
    }

    #[test]
    fn one_record_reaches_the_watermark() {
        let half = Half::new(BYTES, 4096).expect("memory");
        half.open();
        let write =
            |lane| half.take(lane, 2).map(|place| (place.reaches_watermark, place.fill(&[16, 0])));
        let reaches = Vec::from_iter((0..).map_while(write).map(|(reaches, ())| reaches));
        assert_eq!(reaches.iter().filter(|&&reaches| reaches).count(), 1);
    }
}
