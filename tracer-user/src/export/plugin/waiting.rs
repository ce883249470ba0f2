//! The wait for a recording. `roctap record --plugin` starts `roctap export` first, while it still has the rights to
//! become the user, so that a mistake is reported before anything is recorded.
//!
//! Standard input is a socket to roctap: a byte from the export says that all is well, and a byte from roctap that the
//! trace is written. If roctap ends, the socket does.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};

use super::stdin;
use crate::program;

/// To be called first by an export that is to wait.
pub fn begin() {
    // Input and signals of the terminal are meant for roctap and the command.
    let _ = rustix::process::setsid();
    // The export ends when roctap does.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
}

/// Waits until the trace is written; false if that will not happen.
pub fn wait() -> io::Result<bool> {
    let mut socket = UnixStream::from(stdin::take()?);
    socket.write_all(&[0])?;
    Ok(socket.read(&mut [0])? == 1)
}

/// An export that waits for its trace. It ends when this is dropped.
pub struct Waiting {
    child: Child,
    socket: UnixStream,
}

impl Waiting {
    /// Starts an export. None if it could not be started, which was reported.
    pub fn start(trace: &Path, plugin: &Path) -> io::Result<Option<Self>> {
        let (mut socket, its) = UnixStream::pair()?;
        // One word, which may begin with a dash.
        let mut option = OsString::from("--plugin=");
        option.push(plugin);
        let mut child = Command::new(program::program())
            .args(["export", "--when-recorded"])
            .args([&option, OsStr::new("--"), trace.as_os_str()])
            .stdin(OwnedFd::from(its))
            .spawn()?;
        if socket.read(&mut [0])? == 0 {
            child.wait()?;
            return Ok(None);
        }
        Ok(Some(Self { child, socket }))
    }

    /// The trace is written. Returns whether all of it was handed over: if not, that was reported.
    pub fn export(mut self) -> io::Result<bool> {
        self.socket.write_all(&[0])?;
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The export may be stopped. If it has ended and was waited for, these do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
