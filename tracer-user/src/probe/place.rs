//! Placing probes: attaching the programs to functions of a file in one process.

use std::{
    fmt,
    os::fd::{AsRawFd as _, OwnedFd},
    path::Path,
    sync::Arc,
};

use libbpf_rs::{Link, UprobeMultiOpts};
use rustix::fs::{Mode, OFlags, fstat, open};
use tracer_common::bpf::{Capture, Cookie};

use super::{
    ProbeError, Programs,
    events::{Event, Wanted},
    interface::PlacingInterface,
};
use crate::{discover::FileId, program};

/// A place to probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The function.
    pub symbol: String,
    /// Offset in the library's file of the probed instruction.
    pub file_offset: u64,
    /// The values that are captured of the function's calls.
    pub capture: Capture,
}

/// Probes that are in place; dropping it removes them.
///
/// Entries go first (fields are dropped in order): without a return probe, entries would pile up. Probes at both the
/// entry and the return are among the returns.
#[must_use]
#[derive(Debug, Default)]
pub struct Attachment {
    entries: Vec<Placed>,
    returns: Vec<Placed>,
}

/// The descriptors that keep probes in place.
#[derive(Debug)]
enum Placed {
    /// A link of the probes' own.
    Link { _link: Link },
    /// The process's part in an event.
    Member { _part: OwnedFd, _event: Arc<Event> },
}

impl From<Link> for Placed {
    fn from(link: Link) -> Self {
        Self::Link { _link: link }
    }
}

impl Attachment {
    /// Takes the entry probes out, to be removed: calls that are open may still return, but no new call is seen.
    pub fn take_entries(&mut self) -> Self {
        Self { entries: std::mem::take(&mut self.entries), returns: Vec::new() }
    }

    /// Removes the probes of several libraries at the same time: the kernel mostly waits.
    pub fn remove_all(attachments: impl IntoIterator<Item = Self>) {
        std::thread::scope(|scope| {
            for attachment in attachments {
                scope.spawn(move || drop(attachment));
            }
        });
    }

    /// The number of links.
    pub fn links(&self) -> usize {
        self.entries.len() + self.returns.len()
    }
}

/// A program to attach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Program {
    Entry,
    Return,
    /// At the entry and the return.
    Call,
    FloorEntry,
    FloorReturn,
    Dispatch,
    Doorbell,
    SignalEnd,
    LibrariesChange,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Entry => "api_enter",
            Self::Return => "api_exit",
            Self::Call => "api_call",
            Self::FloorEntry => "floor_enter",
            Self::FloorReturn => "floor_exit",
            Self::Dispatch => "dispatch_site",
            Self::Doorbell => "doorbell",
            Self::SignalEnd => "signal_end",
            Self::LibrariesChange => "libraries_change",
        }
    }

    /// Whether the program looks up the capture of the function: other programs may probe the same place.
    const fn captures(self) -> bool {
        matches!(self, Self::Entry | Self::Return | Self::Call)
    }

    const fn is_return(self) -> bool {
        matches!(self, Self::Return | Self::FloorReturn)
    }
}

/// The probed event, for people.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Entry | Self::FloorEntry => "entry",
            Self::Return | Self::FloorReturn => "return",
            Self::Call => "entry and return",
            Self::Dispatch => "dispatch",
            Self::Doorbell => "doorbell",
            Self::SignalEnd => "signal",
            Self::LibrariesChange => "dynamic linker",
        })
    }
}

/// The process that probes belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeOwner {
    /// A process whose first thread lives.
    Process(u32),
    /// A process whose first thread has ended. The kernel knows a process by that thread, and would place the probes
    /// nowhere: they are placed in all processes, and the programs check for which one they run.
    Outlived(u32),
}

impl ProbeOwner {
    /// The process.
    const fn pid(self) -> u32 {
        match self {
            Self::Process(pid) | Self::Outlived(pid) => pid,
        }
    }

    /// The process id for the kernel: -1 is all processes.
    const fn kernel_pid(self) -> i32 {
        match self {
            Self::Process(pid) => pid.cast_signed(),
            Self::Outlived(_) => -1,
        }
    }
}

impl From<u32> for ProbeOwner {
    fn from(pid: u32) -> Self {
        Self::Process(pid)
    }
}

/// A file whose functions are probed in a process.
struct Probed {
    owner: ProbeOwner,
    /// Opened with `O_PATH`: whatever the file is, that has no effect.
    file: OwnedFd,
    id: FileId,
}

impl Probed {
    fn open(owner: ProbeOwner, path: &Path) -> Result<Self, rustix::io::Errno> {
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let id = FileId::from(&fstat(&file)?);
        Ok(Self { owner, file, id })
    }

    /// The path by which the kernel finds the file: libbpf's crate takes no path that is not text.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }
}

impl Programs {
    /// Attaches the programs that follow processes and threads.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_life(&self) -> Result<Attachment, ProbeError> {
        let links = ["task_created", "task_executed", "task_ended"]
            .map(|name| self.program(name).attach().map(Placed::from))
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|cause| ProbeError::load("attaching to process events", cause))?;
        Ok(Attachment { entries: links, returns: Vec::new() })
    }

    /// Probes `sites` of the library at `path` in a process.
    ///
    /// # Errors
    ///
    /// When the kernel refuses; nothing stays attached.
    pub fn attach(
        &self,
        owner: impl Into<ProbeOwner>,
        path: &Path,
        sites: &[Site],
    ) -> Result<Attachment, ProbeError> {
        let owner = owner.into();
        if !matches!(self.interface, PlacingInterface::Multi { sessions: true }) {
            return self.attach_pair([Program::Entry, Program::Return], owner, path, sites);
        }
        let all: Vec<&Site> = sites.iter().collect();
        let placed = self.attach_sites(Program::Call, owner, path, &all)?;
        Ok(Attachment { entries: Vec::new(), returns: Vec::from_iter(placed) })
    }

    /// Attaches the entry program to all sites, and the return program to those that have one.
    fn attach_pair(
        &self,
        [enter, exit]: [Program; 2],
        owner: ProbeOwner,
        path: &Path,
        sites: &[Site],
    ) -> Result<Attachment, ProbeError> {
        let all: Vec<&Site> = sites.iter().collect();
        let returning: Vec<&Site> =
            sites.iter().filter(|site| site.capture.entry_only == 0).collect();
        let returns = Vec::from_iter(self.attach_sites(exit, owner, path, &returning)?);
        let entries = Vec::from_iter(self.attach_sites(enter, owner, path, &all)?);
        Ok(Attachment { entries, returns })
    }

    /// Probes `sites` with programs that do nothing, to measure the cost of the kernel alone.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_floor(
        &self,
        owner: impl Into<ProbeOwner>,
        path: &Path,
        sites: &[Site],
    ) -> Result<Attachment, ProbeError> {
        self.attach_pair([Program::FloorEntry, Program::FloorReturn], owner.into(), path, sites)
    }

    /// Probes the shim's dispatch site at `file_offset` of the file at `path`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_dispatch_site(
        &self,
        owner: impl Into<ProbeOwner>,
        path: &Path,
        file_offset: u64,
    ) -> Result<Attachment, ProbeError> {
        let site = Site {
            symbol: tracer_common::shim::DISPATCH_SITE.to_owned(),
            file_offset,
            capture: Capture::default(),
        };
        let placed = self.attach_sites(Program::Dispatch, owner.into(), path, &[&site])?;
        Ok(Attachment { entries: Vec::from_iter(placed), returns: Vec::new() })
    }

    /// Probes the functions by which a process rings doorbells and destroys signals, to see its
    /// packets from outside.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_doorbells(
        &self,
        owner: impl Into<ProbeOwner>,
        path: &Path,
        doorbells: &[Site],
        ends: &[Site],
    ) -> Result<Attachment, ProbeError> {
        let owner = owner.into();
        let attach = |program, sites: &[Site]| {
            let sites: Vec<&Site> = sites.iter().collect();
            self.attach_sites(program, owner, path, &sites)
        };
        let placed = [attach(Program::Doorbell, doorbells)?, attach(Program::SignalEnd, ends)?];
        let entries = placed.into_iter().flatten().collect();
        Ok(Attachment { entries, returns: Vec::new() })
    }

    /// Probes the places in a process's dynamic linker, the file at `path`, at which the linker tells that it changes
    /// what is loaded.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_loader(
        &self,
        owner: impl Into<ProbeOwner>,
        path: &Path,
        sites: &[Site],
    ) -> Result<Attachment, ProbeError> {
        let sites: Vec<&Site> = sites.iter().collect();
        let placed = self.attach_sites(Program::LibrariesChange, owner.into(), path, &sites)?;
        Ok(Attachment { entries: Vec::from_iter(placed), returns: Vec::new() })
    }

    fn attach_sites(
        &self,
        program: Program,
        owner: ProbeOwner,
        path: &Path,
        sites: &[&Site],
    ) -> Result<Option<Placed>, ProbeError> {
        if sites.is_empty() {
            return Ok(None);
        }
        let failed = |cause| ProbeError::Attach {
            path: path.to_owned(),
            pid: owner.pid(),
            count: sites.len(),
            what: program.to_string(),
            cause,
        };
        let probed =
            Probed::open(owner, path).map_err(|e| failed(std::io::Error::from(e).into()))?;
        // In another PID namespace the kernel knows processes by other numbers than roctap does.
        let own = match self.interface {
            _ if !program::in_initial_pid_namespace() => Cookie::ANY,
            PlacingInterface::Event(_) => {
                self.track(owner.pid())?;
                Cookie::TRACED
            }
            PlacingInterface::Multi { .. } => owner.pid(),
        };
        let cookie = |site: &&Site| match program.captures() {
            true => self.cookie(own, probed.id, site.file_offset, site.capture),
            false => Ok(Cookie { pid: own, index: 0 }),
        };
        let cookies = sites.iter().map(cookie).collect::<Result<Vec<Cookie>, _>>()?;
        self.place(program, &probed, sites, &cookies).map(Some).map_err(failed)
    }

    fn place(
        &self,
        which: Program,
        probed: &Probed,
        sites: &[&Site],
        cookies: &[Cookie],
    ) -> libbpf_rs::Result<Placed> {
        let program = self.program(which.name());
        let retprobe = which.is_return();
        match &self.interface {
            PlacingInterface::Multi { .. } => {
                let options = UprobeMultiOpts {
                    offsets: sites.iter().map(|s| s.file_offset as usize).collect(),
                    cookies: cookies.iter().map(|cookie| cookie.to_u64()).collect(),
                    retprobe,
                    session: which == Program::Call,
                    ..Default::default()
                };
                let (pid, path) = (probed.owner.kernel_pid(), probed.path());
                let link = program.attach_uprobe_multi_with_opts(pid, path, "", options)?;
                Ok(link.into())
            }
            PlacingInterface::Event(events) => {
                let wanted = Wanted {
                    program: &program,
                    retprobe,
                    file: &probed.file,
                    id: probed.id,
                    offsets: sites.iter().map(|site| site.file_offset).collect(),
                    // All sites have the same cookie: it identifies the file.
                    cookie: cookies.first().copied().unwrap_or_default(),
                };
                let (part, event) = events.part_in(wanted, probed.owner.kernel_pid())?;
                Ok(Placed::Member { _part: part, _event: event })
            }
        }
    }
}
