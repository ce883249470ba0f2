//! A process of our own that loads a library, to see what its constructors make of it.
//!
//! Stubs are followed through the tables of a process that has loaded the library. A command that has
//! not been started yet has loaded nothing; but where a table's entries point is a property of the
//! file, so any process tells.

use std::{
    io::{self, Read as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::program::program;

/// The hidden subcommand that the scout runs.
pub const SCOUT: &str = "__scout";

/// A process that has loaded a library and waits; it ends when this is dropped.
pub struct Scout {
    child: Child,
}

impl Scout {
    /// Starts a scout that loads `library`. Its constructors have run when this returns.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or the library cannot be loaded by it.
    pub fn start(library: &Path) -> io::Result<Self> {
        let path = library.as_os_str();
        if path.to_string_lossy().contains([' ', ':']) {
            return Err(io::Error::other("LD_PRELOAD cannot name a path with a space or a colon"));
        }
        let mut child = Command::new(program())
            .arg(SCOUT)
            .env("LD_PRELOAD", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut stdout = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
        let scout = Self { child };
        stdout.read_exact(&mut [0])?;
        Ok(scout)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Scout {
    fn drop(&mut self) {
        // The end of its standard input tells it to end.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// What the scout does: says that it is there, and waits for the end of its input.
///
/// # Errors
///
/// When the pipes fail.
pub fn scout() -> io::Result<()> {
    io::stdout().write_all(b"!")?;
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
