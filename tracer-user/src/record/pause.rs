//! Stops a child process, or a thread that loads a library, while probes are attached.
//!
//! By `PTRACE_SEIZE` and `PTRACE_INTERRUPT`: unlike SIGSTOP, the process's parent does not see it. A
//! system call in which the thread waits is resumed or repeated.

use std::{
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{discover::Subject, inject::Thread, privileges};

/// The longest wait for the child to stop: it may be in a system call that takes its time.
const STOP_DEADLINE: Duration = Duration::from_millis(50);
/// The longest wait for the thread that stops the child. The kernel may make that thread wait while the child
/// executes a program.
const HOLDER_DEADLINE: Duration = Duration::from_millis(250);

/// A stopped process, or thread. It goes on when this is dropped.
pub struct Pause {
    /// Closed when the process or thread is to go on.
    release: Option<Sender<()>>,
    /// The thread that traces the child. A child that does not stop in time (a child in `vfork` waits for its own
    /// child) is let go by the kernel, as soon as this thread ends.
    holder: Option<JoinHandle<()>>,
}

impl Pause {
    /// Stops a process that has just begun, by its first thread. Only with CAP_SYS_PTRACE: if roctap traced it without
    /// that, a program with the set-user-id bit that the process executes just then would not get its rights.
    pub fn of(process: &Arc<Subject>) -> Option<Self> {
        privileges::can_trace_all().then(|| Self::of_thread(process, process.pid())).flatten()
    }

    /// Stops a thread of a process. None when it cannot be stopped: it is gone, may not be traced, is traced by
    /// somebody else, or does not stop in time.
    pub fn of_thread(process: &Arc<Subject>, tid: u32) -> Option<Self> {
        let process = Arc::clone(process);
        let (stopped, hear) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let hold = move || {
            // Without opening the process's memory, which roctap may not be allowed to write if it is another user's.
            let Ok(mut thread) = Thread::seize(&process, tid) else { return };
            if thread.stop(Some(STOP_DEADLINE)).is_ok() {
                if stopped.send(()).is_ok() {
                    // `recv` ends with an error when the other side is dropped.
                    let _ = released.recv();
                }
                // This fails only if the thread is gone.
                let _ = thread.go_on();
            }
        };
        let holder = thread::Builder::new().name("roctap-pause".to_owned()).spawn(hold).ok()?;
        hear.recv_timeout(HOLDER_DEADLINE).ok()?;
        Some(Self { release: Some(release), holder: Some(holder) })
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        drop(self.release.take());
        // The holder has only to let the process go, which takes no time.
        if let Some(holder) = self.holder.take() {
            let _ = holder.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::CString, fs, os::unix::ffi::OsStrExt as _, path::Path, process::Command, ptr};

    /// Pauses a process whatever the capabilities of the tests.
    fn of(process: &Arc<Subject>) -> Option<Pause> {
        Pause::of_thread(process, process.pid())
    }

    fn state(pid: u32) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    #[test]
    fn a_process_stops_and_goes_on() {
        let mut child = Command::new("sleep").arg("0.3").spawn().unwrap();
        // Where tracing is forbidden altogether there is nothing to pause.
        if let Some(pause) = of(&Arc::new(Subject::open(child.id()).unwrap())) {
            assert_eq!(state(child.id()), Some('t'));
            drop(pause);
            assert_ne!(state(child.id()), Some('t'));
        }
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_process_that_is_gone_is_not_paused() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Arc::new(Subject::open(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(of(&process).is_none());
    }

    /// Forks a process that starts another one with `input` as its standard input, and waits in `vfork`
    /// as long as that cannot be opened.
    #[expect(unsafe_code, reason = "fork and posix_spawn")]
    fn waits_in_vfork(input: &Path) -> libc::pid_t {
        let input = CString::new(input.as_os_str().as_bytes()).unwrap();
        let arguments = [c"true".as_ptr().cast_mut(), ptr::null_mut()];
        let program = c"/bin/true".as_ptr();
        // SAFETY: the actions are initialised before they are used, and all strings end with a zero. The
        // forked process takes no lock: it starts the other one and ends.
        unsafe {
            let mut actions = std::mem::zeroed();
            libc::posix_spawn_file_actions_init(&raw mut actions);
            let read = libc::O_RDONLY;
            libc::posix_spawn_file_actions_addopen(&raw mut actions, 0, input.as_ptr(), read, 0);
            let pid = libc::fork();
            if pid == 0 {
                let (actions, arguments) = (&raw const actions, arguments.as_ptr());
                let (none, mut child) = (ptr::null(), 0);
                let environment = &ptr::null_mut();
                let started = libc::posix_spawn(
                    &raw mut child,
                    program,
                    actions,
                    none,
                    arguments,
                    environment,
                );
                libc::_exit(started);
            }
            pid
        }
    }

    #[test]
    fn who_does_not_stop_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let forked = waits_in_vfork(&pipe);
        assert!(forked > 0);
        let pid = forked as u32;
        while state(pid) != Some('D') {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(Pause::of(&Arc::new(Subject::open(pid).unwrap())).is_none());
        assert_eq!(state(pid), Some('D'), "it waits still");
        fs::write(&pipe, "").unwrap();
        // Nothing is left that stops the process.
        let forked = rustix::process::Pid::from_raw(forked);
        let wait = || rustix::process::waitpid(forked, rustix::process::WaitOptions::empty());
        let mut statuses = std::iter::repeat_with(|| wait().unwrap().unwrap().1);
        // The thread that was to hold it may not have ended yet: then it stops once more, and goes on with its end.
        let ended = statuses.find(|status| !status.stopped()).unwrap();
        assert_eq!(ended.exit_status(), Some(0));
    }
}
