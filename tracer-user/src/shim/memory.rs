//! One sealed memfd that a shim writes to.
#![expect(unsafe_code, reason = "maps the shared memory")]

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    slice,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags},
    io::Errno,
    mm::{MapFlags, ProtFlags, munmap},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use tracer_common::{
    calls::{Call, OPEN_CALLS, OPEN_WORDS},
    loss::ShimLoss,
    ring::Consumer,
    shim::{self, CONTROL_BYTES, GROWTHS, Layout, RING_HEADER_BYTES, control, ring_word},
};

/// Why a shim that was loaded records nothing.
const UNKNOWN_TABLES: &str = "the shim does not know the API tables of this HSA runtime: their version and the runtime's code are of no release that it knows";

/// Another reason why a shim that was loaded records nothing.
const NO_THREAD: &str = "the process could not start a thread for the shim: no more are allowed to it or to its user, or it has no memory for one";

/// Creating the shared memory failed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The kernel refused.
    #[error("shared memory of {bytes} bytes for the shim: {call} failed: {cause}")]
    Refused {
        /// The size that it was to have.
        bytes: usize,
        /// The system call.
        call: &'static str,
        /// The error. Part of the message, hence no `source`.
        cause: Errno,
    },
    /// The process that made it has resized it meanwhile.
    #[error("shared memory of {bytes} bytes for the shim: the process has resized it to {found}")]
    Resized {
        /// The size that it was to have.
        bytes: usize,
        /// The size that it has.
        found: i64,
    },
}

impl MemoryError {
    fn of(layout: Layout, call: &'static str, cause: Errno) -> Self {
        Self::Refused { bytes: layout.total_bytes(), call, cause }
    }
}

/// A shared memory, mapped. The peer is not trusted: it may write anything at any time, which is why all access is
/// atomic. Dropping this unmaps it.
pub struct SharedMemory {
    fd: OwnedFd,
    at: *const AtomicU64,
    layout: Layout,
}

// SAFETY: all threads reach the words as atomics; the mapping belongs to no thread.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates a memory and its control block.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn create(layout: Layout) -> Result<Self, MemoryError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("roctap-shim", flags)
            .map_err(|cause| MemoryError::of(layout, "memfd_create", cause))?;
        Self::adopt(fd, layout)
    }

    /// Makes a memory of an empty memfd that allows sealing, such as one that a target created.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn adopt(fd: OwnedFd, layout: Layout) -> Result<Self, MemoryError> {
        let bytes = layout.total_bytes();
        let failed = |call| move |cause| MemoryError::of(layout, call, cause);
        // The limit of a file's size is meant for files that stay.
        let limit = getrlimit(Resource::Fsize);
        let _ = setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, ..limit });
        let resized = rustix::fs::ftruncate(&fd, bytes as u64);
        let _ = setrlimit(Resource::Fsize, limit);
        let call = match resized {
            Err(Errno::FBIG) => "ftruncate, under the limit on the size of files (ulimit -f),",
            _ => "ftruncate",
        };
        resized.map_err(failed(call))?;
        // A peer that shrank the memory would kill roctap with SIGBUS.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(failed("fcntl(F_ADD_SEALS)"))?;
        match rustix::fs::fstat(&fd).map_err(failed("fstat"))?.st_size {
            found if found == bytes as i64 => {}
            found => return Err(MemoryError::Resized { bytes, found }),
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &fd, 0)
        }
        .map_err(failed("mmap"))?;
        let memory = Self { fd, at: start.cast::<AtomicU64>(), layout };
        memory.word(control::VERSION).store(shim::VERSION, Ordering::Relaxed);
        memory.word(control::RINGS).store(layout.rings as u64, Ordering::Relaxed);
        memory.word(control::RING_BYTES).store(layout.ring_bytes as u64, Ordering::Relaxed);
        memory.word(control::RECORD).store(1, Ordering::Relaxed);
        // Release: a shim that sees the magic (it loads it with Acquire) sees the rest.
        memory.word(control::MAGIC).store(shim::MAGIC, Ordering::Release);
        Ok(memory)
    }

    /// The memory's memfd.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is that long, page-aligned, and there until `self` is dropped; the size is
        // sealed; every bit pattern is a valid AtomicU64.
        unsafe { slice::from_raw_parts(self.at, self.layout.total_bytes() / 8) }
    }

    /// A word of the control block, an index of [`control`].
    pub fn word(&self, index: usize) -> &AtomicU64 {
        &self.words()[index]
    }

    /// The process that claimed the memory, as that process sees itself.
    pub fn owner(&self) -> Option<u32> {
        let pid = self.word(control::PID).load(Ordering::Acquire);
        u32::try_from(pid).ok().filter(|&pid| pid != 0)
    }

    /// Lets process `pid` alone claim the memory. To be called before any process can claim it.
    pub fn keep_for(&self, pid: u32) {
        self.word(control::ONLY_PID).store(pid.into(), Ordering::Relaxed);
    }

    /// Why the shim that claimed the memory records nothing, and has touched nothing; none if it has not said so.
    pub fn why_helpless(&self) -> Option<&'static str> {
        match self.word(control::STATE).load(Ordering::Relaxed) {
            shim::state::UNSUPPORTED => Some(UNKNOWN_TABLES),
            shim::state::NO_THREAD => Some(NO_THREAD),
            _ => None,
        }
    }

    /// Asks the shim for calls: [`tracer_common::calls::Wanted`] words by slot, and the first id of its calls.
    pub fn want_calls(&self, words: &[u64], first_id: u64) {
        for (index, &word) in words.iter().enumerate() {
            self.word(control::CALLS + index).store(word, Ordering::Relaxed);
        }
        self.word(control::FIRST_CALL_ID).store(first_id, Ordering::Relaxed);
    }

    /// The tables whose calls the shim records: [`tracer_common::slots::tables`].
    pub fn calls_taken(&self) -> u8 {
        self.word(control::CALLS_TAKEN).load(Ordering::Acquire) as u8
    }

    /// How many records the shim could not make so far, by [`ShimLoss`].
    pub fn losses(&self) -> [u64; ShimLoss::COUNT] {
        std::array::from_fn(|i| self.word(control::LOSSES + i).load(Ordering::Relaxed))
    }

    /// How many rings have been claimed so far: the others hold nothing, and have no pages yet.
    pub fn claimed_rings(&self) -> usize {
        // Acquire pairs with the Release of the thread that claims a ring.
        let claimed = self.word(control::CLAIMED_RINGS).load(Ordering::Acquire);
        usize::try_from(claimed).map_or(self.layout.rings, |rings| rings.min(self.layout.rings))
    }

    /// The rings in which frames are ready, and for each the number of words to read. Together these are about `most`:
    /// the same part of each ring, since one thread may end what another one has begun. All words, if there are no
    /// more.
    pub fn ready(&self, most: u64) -> Vec<(usize, u64)> {
        let words = |ring| (ring, self.consumer(ring).ready());
        let mut ready: Vec<_> = (0..self.claimed_rings()).map(words).collect();
        ready.retain(|&(_, words)| words > 0);
        let all: u64 = ready.iter().map(|(_, words)| words).sum();
        if all > most {
            let part = |words| u128::from(words) * u128::from(most);
            for (_, words) in &mut ready {
                *words = part(*words).div_ceil(all.into()) as u64;
            }
        }
        ready
    }

    /// How many rings there are.
    pub fn rings(&self) -> usize {
        self.layout.rings
    }

    /// Gives the rings' pages back: the rings are read as empty from now on. The control block stays.
    pub fn release(&self) {
        self.give_back(CONTROL_BYTES, self.layout.total_bytes() - CONTROL_BYTES);
    }

    fn give_back(&self, offset: usize, bytes: usize) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = rustix::fs::fallocate(&self.fd, flags, offset as u64, bytes as u64) {
            tracing::debug!("a shared memory that nobody uses keeps its pages: {error}");
        }
    }

    fn ring_words(&self, ring: usize) -> &[AtomicU64] {
        let start = self.layout.ring_offset(ring) / 8;
        &self.words()[start..start + self.layout.stride() / 8]
    }

    /// The thread id that owns a ring, 0 when it is free.
    pub fn ring_owner(&self, ring: usize) -> &AtomicU64 {
        &self.ring_words(ring)[ring_word::OWNER]
    }

    fn open_places(&self, ring: usize) -> impl Iterator<Item = &[AtomicU64]> {
        let places = &self.ring_words(ring)[ring_word::OPEN_CALLS..];
        places.chunks_exact(OPEN_WORDS).take(OPEN_CALLS)
    }

    /// Writes a call of thread `owner`, which becomes the ring's owner, as the shim would write it.
    #[cfg(test)]
    pub fn open_call(&self, ring: usize, owner: u32, call: &Call) {
        self.word(control::CLAIMED_RINGS).store(ring as u64 + 1, Ordering::Release);
        self.ring_owner(ring).store(owner.into(), Ordering::Release);
        let Some(place) = self.open_places(ring).next() else { return };
        let mut words = [0; tracer_common::calls::MAX_CALL_WORDS];
        let count = call.encode(&mut words);
        place.iter().zip(&words[..count]).for_each(|(to, &word)| to.store(word, Ordering::Release));
    }

    /// The calls of a ring's thread that are open now, outermost first.
    pub fn open_calls(&self, ring: usize) -> Vec<Call> {
        let read = |place: &[AtomicU64]| {
            // Acquire pairs with the Release of the id, which is written last.
            let id = place[0].load(Ordering::Acquire);
            let mut words = [id; OPEN_WORDS];
            for (word, from) in words.iter_mut().zip(place).skip(1) {
                *word = from.load(Ordering::Acquire);
            }
            // If the call is gone or another by now, the words may be of both.
            let same = place[0].load(Ordering::Relaxed) == id;
            Call::decode(&words).filter(|_| same)
        };
        self.open_places(ring).filter_map(read).collect()
    }

    fn grown(ring_words: &[AtomicU64]) -> &[AtomicU64] {
        &ring_words[ring_word::GROWN..][..GROWTHS]
    }

    /// Makes a ring free for another thread, at its first size. Its owner is gone and its frames are read.
    pub fn free_ring(&self, ring: usize) {
        self.give_back(self.layout.ring_offset(ring) + RING_HEADER_BYTES, self.layout.ring_bytes);
        for word in Self::grown(self.ring_words(ring)) {
            word.store(0, Ordering::Relaxed);
        }
        for place in self.open_places(ring) {
            place[0].store(0, Ordering::Relaxed);
        }
        // Release: the next owner (which swaps with Acquire) sees the ring as it was left.
        self.ring_owner(ring).store(0, Ordering::Release);
    }

    /// Frames that a ring's producer had to drop.
    pub fn ring_dropped(&self, ring: usize) -> u64 {
        self.ring_words(ring)[ring_word::DROPPED].load(Ordering::Relaxed)
    }

    /// Gives a ring to thread `owner`.
    #[cfg(test)]
    pub(super) fn claim(&self, ring: usize, owner: u64) {
        self.ring_owner(ring).store(owner, Ordering::Relaxed);
        self.word(control::CLAIMED_RINGS).fetch_max(ring as u64 + 1, Ordering::Release);
    }

    /// Pages that exist.
    #[cfg(test)]
    pub(super) fn charged_pages(&self) -> usize {
        rustix::fs::fstat(&self.fd).unwrap().st_blocks as usize / 8
    }

    /// The writing end of a ring.
    #[cfg(test)]
    pub(super) fn producer(&self, ring: usize) -> tracer_common::ring::Producer<'_> {
        let words = self.ring_words(ring);
        let [head, tail, dropped] =
            [ring_word::HEAD, ring_word::TAIL, ring_word::DROPPED].map(|index| &words[index]);
        let (grown, data) = (Self::grown(words), &words[RING_HEADER_BYTES / 8..]);
        tracer_common::ring::Producer::new(head, tail, dropped, grown, data)
    }

    /// The reading end of a ring.
    pub fn consumer(&self, ring: usize) -> Consumer<'_> {
        let words = self.ring_words(ring);
        let (grown, data) = (Self::grown(words), &words[RING_HEADER_BYTES / 8..]);
        Consumer::new(&words[ring_word::HEAD], &words[ring_word::TAIL], grown, data)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it outlives `self`.
        if let Err(error) = unsafe { munmap(self.at.cast_mut().cast(), self.layout.total_bytes()) }
        {
            tracing::debug!("a shared memory stays mapped: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_memory_is_laid_out_as_the_shim_expects() {
        let layout = Layout { rings: 3, ring_bytes: 4096 };
        let memory = SharedMemory::create(layout).unwrap();
        assert_eq!(memory.words().len() * 8, layout.total_bytes());
        assert_eq!(memory.word(control::MAGIC).load(Ordering::Relaxed), shim::MAGIC);
        assert_eq!(memory.owner(), None);
        memory.free_ring(2);
        assert_eq!(memory.charged_pages(), 2);
        memory.release();
        assert_eq!(memory.charged_pages(), 1, "the control block");
        let mut frame = [0; tracer_common::ring::MAX_FRAME_WORDS];
        for ring in 0..layout.rings {
            assert_eq!(memory.consumer(ring).pop(&mut frame), Ok(None));
        }
    }

    /// The process that made the memory goes on shrinking it until it is sealed.
    #[test]
    fn a_memory_that_is_resized_meanwhile_is_not_used() {
        let layout = Layout { rings: 1, ring_bytes: 4096 };
        for _ in 0..200 {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let fd = rustix::fs::memfd_create("test", flags).unwrap();
            let theirs = fd.try_clone().unwrap();
            let tried = AtomicBool::new(false);
            std::thread::scope(|scope| {
                // A memory that is empty when it is sealed may be shrunk to nothing for ever.
                scope.spawn(|| {
                    while rustix::fs::ftruncate(&theirs, 0).is_ok()
                        && !tried.load(Ordering::Relaxed)
                    {}
                });
                match SharedMemory::adopt(fd, layout) {
                    Ok(memory) => assert_eq!(memory.ring_dropped(0), 0),
                    Err(error) => assert!(error.to_string().contains("has resized it"), "{error}"),
                }
                tried.store(true, Ordering::Relaxed);
            });
        }
    }
}
