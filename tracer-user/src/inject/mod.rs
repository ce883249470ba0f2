//! Puts the shim, or another library of ours, into a running process, whatever the process is doing.
//!
//! One thread of the process is stopped for a fraction of a millisecond and executes two system calls: `mmap`, and
//! `clone` of a thread that roctap has built. The new thread makes two memfds, which roctap fills, and then lets libc's
//! `pthread_create` start an ordinary thread, which loads the shim and calls it. `docs/attach.md` tells the whole
//! story, and why not otherwise.
//!
//! From below, each using those before it:
//!
//! * [`error`]: the reasons against it; [`bootstrap`]: the code of the new thread; [`seccomp`]: the system calls that a
//!   process is not allowed;
//! * [`libc`] and [`threads`]: the facts needed about the process; [`frozen`] and [`refuse`]: the processes that must
//!   not be touched;
//! * [`tracee`]: `ptrace`; [`start`]: the critical section; [`candidates`]: the choice of the thread to stop;
//! * [`helper`]: the process that does this; and [`inject()`], here, which is all that other modules see.

mod bootstrap;
mod candidates;
mod error;
mod frozen;
mod fuzz;
mod helper;
mod libc;
mod memfd;
mod refuse;
mod seccomp;
mod start;
mod threads;
mod tracee;

pub use error::{InjectError, Refusal, Refused};
pub use fuzz::{fuzz_link_map, fuzz_process_texts, fuzz_seccomp};
pub use helper::helper;
pub use refuse::{HELPER, held_now};
pub(crate) use tracee::Thread;

pub use crate::foreign::{Access, TargetMemory};

use std::{
    fs::File,
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use tracer_common::shim::{Attach, attach_status};
use zerocopy::IntoBytes as _;

use crate::{
    clock,
    discover::{Ended, Subject},
    foreign::{Silence, ThreadState},
};
use bootstrap::{at, go, state};
use helper::Task;
use start::Started;

/// The longest time in which the new thread may make its descriptors.
const READY_WITHIN: Duration = Duration::from_secs(2);
/// The shortest time for which the new thread then waits until roctap has prepared: see [`bootstrap`].
const GO_WITHIN: Duration = Duration::from_secs(60);
/// The longest time for loading and for the shim's answer: the process may be in the middle of loading libraries of
/// its own, and a shim waits some seconds for an earlier roctap that was killed. An emulated machine that others use
/// has needed more than 15 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The longest time in which the new thread may end.
const END_WITHIN: Duration = Duration::from_secs(2);
/// Time in which the thread waits for a CPU does not count towards these limits. Including that time, a wait is over
/// after so many times the limit, however busy the machine is.
const AT_MOST: u32 = 4;
/// The first pause between two looks.
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// The longest pause: from here on roctap also looks whether the thread waits for a CPU.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// A pause is one part in so many of the time that has passed: this bounds the wait in vain, and the cost of looking.
const PAUSE_OF_PASSED: u32 = 16;

/// The function that the process is to call, and the library that it comes from.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// This library is loaded, and a function of it called.
    Library {
        /// The contents of its file.
        bytes: &'a [u8],
        /// The name of its memfd.
        name: &'a str,
        /// The function.
        function: &'a str,
    },
    /// A function of a library is called that is loaded already.
    Opened {
        /// The name by which the dynamic linker knows it (its soname).
        name: &'a str,
        /// The function.
        function: &'a str,
    },
    /// A function is called that is there already, on a thread that libc does not know: see
    /// [`tracer_common::shim::ATTACH_AGAIN_FUNCTION`].
    Loaded {
        /// Its address.
        address: u64,
    },
}

/// An injection that is to be done.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The process.
    pub process: &'a Subject,
    /// Its memory, to be written to. It was opened before the addresses below were looked for in it.
    pub memory: &'a TargetMemory,
    /// The function to call.
    pub entry: Entry<'a>,
    /// Its argument. The descriptor and the block are filled in here.
    pub attach: Attach,
}

/// The files that can be prepared before the shim runs.
pub struct Handed {
    /// A memfd that the process made: empty, and sealing is allowed.
    pub memory: OwnedFd,
    /// The library, sealed; none when it is loaded already.
    pub library: Option<File>,
}

/// The shim has answered.
#[derive(Debug)]
pub struct Injected<T> {
    /// The result of the caller's preparation.
    pub prepared: T,
    /// One of [`attach_status`].
    pub status: u64,
    /// The time for which the one thread was stopped.
    pub stopped: Duration,
    /// The time that all of it took.
    pub took: Duration,
}

/// Whether the shim can be put into a process, as far as can be told without touching it.
///
/// # Errors
///
/// Why not.
pub fn check(process: &Subject) -> Result<(), Refused> {
    refuse::Feasible::look(process).map(drop)
}

/// Puts the shim into a process and calls it. `prepare` is called before the shim runs.
///
/// # Errors
///
/// [`InjectError`]; the process goes on as before.
pub fn inject<T>(
    request: &Request<'_>,
    prepare: impl FnOnce(Handed) -> anyhow::Result<T>,
) -> Result<Injected<T>, InjectError> {
    let began = Instant::now();
    let task = match request.entry {
        Entry::Library { name, function, .. } | Entry::Opened { name, function } => {
            Task::Load { name: name.to_owned(), function: function.to_owned() }
        }
        Entry::Loaded { address } => Task::Call(address),
    };
    let Request { process, memory, .. } = *request;
    let done = helper::send(process, &task)?;
    let started = StartedThread { process, started: done.started, memory };
    let result = started.bring_in(request, prepare);
    started.dismiss(result.is_ok());
    let (prepared, status) = result?;
    Ok(Injected { prepared, status, stopped: done.stopped, took: began.elapsed() })
}

/// Polls until `seen` returns something; none if the thread that `look` looks at takes too long.
fn wait<R>(
    within: Duration,
    mut look: impl FnMut() -> Option<ThreadState>,
    seen: impl Fn() -> Option<R>,
) -> Option<R> {
    let (began_ns, mut pause) = (clock::now_ns(), LOOK_EVERY);
    let mut silence = Silence::since(began_ns);
    loop {
        if let Some(result) = seen() {
            return Some(result);
        }
        let now_ns = clock::now_ns();
        silence.goes_on(now_ns, (pause == LONGEST_PAUSE).then(&mut look).flatten());
        let passed = silence.so_far(now_ns);
        if silence.blocked() > within || passed > within * AT_MOST {
            return None;
        }
        thread::sleep(pause);
        pause = (passed / PAUSE_OF_PASSED).clamp(LOOK_EVERY, LONGEST_PAUSE);
    }
}

/// The thread that was started in the process.
struct StartedThread<'a> {
    process: &'a Subject,
    started: Started,
    memory: &'a TargetMemory,
}

impl StartedThread<'_> {
    fn address(&self, offset: usize) -> u64 {
        self.started.block + bootstrap::PAGE + offset as u64
    }

    fn word(&self, offset: usize) -> Option<u64> {
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, self.address(offset)).ok()?;
        Some(u64::from_le_bytes(word))
    }

    fn half(&self, offset: usize) -> Option<u32> {
        self.word(offset).map(|word| word as u32)
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), InjectError> {
        let what = "writing to its memory";
        self.memory
            .write_all_at(bytes, self.address(offset))
            .map_err(|cause| InjectError::Reach { what, cause })
    }

    /// Polls until `seen` returns something; none when the time is over, or when the process has ended.
    fn wait<R>(&self, within: Duration, seen: impl Fn() -> Option<R>) -> Option<R> {
        let pid = self.process.pid();
        let mut known: Option<(u64, u32)> = None;
        let look = || {
            let inside = self.word(at::TID)?;
            let same = known.filter(|&(its, _)| its == inside);
            known = same.or_else(|| Some((inside, candidates::named_inside(pid, inside)?)));
            ThreadState::at(pid, known?.1)
        };
        let ended = || (!self.process.is_alive()).then_some(None);
        wait(within, look, || seen().map(Some).or_else(ended)).flatten()
    }

    /// What has not happened in time: the process may have ended.
    fn late(&self, what: &'static str, within: Duration) -> InjectError {
        match self.process.by_number(|_| Ok::<_, Ended>(())) {
            Err(ended) => ended.into(),
            Ok(()) => InjectError::Late { what, within },
        }
    }

    fn bring_in<T>(
        &self,
        request: &Request<'_>,
        prepare: impl FnOnce(Handed) -> anyhow::Result<T>,
    ) -> Result<(T, u64), InjectError> {
        let ready = self
            .wait(READY_WITHIN, || self.half(at::STATE).filter(|&state| state != state::STARTED));
        match ready {
            Some(state::READY) => {}
            Some(_) => return Err(self.failure(request.entry)),
            None => return Err(self.late("the new thread's first step", READY_WITHIN)),
        }
        let memory_fd = self.word(at::MEMORY_FD).unwrap_or(u64::MAX);
        let memory = self.take(memory_fd)?;
        let library = match request.entry {
            Entry::Library { bytes, .. } => Some(self.fill_library(bytes)?),
            Entry::Opened { name, .. } => {
                self.write(at::PATH, format!("{name}\0").as_bytes())?;
                None
            }
            Entry::Loaded { .. } => None,
        };
        let handed = Handed { memory, library };
        let prepared = prepare(handed).map_err(InjectError::Prepare)?;
        let attach = Attach {
            status: attach_status::PENDING,
            memory_fd,
            block: self.started.block,
            block_bytes: if self.started.stays { 0 } else { self.started.block_bytes },
            thread_alive: self.address(at::ALIVE),
            may_read: self.started.may_read.into(),
            ..request.attach
        };
        self.write(0, attach.as_bytes())?;
        self.write(at::GO, &go::GO.to_le_bytes())?;
        let status = core::mem::offset_of!(Attach, status);
        let answer = self.wait(ANSWER_WITHIN, || match self.half(at::STATE)? {
            state::NOT_LOADED | state::FAILED | state::GAVE_UP => Some(None),
            _ => self.word(status).filter(|&status| status != attach_status::PENDING).map(Some),
        });
        match answer {
            Some(Some(status)) => Ok((prepared, status)),
            Some(None) => Err(self.failure(request.entry)),
            None => Err(self.late("the answer of what was put into it", ANSWER_WITHIN)),
        }
    }

    /// Takes a memfd that the process has just made for roctap.
    fn take(&self, descriptor: u64) -> Result<OwnedFd, InjectError> {
        let what = "taking the memfd that it made";
        memfd::take(self.process, descriptor).map_err(|cause| InjectError::Reach { what, cause })
    }

    fn fill_library(&self, bytes: &[u8]) -> Result<File, InjectError> {
        let descriptor = self.word(at::LIBRARY_FD).unwrap_or(u64::MAX);
        let what = "filling the library's memfd";
        let library = memfd::fill(self.take(descriptor)?, bytes)
            .map_err(|cause| InjectError::Reach { what, cause })?;
        // By the thread's number, so that the loader has not seen this path before: for a known path it would return
        // the library that it loaded under it. In a PID namespace of its own the process may see roctap's `/proc`.
        let (pid, inside) = (self.process.pid(), self.started.tid);
        let ours =
            candidates::shows_our_numbers(pid).then(|| candidates::named_inside(pid, inside));
        let tid = ours.flatten().map_or(inside, u64::from);
        let path = format!("/proc/self/task/{tid}/fd/{descriptor}\0");
        self.write(at::PATH, path.as_bytes())?;
        Ok(library)
    }

    /// The error of the thread in the process.
    fn failure(&self, entry: Entry<'_>) -> InjectError {
        let state = self.half(at::STATE);
        if state == Some(state::GAVE_UP) {
            let what = "what roctap had to prepare";
            return InjectError::Late { what, within: GO_WITHIN };
        }
        if state == Some(state::NOT_LOADED) {
            let mut text = [0; bootstrap::at::MESSAGE_BYTES];
            let read = self.memory.read_exact_at(&mut text, self.address(at::MESSAGE)).is_ok();
            let text = text.split(|&byte| byte == 0).next().filter(|_| read).unwrap_or_default();
            let name = match entry {
                Entry::Library { name, .. } | Entry::Opened { name, .. } => name.to_owned(),
                Entry::Loaded { .. } => String::new(),
            };
            let why = String::from_utf8_lossy(text).into_owned();
            return InjectError::NotLoaded { name, why };
        }
        let error = self.word(at::ERROR).map_or(0, |error| (error as i64).wrapping_neg());
        InjectError::Thread { cause: std::io::Error::from_raw_os_error(error as i32) }
    }

    /// Lets the thread end. The shim removes the block; if the shim was not reached, roctap does.
    fn dismiss(&self, reached: bool) {
        // The thread is gone already if it failed.
        let _ = self.write(at::GO, &go::END.to_le_bytes());
        let ended = self.wait(END_WITHIN, || match self.half(at::ALIVE) {
            Some(1..) => None,
            // The thread is gone, and the block may be gone too.
            _ => Some(()),
        });
        let unused = matches!(
            self.half(at::STATE),
            Some(state::READY | state::NOT_LOADED | state::FAILED | state::GAVE_UP)
        );
        if !reached && ended.is_some() && unused && !self.started.stays {
            // The ordinary thread returns from roctap's code: at the least it has a return instruction left to execute.
            thread::sleep(Duration::from_millis(1));
            let block = Task::Unmap(self.started.block, self.started.block_bytes);
            if let Err(error) = helper::send(self.process, &block) {
                tracing::info!(
                    "process {}: {} KiB that nobody uses stay mapped: {error}",
                    self.process.pid(),
                    self.started.block_bytes >> 10
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_millis(400);

    /// How often a thread for which `look` returns this is looked at until it is given up.
    fn looks_at(look: Option<ThreadState>) -> (u32, Duration) {
        let (mut looks, began) = (0, Instant::now());
        let found = wait(
            WITHIN,
            || {
                looks += 1;
                look
            },
            || None::<()>,
        );
        assert_eq!(found, None);
        (looks, began.elapsed())
    }

    #[test]
    fn who_waits_for_a_cpu_is_waited_for_longer() {
        let (looks, took) = looks_at(None);
        assert!(took > WITHIN && looks > 0, "{took:?} {looks}");
        let (_, took) = looks_at(Some(ThreadState::WAITS_FOR_A_CPU));
        assert!(took > WITHIN * AT_MOST, "{took:?}");
    }

    #[test]
    fn what_is_there_is_seen_at_once() {
        assert_eq!(wait(Duration::ZERO, || panic!("no need to look"), || Some(1)), Some(1));
    }
}
