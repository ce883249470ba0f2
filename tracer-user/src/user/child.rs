//! The child that becomes the user, and what its parent does meanwhile.
//!
//! A process that has a terminal can type there in its user's place, who may be root, and so can whoever is allowed to
//! trace that process. So the child has no terminal, and its output comes by pipes. The parent stays root, whom the user
//! cannot trace, and keeps the one capability without which the child would outlive it.

use std::fs::File;
use std::io::{self, PipeReader, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionread};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getppid, pidfd_open, set_parent_process_death_signal,
    setsid, waitpid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// The child, as its parent sees it.
pub struct Child {
    pid: Pid,
    outputs: [PipeReader; 2],
}

/// Starts it. None in the child.
pub fn start() -> io::Result<Option<Child>> {
    let (out, its_out) = io::pipe()?;
    let (err, its_err) = io::pipe()?;
    // SAFETY: there is no other thread, whose locks the child would wait for.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if let Some(pid) = Pid::from_raw(pid) {
        return Ok(Some(Child { pid, outputs: [out, err] }));
    }
    setsid()?;
    dup2_stdout(its_out)?;
    dup2_stderr(its_err)?;
    Ok(None)
}

/// Has the calling process end with its parent, whatever ends that: a signal from the terminal, too.
pub fn end_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::other("its parent has ended")) }
}

impl Child {
    /// Passes its output on until it has ended. Its status, as shells give it.
    pub fn wait(self) -> io::Result<ExitCode> {
        // What is there to be read is the child's.
        dup2_stdin(File::open("/dev/null")?)?;
        let ended = pidfd_open(self.pid, PidfdFlags::empty())?;
        let [out, err] = self.outputs;
        let mut outputs = vec![
            Output { from: out, to: io::stdout().as_fd().try_clone_to_owned()?.into() },
            Output { from: err, to: io::stderr().as_fd().try_clone_to_owned()?.into() },
        ];
        while !wait_for_any(&ended, &mut outputs)? {}
        // What is there now: a plugin may have left a process behind that has the other ends, too.
        for output in &mut outputs {
            output.pass_on();
        }
        let status = waitpid(Some(self.pid), WaitOptions::empty())?.map(|(_, status)| status);
        let code = status.and_then(|status| {
            status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal))
        });
        Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
    }
}

/// Waits for output, which is passed on, or the end of the child: whether it has ended.
fn wait_for_any(ended: &OwnedFd, outputs: &mut Vec<Output>) -> io::Result<bool> {
    let watched = outputs.iter().map(|output| output.from.as_fd());
    let mut watched: Vec<_> = std::iter::once(ended.as_fd())
        .chain(watched)
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    match poll(&mut watched, None) {
        Err(Errno::INTR) => return Ok(false),
        polled => polled?,
    };
    let mut ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
    let has_ended = ready.remove(0);
    let mut ready = ready.into_iter();
    outputs.retain_mut(|output| !ready.next().unwrap_or(false) || output.pass_on());
    Ok(has_ended)
}

struct Output {
    from: PipeReader,
    to: File,
}

impl Output {
    /// Passes on what is in the pipe; false if nothing more can be.
    fn pass_on(&mut self) -> bool {
        let count = ioctl_fionread(&self.from).unwrap_or(0);
        let passed_on = io::copy(&mut (&self.from).take(count), &mut self.to);
        count > 0 && passed_on.is_ok_and(|passed_on| passed_on == count)
    }
}
