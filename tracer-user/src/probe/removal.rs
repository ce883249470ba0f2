//! Removing probes that were placed one by one, of which each takes the kernel some 25 ms: by a process
//! of its own, `roctap __remove-probes`, so that neither the trace nor the prompt waits for it.
//!
//! That process inherits their descriptors and closes them. If it is killed the kernel does the same.

use std::{
    ffi::OsString,
    io,
    os::{fd::RawFd, unix::process::CommandExt as _},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, getppid, pidfd_open},
};

use super::{Attachment, sys};
use crate::{privileges, program};

/// The hidden subcommand.
pub const REMOVE: &str = "__remove-probes";

/// What descriptors of probes are called in `/proc/PID/fd`.
const PROBES: [&str; 2] = ["anon_inode:[perf_event]", "anon_inode:bpf_link"];

/// Has another process remove probes, and those that threads of this one are still removing; its number.
///
/// # Errors
///
/// When the process cannot be started: the probes are then removed here.
pub fn hand_over(probes: Vec<Attachment>) -> io::Result<u32> {
    for fd in descriptors()? {
        match sys::inherit(fd) {
            // A thread has removed that one meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
            result => result?,
        }
    }
    let helper = Command::new(program::program())
        .arg0("roctap")
        .arg(REMOVE)
        .arg(std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // The end of this process closes its descriptors, which are not the last any more.
    std::mem::forget(probes);
    Ok(helper.id())
}

/// Runs `roctap __remove-probes PARENT`: removes all probes whose descriptors were inherited, once the
/// parent has ended. Before, these would not be the last ones, and it is whoever closes the last that waits.
///
/// # Errors
///
/// When they cannot be listed.
pub fn remove(arguments: &[OsString]) -> anyhow::Result<()> {
    // Away from the terminal, whose signals are for others.
    let _ = rustix::process::setsid();
    // And from a directory that somebody may want to remove.
    let _ = rustix::process::chdir("/");
    privileges::drop_all();
    let [parent] = arguments else { bail!("usage: {REMOVE} PARENT") };
    let parent = parent.to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    await_end(parent.context("PARENT must be a process id")?);
    descriptors()?.into_iter().for_each(sys::close);
    Ok(())
}

/// Waits until the parent, process `pid`, has ended.
fn await_end(pid: Pid) {
    let Ok(parent) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // Else it has ended before, and the number is somebody else's.
    while getppid() == Some(pid) && poll(&mut [PollFd::new(&parent, PollFlags::IN)], None).is_err()
    {
    }
}

fn descriptors() -> io::Result<Vec<RawFd>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let Ok(link) = std::fs::read_link(entry.path()) else { continue };
        if PROBES.iter().any(|&name| link.as_os_str() == name) {
            found.extend(entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
        }
    }
    Ok(found)
}
