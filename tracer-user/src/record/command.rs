//! Starts the command that is to be recorded, and holds it until the probes are in place.
//!
//! The child is this very program, which waits for a byte on a pipe and then executes the command:
//! its process id, to which the probes are tied, stays the same, and it runs no code between `fork`
//! and `exec` that would need care.
#![expect(unsafe_code, reason = "takes over the inherited end of the pipe")]

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::{Child, Command, ExitStatus},
};

use anyhow::{Context as _, bail};

/// The hidden subcommand that the child runs.
pub const HOLD: &str = "__hold";

/// A started command that waits to be released.
pub struct Held {
    child: Child,
    release: File,
}

impl Held {
    /// Starts `command` with additional environment.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(command: &[OsString], environment: &[(&str, OsString)]) -> anyhow::Result<Self> {
        // Inherited by the child on purpose: no close-on-exec.
        let (wait, release) = rustix::pipe::pipe().context("creating a pipe")?;
        rustix::io::fcntl_setfd(&release, rustix::io::FdFlags::CLOEXEC)?;
        let child = Command::new(crate::program::program())
            .arg(HOLD)
            .arg(wait.as_raw_fd().to_string())
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .spawn()
            .context("starting the command")?;
        Ok(Self { child, release: release.into() })
    }

    /// Its process id, now and after it is released.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it run.
    ///
    /// # Errors
    ///
    /// When it is gone.
    pub fn release(mut self) -> anyhow::Result<Running> {
        self.release.write_all(b"!").context("releasing the command")?;
        Ok(Running { child: self.child })
    }
}

/// The running command.
pub struct Running {
    child: Child,
}

impl Running {
    /// How it ended, if it has.
    ///
    /// # Errors
    ///
    /// Those of `waitpid`.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

/// What the child does: waits, then becomes the command. Returns only on failure.
pub fn hold(arguments: &[OsString]) -> anyhow::Result<()> {
    let [fd, command, arguments @ ..] = arguments else { bail!("usage: {HOLD} FD CMD ARGS…") };
    let fd: i32 = fd.to_str().and_then(|fd| fd.parse().ok()).context("FD must be a number")?;
    // SAFETY: the number is that of the pipe end which `Held::start` let this process inherit, and
    // nothing else in this process owns it.
    let mut pipe = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    if pipe.read(&mut [0])? == 0 {
        bail!("roctap ended before {} was started", command.display());
    }
    // The command inherits no descriptor of ours.
    drop(pipe);
    let error = Command::new(command).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", command.display()))
}

/// Finds `command` as `execvp` does, to say early and clearly that it is not there.
///
/// # Errors
///
/// When there is no such program.
pub fn check(command: &OsStr) -> anyhow::Result<()> {
    if crate::discover::find_executable(command).is_none() {
        bail!("cannot run {}: no such program", command.display());
    }
    Ok(())
}
