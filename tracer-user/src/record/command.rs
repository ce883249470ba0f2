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

use super::inherited;

/// The hidden subcommand that the child runs.
pub const HOLD: &str = "__hold";

/// A started command that waits to be released. Dropping it ends it.
pub struct HeldCommand {
    child: Option<Child>,
    /// Closed when the message is whole: the child reads up to the end of the pipe.
    release: Option<File>,
    /// The child writes an error number here if it cannot become the command; the pipe ends when it has become it.
    failure: File,
}

impl HeldCommand {
    /// Starts `command`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(command: &[OsString]) -> anyhow::Result<Self> {
        // Inherited by the child on purpose: no close-on-exec.
        let (wait, release) = rustix::pipe::pipe().context("creating a pipe")?;
        let (failure, fail) = rustix::pipe::pipe().context("creating a pipe")?;
        for ours in [&release, &failure] {
            rustix::io::fcntl_setfd(ours, rustix::io::FdFlags::CLOEXEC)?;
        }
        let mut hold = Command::new(crate::program::program());
        hold.arg(HOLD)
            .args([&wait, &fail].map(|theirs| theirs.as_raw_fd().to_string()))
            .args(command);
        let child = inherited::pass_on(&mut hold).spawn().context("starting the command")?;
        Ok(Self { child: Some(child), release: Some(release.into()), failure: failure.into() })
    }

    /// The process id, which is the same before and after the release.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Lets the command run, with additional environment.
    ///
    /// # Errors
    ///
    /// When the child is gone, or cannot become the command: the kernel's error.
    pub fn release(mut self, environment: &[(&str, OsString)]) -> anyhow::Result<Running> {
        let mut release = self.release.take().context("a command that was released already")?;
        release.write_all(&encode(environment)).context("releasing the command")?;
        drop(release);
        let mut error = Vec::new();
        self.failure.read_to_end(&mut error).context("waiting for the command")?;
        if let Ok(error) = error.try_into() {
            return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error)).into());
        }
        let child = self.child.take().context("a command that was not released")?;
        Ok(Running { child })
    }
}

impl Drop for HeldCommand {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It is a child of ours, and has run nothing yet.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Variables as `name=value`, each with a zero behind it, and one more zero at the end.
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

/// The variables of a message; none if the message is not whole.
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
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    ///
    /// Those of `waitpid`.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

/// The pipe's end of this number, which [`HeldCommand::start`] let this process inherit.
fn pipe_end(number: &OsStr) -> anyhow::Result<File> {
    let number: i32 = number.to_str().and_then(|n| n.parse().ok()).context("not a descriptor")?;
    // SAFETY: nothing else in this process owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(number) }))
}

/// Runs in the child: waits for the environment, then executes the command. Returns only on failure.
pub fn hold(arguments: &[OsString]) -> anyhow::Result<()> {
    let [wait, fail, command, arguments @ ..] = arguments else {
        bail!("{HOLD} is for roctap's own use")
    };
    let (mut pipe, mut fail) = (pipe_end(wait)?, pipe_end(fail)?);
    let mut message = Vec::new();
    pipe.read_to_end(&mut message)?;
    // The command inherits no descriptor of ours.
    drop(pipe);
    rustix::io::fcntl_setfd(&fail, rustix::io::FdFlags::CLOEXEC)?;
    let Some(environment) = decode(&message) else {
        bail!("roctap ended before {} was started", command.display());
    };
    let mut becomes = Command::new(command);
    let error = inherited::pass_on(becomes.args(arguments).envs(environment)).exec();
    // Roctap reports the error, unless roctap is gone.
    let code = error.raw_os_error().unwrap_or(0).to_ne_bytes();
    if fail.write_all(&code).is_ok() {
        std::process::exit(127);
    }
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
