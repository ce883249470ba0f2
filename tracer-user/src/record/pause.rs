//! Stops a child process while its probes are attached.
//!
//! By `PTRACE_SEIZE` and `PTRACE_INTERRUPT`: unlike SIGSTOP, the child's parent does not see it. A
//! system call in which the child waits may be interrupted by it, but the child has just been forked
//! and has had no time to wait for anything.

use std::time::Duration;

use crate::{discover::Subject, inject::Thread};

/// How long to wait for the child to stop: it may be in a system call that takes its time.
const STOP_DEADLINE: Duration = Duration::from_millis(50);

/// A stopped process; dropping it lets the process go on.
pub struct Pause {
    _thread: Thread,
}

impl Pause {
    /// Stops a process, by its first thread. None when it cannot be stopped: it is gone, may not be traced, or is
    /// traced by somebody else.
    pub fn of(process: &Subject) -> Option<Self> {
        // Without its memory, which of another user's process we may not be allowed to write.
        let mut thread = Thread::seize(process, process.pid()).ok()?;
        thread.stop(Some(STOP_DEADLINE)).ok()?;
        Some(Self { _thread: thread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, process::Command};

    fn state(pid: u32) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    #[test]
    fn a_process_stops_and_goes_on() {
        let mut child = Command::new("sleep").arg("0.3").spawn().unwrap();
        // Where tracing is forbidden altogether there is nothing to pause.
        if let Some(pause) = Pause::of(&Subject::open(child.id()).unwrap()) {
            assert_eq!(state(child.id()), Some('t'));
            drop(pause);
            assert_ne!(state(child.id()), Some('t'));
        }
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_process_that_is_gone_is_not_paused() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Subject::open(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Pause::of(&process).is_none());
    }
}
