//! Stops a child process while its probes are attached.
//!
//! By `PTRACE_SEIZE` and `PTRACE_INTERRUPT`: unlike SIGSTOP, the child's parent does not see it. A
//! system call in which the child waits may be interrupted by it, but the child has just been forked
//! and has had no time to wait for anything.
#![expect(unsafe_code, reason = "calls ptrace and waitpid")]

use std::{io, ptr, time::Duration};

/// How long to wait for the child to stop: it may be in a system call that takes its time.
const STOP_DEADLINE: Duration = Duration::from_millis(50);

/// A stopped process; dropping it lets the process go on.
pub struct Pause {
    pid: libc::pid_t,
    /// A signal that arrived meanwhile and must not be lost; 0 for none.
    signal: libc::c_int,
}

fn ptrace(request: libc::c_uint, pid: libc::pid_t, data: libc::c_int) -> io::Result<()> {
    let data = ptr::without_provenance_mut::<libc::c_void>(data as usize);
    // SAFETY: none of the requests that are used here reads or writes memory.
    let result = unsafe { libc::ptrace(request, pid, ptr::null_mut::<libc::c_void>(), data) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Pause {
    /// Stops process `pid`. None when it cannot be stopped: it is gone, may not be traced, or is
    /// traced by somebody else.
    pub fn of(pid: u32) -> Option<Self> {
        let pid = libc::pid_t::try_from(pid).ok()?;
        ptrace(libc::PTRACE_SEIZE, pid, 0).ok()?;
        // From here on, dropping it detaches.
        let mut pause = Self { pid, signal: 0 };
        ptrace(libc::PTRACE_INTERRUPT, pid, 0).ok()?;
        let step = Duration::from_micros(50);
        for _ in 0..STOP_DEADLINE.as_micros() / step.as_micros() {
            match pause.poll() {
                Some(true) => return Some(pause),
                Some(false) => std::thread::sleep(step),
                None => break,
            }
        }
        None
    }

    /// Whether it has stopped; none when it has ended.
    fn poll(&mut self) -> Option<bool> {
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
        match unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
            0 => Some(false),
            pid if pid == self.pid && libc::WIFSTOPPED(status) => {
                // An event stop has the event in the upper half; without one a signal is delivered.
                self.signal = if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 };
                Some(true)
            }
            _ => None,
        }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        // It works on a stopped process alone. One that is not is on its way to the stop that was
        // asked for, or has ended.
        while ptrace(libc::PTRACE_DETACH, self.pid, self.signal).is_err() {
            match self.poll() {
                Some(_) => std::thread::sleep(Duration::from_micros(50)),
                None => break,
            }
        }
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
        if let Some(pause) = Pause::of(child.id()) {
            assert_eq!(state(child.id()), Some('t'));
            drop(pause);
            assert_ne!(state(child.id()), Some('t'));
        }
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_process_that_is_gone_is_not_paused() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(Pause::of(child.id()).is_none());
        assert!(Pause::of(u32::MAX).is_none());
    }
}
