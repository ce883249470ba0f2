//! The shared memory: it is found and checked, and its words are reached.

#![expect(unsafe_code, reason = "maps memory")]

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use tracer_common::calls::{Call, MAX_CALL_WORDS, OPEN_WORDS};
use tracer_common::loss::ShimLoss;
use tracer_common::ring::Producer;
use tracer_common::shim::{
    CONTROL_BYTES, GROWTHS, Layout, MAGIC, RING_HEADER_BYTES, VERSION, control, ring_word,
};
use tracer_hooks::sys;

/// A mapped memory; dropping it unmaps it.
pub struct SharedMemory {
    at: *const AtomicU64,
    count: usize,
    layout: Layout,
    /// A number by which it differs from those before it.
    generation: u32,
    /// The number of rings that may be touched. The others cost nothing, also where the process has locked all that it
    /// has into memory (`mlockall(MCL_CURRENT)`).
    open_rings: AtomicUsize,
}

/// The number of rings that are opened at once: a call of the kernel for each thread would be many.
const OPENED: usize = 8;

// SAFETY: words that everybody reaches as atomics; the mapping belongs to no thread.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

static GENERATIONS: AtomicU32 = AtomicU32::new(0);

/// The reason for which the shim has no memory and stays inert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// Nobody named one.
    NotNamed,
    /// It cannot be opened or mapped.
    NotMapped,
    /// It is not a roctap shared memory, or of another version, or of impossible sizes.
    NotOurs,
    /// Another process has it, or it is for another one: a child inherits the environment, and the memory is for one
    /// process.
    Taken,
}

/// Longest path of a memory, bytes.
const MAX_PATH: usize = 256;

/// Connects to the first memory of the environment's list that no other process has.
///
/// A process that executes another program keeps its id, and the new program finds the memory of
/// the old one claimed by that id: it takes another, because it counts from the beginning.
///
/// # Errors
///
/// The error of the last memory of the list; nothing was changed then.
pub fn connect() -> Result<SharedMemory, ConnectError> {
    // SAFETY: the name is NUL-terminated; the result is used before the environment can change.
    let list = unsafe {
        let list = libc::getenv(c"ROCTAP_SHIM_MEMORY".as_ptr());
        if list.is_null() {
            return Err(ConnectError::NotNamed);
        }
        CStr::from_ptr(list)
    };
    // The memories are in roctap's part of `/proc`, where roctap looks for the process that has claimed one.
    let Some(pid) = sys::pid_in_proc() else { return Err(ConnectError::NotMapped) };
    let mut result = Err(ConnectError::NotNamed);
    for path in list.to_bytes().split(|&byte| byte == b':') {
        result = open(path).and_then(|memory| memory.claim(pid).map(|()| memory));
        if result.is_ok() {
            break;
        }
    }
    result
}

/// [`map`], of a path without its terminating NUL.
fn open(path: &[u8]) -> Result<SharedMemory, ConnectError> {
    let mut buffer = [0; MAX_PATH];
    let room = buffer.get_mut(..path.len()).filter(|room| room.len() < MAX_PATH);
    room.ok_or(ConnectError::NotMapped)?.copy_from_slice(path);
    map(CStr::from_bytes_until_nul(&buffer).map_err(|_| ConnectError::NotMapped)?)
}

/// Maps the memory at `path` and checks its control words.
///
/// # Errors
///
/// [`ConnectError::NotMapped`] or [`ConnectError::NotOurs`].
pub fn map(path: &CStr) -> Result<SharedMemory, ConnectError> {
    // SAFETY: the path is NUL-terminated.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if file < 0 {
        return Err(ConnectError::NotMapped);
    }
    // A memory that was made for a command is too much for a process that has limited itself since: it gets a smaller
    // one later.
    if !sys::sealed_bytes(file).is_some_and(sys::leaves_room) {
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(file) };
        return Err(ConnectError::NotMapped);
    }
    map_file(file)
}

/// Maps the memory behind a descriptor, which is closed in any case, and checks its control words.
///
/// # Errors
///
/// [`ConnectError::NotMapped`] or [`ConnectError::NotOurs`].
pub fn map_file(file: i32) -> Result<SharedMemory, ConnectError> {
    let bytes = sys::sealed_bytes(file).filter(|&bytes| bytes >= CONTROL_BYTES);
    let map = |bytes| Some((sys::map_pages(bytes, Some(file), CONTROL_BYTES)?, bytes));
    let mapped = bytes.and_then(map);
    // SAFETY: the descriptor is ours.
    unsafe { libc::close(file) };
    let Some((at, bytes)) = mapped else { return Err(ConnectError::NotMapped) };
    // SAFETY: the mapping has `bytes` bytes, is page-aligned and nobody else's.
    unsafe { SharedMemory::over(at.cast::<AtomicU64>(), bytes / 8) }
}

impl SharedMemory {
    /// The memory at `at`, if it is one: the sizes are believed from here on, and every index that
    /// follows from them is checked again where it is used.
    ///
    /// # Errors
    ///
    /// [`ConnectError::NotOurs`]; it is unmapped then.
    ///
    /// # Safety
    ///
    /// A mapping of `count` words begins at `at`, which is the caller's to give away. It must not be
    /// a file that can become shorter.
    unsafe fn over(at: *const AtomicU64, count: usize) -> Result<Self, ConnectError> {
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1;
        let layout = Layout { rings: 0, ring_bytes: 0 };
        let mut memory = Self { at, count, layout, generation, open_rings: AtomicUsize::new(0) };
        // Acquire pairs with roctap's Release store of the magic number, its last.
        let word = |i: usize| memory.words().get(i).map_or(0, |w| w.load(Ordering::Acquire));
        let layout = Layout {
            rings: usize::try_from(word(control::RINGS)).unwrap_or(0),
            ring_bytes: usize::try_from(word(control::RING_BYTES)).unwrap_or(0),
        };
        let ours = word(control::MAGIC) == MAGIC
            && word(control::VERSION) == VERSION
            && layout.is_sane()
            && layout.total_bytes() <= count * 8;
        if !ours {
            return Err(ConnectError::NotOurs);
        }
        memory.layout = layout;
        Ok(memory)
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: they are mapped until `self` is dropped; atomics tolerate whatever anybody else
        // writes, and the file is sealed against shrinking.
        unsafe { core::slice::from_raw_parts(self.at, self.count) }
    }

    /// A number by which this memory differs from every other that the process had.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Makes this process the memory's one producer.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Taken`].
    pub fn claim(&self, pid: u32) -> Result<(), ConnectError> {
        let Some(word) = self.words().get(control::PID) else { return Err(ConnectError::NotOurs) };
        // A child inherits the environment also where children are not to be recorded.
        if ![0, u64::from(pid)].contains(&self.control(control::ONLY_PID)) {
            return Err(ConnectError::Taken);
        }
        // A memory of a program that had our id before us is not ours either. AcqRel: of all processes that claim it
        // one comes first; roctap's Acquire load sees its id.
        word.compare_exchange(0, u64::from(pid), Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(|_| ConnectError::Taken)
    }

    /// Number of rings.
    pub fn rings(&self) -> usize {
        self.layout.rings
    }

    /// A control word; 0 for one that does not exist.
    #[inline]
    pub fn control(&self, index: usize) -> u64 {
        self.words().get(index).map_or(0, |w| w.load(Ordering::Relaxed))
    }

    /// Writes a control word. Release: where roctap loads it with Acquire, it finds everything that was written before.
    pub fn set_control(&self, index: usize, value: u64) {
        if let Some(word) = self.words().get(index) {
            word.store(value, Ordering::Release);
        }
    }

    /// Tells that rings up to this one have been claimed.
    pub fn claimed(&self, ring: usize) {
        if let Some(word) = self.words().get(control::CLAIMED_RINGS) {
            // Release: a reader that sees it sees the owner.
            word.fetch_max(ring as u64 + 1, Ordering::Release);
        }
    }

    /// Counts something that was not recorded.
    pub fn lost(&self, cause: ShimLoss, count: u64) {
        if let Some(word) = self.words().get(control::LOSSES + cause.0 as usize) {
            word.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Takes back one loss that was counted: the record is there after all.
    pub fn found(&self, cause: ShimLoss) {
        if let Some(word) = self.words().get(control::LOSSES + cause.0 as usize) {
            let one_less = |count: u64| count.checked_sub(1);
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
    }

    fn ring_words(&self, ring: usize) -> Option<&[AtomicU64]> {
        let first = self.layout.ring_offset(ring) / 8;
        self.words()
            .get(first..first + self.layout.stride() / 8)
            .filter(|_| ring < self.layout.rings)
    }

    /// The word that holds the owner of `ring`, which may be used from now on; none where the kernel refuses that.
    pub fn owner(&self, ring: usize) -> Option<&AtomicU64> {
        let words = self.ring_words(ring)?;
        // Acquire pairs with the Release in `open`.
        let is_open = ring < self.open_rings.load(Ordering::Acquire) || self.open(ring);
        words.get(ring_word::OWNER).filter(|_| is_open)
    }

    #[cold]
    fn open(&self, ring: usize) -> bool {
        let rings = (ring + OPENED).min(self.layout.rings);
        let before = self.open_rings.load(Ordering::Relaxed).min(ring);
        let [first, end] = [before, rings].map(|ring| self.layout.ring_offset(ring));
        // SAFETY: the rings are in the mapping, which is there until `self` is dropped.
        let is_open =
            unsafe { sys::open_pages(self.at.cast_mut().byte_add(first).cast(), end - first) };
        if is_open {
            self.open_rings.fetch_max(rings, Ordering::Release);
        }
        is_open
    }

    /// The producer's side of `ring`. Only its owner may use it.
    #[inline]
    pub fn producer(&self, ring: usize) -> Option<Producer<'_>> {
        let words = self.ring_words(ring)?;
        Some(Producer::new(
            words.get(ring_word::HEAD)?,
            words.get(ring_word::TAIL)?,
            words.get(ring_word::DROPPED)?,
            words.get(ring_word::GROWN..ring_word::GROWN + GROWTHS)?,
            words.get(RING_HEADER_BYTES / 8..)?,
        ))
    }

    #[inline]
    fn open_place(&self, ring: usize, index: usize) -> Option<&[AtomicU64]> {
        let first = ring_word::OPEN_CALLS + index * OPEN_WORDS;
        self.ring_words(ring)?.get(first..first + OPEN_WORDS)
    }

    /// Puts an open call into the header of `ring`. Only the ring's owner may do so.
    #[inline]
    pub fn open_call(&self, ring: usize, index: usize, call: &Call) {
        let Some([id, rest @ ..]) = self.open_place(ring, index) else { return };
        let mut words = [0; MAX_CALL_WORDS];
        let count = call.encode(&mut words);
        for (to, &from) in rest.iter().zip(words.get(1..count).unwrap_or_default()) {
            to.store(from, Ordering::Relaxed);
        }
        // Last: a reader that sees the id (with Acquire) sees the rest.
        id.store(call.correlation_id, Ordering::Release);
    }

    /// Takes an open call out of the header of `ring`.
    #[inline]
    pub fn close_call(&self, ring: usize, index: usize) {
        if let Some([id, ..]) = self.open_place(ring, index) {
            // Release: its frame, if there is one, is in the ring for a reader that finds the call gone.
            id.store(0, Ordering::Release);
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and the thread that drops it is its last user.
        unsafe { libc::munmap(self.at.cast_mut().cast(), self.count * 8) };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tracer_common::{calls::OPEN_CALLS, ring::Consumer};

    impl SharedMemory {
        /// The first words of a ring's open calls.
        pub(crate) fn open_words(&self, ring: usize) -> Vec<u64> {
            let places = (0..OPEN_CALLS).filter_map(|index| self.open_place(ring, index));
            places.map(|place| place[0].load(Ordering::Acquire)).collect()
        }

        pub(crate) fn consumer(&self, ring: usize) -> Consumer<'_> {
            let words = self.ring_words(ring).expect("exists");
            Consumer::new(
                &words[ring_word::HEAD],
                &words[ring_word::TAIL],
                &words[ring_word::GROWN..][..GROWTHS],
                &words[RING_HEADER_BYTES / 8..],
            )
        }
    }

    /// A memory of `rings` rings of 4 KiB, all of which may be used.
    pub(crate) fn mapped(rings: usize) -> SharedMemory {
        let memory = map_file(file(rings, &[], true)).expect("valid");
        assert!((0..rings).all(|ring| memory.owner(ring).is_some()));
        memory
    }

    /// The descriptor of one, with some control words changed, sealed or not.
    pub(crate) fn file(rings: usize, changes: &[(usize, u64)], sealed: bool) -> i32 {
        let layout = Layout { rings, ring_bytes: 4096 };
        // SAFETY: plain system calls on a new descriptor.
        unsafe {
            let file = libc::memfd_create(c"roctap-test".as_ptr(), libc::MFD_ALLOW_SEALING);
            assert_eq!(libc::ftruncate(file, layout.total_bytes() as i64), 0);
            if sealed {
                assert_eq!(libc::fcntl(file, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK), 0);
            }
            let words = [
                (control::MAGIC, MAGIC),
                (control::VERSION, VERSION),
                (control::RINGS, rings as u64),
                (control::RING_BYTES, 4096),
            ];
            for (index, value) in words.iter().chain(changes) {
                let at = (index * 8) as i64;
                assert_eq!(libc::pwrite(file, value.to_le_bytes().as_ptr().cast(), 8, at), 8);
            }
            file
        }
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        for (index, value) in [
            (control::MAGIC, 1),
            (control::VERSION, VERSION + 1),
            (control::RINGS, 0),
            (control::RINGS, 3),
            (control::RINGS, u64::MAX),
            (control::RING_BYTES, 4097),
            (control::RING_BYTES, 8192),
        ] {
            let result = map_file(file(2, &[(index, value)], true)).err();
            assert_eq!(result, Some(ConnectError::NotOurs), "{index} {value}");
        }
        assert_eq!(map(c"/dev/null").err(), Some(ConnectError::NotMapped));
        assert_eq!(map(c"/nowhere/at/all").err(), Some(ConnectError::NotMapped));
    }

    #[test]
    fn a_file_that_could_become_shorter_is_refused() {
        assert_eq!(map_file(file(1, &[], false)).err(), Some(ConnectError::NotMapped));
        assert_eq!(map_file(-1).err(), Some(ConnectError::NotMapped));
    }

    #[test]
    fn it_may_be_for_one_process_alone() {
        let memory = map_file(file(1, &[(control::ONLY_PID, 7)], true)).expect("valid");
        assert_eq!(memory.claim(8), Err(ConnectError::Taken));
        assert_eq!(memory.claim(7), Ok(()));
    }

    #[test]
    fn one_process_has_it() {
        let memory = mapped(1);
        assert_eq!(memory.claim(7), Ok(()));
        assert_eq!(memory.claim(7), Err(ConnectError::Taken));
        assert_eq!(memory.claim(8), Err(ConnectError::Taken));
    }
}
