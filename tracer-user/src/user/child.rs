//! The child that becomes the user, and the work of its parent meanwhile.
//!
//! A process that has a terminal can type there in the place of its user, who may be root, and so can every process
//! that is allowed to trace it. So the child has no terminal, and its output comes by pipes. The parent stays root,
//! whom the user cannot trace, and keeps the one capability without which the child would outlive it.

use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
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

/// Starts the child. Returns none in the child.
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

/// Makes the calling process end with its parent, whatever ends the parent: a signal from the terminal, too.
pub fn end_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::other("its parent has ended")) }
}

impl Child {
    /// Passes the child's output on until it has ended. Returns its status, as shells give it.
    pub fn wait(self) -> io::Result<ExitCode> {
        // Standard input is for the child alone.
        dup2_stdin(File::open("/dev/null")?)?;
        let ended = pidfd_open(self.pid, PidfdFlags::empty())?;
        let [out, err] = self.outputs;
        let mut outputs = [
            Output::new(out, io::stdout().as_fd().try_clone_to_owned()?),
            Output::new(err, io::stderr().as_fd().try_clone_to_owned()?),
        ];
        while !wait_for_any(&ended, &mut outputs)? {}
        // Without waiting for more: a plugin may have left a process behind that has the other ends, too.
        outputs.iter_mut().for_each(Output::pass_on);
        let status = waitpid(Some(self.pid), WaitOptions::empty())?.map(|(_, status)| status);
        let [Output { error, .. }, _] = outputs;
        if let Some(error) = error {
            return Err(io::Error::new(error.kind(), format!("standard output: {error}")));
        }
        if let Some(signal) = status.and_then(|status| status.terminating_signal()) {
            return Err(io::Error::other(format!(
                "it was ended by signal {signal}: what the plugin wrote may be incomplete"
            )));
        }
        let code = status.and_then(|status| status.exit_status());
        Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
    }
}

/// Waits for output, which is passed on, or for the end of the child. Returns whether it has ended.
fn wait_for_any(ended: &OwnedFd, outputs: &mut [Output]) -> io::Result<bool> {
    let watched = outputs.iter().filter_map(|output| output.from.as_ref());
    let mut watched: Vec<_> = std::iter::once(ended.as_fd())
        .chain(watched.map(|from| from.as_fd()))
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    match poll(&mut watched, None) {
        Err(Errno::INTR) => return Ok(false),
        polled => polled?,
    };
    let mut ready: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
    let has_ended = ready.remove(0);
    let open = outputs.iter_mut().filter(|output| output.from.is_some());
    open.zip(ready).filter(|(_, ready)| *ready).for_each(|(output, _)| output.pass_on());
    Ok(has_ended)
}

struct Output {
    /// None once nothing more can be passed on: a process that writes then finds the pipe closed.
    from: Option<PipeReader>,
    to: File,
    /// The error of passing on, if there was one other than that the reader has closed the output.
    error: Option<io::Error>,
}

impl Output {
    fn new(from: PipeReader, to: OwnedFd) -> Self {
        Self { from: Some(from), to: to.into(), error: None }
    }

    /// Passes on what is in the pipe.
    fn pass_on(&mut self) {
        let Some(from) = &self.from else { return };
        let count = ioctl_fionread(from).unwrap_or(0);
        let mut bytes = Vec::new();
        let read = from.take(count).read_to_end(&mut bytes);
        let passed_on = read.and_then(|_| write(&self.to, &bytes));
        if count == 0 || passed_on.is_err() {
            self.from = None;
            self.error = passed_on.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        }
    }
}

/// Writes to a terminal or a pipe, which some process may have set not to block.
fn write(mut to: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll(&mut [PollFd::new(to, PollFlags::OUT)], None)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
