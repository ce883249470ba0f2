//! The shim in the real ROCm runtimes on the emulated GPU: a program that waits for its kernels needs no
//! thread of ours for that.
//!
//! Every test is named `rocm_…`. Where ROCm is not installed they have nothing to run, and say so.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use support::memory::Recording;
use support::{DEADLINE, setup, start};
use tracer_common::shim::state;

/// `futex`, x86-64: where the shim's thread waits for its next look.
const FUTEX: &str = "202";

/// A thread that is stopped by us, as a debugger would. It goes on when dropped.
struct Stopped(i32);

impl Stopped {
    /// Stops a thread while it sleeps in our own code, so that it holds no lock.
    fn while_it_sleeps(task: &Path) -> Self {
        let tid: i32 =
            task.file_name().and_then(|n| n.to_str()?.parse().ok()).expect("a thread id");
        let deadline = Instant::now() + DEADLINE;
        loop {
            let stopped = Self::stop(tid);
            // Also of a thread that is stopped: the call that it will go on with.
            let call = fs::read_to_string(task.join("syscall")).expect("it is there");
            if call.split(' ').next() == Some(FUTEX) {
                return stopped;
            }
            drop(stopped);
            assert!(Instant::now() < deadline, "it never sleeps: {call}");
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    #[expect(unsafe_code, reason = "system calls")]
    fn stop(tid: i32) -> Self {
        let mut status = 0;
        // SAFETY: a thread of our own child; `status` is valid for writes.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, tid, 0, 0), 0, "seize");
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0), 0, "interrupt");
            assert_eq!(libc::waitpid(tid, &raw mut status, libc::__WALL), tid, "stop");
        }
        assert!(libc::WIFSTOPPED(status));
        Self(tid)
    }
}

impl Stopped {
    /// Takes note of its end: until whoever stopped it has, the process cannot end.
    #[expect(unsafe_code, reason = "a system call")]
    fn note_its_end(&self) {
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
        unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL | libc::WNOHANG) };
    }
}

impl Drop for Stopped {
    #[expect(unsafe_code, reason = "a system call")]
    fn drop(&mut self) {
        // SAFETY: as in `stop`; a thread that is gone is no harm.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

fn our_thread(pid: u32) -> Option<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let ours = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "roctap-shim")
    };
    tasks.map(|task| task.path()).find(ours)
}

/// Kernels that take longer than the runtime spins, waited for actively and asleep, while the shim's
/// thread stands still.
#[test]
fn rocm_programs_wait_without_our_thread() {
    let Some(s) = setup() else { return };
    for (what, env) in [
        ("interrupts", &[("EMUGPU_KERNEL_NS", "*=2000000")][..]),
        ("no interrupts", &[("EMUGPU_KERNEL_NS", "*=2000000"), ("HSA_ENABLE_INTERRUPT", "0")]),
    ] {
        let log = s.log("stopped");
        let recording = Recording::new(16, 1 << 20);
        let mut child = start(&mut s.traced("hsa_direct r 800", env, &log, &recording));
        recording.wait_for_state(state::ACTIVE);
        let deadline = Instant::now() + DEADLINE;
        let task = loop {
            // Its first launches are behind it: what is made once is there.
            if let Some(task) = our_thread(child.id())
                && recording.recorded() > 20
            {
                break task;
            }
            assert!(Instant::now() < deadline, "{what}: it does not begin");
            std::thread::sleep(Duration::from_millis(1));
        };
        let stopped = Stopped::while_it_sleeps(&task);
        // It ends by itself, having waited 800 times. (HIP with several streams also waits for what the
        // runtime calls handlers for, which are our thread's.)
        let status = loop {
            stopped.note_its_end();
            if let Some(status) = child.try_wait().expect("wait") {
                break Some(status);
            }
            if Instant::now() > deadline {
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        if status.is_none() {
            // Our thread goes on, or the process could not end.
            drop(stopped);
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
        assert!(status.is_some_and(|s| s.success()), "{what}: {status:?}");
        let launched = emulated_gpu::truth::read(&log).expect("log");
        assert!(launched.len() >= 800, "{what}: {}", launched.len());
    }
}
