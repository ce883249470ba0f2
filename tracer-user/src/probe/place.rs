//! Placing probes: attaching the programs to functions of a file in one process.

use std::{
    collections::BTreeMap,
    fmt,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use libbpf_rs::{Link, UprobeMultiOpts, UprobeOpts};
use rustix::{
    fs::{Mode, OFlags, fstat, open},
    process::{Resource, getrlimit},
};
use tracer_common::bpf::{Capture, Cookie};

use super::{
    ProbeError, Programs,
    events::{Event, Wanted},
    means::Means,
};
use crate::{
    discover::{FileId, PlannedFile},
    program,
};

/// Descriptors of a probe that is placed alone: the event's and the link's.
const DESCRIPTORS: u64 = 2;
/// Descriptors that are left for what else a recording opens.
const SPARE_DESCRIPTORS: u64 = 64;

/// A place to probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The function.
    pub symbol: String,
    /// The file that the site is in, where that is not the library.
    pub file: Option<Arc<PlannedFile>>,
    /// Offset in the file of the probed instruction.
    pub file_offset: u64,
    /// What is captured of the function's calls.
    pub capture: Capture,
}

/// Probes that are in place; dropping it removes them.
///
/// Entries go first (fields are dropped in order): without a return probe, entries would pile up.
#[must_use]
#[derive(Debug, Default)]
pub struct Attachment {
    entries: Vec<Placed>,
    returns: Vec<Placed>,
}

/// What keeps probes in place.
#[derive(Debug)]
enum Placed {
    /// A link of their own.
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
    /// Takes the entry probes out, to be removed: calls that are open may still return, but no new
    /// one is seen.
    pub fn take_entries(&mut self) -> Self {
        Self { entries: std::mem::take(&mut self.entries), returns: Vec::new() }
    }

    /// Removes probes, those of several libraries at the same time: the kernel mostly waits.
    pub fn remove_all(attachments: impl IntoIterator<Item = Self>) {
        std::thread::scope(|scope| {
            for attachment in attachments {
                scope.spawn(move || drop(attachment));
            }
        });
    }

    /// Removes probes one after the other until all are gone or it is to stop; what is left. Whoever ends
    /// while the kernel removes one leaves it behind.
    pub fn remove_until(mut self, stop: &AtomicBool) -> Self {
        for probes in [&mut self.entries, &mut self.returns] {
            while !stop.load(Ordering::Relaxed) && probes.pop().is_some() {}
        }
        self
    }

    /// The probes of several as those of one.
    pub fn together(attachments: impl IntoIterator<Item = Self>) -> Self {
        attachments.into_iter().fold(Self::default(), |mut all, mut one| {
            all.entries.append(&mut one.entries);
            all.returns.append(&mut one.returns);
            all
        })
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.entries.len() + self.returns.len()
    }
}

/// A program to attach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Program {
    Entry,
    Return,
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
            Self::FloorEntry => "floor_enter",
            Self::FloorReturn => "floor_exit",
            Self::Dispatch => "dispatch_site",
            Self::Doorbell => "doorbell",
            Self::SignalEnd => "signal_end",
            Self::LibrariesChange => "libraries_change",
        }
    }

    /// Whether it asks what is captured of the function: others may probe the same place.
    const fn captures(self) -> bool {
        matches!(self, Self::Entry | Self::Return)
    }

    const fn is_return(self) -> bool {
        matches!(self, Self::Return | Self::FloorReturn)
    }
}

/// What it probes, for people.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Entry | Self::FloorEntry => "entry",
            Self::Return | Self::FloorReturn => "return",
            Self::Dispatch => "dispatch",
            Self::Doorbell => "doorbell",
            Self::SignalEnd => "signal",
            Self::LibrariesChange => "dynamic linker",
        })
    }
}

/// A file whose functions are probed in a process.
struct Probed {
    pid: u32,
    /// Opened as a name alone: whatever it is, that does nothing.
    file: OwnedFd,
    id: FileId,
}

impl Probed {
    fn open(pid: u32, path: &Path) -> Result<Self, rustix::io::Errno> {
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let id = FileId::from(&fstat(&file)?);
        Ok(Self { pid, file, id })
    }

    /// By which the kernel finds it: libbpf's crate takes no path that is no text.
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

    /// Probes `sites` of the library at `path`, and of the other files that they name, in process
    /// `pid`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses; nothing stays attached.
    pub fn attach(&self, pid: u32, path: &Path, sites: &[Site]) -> Result<Attachment, ProbeError> {
        self.attach_pair([Program::Entry, Program::Return], pid, path, sites)
    }

    /// Attaches the entry program to all sites and the return program to those that have one.
    fn attach_pair(
        &self,
        [enter, exit]: [Program; 2],
        pid: u32,
        path: &Path,
        sites: &[Site],
    ) -> Result<Attachment, ProbeError> {
        let mut files: BTreeMap<PathBuf, Vec<&Site>> = BTreeMap::new();
        for site in sites {
            let file = site.file.as_ref().map_or_else(|| path.to_owned(), |file| file.path());
            files.entry(file).or_default().push(site);
        }
        if let Means::Single = self.means {
            check_descriptors(sites)?;
        }
        let mut placed = Attachment::default();
        for (path, all) in files {
            let returning: Vec<&Site> =
                all.iter().copied().filter(|s| s.capture.entry_only == 0).collect();
            placed.returns.extend(self.attach_sites(exit, pid, &path, &returning)?);
            placed.entries.extend(self.attach_sites(enter, pid, &path, &all)?);
        }
        Ok(placed)
    }

    /// Probes `sites` with programs that do nothing: what the kernel alone costs, to measure against.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_floor(
        &self,
        pid: u32,
        path: &Path,
        sites: &[Site],
    ) -> Result<Attachment, ProbeError> {
        self.attach_pair([Program::FloorEntry, Program::FloorReturn], pid, path, sites)
    }

    /// Probes the shim's dispatch site at `file_offset` of the file at `path`.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_dispatch_site(
        &self,
        pid: u32,
        path: &Path,
        file_offset: u64,
    ) -> Result<Attachment, ProbeError> {
        let site = Site {
            symbol: tracer_common::shim::DISPATCH_SITE.to_owned(),
            file: None,
            file_offset,
            capture: Capture::default(),
        };
        let entries = self.attach_sites(Program::Dispatch, pid, path, &[&site])?;
        Ok(Attachment { entries, returns: Vec::new() })
    }

    /// Probes the functions by which process `pid` rings doorbells and destroys signals, to see its
    /// packets from outside.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_doorbells(
        &self,
        pid: u32,
        path: &Path,
        doorbells: &[Site],
        ends: &[Site],
    ) -> Result<Attachment, ProbeError> {
        let attach = |program, sites: &[Site]| {
            let sites: Vec<&Site> = sites.iter().collect();
            self.attach_sites(program, pid, path, &sites)
        };
        let mut entries = attach(Program::Doorbell, doorbells)?;
        entries.extend(attach(Program::SignalEnd, ends)?);
        Ok(Attachment { entries, returns: Vec::new() })
    }

    /// Probes the places in process `pid`'s dynamic linker, the file at `path`, at which that tells that it
    /// changes what is loaded.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn attach_loader(
        &self,
        pid: u32,
        path: &Path,
        sites: &[Site],
    ) -> Result<Attachment, ProbeError> {
        let sites: Vec<&Site> = sites.iter().collect();
        let entries = self.attach_sites(Program::LibrariesChange, pid, path, &sites)?;
        Ok(Attachment { entries, returns: Vec::new() })
    }

    fn attach_sites(
        &self,
        program: Program,
        pid: u32,
        path: &Path,
        sites: &[&Site],
    ) -> Result<Vec<Placed>, ProbeError> {
        if sites.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |cause| ProbeError::Attach {
            path: path.to_owned(),
            pid,
            count: sites.len(),
            what: program.to_string(),
            cause,
        };
        let probed = Probed::open(pid, path).map_err(|e| failed(std::io::Error::from(e).into()))?;
        // Elsewhere the kernel knows processes by other numbers than we do.
        let own = match &self.means {
            _ if !program::in_initial_pid_namespace() => Cookie::ANY,
            Means::Event(_) => {
                self.track(pid)?;
                Cookie::TRACED
            }
            Means::Multi | Means::Single => pid,
        };
        let cookie = |site: &&Site| match program.captures() {
            true => self.cookie(own, probed.id, site.file_offset, site.capture),
            false => Ok(Cookie { pid: own, index: 0 }),
        };
        let cookies = sites.iter().map(cookie).collect::<Result<Vec<Cookie>, _>>()?;
        self.place(program, &probed, sites, &cookies).map_err(failed)
    }

    fn place(
        &self,
        which: Program,
        probed: &Probed,
        sites: &[&Site],
        cookies: &[Cookie],
    ) -> libbpf_rs::Result<Vec<Placed>> {
        let program = self.program(which.name());
        let retprobe = which.is_return();
        match &self.means {
            Means::Multi => {
                let options = UprobeMultiOpts {
                    offsets: sites.iter().map(|s| s.file_offset as usize).collect(),
                    cookies: cookies.iter().map(|cookie| cookie.to_u64()).collect(),
                    retprobe,
                    ..Default::default()
                };
                let (pid, path) = (probed.pid as i32, probed.path());
                let link = program.attach_uprobe_multi_with_opts(pid, path, "", options)?;
                Ok(vec![link.into()])
            }
            Means::Event(events) => {
                let wanted = Wanted {
                    program: &program,
                    retprobe,
                    file: &probed.file,
                    id: probed.id,
                    offsets: sites.iter().map(|site| site.file_offset).collect(),
                    // All have the same: it tells the file.
                    cookie: cookies.first().copied().unwrap_or_default(),
                };
                let (part, event) = events.part_in(wanted, probed.pid)?;
                Ok(vec![Placed::Member { _part: part, _event: event }])
            }
            Means::Single => {
                let each = sites.iter().zip(cookies);
                each.map(|(site, cookie)| {
                    let options =
                        UprobeOpts { cookie: cookie.to_u64(), retprobe, ..Default::default() };
                    let (pid, offset) = (probed.pid as i32, site.file_offset as usize);
                    let link =
                        program.attach_uprobe_with_opts(pid, probed.path(), offset, options)?;
                    Ok(link.into())
                })
                .collect()
            }
        }
    }
}

/// Checks that there can be as many descriptors as probes that are placed one by one take.
fn check_descriptors(sites: &[Site]) -> Result<(), ProbeError> {
    let probes = sites.iter().map(|site| 2 - usize::from(site.capture.entry_only != 0)).sum();
    let needed = DESCRIPTORS * probes as u64;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
    let free = limit.saturating_sub(open + SPARE_DESCRIPTORS);
    if needed <= free { Ok(()) } else { Err(ProbeError::Descriptors { probes, needed, free }) }
}
