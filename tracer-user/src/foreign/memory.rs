//! Reading and writing the memory of another process, in bounded time.
//!
//! A process can map a file of a file system that it serves itself (FUSE), or have page faults sent to
//! itself (`userfaultfd`). Whoever then touches such a page waits in the kernel for an answer that need never
//! come, in part without being killable. So roctap touches nothing itself: a process of its own does
//! ([`super::servant`]), and is given up if it does not come back. What it was asked about is not asked
//! again, and others get a new one.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io,
    os::fd::AsFd as _,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::servant::{Ending, Lost, MOST_BYTES, Request, Servant, Task};

/// Servants that are given up in all. Each has cost [`super::servant::ANSWER_WITHIN`], and may stay in the
/// kernel as long as what holds it.
const MOST_GIVEN_UP: usize = 16;

/// The memory of a process, of the program that it executed when this was opened: when it executes another
/// one, nothing can be read any more.
#[derive(Debug)]
pub struct Memory {
    pid: u32,
    /// Tells it from a later process of this number.
    started: Option<u64>,
    /// `/proc/PID/mem`, which belongs to the memory and not to the process.
    file: fs::File,
}

/// What may be done to a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading it.
    Read,
    /// Writing to it as well.
    Write,
}

/// The process that reads, and what came of those before it.
struct Servants {
    current: Option<Servant>,
    ending: Vec<Ending>,
    /// Processes whose memory held one up, and when they started.
    refused: BTreeMap<u32, Option<u64>>,
}

static SERVANTS: Mutex<Servants> =
    Mutex::new(Servants { current: None, ending: Vec::new(), refused: BTreeMap::new() });

impl Memory {
    /// Opens that of process `pid`.
    ///
    /// # Errors
    ///
    /// When there is no such process, or it may not be traced; when its memory did not answer before.
    pub fn open(pid: u32, access: Access) -> io::Result<Self> {
        let write = access == Access::Write;
        let file = OpenOptions::new().read(true).write(write).open(format!("/proc/{pid}/mem"))?;
        let stat = super::text(format!("/proc/{pid}/stat").as_ref())?;
        let memory = Self { pid, started: start_time(&super::lossy(&stat)), file };
        servants().check(&memory)?;
        Ok(memory)
    }

    /// Reads from `address` on, and how many bytes: fewer than asked for where the rest is not there.
    ///
    /// # Errors
    ///
    /// When nothing can be read; [`io::ErrorKind::TimedOut`] when the memory does not answer.
    pub fn read_at(&self, bytes: &mut [u8], address: u64) -> io::Result<usize> {
        let mut done = 0;
        for piece in bytes.chunks_mut(MOST_BYTES) {
            let wanted = piece.len();
            match self.ask(address.wrapping_add(done as u64), Task::Read(piece)) {
                Ok(read) => done += read,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            if done % MOST_BYTES != wanted % MOST_BYTES {
                break;
            }
        }
        Ok(done)
    }

    /// Fills `bytes` from `address` on.
    ///
    /// # Errors
    ///
    /// As of [`Memory::read_at`], and when not all of it is there.
    pub fn read_exact_at(&self, bytes: &mut [u8], address: u64) -> io::Result<()> {
        let read = self.read_at(bytes, address)?;
        if read == bytes.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Writes to `address`, whatever the protection.
    ///
    /// # Errors
    ///
    /// When not all of it can be written.
    pub fn write_all_at(&self, bytes: &[u8], address: u64) -> io::Result<()> {
        let mut at = address;
        for piece in bytes.chunks(MOST_BYTES) {
            if self.ask(at, Task::Write(piece))? != piece.len() {
                return Err(io::ErrorKind::WriteZero.into());
            }
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    fn ask(&self, address: u64, task: Task<'_>) -> io::Result<usize> {
        let request = Request { pid: self.pid, memory: self.file.as_fd(), address, task };
        servants().ask(self, request)
    }

    fn refusal(&self) -> io::Error {
        let text = format!(
            "process {}: its memory does not answer: what it has mapped is in a file system that hangs, or \
             it handles its page faults itself and does not; nothing more is read of it",
            self.pid
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

fn servants() -> MutexGuard<'static, Servants> {
    SERVANTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servants {
    /// Whether a memory may be asked about.
    fn check(&self, memory: &Memory) -> io::Result<()> {
        if self.refused.get(&memory.pid).is_some_and(|started| *started == memory.started) {
            return Err(memory.refusal());
        }
        if self.refused.len() < MOST_GIVEN_UP {
            return Ok(());
        }
        let text = format!(
            "the memory of {MOST_GIVEN_UP} processes did not answer; none is read any more"
        );
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    fn ask(&mut self, memory: &Memory, request: Request<'_>) -> io::Result<usize> {
        self.check(memory)?;
        self.ending.retain(Ending::goes_on);
        let servant = self.current.take().map_or_else(Servant::start, Ok)?;
        match servant.ask(request) {
            Ok(answer) => {
                self.current = Some(servant);
                answer
            }
            Err(lost) => {
                self.ending.push(servant.give_up());
                if lost == Lost::Ended {
                    return Err(io::Error::other("roctap's process that reads memory was ended"));
                }
                self.refused.insert(memory.pid, memory.started);
                let refusal = memory.refusal();
                tracing::warn!("{refusal}");
                Err(refusal)
            }
        }
    }
}

/// When a process started: the 22nd field of `/proc/PID/stat`.
fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        process::{Command, Stdio},
    };

    use super::*;

    /// Where the stack of a process's first thread begins.
    fn stack_end(pid: u32) -> u64 {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let end = stack.split([' ', '-']).nth(1).unwrap();
        u64::from_str_radix(end, 16).unwrap()
    }

    #[test]
    fn as_much_as_is_there_is_read_and_written() {
        let long = vec![7u8; 3 * MOST_BYTES + 5];
        let address = |bytes: &[u8]| bytes.as_ptr() as u64;
        let memory = Memory::open(std::process::id(), Access::Write).unwrap();
        let mut read = vec![0; long.len()];
        memory.read_exact_at(&mut read, address(&long)).unwrap();
        assert_eq!(read, long);
        memory.write_all_at(&[9; 2 * MOST_BYTES], address(&read)).unwrap();
        assert!(std::hint::black_box(&read)[..2 * MOST_BYTES].iter().all(|&byte| byte == 9));
        // The first page is never mapped, and no memory is behind the last one of the stack.
        memory.read_at(&mut read, 0).unwrap_err();
        let end = stack_end(std::process::id());
        assert_eq!(memory.read_at(&mut read, end - 100).unwrap(), 100);
        memory.read_exact_at(&mut read, end - 100).unwrap_err();
        let to_read = Memory::open(std::process::id(), Access::Read).unwrap();
        to_read.write_all_at(&[1], address(&read)).unwrap_err();
    }

    #[test]
    fn another_program_of_the_process_is_not_read() {
        let mut child = Command::new("sh")
            .args(["-c", "echo ready; read go; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let pid = child.id();
        let memory = Memory::open(pid, Access::Read).unwrap();
        let stack = || stack_end(pid) - 100;
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, stack()).unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"go\nback\n").unwrap();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\nback\n", "cat runs");
        assert_eq!(memory.read_at(&mut bytes, stack()).unwrap_or(0), 0);
        drop(input);
        child.wait().unwrap();
    }

    #[test]
    fn a_servant_that_was_given_up_is_replaced() {
        let own = Memory::open(std::process::id(), Access::Read).unwrap();
        let word = 5u64;
        let read = || own.read_exact_at(&mut [0; 8], &raw const word as u64);
        read().unwrap();
        let _ending = servants().current.take().map(Servant::give_up);
        read().unwrap();
    }

    #[test]
    fn the_start_of_a_process_is_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 100 200\n";
        assert_eq!(start_time(stat), Some(4711));
        assert_eq!([start_time(""), start_time("7 (x) S 1")], [None, None]);
    }
}
