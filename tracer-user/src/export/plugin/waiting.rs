//! The wait for a recording. `roctap record --plugin` starts `roctap export` first, while rights to become the user are
//! there, so that a mistake is told before anything is recorded.
//!
//! Standard input is a socket to roctap: a byte says here that all is well, and a byte there that the trace is
//! written. Its end is roctap's.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::{process, thread};

use super::stdin;
use crate::program;

/// Waits until the trace is written; false if that will not come.
pub fn wait() -> io::Result<bool> {
    // What is typed at the terminal is meant for roctap and the command.
    let _ = rustix::process::setsid();
    let mut socket = UnixStream::from(stdin::take()?);
    socket.write_all(&[0])?;
    if socket.read(&mut [0])? == 0 {
        return Ok(false);
    }
    thread::spawn(move || {
        // Whoever ends roctap ends this, too. The process that hands records over ends with it.
        let _ = socket.read(&mut [0]);
        process::exit(1);
    });
    Ok(true)
}

/// An export that waits for its trace. Without it, it ends.
pub struct Waiting {
    child: Child,
    socket: UnixStream,
}

impl Waiting {
    /// Starts it. None if it could not be, which was said.
    pub fn start(trace: &Path, plugin: &Path) -> io::Result<Option<Self>> {
        let (mut socket, its) = UnixStream::pair()?;
        let child = Command::new(program::program())
            .args(["export", "--when-recorded", "--plugin"])
            .args([plugin, Path::new("--"), trace])
            .stdin(OwnedFd::from(its))
            .spawn()?;
        let is_ready = socket.read(&mut [0])? == 1;
        let waiting = Self { child, socket };
        Ok(is_ready.then_some(waiting))
    }

    /// The trace is written. Whether all of it was handed over: if not, that was said.
    pub fn export(mut self) -> io::Result<bool> {
        self.socket.write_all(&[0])?;
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}
