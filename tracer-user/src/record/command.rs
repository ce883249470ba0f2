//! Starts the command that is to be recorded, and holds it until the probes are in place.
//!
//! The child is this very program, which waits for its environment on a pipe and then executes the
//! command: its process id, to which the probes are tied, stays the same, and it runs no code between `fork`
//! and `exec` that would need care.
#![expect(unsafe_code, reason = "takes over the inherited end of the pipe")]

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, process::CommandExt as _},
    },
    process::{Child, Command, ExitStatus},
};

use anyhow::{Context as _, bail};

/// The hidden subcommand that the child runs.
pub const HOLD: &str = "__hold";

/// A started command that waits to be released. Dropping it ends it.
pub struct Held {
    child: Option<Child>,
    release: File,
}

impl Held {
    /// Starts `command`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(command: &[OsString]) -> anyhow::Result<Self> {
        // Inherited by the child on purpose: no close-on-exec.
        let (wait, release) = rustix::pipe::pipe().context("creating a pipe")?;
        rustix::io::fcntl_setfd(&release, rustix::io::FdFlags::CLOEXEC)?;
        let child = Command::new(crate::program::program())
            .arg(HOLD)
            .arg(wait.as_raw_fd().to_string())
            .args(command)
            .spawn()
            .context("starting the command")?;
        Ok(Self { child: Some(child), release: release.into() })
    }

    /// Its process id, now and after it is released.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Lets it run, with additional environment.
    ///
    /// # Errors
    ///
    /// When it is gone.
    pub fn release(mut self, environment: &[(&str, OsString)]) -> anyhow::Result<Running> {
        self.release.write_all(&encode(environment)).context("releasing the command")?;
        // The end of the pipe is the end of the message.
        let child = self.child.take().context("a command that was not released")?;
        Ok(Running { child })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It is a child of ours, and has run nothing yet.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Variables as `name=value`, each with a zero behind it, and a zero behind all.
fn encode(environment: &[(&str, OsString)]) -> Vec<u8> {
    let mut message = Vec::new();
    for (name, value) in environment {
        for part in [name.as_bytes(), b"=", value.as_bytes(), b"\0"] {
            message.extend_from_slice(part);
        }
    }
    message.push(0);
    message
}

/// The variables of a message; none if that is not whole.
fn decode<'a>(message: &'a [u8]) -> Option<Vec<(&'a OsStr, &'a OsStr)>> {
    let message = message.strip_suffix(b"\0")?;
    let variables = message.split_inclusive(|&byte| byte == 0);
    let variable = |part: &'a [u8]| {
        let part = part.strip_suffix(b"\0")?;
        let equals = part.iter().position(|&byte| byte == b'=')?;
        Some((OsStr::from_bytes(&part[..equals]), OsStr::from_bytes(&part[equals + 1..])))
    };
    variables.map(variable).collect()
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
    let mut message = Vec::new();
    pipe.read_to_end(&mut message)?;
    // The command inherits no descriptor of ours.
    drop(pipe);
    let Some(environment) = decode(&message) else {
        bail!("roctap ended before {} was started", command.display());
    };
    let error = Command::new(command).args(arguments).envs(environment).exec();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_arrives_whole_or_not_at_all() {
        let environment = [("A", OsString::from("1 = 2")), ("B", OsString::new())];
        let message = encode(&environment);
        let [a, b] = decode(&message).unwrap()[..] else { panic!("{message:?}") };
        assert_eq!((a, b), (("A".as_ref(), "1 = 2".as_ref()), ("B".as_ref(), "".as_ref())));
        assert_eq!(decode(&encode(&[])), Some(Vec::new()));
        for length in [0, 1, 3, message.len() - 2] {
            assert_eq!(decode(&message[..length]), None, "{length}");
        }
    }
}
