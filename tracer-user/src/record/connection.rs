//! The shared memories of a recording, and the processes that claimed them.

use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs,
    ops::Range,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use rustix::io::DupFlags;
use tracer_common::{
    calls::Call,
    loss::ShimLoss,
    shim::{control, state},
};

use crate::{
    clock,
    discover::Subject,
    foreign,
    shim::{BackupReader, Extent, Frame, Reader, SharedMemory},
};

/// The cause of loss for records that were in a memory and could not be understood.
pub const NOT_UNDERSTOOD: &str = "shim records: not understood";

/// A shared memory that a shim writes to, or will.
pub struct Connection {
    reader: Reader,
    of: Recipient,
    threads: Option<Threads>,
    /// The process that was seen first to have claimed the memory. The memory is not asked again: every process that
    /// has it mapped can write anything there, at any time.
    claimer: OnceCell<Claimer>,
    /// The ids that the shim gives to calls.
    call_ids: Range<u64>,
    /// When the memory was seen claimed, ns of CLOCK_BOOTTIME.
    seen_ns: Option<u64>,
    /// The program that claimed it is gone, and writes no more.
    gone: Option<ProgramEnd>,
    /// How many more drains of a share take all that the program wrote, at most.
    unread: u64,
    /// The tables whose calls the shim was seen to record.
    calls_taken: u8,
}

/// The process that a memory is for.
enum Recipient {
    /// The process that was handed the memory.
    HandedTo(u32),
    /// The first process that claims the memory. Processes find it by this descriptor's number, from their environment.
    WhoeverClaims(OwnedFd),
}

/// The process that has claimed a memory.
struct Claimer {
    pid: u32,
    /// The process itself, for an offered memory, if the process was still there when it was looked up.
    subject: Option<Subject>,
}

/// How a program has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgramEnd {
    /// With its process.
    Ended,
    /// By the execution of another one.
    Executed,
}

/// The counters and states that a memory holds beside its records.
pub struct Account {
    /// How many records were not written, by cause.
    pub losses: Vec<(&'static str, u64)>,
    /// By how much its GPU times can be off, ns.
    pub clock_error_ns: u64,
    /// Why the shim recorded nothing, if it has given a reason.
    pub helpless: Option<&'static str>,
}

/// The causes of loss that a memory counts. Operations that the shim saw unfinished are in the trace, and the join counts
/// them.
pub fn causes() -> impl Iterator<Item = ShimLoss> {
    ShimLoss::ALL.into_iter().filter(|&cause| cause != ShimLoss::UNFINISHED)
}

impl Connection {
    /// A memory that belongs to the first process to claim it. `name` is a descriptor that is made to refer to the
    /// memory; processes find the memory by the descriptor's number.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be made to refer to the memory: the descriptor.
    pub fn offered(
        memory: SharedMemory,
        call_ids: Range<u64>,
        mut name: OwnedFd,
        backup: &BackupReader,
    ) -> Result<Self, OwnedFd> {
        // In one step: a process that opens the path finds the old memory or the new one.
        match rustix::io::dup3(memory.descriptor(), &mut name, DupFlags::CLOEXEC) {
            Ok(()) => Ok(Self::new(memory, call_ids, Recipient::WhoeverClaims(name), backup)),
            Err(_) => Err(name),
        }
    }

    /// A memory that was handed to process `pid`.
    pub fn to(pid: u32, memory: SharedMemory, call_ids: Range<u64>, backup: &BackupReader) -> Self {
        let mut connection = Self::new(memory, call_ids, Recipient::HandedTo(pid), backup);
        connection.threads = Threads::of(pid);
        connection
    }

    fn new(
        memory: SharedMemory,
        call_ids: Range<u64>,
        of: Recipient,
        backup: &BackupReader,
    ) -> Self {
        let reader = Reader::new(memory);
        backup.watch(&reader);
        Self {
            reader,
            of,
            threads: None,
            claimer: OnceCell::new(),
            call_ids,
            seen_ns: None,
            gone: None,
            unread: 0,
            calls_taken: 0,
        }
    }

    /// The path by which processes that may look into this one find an offered memory.
    pub fn path(&self) -> Option<OsString> {
        let Recipient::WhoeverClaims(name) = &self.of else { return None };
        Some(format!("/proc/{}/fd/{}", std::process::id(), name.as_raw_fd()).into())
    }

    /// The descriptor by which processes found the memory: the next memory is offered by the same one.
    pub fn into_name(self) -> Option<OwnedFd> {
        match self.of {
            Recipient::WhoeverClaims(name) => Some(name),
            Recipient::HandedTo(_) => None,
        }
    }

    /// Whether the memory was offered and no process has claimed it.
    pub fn is_free(&self) -> bool {
        matches!(self.of, Recipient::WhoeverClaims(_)) && self.claimer().is_none()
    }

    /// The process that has claimed the memory.
    pub fn process(&self) -> Option<u32> {
        self.claimer().map(|claimer| claimer.pid)
    }

    fn claimer(&self) -> Option<&Claimer> {
        if let Some(known) = self.claimer.get() {
            return Some(known);
        }
        let claimed = self.memory().owner()?;
        Some(self.claimer.get_or_init(|| match self.of {
            Recipient::HandedTo(pid) => Claimer { pid, subject: None },
            Recipient::WhoeverClaims(_) => {
                Claimer { pid: claimed, subject: Subject::open(claimed).ok() }
            }
        }))
    }

    /// Whether the memory was offered, and the process that claimed it has ended, traced or not.
    pub fn claimer_has_ended(&self) -> bool {
        let subject = self.claimer().and_then(|claimer| claimer.subject.as_ref());
        subject.is_some_and(|subject| !subject.is_alive())
    }

    /// The process that has claimed the memory, as long as it runs the program that did.
    pub fn pid(&self) -> Option<u32> {
        self.process().filter(|_| self.gone != Some(ProgramEnd::Executed))
    }

    /// The ids that its shim gives to calls, if it keeps to what was asked of it.
    pub fn call_ids(&self) -> Range<u64> {
        self.call_ids.clone()
    }

    /// The memory.
    pub fn memory(&self) -> &SharedMemory {
        self.reader.memory()
    }

    /// The process executed another program at `time_ns`, and all that the old program wrote was read. A memory that
    /// was claimed later than that is the new program's, and stays.
    pub fn executed_at(&mut self, time_ns: u64) {
        if self.seen_ns.is_some_and(|seen| seen < time_ns) {
            self.gone = Some(ProgramEnd::Executed);
            self.unread = 0;
            self.reader.close();
        }
    }

    /// The process has ended: the records that are in the memory now are its last ones.
    pub fn ended(&mut self) {
        if self.gone.is_none() {
            self.gone = Some(ProgramEnd::Ended);
            self.unread = self.reader.shares();
        }
    }

    /// How the program has ended, if it has and all that it wrote was read.
    pub fn over(&self) -> Option<ProgramEnd> {
        self.gone.filter(|_| self.unread == 0)
    }

    /// Gives the memory's pages back, which other processes may still have mapped: forked children.
    pub fn release(&mut self) {
        self.reader.close();
        self.memory().release();
    }

    /// The losses, the clock error and the reason for silence that the memory holds.
    pub fn account(&self) -> Account {
        let counts = self.memory().losses();
        let mut losses: Vec<_> =
            causes().map(|cause| (cause.describe(), counts[cause.0 as usize])).collect();
        losses.push((NOT_UNDERSTOOD, self.reader.dropped().1));
        let clock_error_ns = self.memory().word(control::CLOCK_ERROR_NS).load(Ordering::Relaxed);
        Account { losses, clock_error_ns, helpless: self.memory().why_helpless() }
    }

    /// What the shim has answered to being put in: 0, or one of [`tracer_common::shim::attach_status`].
    pub fn attach_status(&self) -> u64 {
        self.memory().word(control::ATTACH_STATUS).load(Ordering::Acquire)
    }

    /// Tells the shim that it is being read.
    pub fn beat(&self) {
        self.reader.beat();
    }

    /// Tells the shim to stop.
    pub fn stop(&self) {
        self.memory().word(control::RECORD).store(0, Ordering::Release);
    }

    /// Whether the shim still has work in flight, or has not noticed that it is to stop.
    pub fn is_active(&self) -> bool {
        self.memory().word(control::STATE).load(Ordering::Acquire) == state::ACTIVE
    }

    /// How many drains of a share take all that is there now, at most.
    pub fn shares(&self) -> u64 {
        self.reader.shares()
    }

    /// Gives frames that are there to `sink`: process, thread, frame.
    pub fn drain(&mut self, extent: Extent, mut sink: impl FnMut(u32, u32, Frame)) {
        let Some(pid) = self.pid() else { return };
        self.unread = if extent == Extent::Share { self.unread.saturating_sub(1) } else { 0 };
        if self.seen_ns.is_none() {
            self.seen_ns = Some(clock::now_ns());
            self.threads = self.threads.take().or_else(|| Threads::of(pid));
        }
        let threads = &mut self.threads;
        self.reader.drain(extent, |tid, frame| {
            let tid = threads.as_mut().map_or(tid, |threads| threads.outside(tid).unwrap_or(tid));
            sink(pid, tid, frame);
        });
    }

    /// The process, and the tables whose calls its shim has begun to record; once for each of them.
    pub fn takes_calls(&mut self) -> Option<(u32, u8)> {
        let pid = self.pid()?;
        let new = self.memory().calls_taken() & !self.calls_taken;
        self.calls_taken |= new;
        (new != 0).then_some((pid, new))
    }

    /// The calls that are open now: process, thread, call.
    pub fn open_calls(&mut self) -> Vec<(u32, u32, Call)> {
        let Some(pid) = self.pid() else { return Vec::new() };
        let threads = &mut self.threads;
        let outside = |(tid, call)| {
            let tid = threads.as_mut().map_or(tid, |threads| threads.outside(tid).unwrap_or(tid));
            (pid, tid, call)
        };
        self.reader.open_calls().into_iter().map(outside).collect()
    }

    /// Frees the rings of threads that are gone, and gives the calls that they never returned from
    /// to `left`: process, thread, call.
    pub fn free_rings(&mut self, mut left: impl FnMut(u32, u32, Call)) {
        let Some(pid) = self.pid() else { return };
        let threads = &mut self.threads;
        if let Some(threads) = threads {
            // A thread's number may have been given to another.
            threads.is_stale = true;
        }
        let alive = |tid| {
            let outside = match threads {
                Some(threads) => match threads.outside(tid) {
                    // It may be one of those.
                    None if threads.some_unknown => return true,
                    outside => outside,
                },
                None => Some(tid),
            };
            outside.is_some_and(|tid| task(pid, tid).exists())
        };
        self.reader.free_rings(alive, |tid, call| left(pid, tid, call));
    }
}

/// The directory in `/proc` of a thread.
fn task(pid: u32, tid: u32) -> PathBuf {
    format!("/proc/{pid}/task/{tid}").into()
}

/// How many times a thread is looked for in vain before its id is forgotten: once in each round in which rings are
/// freed. The thread's ring has been read by then.
const KEPT: u32 = 16;

/// The ids of a thread, in the PID namespaces that it is in, the outermost first.
fn ids(status: &str) -> Option<Vec<u32>> {
    let ids = foreign::field(status, "NSpid")?;
    ids.split_whitespace().map(|id| id.parse().ok()).collect()
}

/// The ids of thread `tid` of process `pid`; none when they cannot be read.
fn ids_of(pid: u32, tid: u32) -> Option<Vec<u32>> {
    let status = foreign::text(&task(pid, tid).join("status")).ok()?;
    // The file has the thread's name too, which may be any bytes.
    ids(&foreign::lossy(&status))
}

/// Thread ids of a process in a PID namespace of its own: the ids inside of it, and those outside. Threads that
/// are gone stay for a while: records of theirs may not have been read yet.
struct Threads {
    pid: u32,
    outside: HashMap<u32, Outside>,
    /// Ids that no thread had when they were looked up: the threads had ended by then.
    unknown: HashSet<u32>,
    /// Threads may have come and gone since the ids were read.
    is_stale: bool,
    /// There are threads whose ids cannot be read.
    some_unknown: bool,
}

/// A thread's id outside of the namespace.
struct Outside {
    tid: u32,
    /// How many times the thread was looked for in vain since it was seen last.
    missed: u32,
}

impl Threads {
    /// None for a process that is in no such namespace.
    fn of(pid: u32) -> Option<Self> {
        let nested = ids_of(pid, pid)?.len() > 1;
        nested.then(|| Self::new(pid))
    }

    fn new(pid: u32) -> Self {
        let (outside, unknown) = (HashMap::new(), HashSet::new());
        Self { pid, outside, unknown, is_stale: false, some_unknown: false }
    }

    /// The id outside of a thread that exists or existed a while ago; none when it is unknown.
    fn outside(&mut self, inside: u32) -> Option<u32> {
        let is_looked_for = self.outside.contains_key(&inside) || self.unknown.contains(&inside);
        if self.is_stale || !is_looked_for {
            self.learn();
        }
        let known = self.outside.get(&inside).map(|known| known.tid);
        // If some ids cannot be read now, this one may be found later.
        if known.is_none() && !self.some_unknown {
            self.unknown.insert(inside);
        }
        known
    }

    fn learn(&mut self) {
        self.some_unknown = false;
        if core::mem::take(&mut self.is_stale) {
            self.outside.values_mut().for_each(|known| known.missed += 1);
            self.outside.retain(|_, known| known.missed <= KEPT);
            self.unknown.clear();
        }
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            self.some_unknown = Path::new(&format!("/proc/{}", self.pid)).exists();
            return;
        };
        let mut seen = HashMap::new();
        for entry in tasks {
            let tid = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse().ok());
            let Some(tid) = tid else {
                self.some_unknown = true;
                continue;
            };
            match ids_of(self.pid, tid).and_then(|ids| ids.last().copied()) {
                Some(inside) => {
                    seen.insert(tid, inside);
                }
                None => self.some_unknown |= task(self.pid, tid).exists(),
            }
        }
        // The numbers of these threads may have belonged to other threads before.
        self.outside.retain(|_, known| !seen.contains_key(&known.tid));
        let seen = seen.into_iter().map(|(tid, inside)| (inside, Outside { tid, missed: 0 }));
        self.outside.extend(seen);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tracer_common::loss::ShimLoss;
    use tracer_common::shim::Layout;

    use super::*;

    /// The same path leads to another memory. A process that has the old one mapped writes to the old one alone.
    #[test]
    fn a_memory_that_is_offered_anew_is_another() {
        let layout = Layout { rings: 1, ring_bytes: 4096 };
        let backup = BackupReader::default();
        let name = fs::File::open("/dev/null").unwrap().into();
        let offer =
            |name| Connection::offered(SharedMemory::create(layout).unwrap(), 0..1, name, &backup);
        let mut old = offer(name).unwrap();
        let path = old.path().unwrap();
        let inode = |path| fs::metadata(path).unwrap().ino();
        let theirs = fs::File::options().write(true).open(&path).unwrap();
        let first = inode(&path);
        assert!(old.is_free() && old.process().is_none());
        old.memory().word(control::PID).store(7, Ordering::Relaxed);
        assert!(!old.is_free() && old.pid() == Some(7));
        old.ended();
        assert_eq!(old.over(), None, "what the backup may have taken is unread");
        old.drain(Extent::Share, |_, _, _| {});
        assert_eq!(old.over(), Some(ProgramEnd::Ended));
        old.release();
        let new = offer(old.into_name().unwrap()).unwrap();
        assert_eq!(new.path(), Some(path.clone()), "the environment names it");
        assert_ne!(inode(&path), first);
        let losses = 8 * control::LOSSES as u64;
        std::os::unix::fs::FileExt::write_all_at(&theirs, &[0xff; 8], losses).unwrap();
        assert_eq!(new.memory().losses(), [0; ShimLoss::COUNT]);
        assert!(new.is_free());
    }

    fn offer() -> Connection {
        let layout = Layout { rings: 1, ring_bytes: 4096 };
        let name = fs::File::open("/dev/null").unwrap().into();
        let memory = SharedMemory::create(layout).unwrap();
        Connection::offered(memory, 0..1, name, &BackupReader::default()).map_err(|_| ()).unwrap()
    }

    /// Every process that has the memory mapped can overwrite the claim: with another process, or with none.
    #[test]
    fn a_claim_is_believed_once() {
        let claimed = offer();
        let claim = |pid| claimed.memory().word(control::PID).store(pid, Ordering::Relaxed);
        assert!(claimed.is_free());
        claim(7);
        assert_eq!(claimed.pid(), Some(7));
        for other in [8, 0] {
            claim(other);
            assert!(claimed.pid() == Some(7) && !claimed.is_free(), "{other}");
        }
    }

    /// The end is seen even if the process is not traced.
    #[test]
    fn the_end_of_whoever_claimed_it_is_seen() {
        let mut cat = std::process::Command::new("cat");
        let mut child = cat.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let claimed = offer();
        assert!(!claimed.claimer_has_ended());
        claimed.memory().word(control::PID).store(child.id().into(), Ordering::Relaxed);
        assert!(!claimed.claimer_has_ended());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(claimed.claimer_has_ended());
    }

    #[test]
    fn threads_of_this_namespace_need_no_translation() {
        assert!(Threads::of(std::process::id()).is_none());
        let mut threads = Threads::new(std::process::id());
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(threads.outside(own), Some(own));
        assert_eq!(threads.outside(u32::MAX), None);
        // The id is not looked up again until threads may have come.
        threads.outside.clear();
        assert_eq!((threads.outside(u32::MAX), threads.outside.len()), (None, 0));
        threads.is_stale = true;
        assert_eq!(threads.outside(u32::MAX), None);
        assert!(!threads.outside.is_empty());
    }

    /// Records of the thread may be read later. It is forgotten in the end: another thread may get its number.
    #[test]
    fn threads_that_are_gone_are_known_for_a_while() {
        let mut cat =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = cat.id();
        let mut threads = Threads::new(pid);
        assert_eq!(threads.outside(pid), Some(pid));
        cat.kill().unwrap();
        cat.wait().unwrap();
        for round in 0..=KEPT {
            assert_eq!(threads.outside(pid), Some(pid), "{round}");
            threads.is_stale = true;
        }
        assert_eq!(threads.outside(pid), None);
        // A number that another thread has got meanwhile.
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mut threads = Threads::new(std::process::id());
        threads.outside.insert(7, Outside { tid: own, missed: 0 });
        threads.is_stale = true;
        assert_eq!((threads.outside(7), threads.outside(own)), (None, Some(own)));
    }

    /// The kernel cuts names after 15 bytes, in the middle of a character.
    #[test]
    fn threads_have_any_names() {
        let name = c"aaaaaaaaaaaaaa\u{e9}";
        let (send, tid) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            rustix::thread::set_name(name).unwrap();
            send.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = ended.recv();
        });
        let tid = tid.recv().unwrap();
        let status = fs::read(task(std::process::id(), tid).join("status")).unwrap();
        assert!(String::from_utf8(status).is_err(), "it is cut");
        let mut threads = Threads::new(std::process::id());
        assert_eq!(threads.outside(tid), Some(tid));
        drop(end);
        thread.join().unwrap();
        assert_eq!(ids("Name:\tx\nNSpid:\t17\t3\n"), Some(vec![17, 3]));
        assert_eq!(ids("NSpid:\t17\tx\n"), None);
    }
}
