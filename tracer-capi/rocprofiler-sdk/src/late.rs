//! The memory by which `roctap tool` has put a tool into the running process, and by which the process tells roctap
//! what becomes of it: [`tracer_common::tool`].

#![expect(unsafe_code, reason = "memory that roctap reads")]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::ffi::CString;
use std::os::fd::RawFd;

use tracer_common::tool::{BYTES, MAGIC, MESSAGE, MESSAGE_BYTES, PATH, PATH_BYTES, VERSION, word};
use tracer_hooks::lock::{Guard, Lock};
use tracer_hooks::sys;

use crate::process;

/// The end of a text for which there is no more room.
const CUT: &str = "... (more was said)\n";
/// The time that a thread waits for another one that says something.
const WAIT_NS: u64 = 1_000_000_000;

/// The memory, mapped, and its file.
struct SharedMemory {
    at: NonNull<u8>,
    /// The length of the message.
    said: usize,
    /// There is no room for more.
    is_cut: bool,
}

// SAFETY: the mapping belongs to no thread.
unsafe impl Send for SharedMemory {}

/// The memory of the tool which is there now.
static MEMORY: Lock<Option<SharedMemory>> = Lock::new(None);

/// The identity of a file: its device and its inode.
type Id = (u64, u64);

/// The file that has a number now; none if there is none.
fn id_of(number: RawFd) -> Option<Id> {
    // SAFETY: `stat` is valid for writes.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let is_open = libc::fstat(number, &raw mut stat) == 0;
        is_open.then_some((stat.st_dev, stat.st_ino))
    }
}

/// A descriptor of the process, which may close it: then its number is another file's.
struct File {
    number: RawFd,
    id: Id,
}

impl File {
    /// The file of this number.
    fn of(number: RawFd) -> Option<Self> {
        id_of(number).map(|id| Self { number, id })
    }

    /// Whether the process has not closed it.
    fn is_there(&self) -> bool {
        id_of(self.number) == Some(self.id)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.is_there() {
            // SAFETY: roctap's thread has opened it for us.
            unsafe { libc::close(self.number) };
        }
    }
}

impl SharedMemory {
    /// Maps the memory of a file; none if it is none.
    fn map(file: &File) -> Option<Self> {
        let is_whole = sys::sealed_bytes(file.number) == Some(BYTES);
        let at = is_whole.then(|| sys::map_pages(BYTES, Some(file.number), BYTES)).flatten()?;
        let memory = Self { at: NonNull::new(at.cast())?, said: 0, is_cut: false };
        let is_ours = [(word::MAGIC, MAGIC), (word::VERSION, VERSION)]
            .into_iter()
            .all(|(place, expected)| memory.word(place).load(Ordering::Relaxed) == expected);
        is_ours.then_some(memory)
    }

    fn word(&self, place: usize) -> &AtomicU64 {
        debug_assert!(place < word::COUNT);
        // SAFETY: within the mapping, at a word; everybody reaches it as an atomic.
        unsafe { self.at.cast::<AtomicU64>().add(place).as_ref() }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        debug_assert!(offset < BYTES);
        // SAFETY: as above.
        unsafe { self.at.cast::<AtomicU8>().add(offset).as_ref() }
    }

    fn path(&self) -> Option<CString> {
        let bytes = (PATH..PATH + PATH_BYTES).map(|at| self.byte(at).load(Ordering::Relaxed));
        CString::new(bytes.take_while(|&byte| byte != 0).collect::<Vec<_>>()).ok()
    }

    /// Adds lines to the message, as long as there is room for them.
    fn say(&mut self, text: &str) {
        if self.is_cut {
            return;
        }
        // The last byte stays NUL.
        let left = MESSAGE_BYTES - 1 - CUT.len() - self.said;
        self.is_cut = text.len() > left;
        let (text, end) = match self.is_cut {
            true => (&text[..text.floor_char_boundary(left)], CUT),
            false => (text, ""),
        };
        for byte in text.bytes().chain(end.bytes()) {
            self.byte(MESSAGE + self.said).store(byte, Ordering::Relaxed);
            self.said += 1;
        }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nobody has a pointer to it any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), BYTES) };
    }
}

/// A tool is to be put in, as the memory behind a descriptor says. No other one can be until the [`end`] of this one.
pub struct Request {
    file: File,
    /// The tool's path.
    pub path: CString,
}

/// The reason for which no tool is put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The memory cannot be used.
    Memory,
    /// There is another one.
    Busy,
    /// The process is a forked child.
    Forked,
}

impl Request {
    /// Takes the descriptor, which is the caller's to give away.
    ///
    /// # Errors
    ///
    /// [`Refused`]; the descriptor is closed.
    pub fn take(descriptor: u64) -> Result<Self, Refused> {
        let number = RawFd::try_from(descriptor).map_err(|_| Refused::Memory)?;
        let file = File::of(number).ok_or(Refused::Memory)?;
        if process::is_forked() {
            return Err(Refused::Forked);
        }
        let memory = SharedMemory::map(&file).ok_or(Refused::Memory)?;
        let path = memory.path().ok_or(Refused::Memory)?;
        let mut current = MEMORY.lock_for(WAIT_NS).ok_or(Refused::Busy)?;
        if current.is_some() {
            return Err(Refused::Busy);
        }
        *current = Some(memory);
        Ok(Self { file, path })
    }

    /// Whether roctap has not ended, nor let go of the tool.
    pub fn is_wanted(&self) -> bool {
        let flags = libc::LOCK_SH | libc::LOCK_NB;
        // SAFETY: it takes numbers.
        self.file.is_there() && unsafe { libc::flock(self.file.number, flags) } != 0
    }

    /// Waits until roctap lets go of the tool, or has ended. False if it cannot wait, since the process has closed the
    /// file, or may not lock it.
    pub fn wait(&self) -> bool {
        while self.file.is_there() {
            // SAFETY: it takes numbers.
            if unsafe { libc::flock(self.file.number, libc::LOCK_SH) } == 0 {
                return true;
            }
            if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                return false;
            }
        }
        false
    }
}

/// Tells roctap what has become of the tool, if roctap has put one in.
pub fn tell(state: u64) {
    if let Some(Some(memory)) = own().as_deref() {
        // Pairs with roctap's look: roctap sees what was said before.
        memory.word(word::STATE).store(state, Ordering::Release);
    }
}

/// As [`tell`], and then the tool is over: another one can be put in.
pub fn end(state: u64) {
    if let Some(mut current) = own()
        && let Some(memory) = current.take()
    {
        memory.word(word::STATE).store(state, Ordering::Release);
    }
}

/// Says something to roctap; false if roctap has put no tool in.
pub fn say(line: &str) -> bool {
    match own().as_deref_mut() {
        Some(Some(memory)) => {
            memory.say(line);
            true
        }
        _ => false,
    }
}

/// The memory of this process; a forked child has none.
fn own() -> Option<Guard<'static, Option<SharedMemory>>> {
    if process::is_forked() { None } else { MEMORY.lock_for(WAIT_NS) }
}

#[cfg(test)]
mod tests {
    use std::fs::File as Opened;
    use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _};
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn memory(seals: libc::c_int) -> Opened {
        // SAFETY: a string, and numbers.
        let file = unsafe {
            let flags = libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC;
            Opened::from_raw_fd(libc::memfd_create(c"test".as_ptr(), flags))
        };
        file.set_len(BYTES as u64).expect("room");
        file.write_all_at(&MAGIC.to_le_bytes(), 8 * word::MAGIC as u64).expect("written");
        file.write_all_at(&VERSION.to_le_bytes(), 8 * word::VERSION as u64).expect("written");
        file.write_all_at(b"/a/tool.so", PATH as u64).expect("written");
        // SAFETY: it takes numbers.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
        file
    }

    #[test]
    fn what_is_said_is_in_the_memory_and_another_tool_waits_for_the_end() {
        let take = |file: &Opened| {
            let copy = file.try_clone().expect("a copy").into_raw_fd();
            Request::take(copy as u64)
        };
        assert_eq!(take(&memory(libc::F_SEAL_GROW)).err(), Some(Refused::Memory));
        let file = memory(libc::F_SEAL_SHRINK);
        let request = take(&file).expect("a memory");
        assert_eq!(request.path.as_c_str(), c"/a/tool.so");
        assert_eq!(take(&file).err(), Some(Refused::Busy));
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let roctap = Opened::options().write(true).open(own).expect("opened");
        roctap.lock().expect("nobody has it");
        assert!(request.is_wanted());
        drop(roctap);
        assert!(!request.is_wanted());
        assert!(say("one\n") && say(&"x".repeat(MESSAGE_BYTES)) && say("no more\n"));
        end(7);
        assert!(!say("nobody hears"));
        let mut bytes = [0; BYTES];
        file.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!(bytes[8 * word::STATE], 7);
        let said = str::from_utf8(&bytes[MESSAGE..MESSAGE + MESSAGE_BYTES]).expect("text");
        let said = said.strip_suffix('\0').expect("an end");
        assert!(said.starts_with("one\nxxx") && said.ends_with(CUT), "{said}");
        assert!(take(&file).is_ok());
        end(0);
    }

    /// A program that becomes a daemon closes all of its descriptors.
    #[test]
    fn what_the_process_has_closed_is_left_alone() {
        let number = memory(libc::F_SEAL_SHRINK).into_raw_fd();
        let file = File::of(number).expect("open");
        assert!(file.is_there());
        let other = Opened::open("/dev/null").expect("opened");
        // SAFETY: two descriptors of this test's.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        assert!(!file.is_there());
        drop(file);
        assert!(id_of(number).is_some());
        // SAFETY: as above.
        drop(unsafe { Opened::from_raw_fd(number) });
    }
}
