//! Probes by tracefs: all places of a file that run one program are one uprobe event, which the kernel
//! places and removes as a whole (Linux 5.4 and later).
//!
//! Events are defined by writing lines into `uprobe_events`, and each belongs to one recording: its group is named
//! after the process that made it. A definition probes nothing by itself and outlives the process that wrote it, so
//! the definitions of processes that are gone are deleted when the next one opens tracefs.
//!
//! **An event in use must not be deleted**: for an event with several places the kernel notices the use only at the
//! last place, when it has freed the others, which are then called from freed memory (`unregister_trace_uprobe`,
//! `kernel/trace/trace_uprobe.c`). So nothing is deleted while a recording goes on, when a child between `fork` and
//! `exec` may have copies of its descriptors, nor any event that somebody has enabled in tracefs.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::Path,
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::{
    fs::{Mode, OFlags, fstatfs, open, openat},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
    process::{Pid, PidfdFlags, pidfd_open},
};

/// The directories where tracefs may be mounted.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// `TRACEFS_MAGIC`.
const MAGIC: i64 = 0x7472_6163;
/// The file of all definitions.
const DEFINITIONS: &str = "uprobe_events";
/// The beginning of the names of roctap's groups; their process's number and start follow.
const GROUP: &str = "roctap";

/// Tracefs, as far as it is used here.
#[derive(Debug)]
pub struct Tracefs {
    root: OwnedFd,
    /// Opened for appending: truncating it would delete everybody's events.
    definitions: OwnedFd,
    group: String,
    next: AtomicU32,
    /// Events that are not in use any more.
    left: Mutex<Vec<String>>,
}

/// A defined event. If it was dropped, it is deleted together with [`Tracefs`].
#[derive(Debug)]
pub struct Definition {
    tracefs: Arc<Tracefs>,
    event: String,
    /// The number by which `perf_event_open(2)` knows it.
    pub id: u64,
}

impl Tracefs {
    /// Opens tracefs, mounting it for this process alone if it is not mounted, and deletes the events that killed
    /// recordings have left.
    ///
    /// # Errors
    ///
    /// When tracefs is not mounted and cannot be, or may not be written.
    pub fn open() -> io::Result<Self> {
        let root = match MOUNTED.iter().find_map(|path| mounted(path.as_ref())) {
            Some(root) => root,
            None => mount()?,
        };
        let append = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
        let definitions = openat(&root, DEFINITIONS, append, Mode::empty())?;
        let group = group(process::id()).ok_or(io::ErrorKind::NotFound)?;
        let (next, left) = (AtomicU32::new(0), Mutex::default());
        let tracefs = Self { root, definitions, group, next, left };
        if let Err(error) = tracefs.delete_stale() {
            tracing::debug!("looking for what killed recordings left: {error}");
        }
        Ok(tracefs)
    }

    /// Deletes the definitions of processes that are gone.
    fn delete_stale(&self) -> io::Result<()> {
        // Other tools' events may be of files whose names are not text.
        let text = self.read(DEFINITIONS)?;
        let own = namespaces();
        let mut stale: Vec<&str> =
            text.lines().filter_map(|line| stale_event(line, &own)).collect();
        stale.dedup();
        stale.into_iter().for_each(|event| self.delete(event));
        Ok(())
    }

    /// Deletes an event of which no descriptor is open.
    fn delete(&self, event: &str) {
        let is_enabled =
            self.read(&format!("events/{event}/enable")).is_ok_and(|on| on.trim() != "0");
        let deleted = match is_enabled {
            true => Err(io::Error::other("somebody has enabled it")),
            false => self.write(&format!("-:{event}\n")),
        };
        match deleted {
            Ok(()) => tracing::debug!("deleted {event} from {DEFINITIONS}"),
            // The event is in use, or somebody else has deleted it, or it was not defined.
            Err(error) => tracing::debug!("{event} is not deleted from {DEFINITIONS}: {error}"),
        }
    }

    /// Defines an event for places of a file, at their entries or returns.
    ///
    /// # Errors
    ///
    /// When the kernel refuses; nothing stays defined.
    pub fn define(
        self: &Arc<Self>,
        file: impl AsFd,
        offsets: &BTreeSet<u64>,
        retprobe: bool,
    ) -> io::Result<Definition> {
        let kind = if retprobe { 'r' } else { 'p' };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let event = format!("{}/{kind}{number}", self.group);
        // By descriptor: a path can have any characters, and may lead elsewhere by now.
        let fd = file.as_fd().as_raw_fd();
        let mut lines = String::new();
        for offset in offsets {
            // SANITY: writing to a string cannot fail.
            let _ = writeln!(lines, "{kind}:{event} /proc/self/fd/{fd}:{offset:#x}");
        }
        let mut definition = Definition { tracefs: Arc::clone(self), event, id: 0 };
        self.write(&lines)?;
        let id = self.read(&format!("events/{}/id", definition.event))?;
        definition.id = id.trim().parse().map_err(io::Error::other)?;
        Ok(definition)
    }

    fn write(&self, lines: &str) -> io::Result<()> {
        let mut left = lines.as_bytes();
        while !left.is_empty() {
            match rustix::io::write(&self.definitions, left) {
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read(&self, path: &str) -> io::Result<String> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut file = std::fs::File::from(openat(&self.root, path, flags, Mode::empty())?);
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Definition {
    fn drop(&mut self) {
        let mut left = self.tracefs.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.push(std::mem::take(&mut self.event));
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        let left = std::mem::take(self.left.get_mut().unwrap_or_else(PoisonError::into_inner));
        left.iter().for_each(|event| self.delete(event));
    }
}

/// The directory at `path`, if tracefs is mounted there.
fn mounted(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(path, flags, Mode::empty()).ok()?;
    (fstatfs(&root).ok()?.f_type == MAGIC).then_some(root)
}

/// Mounts tracefs where no other process sees it.
fn mount() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// The name of the group of process `pid`. The process's start tells it from other processes with its number, and the
/// namespaces are those in which the number and the start are valid.
fn group(pid: u32) -> Option<String> {
    let stat = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?;
    Some(format!("{GROUP}_{pid}_{}_{}", stat.starttime, namespaces()))
}

/// The namespaces of this process that its number and its start depend on.
fn namespaces() -> String {
    let namespace = |name: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
        link.to_string_lossy().chars().filter(char::is_ascii_digit).collect::<String>()
    };
    format!("{}_{}", namespace("pid"), namespace("time"))
}

/// The event of a line of `uprobe_events` such as `p:roctap_4711_815_1_2/p0 /usr/lib/libx.so:0x10`, if the process that
/// defined it is surely gone: this cannot be judged for processes of other namespaces.
fn stale_event<'a>(line: &'a str, namespaces: &str) -> Option<&'a str> {
    let event = line.split_once(':')?.1.split_whitespace().next()?;
    let owner = event.split_once('/')?.0;
    let (pid, rest) = owner.strip_prefix(GROUP)?.strip_prefix('_')?.split_once('_')?;
    let (_start, theirs) = rest.split_once('_')?;
    let pid: u32 = pid.parse().ok().filter(|_| theirs == namespaces)?;
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    let is_gone = match pidfd_open(process, PidfdFlags::empty()) {
        Err(error) => error == Errno::SRCH,
        Ok(_) => group(pid).is_some_and(|living| living != owner),
    };
    is_gone.then_some(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_of_dead_recordings_are_stale() {
        let own = group(process::id()).unwrap();
        let (namespaces, pid) = (namespaces(), process::id());
        let is_stale = |group: &str| {
            let line = format!("p:{group}/p0 /usr/lib/lib:0.so:0x0000000000001000");
            let event = stale_event(&line, &namespaces).map(str::to_owned);
            assert!(event.is_none() || event == Some(format!("{group}/p0")));
            event.is_some()
        };
        assert!(!is_stale(&own));
        // Another process with the same number; and a number that no process has.
        assert!(is_stale(&format!("roctap_{pid}_1_{namespaces}")));
        assert!(is_stale(&format!("roctap_2147483647_7_{namespaces}")));
        // From another namespace, or not roctap's.
        assert!(!is_stale("roctap_2147483647_7_1_2"));
        for others in
            ["uprobes", "roctap", "roctap_x_7", "roctap_2147483647_7", "roctapper_1_2_3_4"]
        {
            assert!(!is_stale(others), "{others}");
        }
        assert_eq!(stale_event("", &namespaces), None);
    }
}
