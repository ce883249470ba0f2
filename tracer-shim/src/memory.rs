//! The shared memory: finding it, checking it, reaching its words.

#![expect(unsafe_code, reason = "maps memory")]

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use tracer_common::ring::Producer;
use tracer_common::shim::{
    CONTROL_BYTES, Layout, Loss, MAGIC, RING_HEADER_BYTES, VERSION, control, ring_word,
};

/// The mapped memory. It is never unmapped.
#[derive(Clone, Copy)]
pub struct Memory {
    words: &'static [AtomicU64],
    layout: Layout,
}

/// Why the shim has no memory and stays inert.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// Nobody named one.
    NotNamed,
    /// It cannot be opened or mapped.
    NotMapped,
    /// It is not a roctap shared memory, or of another version, or of impossible sizes.
    NotOurs,
    /// Another process has it: a child inherits the environment, and the memory is for one.
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
/// That of the last memory of the list; nothing was changed then.
pub fn connect() -> Result<Memory, ConnectError> {
    // SAFETY: the name is NUL-terminated; the result is used before the environment can change.
    let list = unsafe {
        let list = libc::getenv(c"ROCTAP_SHIM_MEMORY".as_ptr());
        if list.is_null() {
            return Err(ConnectError::NotNamed);
        }
        CStr::from_ptr(list)
    };
    let pid = tracer_hooks::sys::getpid();
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
fn open(path: &[u8]) -> Result<Memory, ConnectError> {
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
pub fn map(path: &CStr) -> Result<Memory, ConnectError> {
    // SAFETY: the path is NUL-terminated, `stat` is valid for writes, the descriptor is ours.
    let (at, bytes) = unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if file < 0 {
            return Err(ConnectError::NotMapped);
        }
        let mut stat: libc::stat = core::mem::zeroed();
        let bytes = match libc::fstat(file, &raw mut stat) {
            0 => usize::try_from(stat.st_size).unwrap_or(0),
            _ => 0,
        };
        // A file that can become shorter kills whoever has it mapped (SIGBUS).
        let seals = libc::fcntl(file, libc::F_GET_SEALS);
        let sealed = seals > 0 && seals & libc::F_SEAL_SHRINK != 0;
        let at = if bytes < CONTROL_BYTES || !sealed {
            libc::MAP_FAILED
        } else {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file, 0)
        };
        libc::close(file);
        (at, bytes)
    };
    if at == libc::MAP_FAILED {
        return Err(ConnectError::NotMapped);
    }
    // SAFETY: the mapping has `bytes` bytes, is page-aligned and lives for ever; atomics tolerate
    // whatever anybody else writes, and the file is sealed against shrinking.
    let words = unsafe { core::slice::from_raw_parts(at.cast::<AtomicU64>(), bytes / 8) };
    Memory::over(words).ok_or_else(|| {
        // SAFETY: nobody has a reference to it.
        unsafe { libc::munmap(at, bytes) };
        ConnectError::NotOurs
    })
}

impl Memory {
    /// The memory in `words`, if it is one: the sizes are believed from here on, and every index
    /// that follows from them is checked again where it is used.
    pub fn over(words: &'static [AtomicU64]) -> Option<Self> {
        let word = |i: usize| words.get(i).map_or(0, |w| w.load(Ordering::Acquire));
        let layout = Layout {
            rings: usize::try_from(word(control::RINGS)).ok()?,
            ring_bytes: usize::try_from(word(control::RING_BYTES)).ok()?,
        };
        let ours = word(control::MAGIC) == MAGIC
            && word(control::VERSION) == VERSION
            && layout.is_sane()
            && layout.total_bytes() <= words.len() * 8;
        ours.then_some(Self { words, layout })
    }

    /// Makes this process the memory's one producer.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Taken`].
    pub fn claim(&self, pid: u32) -> Result<(), ConnectError> {
        let Some(word) = self.words.get(control::PID) else { return Err(ConnectError::NotOurs) };
        // What a program left that had our id before us is not ours either.
        word.compare_exchange(0, u64::from(pid), Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(|_| ConnectError::Taken)
    }

    /// How many rings.
    pub fn rings(&self) -> usize {
        self.layout.rings
    }

    /// A control word; 0 for one that does not exist.
    #[inline]
    pub fn control(&self, index: usize) -> u64 {
        self.words.get(index).map_or(0, |w| w.load(Ordering::Relaxed))
    }

    /// Writes a control word.
    pub fn set_control(&self, index: usize, value: u64) {
        if let Some(word) = self.words.get(index) {
            word.store(value, Ordering::Release);
        }
    }

    /// Counts something that was not recorded.
    pub fn lost(&self, cause: Loss, count: u64) {
        if let Some(word) = self.words.get(control::LOSSES + cause.0 as usize) {
            word.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn ring_words(&self, ring: usize) -> Option<&'static [AtomicU64]> {
        let first = self.layout.ring_offset(ring) / 8;
        self.words.get(first..first + self.layout.stride() / 8).filter(|_| ring < self.layout.rings)
    }

    /// The word that says whose `ring` is.
    pub fn owner(&self, ring: usize) -> Option<&'static AtomicU64> {
        self.ring_words(ring)?.get(ring_word::OWNER)
    }

    /// The producer's side of `ring`. Only its owner may use it.
    #[inline]
    pub fn producer(&self, ring: usize) -> Option<Producer<'static>> {
        let words = self.ring_words(ring)?;
        Some(Producer::new(
            words.get(ring_word::HEAD)?,
            words.get(ring_word::TAIL)?,
            words.get(ring_word::DROPPED)?,
            words.get(RING_HEADER_BYTES / 8..)?,
        ))
    }

    /// Words that fit into `ring` now.
    pub fn room(&self, ring: usize) -> u64 {
        let Some(words) = self.ring_words(ring) else { return 0 };
        let word = |i: usize| words.get(i).map_or(0, |w| w.load(Ordering::Acquire));
        let used = word(ring_word::HEAD).wrapping_sub(word(ring_word::TAIL));
        (self.layout.ring_bytes as u64 / 8).saturating_sub(used)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A memory of `rings` rings of 4 KiB in this process.
    pub(crate) fn memory(rings: usize) -> Memory {
        let words = words(rings);
        Memory::over(words).expect("valid")
    }

    fn words(rings: usize) -> &'static [AtomicU64] {
        let layout = Layout { rings, ring_bytes: 4096 };
        let words: Vec<AtomicU64> =
            (0..layout.total_bytes() / 8).map(|_| AtomicU64::new(0)).collect();
        let words: &'static [AtomicU64] = words.leak();
        for (index, value) in [
            (control::MAGIC, MAGIC),
            (control::VERSION, VERSION),
            (control::RINGS, rings as u64),
            (control::RING_BYTES, 4096),
        ] {
            words[index].store(value, Ordering::Relaxed);
        }
        words
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
            let words = words(2);
            words[index].store(value, Ordering::Relaxed);
            assert!(Memory::over(words).is_none(), "{index} {value}");
        }
        assert_eq!(map(c"/dev/null").err(), Some(ConnectError::NotMapped));
        assert_eq!(map(c"/nowhere/at/all").err(), Some(ConnectError::NotMapped));
    }

    #[test]
    fn a_file_that_could_become_shorter_is_refused() {
        let path = std::env::temp_dir().join(format!("roctap-shim-test-{}", std::process::id()));
        let bytes: Vec<u8> =
            words(1).iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).collect();
        std::fs::write(&path, bytes).expect("written");
        let name = std::ffi::CString::new(path.display().to_string()).expect("no NUL");
        assert_eq!(map(&name).err(), Some(ConnectError::NotMapped));
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn one_process_has_it() {
        let memory = memory(1);
        assert_eq!(memory.claim(7), Ok(()));
        assert_eq!(memory.claim(7), Err(ConnectError::Taken));
        assert_eq!(memory.claim(8), Err(ConnectError::Taken));
    }
}
