//! Memory for records: what an allocator gave, and buffers in it.

#![expect(unsafe_code, reason = "memory of an allocator of the client's")]

use std::ptr::{self, NonNull};

use tracer_common::activity::ActivityRecord;

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

/// What the allocator gave, for two buffers. It must be given back by [`Memory::release`].
pub struct Memory {
    allocator: Allocator,
    begin: NonNull<u8>,
}

// SAFETY: the memory belongs to the pool alone, and the allocator is `Send`.
unsafe impl Send for Memory {}

impl Memory {
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

/// Records from its begin on, and what they point at from its end on, downwards.
pub struct Buffer {
    begin: NonNull<u8>,
    bytes: usize,
    records: usize,
    data_bytes: usize,
    /// The memory, where it is not the pool's.
    own: Option<Vec<u64>>,
}

// SAFETY: the memory belongs to the buffer alone: that of the pool, which outlives it, or its own.
unsafe impl Send for Buffer {}

impl Buffer {
    fn new(begin: NonNull<u8>, bytes: usize) -> Self {
        Self { begin, bytes, records: 0, data_bytes: 0, own: None }
    }

    /// One without room.
    pub fn none() -> Self {
        Self::new(NonNull::<u64>::dangling().cast(), 0)
    }

    /// One with memory of its own.
    pub fn extra(bytes: usize) -> Result<Self, Error> {
        let words = bytes.div_ceil(size_of::<u64>());
        let mut own = Vec::new();
        own.try_reserve_exact(words).map_err(|_| Error::NoMemory)?;
        own.resize(words, 0);
        let begin = NonNull::from(own.as_mut_slice()).cast();
        Ok(Self { own: Some(own), ..Self::new(begin, words * size_of::<u64>()) })
    }

    /// Whether its memory is its own.
    pub fn is_extra(&self) -> bool {
        self.own.is_some()
    }

    /// How many bytes it can hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Whether so many bytes, of records and of what they point at, fit in beside what is there.
    pub fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.bytes - self.records * RECORD - self.data_bytes
    }

    /// Forgets what is in it.
    pub fn clear(&mut self) {
        (self.records, self.data_bytes) = (0, 0);
    }

    /// Adds a record. The caller has asked for room.
    pub fn push(&mut self, record: &ActivityRecord) {
        assert!(self.has_room(RECORD));
        // SAFETY: there is room behind the other records, aligned as they are, and the buffer's alone.
        unsafe { self.begin.cast::<ActivityRecord>().add(self.records).write(*record) };
        self.records += 1;
    }

    /// Copies what a record points at, and returns where it is. The caller has asked for room.
    pub fn keep(&mut self, data: &[u8]) -> *const u8 {
        assert!(self.has_room(data.len()));
        self.data_bytes += data.len();
        // SAFETY: there is room above the records and below what was copied before, the buffer's alone.
        unsafe {
            let at = self.begin.add(self.bytes - self.data_bytes);
            ptr::copy_nonoverlapping(data.as_ptr(), at.as_ptr(), data.len());
            at.as_ptr()
        }
    }

    /// The records.
    pub fn records(&self) -> &[ActivityRecord] {
        // SAFETY: so many were written from the begin on.
        unsafe { std::slice::from_raw_parts(self.begin.cast().as_ptr(), self.records) }
    }
}
