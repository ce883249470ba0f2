//! The process that stops the target: `roctap __inject PID …`, with a descriptor of the target (a pidfd) as its
//! standard input.
//!
//! A tracer that is killed leaves its tracee as it is at that moment, perhaps with the tracer's registers. So roctap,
//! which somebody may kill at any time, leaves this to a process of its own: it runs in a session of its own, does
//! not end by the usual signals, and lives for milliseconds.

use std::{
    io::{Read as _, Write as _},
    os::{fd::AsFd as _, unix::process::ExitStatusExt as _},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    process::{Pid, getpriority_process, setpriority_process},
    thread::{CpuSet, sched_setaffinity},
};
use tracer_common::tool;

use super::{
    bootstrap::at,
    candidates::{self, Candidate},
    error::{InjectError, Refusal, Refused},
    refuse::{Feasible, HELPER, held_now},
    seccomp,
    start::{self, StartError, Started, ThreadStart},
    threads::Model,
    tracee::{StepError, Writable},
};
use crate::{alarm, clock::Patience, discover::Subject, privileges, program::program};

/// Name of the shim's memfd, for people who read `/proc/PID/maps`.
const MEMORY_NAME: &[u8] = b"roctap-shim";
/// The longest time that roctap waits for its helper.
const PATIENCE: Duration = Duration::from_secs(70);
/// The time after which the helper ends, unless a thread is stopped just then: shorter than [`PATIENCE`], so that
/// roctap learns of it. Milliseconds are usual; an emulated machine that others use has needed more than twenty
/// seconds.
const WORK_WITHIN: Duration = Duration::from_secs(60);
/// The most helpers that roctap has given up and that have not ended: each is busy with a thread that is stuck in the
/// kernel. No helper is started beyond these.
const MOST_GIVEN_UP: usize = 16;
/// How often roctap looks at the time.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// The beginning of an answer whose reason may pass soon.
const HELD: &str = "held: ";
/// The number of rounds in which a thread to stop is looked for.
const ATTEMPTS: usize = 20;
/// The number of threads that are stopped in each round although seccomp does not allow them the needed calls.
const MOST_CONFINED: usize = 4;

/// The helper's task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// Start a thread that loads a library of this name, and calls this function of it.
    Load { name: String, function: String },
    /// Start a thread that calls the function at this address.
    Call(u64),
    /// Remove a mapping: address and size.
    Unmap(u64, u64),
}

/// The result of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskResult {
    pub started: Started,
    pub stopped: Duration,
}

/// The helpers that were given up.
static GIVEN_UP: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// The helpers that were given up and have not ended.
fn given_up() -> MutexGuard<'static, Vec<Child>> {
    let mut given_up = GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner);
    given_up.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    given_up
}

/// Lets a helper do `task` in a process.
pub fn send(process: &Subject, task: &Task) -> Result<TaskResult, InjectError> {
    let failed = |cause| InjectError::Helper { cause };
    let count = given_up().len();
    if count >= MOST_GIVEN_UP {
        return Err(InjectError::TooMany { count });
    }
    let arguments = match task {
        Task::Load { name, function } => ["load".to_owned(), name.clone(), function.clone()],
        Task::Call(address) => ["call".to_owned(), address.to_string(), String::new()],
        Task::Unmap(block, bytes) => ["unmap".to_owned(), block.to_string(), bytes.to_string()],
    };
    let mut child = Command::new(program())
        .arg(HELPER)
        .arg(process.pid().to_string())
        .args(arguments)
        .stdin(Stdio::from(process.as_fd().try_clone_to_owned().map_err(failed)?))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let Some(mut stdout) = child.stdout.take() else {
        return Err(failed(std::io::Error::other("no output")));
    };
    let answer = read(&mut stdout);
    // A helper that finds its output closed begins nothing any more.
    drop(stdout);
    let Ok(Some(answer)) = answer else {
        given_up().push(child);
        answer.map_err(failed)?;
        return Err(InjectError::Stuck { pid: process.pid() });
    };
    // The helper has closed its output, as it does at its end.
    let status = child.wait().map_err(failed)?;
    if answer.is_empty() {
        return Err(match status.signal() {
            Some(signal_hook::consts::SIGALRM) => InjectError::Late {
                what: "looking at its libraries and threads",
                within: WORK_WITHIN,
            },
            _ => failed(std::io::Error::other(format!("it ended without an answer ({status})"))),
        });
    }
    let answer = answer.trim();
    parse(answer).ok_or_else(|| match answer.strip_prefix(HELD) {
        Some(why) => InjectError::Held(why.to_owned()),
        None => InjectError::Refused(answer.to_owned()),
    })
}

/// The whole output of a helper; none if that takes too long.
fn read(stdout: &mut ChildStdout) -> std::io::Result<Option<String>> {
    let mut patience = Patience::of(PATIENCE);
    let mut answer = Vec::new();
    loop {
        let mut look = [PollFd::new(stdout, PollFlags::IN)];
        if rustix::event::poll(&mut look, Some(&LOOK_EVERY)).is_ok_and(|ready| ready > 0) {
            let mut bytes = [0; 512];
            match stdout.read(&mut bytes)? {
                0 => return Ok(Some(String::from_utf8_lossy(&answer).into_owned())),
                count => answer.extend_from_slice(&bytes[..count]),
            }
        }
        if patience.has_ended() {
            return Ok(None);
        }
    }
}

fn parse(answer: &str) -> Option<TaskResult> {
    let words: Vec<&str> = answer.split_whitespace().collect();
    let [word, block, block_bytes, tid, stays, may_read, stopped_ns] = words[..] else {
        return None;
    };
    Some(TaskResult {
        started: Started {
            block: block.parse().ok().filter(|_| word == "done")?,
            block_bytes: block_bytes.parse().ok()?,
            tid: tid.parse().ok()?,
            stays: stays.parse().ok()?,
            may_read: may_read.parse().ok()?,
        },
        stopped: Duration::from_nanos(stopped_ns.parse().ok()?),
    })
}

/// Runs the helper: does its task and prints the result.
///
/// # Errors
///
/// When the arguments do not come from roctap, or standard output is closed.
pub fn helper(arguments: &[std::ffi::OsString]) -> anyhow::Result<()> {
    alarm::arm(WORK_WITHIN);
    outlive_roctap();
    privileges::keep_for_injecting();
    let text: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let words: Vec<&str> = text.iter().map(AsRef::as_ref).collect();
    let (pid, task) = match words[..] {
        [pid, "load", name, function] => {
            (pid, Task::Load { name: name.to_owned(), function: function.to_owned() })
        }
        [pid, "call", address, _] => (pid, Task::Call(address.parse()?)),
        [pid, "unmap", block, bytes] => (pid, Task::Unmap(block.parse()?, bytes.parse()?)),
        _ => anyhow::bail!("{HELPER} is for roctap's own use"),
    };
    let pidfd = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let pid = pid.parse().context("the process id")?;
    let worked = Subject::inherited(pid, pidfd)
        .map_err(anyhow::Error::from)
        .and_then(|process| work(&process, &task));
    let answer = match worked {
        Ok(TaskResult { started, stopped }) => {
            let Started { block, block_bytes, tid, stays, may_read } = started;
            let stopped_ns = stopped.as_nanos();
            format!("done {block} {block_bytes} {tid} {stays} {may_read} {stopped_ns}")
        }
        Err(error) => {
            let passes = error.downcast_ref().is_some_and(|refused| match refused {
                Refused::Refusal(refusal) => refusal.passes(),
                _ => false,
            });
            format!("{}{error:#}", if passes { HELD } else { "" })
        }
    };
    Ok(std::io::stdout().write_all(answer.as_bytes())?)
}

/// Keeps this process alive when roctap is ended: signals that somebody may send do not end it, but for SIGKILL and its own
/// SIGALRM, and signals for roctap's group do not reach it. It runs before other processes: while it waits for a CPU, a thread stays stopped.
fn outlive_roctap() {
    let _ = rustix::process::setsid();
    let _ = setpriority_process(None, HURRIED);
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
        signal_hook::consts::SIGQUIT,
        signal_hook::consts::SIGUSR1,
        signal_hook::consts::SIGUSR2,
        signal_hook::consts::SIGVTALRM,
        signal_hook::consts::SIGPROF,
        signal_hook::consts::SIGXCPU,
        signal_hook::consts::SIGIO,
    ] {
        let nothing = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let _ = signal_hook::flag::register(signal, nothing);
    }
}

fn work(process: &Subject, task: &Task) -> anyhow::Result<TaskResult> {
    let feasible = Feasible::look(process)?;
    let mut reason = "it has none".to_owned();
    for attempt in 0..ATTEMPTS {
        // The calls that seccomp does not allow to threads; whether that was the obstacle for all threads that were
        // tried.
        let (mut refused, mut all) = (Vec::new(), true);
        for candidate in candidates::of(process.pid()) {
            anyhow::ensure!(roctap_listens(), "roctap has ended, or given this up");
            // On a thread that ends afterwards: the kernel then lets a candidate go that did not stop in time.
            let attempt = || on_thread(process, &feasible, task, candidate);
            let attempted = std::thread::scope(|scope| scope.spawn(attempt).join());
            match attempted.map_err(|_| anyhow::anyhow!("roctap's helper failed"))? {
                Ok(done) => return Ok(done),
                // Each thread has filters of its own, but most threads have the same.
                Err(StartError::Seccomp(call)) => {
                    refused.push(call);
                    if refused.len() == MOST_CONFINED {
                        break;
                    }
                    continue;
                }
                Err(StartError::Replaced | StartError::Step(StepError::Replaced)) => {
                    return Err(StartError::Replaced.into());
                }
                // A limit of the process, which holds for its other threads as well.
                Err(error @ StartError::Call { .. }) => return Err(error.into()),
                Err(error) => reason = format!("thread {}: {error}", candidate.tid),
            }
            all = false;
        }
        if let Some(&call) = refused.first().filter(|_| all) {
            return Err(Refusal::Seccomp { call: call.to_owned() }.into());
        }
        std::thread::sleep(Duration::from_millis(1 << attempt.min(6)));
    }
    // The process may be held since it was looked at.
    let moves_data = || candidates::all_move_data(process.pid()).then_some(Refusal::MovesData);
    Err(match held_now(process).or_else(moves_data) {
        Some(held) => Refused::from(held).into(),
        None => Refusal::NoThread(reason).into(),
    })
}

/// Whether roctap still reads the result of the task. A roctap that was killed wants nothing done any more.
fn roctap_listens() -> bool {
    let stdout = std::io::stdout();
    let mut look = [PollFd::new(&stdout, PollFlags::empty())];
    let looked = rustix::event::poll(&mut look, Some(&Timespec::default()));
    looked.is_err() || !look[0].revents().contains(PollFlags::ERR)
}

fn on_thread(
    process: &Subject,
    feasible: &Feasible,
    task: &Task,
    candidate: Candidate,
) -> Result<TaskResult, StartError> {
    let libc = &feasible.libc;
    let mut words = vec![
        (at::DLOPEN, libc.dlopen),
        (at::DLSYM, libc.dlsym),
        (at::DLERROR, libc.dlerror),
        (at::PTHREAD_CREATE, libc.pthread_create),
        (at::PTHREAD_DETACH, libc.pthread_detach),
    ];
    let mut strings: Vec<(usize, &[u8])> = vec![(at::MEMORY_NAME, MEMORY_NAME)];
    match task {
        Task::Load { name, function } => {
            strings.extend([(at::LIBRARY_NAME, name.as_bytes()), (at::SYMBOL, function.as_bytes())])
        }
        Task::Call(address) => words.push((at::ENTRY, *address)),
        Task::Unmap(..) => {}
    }
    let model = |pointer| Model::of(&feasible.process, pointer, candidate.inside).ok();
    let plan = ThreadStart {
        syscall: libc.syscall,
        threads: &feasible.threads,
        model: &model,
        words,
        strings,
        calls_libc: matches!(task, Task::Load { .. }),
        calls: match task {
            Task::Load { function, .. } if function == tool::ATTACH_FUNCTION => seccomp::OF_TOOLS,
            _ => &[],
        },
    };
    // Holds the alarm off until every change to a thread, the new one included, is undone: dropped last.
    let _held = alarm::hold();
    let mut thread = Writable::seize(process, candidate.tid, &feasible.program)?;
    // Other threads may have been tried before this one.
    if candidates::moves_data(process.pid(), candidate.tid) {
        return Err(StartError::MovesData);
    }
    let hurried = Hurried::new(candidate.tid);
    let started = match *task {
        Task::Unmap(block, block_bytes) => {
            start::unmap(&mut thread, libc.syscall, block, block_bytes).map(|()| Started {
                block,
                block_bytes,
                tid: 0,
                stays: false,
                may_read: false,
            })
        }
        _ => start::start(&mut thread, &plan),
    };
    let stopped = thread.stopped_since();
    let own = hurried.as_ref().map(|hurried| hurried.nice);
    drop((hurried, thread));
    let stopped = stopped.map_or(Duration::ZERO, |since| since.elapsed());
    let started = started?;
    if !matches!(task, Task::Unmap(..))
        // A list of threads ends early if one of them ends just then.
        && let Some(new) = (0..ATTEMPTS).find_map(|_| candidates::named_inside(process.pid(), started.tid)).and_then(id)
    {
        schedule_by_itself(new);
        if let Some(nice) = own {
            // The new thread has inherited its nice value from the hurried one, and would pass it on. The process's own
            // value is that of its main thread, unless another roctap hurries that one just now.
            let main = id(process.pid()).and_then(|main| getpriority_process(Some(main)).ok());
            let nice = main.filter(|&main| main > HURRIED).unwrap_or(nice);
            let _ = setpriority_process(Some(new), nice);
        }
    }
    Ok(TaskResult { started, stopped })
}

/// Resets the scheduling that the new thread has inherited from the stopped one, and would pass on: on the one CPU of
/// a real-time thread that does not sleep, it would never run. The kernel narrows all CPUs down to those of the
/// process's cpuset. If this is not allowed (another user's process without CAP_SYS_NICE), nothing changes.
fn schedule_by_itself(thread: Pid) {
    let mut cpus = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| cpus.set(cpu));
    let affinity = sched_setaffinity(Some(thread), &cpus);
    // SAFETY: the parameters are valid for reads, and are those of a policy without any.
    #[expect(unsafe_code, reason = "rustix has no such function")]
    let policy = unsafe {
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(
            thread.as_raw_nonzero().get(),
            libc::SCHED_OTHER,
            &raw const parameters,
        )
    };
    tracing::debug!("the new thread by itself: CPUs {affinity:?}, policy {policy}");
}

/// A thread that runs before others while it is stopped and resumed: on a busy machine most of the time passes until
/// it is scheduled. Dropping this puts its nice value back.
struct Hurried {
    thread: Pid,
    nice: i32,
}

/// The nice value of a hurried thread.
const HURRIED: i32 = -20;

fn id(tid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(tid).ok()?)
}

impl Hurried {
    fn new(tid: u32) -> Option<Self> {
        let thread = id(tid)?;
        let nice = getpriority_process(Some(thread)).ok()?;
        setpriority_process(Some(thread), HURRIED).ok().map(|()| Self { thread, nice })
    }
}

impl Drop for Hurried {
    fn drop(&mut self) {
        let _ = setpriority_process(Some(self.thread), self.nice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without randomised addresses the next program has its C library where the last one had it.
    #[test]
    fn what_was_looked_at_is_what_is_touched() {
        let mut child = Command::new("setarch")
            .args(["-R", "sh", "-c", "echo ready; read go; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut hears = |expected: &[u8]| {
            let mut heard = vec![0; expected.len()];
            output.read_exact(&mut heard).unwrap();
            assert_eq!(heard, expected);
        };
        hears(b"ready\n");
        let process = Subject::open(child.id()).unwrap();
        let looked_at = Feasible::look(&process).unwrap();
        input.write_all(b"go\nback\n").unwrap();
        hears(b"back\n");
        let candidate = candidates::of(process.pid()).next().unwrap();
        // Zero bytes: the kernel would refuse to unmap them, if it were asked.
        let nothing = Task::Unmap(0, 0);
        let on_thread = || on_thread(&process, &looked_at, &nothing, candidate).unwrap_err();
        let error = std::thread::scope(|scope| scope.spawn(on_thread).join().unwrap());
        assert!(error.to_string().contains("executed another program"), "{error}");
        drop(input);
        child.wait().unwrap();
    }

    /// The test runs itself again, as a helper that waits for its process.
    #[test]
    fn a_helper_that_is_kept_waiting_ends() {
        const AGAIN: &str = "ROCTAP_TEST_HELPER";
        if std::env::var_os(AGAIN).is_some() {
            helper(&[]).unwrap_err();
            assert!(alarm::hold().is_armed());
            // Long enough that the alarm is held off before it would go off.
            let soon = Duration::from_secs(2);
            alarm::arm(soon);
            let began = std::time::Instant::now();
            let held = alarm::hold();
            while began.elapsed() < soon {
                std::thread::sleep(soon - began.elapsed().min(soon));
            }
            println!("held");
            drop(held);
            loop {
                std::thread::park();
            }
        }
        let test = "inject::helper::tests::a_helper_that_is_kept_waiting_ends";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(AGAIN, "1")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains("held"), "{printed}");
        assert_eq!(output.status.signal(), Some(signal_hook::consts::SIGALRM), "{printed}");
    }

    #[test]
    fn no_helper_is_started_beyond_those_that_were_given_up() {
        let cat = || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        given_up().extend((0..MOST_GIVEN_UP).map(|_| cat().unwrap()));
        let own = Subject::open(std::process::id()).unwrap();
        let refused = send(&own, &Task::Call(0));
        let mut cats = std::mem::take(&mut *given_up());
        let error = refused.unwrap_err().to_string();
        assert!(error.starts_with("16 helpers of roctap are stuck"), "{error}");
        for cat in &mut cats {
            drop(cat.stdin.take());
            cat.wait().unwrap();
        }
        // A helper that has ended is not counted.
        given_up().extend(cats);
        assert_eq!(given_up().len(), 0);
    }

    #[test]
    fn answers_are_read_back() {
        let done = parse("done 4096 8192 17 true false 120000\n").unwrap();
        let (block, block_bytes, tid, stays, may_read) = (4096, 8192, 17, true, false);
        assert_eq!(done.started, Started { block, block_bytes, tid, stays, may_read });
        assert_eq!(done.stopped, Duration::from_micros(120));
        for other in ["", "done", "done 1 2 3 true true x", "failed 1 2 3 true true 4"] {
            assert!(parse(other).is_none(), "{other}");
        }
    }
}
