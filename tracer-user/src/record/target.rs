//! A traced process: what is attached to it, and whether it lives.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::{
    discover::FileId,
    probe::Attachment,
    trace::model::{Library, Process},
};

/// One process.
pub struct Target {
    /// What the trace says of it.
    pub info: Process,
    /// The libraries that are probed in it.
    pub attached: BTreeMap<FileId, Attachment>,
    /// The shim's dispatch site.
    pub dispatch_site: Option<Attachment>,
    /// The end of the process can be polled for; none when it had ended already.
    alive: Option<OwnedFd>,
}

impl Target {
    /// Process `pid`, nothing attached.
    pub fn new(pid: u32, command: String, attached_ns: u64) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Self {
            info: Process { command, attached_ns, ..Process::default() },
            attached: BTreeMap::new(),
            dispatch_site: None,
            alive: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
        }
    }

    /// Whether the process is still there (a zombie is not).
    pub fn is_alive(&self) -> bool {
        let Some(pidfd) = &self.alive else { return false };
        let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
        !matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(ready) if ready > 0)
    }

    /// Remembers a probed library.
    pub fn add_library(&mut self, id: FileId, library: Library, attachment: Attachment) {
        self.info.libraries.push(library);
        self.attached.insert(id, attachment);
    }
}
