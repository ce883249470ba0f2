//! Reading and writing the memory of another process, in bounded time.
//!
//! A process can map a file of a file system that it serves itself (FUSE), or have page faults sent to itself
//! (`userfaultfd`). A thread that touches such a page waits in the kernel for an answer that need never come, in part
//! without being killable. So roctap does not touch the memory itself: a process of its own does
//! ([`super::reader_process`]), and is given up if it does not come back. A memory that gave no answer is not asked
//! again; nor is one that answers slowly again and again ([`super::budgets`]).
//!
//! Each thread that reads has such a process for itself meanwhile, so that no thread waits for the memory that another
//! one reads. There are as many of these processes as threads that read at once: the main thread, and those that put
//! shims into processes, which are bounded.

use std::{
    fs::{self, OpenOptions},
    io,
    os::fd::AsFd as _,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    budgets::{self, Budgets, Owner, Refusal},
    reader_process::{Answer, Ending, Lost, MOST_BYTES, ReaderProcess, Request, Task},
};
use crate::clock;

/// Idle reader processes are kept up to this number.
const MOST_IDLE: usize = 4;

/// The memory of a process, as of the program that it ran when this was opened: when it executes another program,
/// nothing can be read any more.
#[derive(Debug)]
pub struct TargetMemory {
    owner: Owner,
    /// `/proc/PID/mem`, which belongs to the memory and not to the process.
    file: fs::File,
    waited_ns: AtomicU64,
}

/// The permitted access to a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reading it.
    Read,
    /// Writing to it as well.
    Write,
}

/// The reader processes that are idle, those that were given up, and the budgets of the processes that were read.
struct Readers {
    idle: Vec<ReaderProcess>,
    ending: Vec<Ending>,
    budgets: Budgets,
}

/// Never locked while roctap waits for a memory.
static READERS: Mutex<Readers> =
    Mutex::new(Readers { idle: Vec::new(), ending: Vec::new(), budgets: Budgets::new() });

impl TargetMemory {
    /// Opens the memory of process `pid`.
    ///
    /// # Errors
    ///
    /// When there is no such process, or it may not be traced; when its memory did not answer before.
    pub fn open(pid: u32, access: Access) -> io::Result<Self> {
        let write = access == Access::Write;
        let file = OpenOptions::new().read(true).write(write).open(format!("/proc/{pid}/mem"))?;
        let stat = super::text(format!("/proc/{pid}/stat").as_ref())?;
        let (started, user) = (start_time(&super::lossy(&stat)), super::real_user(pid));
        let owner = Owner { pid, started, user };
        readers().check(owner)?;
        Ok(Self { owner, file, waited_ns: AtomicU64::new(0) })
    }

    /// The time that was spent on waiting for this memory in all, without the time for which the reader process waited
    /// for a CPU, and without most of its time on one.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_ns.load(Relaxed))
    }

    /// Reads from `address` on, and returns how many bytes: fewer than asked for if the rest is not there.
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
    /// As of [`TargetMemory::read_at`], and when not all of it is there.
    pub fn read_exact_at(&self, bytes: &mut [u8], address: u64) -> io::Result<()> {
        let read = self.read_at(bytes, address)?;
        let rest = bytes.get_mut(read..).unwrap_or_default();
        // A read of the missing part alone gives the reason.
        if rest.is_empty() || self.read_at(rest, address.wrapping_add(read as u64))? == rest.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Writes to `address`, whatever its protection.
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
        let owner = self.owner;
        let request = Request { pid: owner.pid, memory: self.file.as_fd(), address, task };
        let idle = readers().idle_for(owner)?;
        let reader = idle.map_or_else(ReaderProcess::start, Ok)?;
        let (waited, done) = match reader.ask(request) {
            Ok(Answer { done, took }) => {
                readers().answered(reader, owner, took);
                (took, done)
            }
            Err(lost) => (lost.waited(), Err(readers().lost(reader, owner, lost))),
        };
        self.waited_ns.fetch_add(waited.as_nanos() as u64, Relaxed);
        done
    }
}

fn refused(owner: Owner, refusal: Refusal) -> io::Error {
    let pid = owner.pid;
    let text = match refusal {
        Refusal::Process => format!(
            "process {pid}: its memory does not answer, or too slowly: what it has mapped is in a file \
             system that hangs, or it handles its page faults itself and does not; nothing more is read \
             of it"
        ),
        Refusal::User => format!(
            "process {pid}: the memory of several processes of its user did not answer, or too slowly; \
             none of theirs is read now"
        ),
        Refusal::All => format!(
            "the memory of {} processes did not answer, or too slowly; none is read any more",
            budgets::MOST
        ),
    };
    io::Error::new(io::ErrorKind::TimedOut, text)
}

fn readers() -> MutexGuard<'static, Readers> {
    READERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Readers {
    /// Checks that a memory may be read.
    fn check(&self, owner: Owner) -> io::Result<()> {
        let refusal = self.budgets.refusal(owner, clock::now_ns());
        refusal.map_or(Ok(()), |refusal| Err(refused(owner, refusal)))
    }

    /// An idle process to read a memory; none if a new one is needed.
    fn idle_for(&mut self, owner: Owner) -> io::Result<Option<ReaderProcess>> {
        self.check(owner)?;
        self.ending.retain(Ending::goes_on);
        Ok(self.idle.pop())
    }

    fn answered(&mut self, reader: ReaderProcess, owner: Owner, took: Duration) {
        if self.idle.len() < MOST_IDLE {
            self.idle.push(reader);
        } else {
            self.ending.push(reader.give_up());
        }
        self.charge(owner, took);
    }

    fn charge(&mut self, owner: Owner, took: Duration) {
        if self.budgets.answered(owner, took, clock::now_ns()) {
            tracing::warn!("{}", refused(owner, Refusal::Process));
        }
    }

    fn lost(&mut self, reader: ReaderProcess, owner: Owner, lost: Lost) -> io::Error {
        self.ending.push(reader.give_up());
        if lost != Lost::Late {
            self.charge(owner, lost.waited());
            let text = "roctap's process that reads memory was ended";
            return io::Error::new(io::ErrorKind::TimedOut, text);
        }
        self.budgets.was_silent(owner, lost.waited(), clock::now_ns());
        let refusal = refused(owner, Refusal::Process);
        tracing::warn!("{refusal}");
        refusal
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

    /// The address at which the stack of a process's first thread begins.
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
        let memory = TargetMemory::open(std::process::id(), Access::Write).unwrap();
        let mut read = vec![0; long.len()];
        memory.read_exact_at(&mut read, address(&long)).unwrap();
        assert_eq!(read, long);
        memory.write_all_at(&[9; 2 * MOST_BYTES], address(&read)).unwrap();
        assert!(std::hint::black_box(&read)[..2 * MOST_BYTES].iter().all(|&byte| byte == 9));
        // The first page is never mapped, and there is no memory behind the last page of the stack.
        memory.read_at(&mut read, 0).unwrap_err();
        let end = stack_end(std::process::id());
        assert_eq!(memory.read_at(&mut read, end - 100).unwrap(), 100);
        memory.read_exact_at(&mut read, end - 100).unwrap_err();
        let to_read = TargetMemory::open(std::process::id(), Access::Read).unwrap();
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
        let memory = TargetMemory::open(pid, Access::Read).unwrap();
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
    fn a_reader_that_was_given_up_is_replaced() {
        let own = TargetMemory::open(std::process::id(), Access::Read).unwrap();
        let word = 5u64;
        let read = || own.read_exact_at(&mut [0; 8], &raw const word as u64);
        read().unwrap();
        // Reader processes of other tests may be among these; they are replaced too.
        let _endings: Vec<Ending> = readers().idle.drain(..).map(ReaderProcess::give_up).collect();
        read().unwrap();
    }

    /// A page fault of one memory may take its time: other memories are read meanwhile.
    #[test]
    fn nobody_waits_for_the_memory_that_another_one_reads() {
        let own = TargetMemory::open(std::process::id(), Access::Read).unwrap();
        let word = 5u64;
        let read = || own.read_exact_at(&mut [0; 8], &raw const word as u64);
        read().unwrap();
        // The state of a thread that waits for an answer.
        let taken = readers().idle_for(own.owner).unwrap();
        std::thread::scope(|scope| scope.spawn(|| read().unwrap()).join().unwrap());
        if let Some(reader) = taken {
            readers().answered(reader, own.owner, Duration::ZERO);
        }
        let idle: Vec<ReaderProcess> =
            (0..MOST_IDLE).map(|_| ReaderProcess::start().unwrap()).collect();
        for reader in idle {
            readers().answered(reader, own.owner, Duration::ZERO);
        }
        assert!(readers().idle.len() <= MOST_IDLE);
    }

    #[test]
    fn the_start_of_a_process_is_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 100 200\n";
        assert_eq!(start_time(stat), Some(4711));
        assert_eq!([start_time(""), start_time("7 (x) S 1")], [None, None]);
    }
}
