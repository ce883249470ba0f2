//! A tracer that runs beside the target: `roctap record -p` or `bpftrace -p`.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Longest time that a tracer may take to start or to end.
const DEADLINE: Duration = Duration::from_secs(120);
/// The system calls by which the tracers wait for events, x86-64: `futex`, `epoll_wait` and
/// `epoll_pwait`.
const WAITS: [&str; 3] = ["202", "232", "281"];
/// A tracer with fewer links and perf events than this has not attached yet: `roctap record` follows
/// processes with three, and bpftrace has one perf event for each CPU.
const FEWEST_LINKS: usize = 5;

/// A running tracer.
pub struct Tool {
    child: Child,
    /// From the start until it recorded.
    pub started_in: Duration,
}

impl Tool {
    /// Starts a tracer and waits until it records. Both tracers' main threads attach everything first
    /// and wait for events then: with links and waiting, they record.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        Self::start_until(command, || true)
    }

    /// The same, and waits until this is so, too.
    pub fn start_until(command: &mut Command, is_so: impl Fn() -> bool) -> anyhow::Result<Self> {
        let began = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let mut tool = Self { child, started_in: Duration::ZERO };
        while !(tool.waits_for_events() && is_so()) {
            if let Some(status) = tool.child.try_wait()? {
                bail!("{command:?} ended with {status}");
            }
            if began.elapsed() > DEADLINE {
                bail!("{command:?} does not come to record");
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        tool.started_in = began.elapsed();
        Ok(tool)
    }

    fn waits_for_events(&self) -> bool {
        let call = fs::read_to_string(format!("/proc/{}/syscall", self.child.id()));
        call.is_ok_and(|call| WAITS.contains(&call.split(' ').next().unwrap_or_default()))
            && self.links() >= FEWEST_LINKS
    }

    fn links(&self) -> usize {
        let Ok(files) = fs::read_dir(format!("/proc/{}/fd", self.child.id())) else { return 0 };
        let names = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        let is_link = |name: &PathBuf| {
            name.as_os_str() == "anon_inode:bpf_link"
                || name.as_os_str() == "anon_inode:[perf_event]"
        };
        names.filter(is_link).count()
    }

    /// CPU time that it has used so far, all threads.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        let mut sum = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))?.flatten() {
            let stat = fs::read_to_string(task.path().join("schedstat"))?;
            let ran = stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
            sum += ran.context("schedstat begins with the time on a CPU")?;
        }
        Ok(Duration::from_nanos(sum))
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Interrupts it as Ctrl-C does and waits for its end; gives the time that this took.
    pub fn stop(self) -> anyhow::Result<Duration> {
        self.signal(Signal::INT)?;
        self.wait()
    }

    /// Waits for its end; gives the time that this took.
    pub fn wait(mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > DEADLINE {
                bail!("the tracer does not end");
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(began.elapsed())
    }

    /// Has it end without waiting for that: the kernel goes on removing its probes.
    pub fn abandon(self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)
    }
}
