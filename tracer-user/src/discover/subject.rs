//! One process, even if its number is given to another one.
//!
//! The kernel gives a process's number to another one soon after the end of the first. Much can be reached by number
//! alone: files of `/proc`, `ptrace`, probes. A [`Subject`] keeps the rule for this: data that is read, or a change
//! that is made, by number belongs to this process if the process has not ended after that; if it has, the data is
//! dropped, and the change undone.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use super::{DiscoverError, process, process_info};

/// A process has ended. Data that was found under its number since then may be another process's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("process {pid} has ended")]
pub struct Ended {
    /// The number that it had.
    pub pid: u32,
}

impl From<Ended> for io::Error {
    fn from(ended: Ended) -> Self {
        Self::new(io::ErrorKind::NotFound, ended)
    }
}

impl From<Ended> for DiscoverError {
    fn from(Ended { pid }: Ended) -> Self {
        Self::NoProcess { pid }
    }
}

/// One process: see the module's description.
#[derive(Debug)]
pub struct Subject {
    pid: u32,
    /// When it started, from `/proc/PID/stat`.
    started: u64,
    pidfd: OwnedFd,
    /// Whether its first thread has ended, and others go on. Under the process's number the kernel then shows nothing
    /// of what all of its threads share.
    outlived: AtomicBool,
}

impl Subject {
    /// The process that has number `pid` now.
    ///
    /// # Errors
    ///
    /// When there is no such process, or it has ended.
    pub fn open(pid: u32) -> Result<Self, DiscoverError> {
        let none = || DiscoverError::NoProcess { pid };
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(none)?;
        let pidfd = pidfd_open(number, PidfdFlags::empty()).map_err(|_| none())?;
        Self::of(pid, pidfd)
    }

    /// The process `pid` to which a descriptor refers that another process of roctap's has opened.
    ///
    /// # Errors
    ///
    /// When the descriptor refers to another process, or to one that has ended.
    pub fn inherited(pid: u32, pidfd: OwnedFd) -> Result<Self, DiscoverError> {
        let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()));
        let named = about.ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
            line.trim().parse::<i64>().ok()
        });
        match named {
            Some(named) if named == i64::from(pid) => Self::of(pid, pidfd),
            _ => Err(DiscoverError::NoProcess { pid }),
        }
    }

    fn of(pid: u32, pidfd: OwnedFd) -> Result<Self, DiscoverError> {
        let stat =
            process(pid).and_then(|p| p.stat().map_err(|e| DiscoverError::proc(pid, "stat", e)));
        let outlived = stat.as_ref().is_ok_and(|stat| has_ended(stat.state));
        let started = stat.map(|stat| stat.starttime);
        let subject = Self {
            pid,
            started: *started.as_ref().unwrap_or(&0),
            pidfd,
            outlived: outlived.into(),
        };
        if !subject.is_alive() {
            // A zombie is reported as such.
            process_info(pid)?;
            return Err(DiscoverError::NoProcess { pid });
        }
        started.map(|_| subject)
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When the process started, in ticks of the kernel since the machine did: no two processes with the same number
    /// have the same start.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Whether the process has not ended (a zombie has).
    pub fn is_alive(&self) -> bool {
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut polled, Some(&now)), Ok(ready) if ready > 0)
    }

    /// Whether the last look found that the first thread has ended, and others go on.
    pub fn has_outlived_its_first_thread(&self) -> bool {
        self.outlived.load(Ordering::Relaxed)
    }

    /// Looks whether the first thread has ended, and others go on.
    pub fn look_at_its_first_thread(&self) -> bool {
        let stat = process(self.pid).and_then(|process| {
            process.stat().map_err(|error| DiscoverError::proc(self.pid, "stat", error))
        });
        let ended = stat.is_ok_and(|stat| has_ended(stat.state)) && self.is_alive();
        self.outlived.store(ended, Ordering::Relaxed);
        ended
    }

    /// The number under which the kernel shows the process's mappings and open files: its own, or that of a thread.
    fn number(&self) -> u32 {
        let thread = self.has_outlived_its_first_thread().then(|| living_thread(self.pid));
        thread.flatten().unwrap_or(self.pid)
    }

    /// Calls `act` with the process's number, or with that of a thread if its first one has ended: both stand for the
    /// process in `/proc`. The result is of this process, and of no other one.
    ///
    /// # Errors
    ///
    /// Those of `act`; [`Ended`] when the process has ended meanwhile: the result of `act` is dropped, and has to undo
    /// its effects by that.
    pub fn by_number<T, E: From<Ended>>(
        &self,
        act: impl FnOnce(u32) -> Result<T, E>,
    ) -> Result<T, E> {
        let made = act(self.number())?;
        if self.is_alive() { Ok(made) } else { Err(Ended { pid: self.pid }.into()) }
    }

    /// Whether the process existed, under this number, at `time_ns` of CLOCK_BOOTTIME: it started no later.
    pub fn was_there_at(&self, time_ns: u64) -> bool {
        let ns_of_tick = 1_000_000_000 / procfs::ticks_per_second().max(1);
        self.started <= time_ns / ns_of_tick
    }

    /// Whether the process's descriptors can be copied.
    pub fn has_descriptors(&self) -> bool {
        self.thread().is_ok()
    }

    /// A thread of the process, as a descriptor, if the first one has ended: that one has no descriptors any more.
    fn thread(&self) -> io::Result<Option<OwnedFd>> {
        if !self.has_outlived_its_first_thread() {
            return Ok(None);
        }
        self.by_number(|tid| {
            let tid = i32::try_from(tid).ok().and_then(Pid::from_raw);
            let tid = tid.ok_or(io::ErrorKind::NotFound)?;
            // PIDFD_THREAD, since Linux 6.9.
            let flags = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
            Ok(Some(pidfd_open(tid, flags)?))
        })
    }

    /// A copy of one of the process's descriptors: the same open file, with the rights that the process itself has to
    /// it.
    ///
    /// # Errors
    ///
    /// When the process has no such descriptor, or roctap may not trace it.
    pub fn descriptor(&self, number: u64) -> io::Result<OwnedFd> {
        let number = i32::try_from(number).map_err(|_| io::ErrorKind::InvalidData)?;
        let thread = self.thread()?;
        let process = thread.as_ref().unwrap_or(&self.pidfd);
        Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
    }
}

/// Whether a thread has ended, by the letter that the kernel shows for its state.
fn has_ended(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// A thread of process `pid` that has not ended.
fn living_thread(pid: u32) -> Option<u32> {
    let mut threads = process(pid).ok()?.tasks().ok()?.flatten();
    let living = threads.find(|thread| thread.stat().is_ok_and(|stat| !has_ended(stat.state)))?;
    u32::try_from(living.tid).ok()
}

impl AsFd for Subject {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_is_done_by_the_number_of_the_dead_is_dropped() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let subject = Subject::open(child.id()).unwrap();
        assert!(subject.is_alive());
        assert_eq!(subject.by_number(Ok::<_, DiscoverError>).unwrap(), child.id());
        let ended = subject.by_number(|pid| {
            drop(child.stdin.take());
            child.wait().unwrap();
            Ok::<_, DiscoverError>(pid)
        });
        assert!(matches!(ended, Err(DiscoverError::NoProcess { .. })), "{ended:?}");
        assert!(Subject::open(child.id()).is_err());
        assert!(Subject::open(u32::MAX).is_err());
    }

    /// The number of pages differs once a library has been mapped.
    #[test]
    fn the_pages_of_all_that_is_mapped_are_counted() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let bytes_of = |line: &str| {
            let (first, last) = line.split(' ').next()?.split_once('-')?;
            let of = |text| u64::from_str_radix(text, 16).ok();
            (!line.ends_with("[vsyscall]")).then_some(of(last)? - of(first)?)
        };
        let in_all = || {
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
            maps.lines().filter_map(bytes_of).sum::<u64>() / rustix::param::page_size() as u64
        };
        let began = std::time::Instant::now();
        // The child is just being started.
        while crate::discover::mapped_pages(child.id()).unwrap() != in_all() {
            assert!(began.elapsed() < std::time::Duration::from_secs(60));
            std::thread::yield_now();
        }
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(crate::discover::mapped_pages(child.id()).is_err());
    }

    #[test]
    fn a_process_was_there_since_it_started() {
        let before_ns = crate::clock::now_ns();
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let subject = Subject::open(child.id()).unwrap();
        assert!(subject.was_there_at(crate::clock::now_ns()));
        assert!(!subject.was_there_at(before_ns - 1_000_000_000));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_descriptor_of_another_process_is_not_taken_for_this_ones() {
        let own = std::process::id();
        let other = pidfd_open(rustix::process::getppid().unwrap(), PidfdFlags::empty()).unwrap();
        assert!(Subject::inherited(own, other).is_err());
        let own_fd = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
        assert_eq!(Subject::inherited(own, own_fd).unwrap().pid(), own);
        assert!(Subject::inherited(own, std::fs::File::open("/dev/null").unwrap().into()).is_err());
    }
}
