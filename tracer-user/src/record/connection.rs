//! The shared memories of a recording, and whose they are.

use std::{
    collections::HashMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use tracer_common::{
    calls::Call,
    shim::{control, state},
};

use crate::{
    clock, foreign,
    shim::{Frame, Memory, Reader, Relief},
};

/// A shared memory that a shim writes to, or will.
pub struct Connection {
    reader: Reader,
    /// The process that it was handed to; none: whichever claims it.
    handed_to: Option<u32>,
    threads: Option<Threads>,
    /// The ids that it gives to calls.
    call_ids: Range<u64>,
    /// When it was seen claimed, ns of CLOCK_BOOTTIME.
    seen_ns: Option<u64>,
    /// The program that claimed it is gone.
    ended: bool,
    /// What was dropped, when its rings are gone.
    dropped: Option<(u64, u64)>,
    /// That its shim records HSA calls was seen.
    calls_taken: bool,
}

impl Connection {
    /// A memory that the first process to claim it has, whose calls get these ids.
    pub fn open(memory: Memory, call_ids: Range<u64>, relief: &Relief) -> Self {
        let reader = Reader::new(memory);
        relief.watch(&reader);
        Self {
            reader,
            handed_to: None,
            threads: None,
            call_ids,
            seen_ns: None,
            ended: false,
            dropped: None,
            calls_taken: false,
        }
    }

    /// A memory that was handed to process `pid`.
    pub fn to(pid: u32, memory: Memory, call_ids: Range<u64>, relief: &Relief) -> Self {
        let threads = Threads::of(pid);
        Self { handed_to: Some(pid), threads, ..Self::open(memory, call_ids, relief) }
    }

    /// The process that has claimed the memory.
    pub fn process(&self) -> Option<u32> {
        let claimed = self.memory().owner()?;
        Some(self.handed_to.unwrap_or(claimed))
    }

    /// The same, as long as it runs the program that claimed it.
    pub fn pid(&self) -> Option<u32> {
        self.process().filter(|_| !self.ended)
    }

    /// Whether the program that process `pid` runs has claimed it, or the last that it ran.
    pub fn is_last_of(&self, pid: u32) -> bool {
        self.process() == Some(pid) && (!self.ended || self.dropped.is_some())
    }

    /// The ids that its shim gives to calls, if it keeps to what was asked of it.
    pub fn call_ids(&self) -> Range<u64> {
        self.call_ids.clone()
    }

    /// The memory.
    pub fn memory(&self) -> &Memory {
        self.reader.memory()
    }

    /// The process executed another program at `time_ns`. The memory is the new one's if it was
    /// claimed later.
    pub fn ended_at(&mut self, time_ns: u64) {
        self.ended = self.seen_ns.is_some_and(|seen| seen < time_ns);
        if self.ended {
            self.reader.close();
        }
    }

    /// The process has ended, and all that it wrote was read.
    pub fn end(&mut self) {
        self.dropped = Some(self.dropped());
        self.ended = true;
        self.reader.close();
        self.memory().release();
    }

    /// Tells the shim that it is being read.
    pub fn beat(&self) {
        self.memory().word(control::HEARTBEAT_NS).store(clock::now_ns(), Ordering::Relaxed);
    }

    /// Tells the shim to stop.
    pub fn stop(&self) {
        self.memory().word(control::RECORD).store(0, Ordering::Release);
    }

    /// Whether the shim still has work in flight, or has not noticed that it is to stop.
    pub fn is_active(&self) -> bool {
        self.memory().word(control::STATE).load(Ordering::Acquire) == state::ACTIVE
    }

    /// Gives every frame that is there to `sink`: process, thread, frame.
    pub fn drain(&mut self, mut sink: impl FnMut(u32, u32, Frame)) {
        let Some(pid) = self.pid() else { return };
        self.seen_ns.get_or_insert_with(clock::now_ns);
        let threads = &mut self.threads;
        self.reader.drain(|tid, frame| {
            let tid = threads.as_mut().map_or(tid, |threads| threads.outside(tid).unwrap_or(tid));
            sink(pid, tid, frame);
        });
    }

    /// The process, when its shim has begun to record HSA calls; once.
    pub fn takes_calls(&mut self) -> Option<u32> {
        let pid = self.pid().filter(|_| !self.calls_taken && self.memory().records_calls())?;
        self.calls_taken = true;
        Some(pid)
    }

    /// The HSA calls that are open now: process, thread, call.
    pub fn open_calls(&mut self) -> Vec<(u32, u32, Call)> {
        let Some(pid) = self.pid() else { return Vec::new() };
        let threads = &mut self.threads;
        let outside = |(tid, call)| {
            let tid = threads.as_mut().map_or(tid, |threads| threads.outside(tid).unwrap_or(tid));
            (pid, tid, call)
        };
        self.reader.open_calls().into_iter().map(outside).collect()
    }

    /// Frees the rings of threads that are gone, and gives the HSA calls that they never returned from
    /// to `left`: process, thread, call.
    pub fn free_rings(&mut self, mut left: impl FnMut(u32, u32, Call)) {
        let Some(pid) = self.pid() else { return };
        let threads = &mut self.threads;
        if let Some(threads) = threads {
            // A thread's number may have been given to another.
            threads.forget();
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

    /// Frames that were dropped by full rings, and frames that could not be understood.
    pub fn dropped(&self) -> (u64, u64) {
        self.dropped.unwrap_or_else(|| self.reader.dropped())
    }
}

/// Where the kernel tells of a thread.
fn task(pid: u32, tid: u32) -> PathBuf {
    format!("/proc/{pid}/task/{tid}").into()
}

/// The ids of a thread, in the PID namespaces that it is in, the outermost first.
fn ids(status: &str) -> Option<Vec<u32>> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().map(|id| id.parse().ok()).collect()
}

/// The same of thread `tid` of process `pid`; none when that cannot be read.
fn ids_of(pid: u32, tid: u32) -> Option<Vec<u32>> {
    let status = foreign::text(&task(pid, tid).join("status")).ok()?;
    // Its name, which is in there too, may be any bytes.
    ids(&foreign::lossy(&status))
}

/// Thread ids of a process in a PID namespace of its own: what it calls its threads, and what they
/// are outside.
struct Threads {
    pid: u32,
    outside: HashMap<u32, u32>,
    /// There are threads of which that cannot be read.
    some_unknown: bool,
}

impl Threads {
    /// None for a process that is in no such namespace.
    fn of(pid: u32) -> Option<Self> {
        let nested = ids_of(pid, pid)?.len() > 1;
        nested.then(|| Self::new(pid))
    }

    fn new(pid: u32) -> Self {
        Self { pid, outside: HashMap::new(), some_unknown: false }
    }

    fn forget(&mut self) {
        *self = Self::new(self.pid);
    }

    /// The id outside; none when the thread is gone, or unknown.
    fn outside(&mut self, inside: u32) -> Option<u32> {
        if !self.outside.contains_key(&inside) {
            self.learn();
        }
        self.outside.get(&inside).copied()
    }

    fn learn(&mut self) {
        self.some_unknown = false;
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            self.some_unknown = Path::new(&format!("/proc/{}", self.pid)).exists();
            return;
        };
        for entry in tasks {
            let tid = entry.ok().and_then(|entry| entry.file_name().to_str()?.parse().ok());
            let Some(tid) = tid else {
                self.some_unknown = true;
                continue;
            };
            match ids_of(self.pid, tid).and_then(|ids| ids.last().copied()) {
                Some(inside) => {
                    self.outside.insert(inside, tid);
                }
                None => self.some_unknown |= task(self.pid, tid).exists(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_this_namespace_need_no_translation() {
        assert!(Threads::of(std::process::id()).is_none());
        let mut threads = Threads::new(std::process::id());
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(threads.outside(own), Some(own));
        assert_eq!(threads.outside(u32::MAX), None);
    }

    /// The kernel cuts names after 15 bytes, in the middle of a character.
    #[test]
    fn threads_have_any_names() {
        let name = c"aaaaaaaaaaaaaa\u{e9}";
        let (told, tid) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            rustix::thread::set_name(name).unwrap();
            told.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
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
