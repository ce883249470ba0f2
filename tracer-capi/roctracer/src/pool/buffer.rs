//! Memory for records: the memory of an allocator, and buffers in it.

#![expect(unsafe_code, reason = "memory of an allocator of the client's")]

use std::ptr::{self, NonNull};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

use tracer_common::activity::ActivityRecord;
#[cfg(not(loom))]
use tracer_hooks::sys;

use crate::error::Error;

/// Bytes of a record.
pub const RECORD: usize = size_of::<ActivityRecord>();

/// Two records that belong together fit into every buffer.
const MIN_BUFFER: usize = 2 * RECORD;

/// Gives and takes memory, as `roctracer_allocator_t` does: called with null and a size, it returns memory of
/// that size, or null; called with such memory and 0, it takes it back.
pub type Allocator = Box<dyn FnMut(*mut u8, usize) -> *mut u8 + Send>;

/// `malloc` and `free`.
pub fn system_allocator() -> Allocator {
    Box::new(|memory, bytes| match bytes {
        0 => {
            // SAFETY: what is taken back was given, once, by the arm below.
            unsafe { libc::free(memory.cast()) };
            ptr::null_mut()
        }
        // SAFETY: takes a number.
        _ => unsafe { libc::malloc(bytes).cast() },
    })
}

/// The memory that the allocator gave, for two buffers. It must be given back by [`PoolMemory::release`].
pub struct PoolMemory {
    allocator: Allocator,
    begin: NonNull<u8>,
}

// SAFETY: the memory belongs to the pool alone, and the allocator is `Send`.
unsafe impl Send for PoolMemory {}

impl PoolMemory {
    /// Memory for two buffers, in the order in which they are to be used.
    pub fn allocate(
        mut allocator: Allocator,
        buffer_bytes: usize,
    ) -> Result<(Self, [Buffer; 2]), Error> {
        let bytes = buffer_bytes.max(MIN_BUFFER);
        let total = bytes.checked_mul(2).ok_or(Error::NoMemory)?;
        let begin = NonNull::new(allocator(ptr::null_mut(), total)).ok_or(Error::NoMemory)?;
        if !begin.cast::<ActivityRecord>().is_aligned() {
            allocator(begin.as_ptr(), 0);
            return Err(Error::NoMemory);
        }
        // Of an odd size the rest is left alone, so that records in the second one are aligned, too.
        let bytes = bytes & !(align_of::<ActivityRecord>() - 1);
        // SAFETY: both are within what was allocated.
        let second = unsafe { begin.add(bytes) };
        let buffers = [Buffer::new(begin, bytes), Buffer::new(second, bytes)];
        Ok((Self { allocator, begin }, buffers))
    }

    /// Gives it back. Nobody uses the buffers any more.
    pub fn release(mut self) {
        (self.allocator)(self.begin.as_ptr(), 0);
    }
}

/// Records from its begin on, and the data that they point at from its end on, downwards.
///
/// A thread that writes takes a place first, and waits for nobody: places are taken in an order, and filled in any.
/// Nobody takes a place any more once the buffer is closed, and when all places that were taken are filled it can be
/// read.
pub struct Buffer {
    begin: NonNull<u8>,
    bytes: usize,
    /// Bytes that are taken, of records and, [`DATA`] times, of the data that they point at; and [`CLOSED`].
    taken: AtomicU64,
    /// Bytes of both that are filled.
    filled: AtomicU64,
    /// The memory, where it is not the pool's.
    _own: Vec<u64>,
}

/// Most bytes that a buffer has; more are left alone.
const MOST: usize = 1 << 30;
/// A byte of the data that records point at, in [`Buffer::taken`].
const DATA: u64 = 1 << 32;
/// Nothing can be taken.
const CLOSED: u64 = 1 << 63;

// SAFETY: the memory is that of the pool, which outlives it, or its own. Each byte is written by the thread that has
// taken it, once, and read when that is done.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// A place for some records that follow each other, and for the data that the last one points at.
pub struct Reservation<'a> {
    buffer: &'a Buffer,
    records: NonNull<ActivityRecord>,
    data: NonNull<u8>,
    bytes: usize,
}

impl Buffer {
    /// A buffer that is closed.
    fn new(begin: NonNull<u8>, bytes: usize) -> Self {
        Self {
            begin,
            bytes: bytes.min(MOST),
            taken: AtomicU64::new(CLOSED),
            filled: AtomicU64::new(0),
            _own: Vec::new(),
        }
    }

    /// A buffer with memory of its own.
    pub fn extra(bytes: usize) -> Result<Self, Error> {
        let words = bytes.div_ceil(size_of::<u64>());
        let mut own = Vec::new();
        own.try_reserve_exact(words).map_err(|_| Error::NoMemory)?;
        own.resize(words, 0);
        let begin = NonNull::from(own.as_mut_slice()).cast();
        Ok(Self { _own: own, ..Self::new(begin, words * size_of::<u64>()) })
    }

    /// The number of bytes that it can hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that are taken, of records and of the data that they point at.
    fn taken(&self) -> (usize, usize) {
        let taken = self.taken.load(Ordering::Relaxed) & !CLOSED;
        ((taken % DATA) as usize, (taken / DATA) as usize)
    }

    /// Whether no place is taken in it.
    pub fn is_empty(&self) -> bool {
        self.taken() == (0, 0)
    }

    /// Empties it; from now on places can be taken. It was closed, and nobody reads it any more.
    pub fn open(&self) {
        self.filled.store(0, Ordering::Relaxed);
        // Pairs with the Acquire in `take`.
        self.taken.store(0, Ordering::Release);
    }

    /// From now on no place can be taken.
    pub fn close(&self) {
        self.taken.fetch_or(CLOSED, Ordering::Relaxed);
    }

    /// Takes a place for this many records, and this many bytes that the last one points at; none if the buffer is
    /// closed or has no room.
    #[inline]
    pub fn take(&self, records: usize, data: usize) -> Option<Reservation<'_>> {
        let bytes = records * RECORD + data;
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let (of_records, of_data) = ((taken % DATA) as usize, (taken / DATA) as usize);
            if taken & CLOSED != 0 || bytes > self.bytes - of_records - of_data {
                return None;
            }
            let more = taken + (records * RECORD) as u64 + data as u64 * DATA;
            // Acquire pairs with the Release in `open`: the records of before have been read.
            let exchanged =
                self.taken.compare_exchange_weak(taken, more, Ordering::Acquire, Ordering::Relaxed);
            if let Err(now) = exchanged {
                taken = now;
                continue;
            }
            // SAFETY: there is room, of records from the begin on and of data below the end.
            let (at, data) = unsafe {
                (self.begin.add(of_records), self.begin.add(self.bytes - of_data - data))
            };
            return Some(Reservation { buffer: self, records: at.cast(), data, bytes });
        }
    }

    /// The records. The buffer is closed; this waits for threads that have taken a place.
    pub fn records(&self) -> &[ActivityRecord] {
        let (records, data) = self.taken();
        // Acquire pairs with the Release in `fill`.
        while self.filled.load(Ordering::Acquire) != (records + data) as u64 {
            #[cfg(loom)]
            loom::thread::yield_now();
            #[cfg(not(loom))]
            sys::sleep_ns(10_000);
        }
        // SAFETY: this many were filled from the begin on.
        unsafe { std::slice::from_raw_parts(self.begin.cast().as_ptr(), records / RECORD) }
    }
}

impl Reservation<'_> {
    /// Fills the place: with as many records, and as much data, as it was taken for. The last one points at the data,
    /// if there is any.
    #[inline]
    pub fn fill<const N: usize>(self, records: [&ActivityRecord; N], data: &[u8]) {
        assert!(N * RECORD + data.len() == self.bytes);
        // SAFETY: the place is as large, its own, and aligned as records are.
        unsafe {
            for (index, record) in records.into_iter().enumerate() {
                self.records.add(index).write(*record);
            }
            if !data.is_empty() {
                self.data.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len());
                let last = self.records.add(N - 1).as_mut();
                last.bytes_or_name = self.data.as_ptr().expose_provenance() as u64;
            }
        }
        // Pairs with the Acquire in `records`.
        self.buffer.filled.fetch_add(self.bytes as u64, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Two threads write while the buffer is read twice, emptied in between: every record that was taken is read, once,
    /// and whole.
    #[test]
    fn each_record_is_read_once_by_who_has_closed() {
        let mut model = loom::model::Builder::new();
        // All of them take a minute.
        model.preemption_bound = Some(3);
        model.check(|| {
            let buffer = Arc::new(Buffer::extra(2 * RECORD).expect("memory"));
            buffer.open();
            let writers = [1, 2].map(|id| {
                let buffer = Arc::clone(&buffer);
                thread::spawn(move || {
                    let record = ActivityRecord {
                        correlation_id: id,
                        end_ns: id,
                        ..ActivityRecord::default()
                    };
                    let place = buffer.take(1, 0);
                    place.map(|place| place.fill([&record], &[])).map(|()| id)
                })
            });
            let mut read = Vec::new();
            for round in 0..2 {
                if round > 0 {
                    buffer.open();
                }
                buffer.close();
                for record in buffer.records() {
                    assert_eq!(record.correlation_id, record.end_ns);
                    read.push(record.correlation_id);
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
