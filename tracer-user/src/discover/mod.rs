//! Finds processes and the ROCm libraries that they map.
//!
//! A library is identified by the file that is mapped, as it is then, never by its path: the process may live in
//! another mount namespace, and the file may have been replaced since. The file is opened once, through
//! `/proc/PID/map_files`, which names the mapped inode itself, or, if that is not permitted, inside the process's
//! root, when the inode agrees; from then on that descriptor stands for it ([`PlannedFile`]).

mod elf;
mod inside;
mod loader;
mod planned;
mod predict;
mod soname;
mod subject;

pub use elf::{ElfError, Function, Image, fuzz_elf};
pub(crate) use inside::stack_pointer;
pub use inside::{Inside, threads_inside};
pub use loader::{Loader, mapped_loader, may_be_called};
pub use planned::{Changed, FileId, PlannedFile};
pub use predict::{candidates, find_executable};
pub use subject::{Ended, Subject};

use std::{collections::BTreeMap, io, ops::Range, path::PathBuf, sync::Arc};

use procfs::process::Process;
use tracer_common::activity::Domain;
use tracer_records::api;

use crate::{
    foreign::{self, Map, Maps},
    shown,
    trace::limits::{MAX_COMMAND, cut},
};

/// The most files of one kind that are looked at in a process, which maps one or two.
const MAX_FILES: usize = 16;

/// File name of the shim.
pub const SHIM_FILE_NAME: &str = "libroctap_shim.so";

/// A runtime library whose API can be traced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Runtime {
    /// `libamdhip64`: the HIP API.
    Hip,
    /// `libhsa-runtime64`: the HSA API.
    Hsa,
    /// `libroctx64` or `librocprofiler-sdk-roctx`: marks and ranges. Programs that use no GPU may have it, too.
    Roctx,
}

impl Runtime {
    /// All runtimes.
    pub const ALL: [Self; 3] = [Self::Hip, Self::Hsa, Self::Roctx];

    /// Beginnings of the library's file name. A version follows (`.so.5`), or a part that makes the name unique for
    /// libraries that are packed with programs (`-1f0c3a2b.so.5`).
    pub const fn file_prefixes(self) -> &'static [&'static str] {
        match self {
            Self::Hip => &["libamdhip64"],
            Self::Hsa => &["libhsa-runtime64"],
            Self::Roctx => &["libroctx64", "librocprofiler-sdk-roctx"],
        }
    }

    /// Whether a process that has the library uses ROCm. Programs that use no GPU may have roctx.
    pub fn is_of_rocm(self) -> bool {
        self != Self::Roctx
    }

    /// The name of its API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hip => "hip",
            Self::Hsa => "hsa",
            Self::Roctx => "roctx",
        }
    }

    /// Domain of its API calls.
    pub const fn domain(self) -> Domain {
        match self {
            Self::Hip => Domain::HIP_API,
            Self::Hsa => Domain::HSA_API,
            Self::Roctx => Domain::ROCTX,
        }
    }

    /// The runtime whose library has this file name.
    pub fn of_file_name(name: &str) -> Option<Self> {
        let is_of = |runtime: &Self| {
            let mut rests = runtime.file_prefixes().iter().filter_map(|p| name.strip_prefix(p));
            rests.any(|rest| rest.starts_with(['.', '-']) && rest.contains(".so"))
        };
        Self::ALL.into_iter().find(is_of)
    }

    /// The runtime whose library process `pid` maps there: by the file's name, else by the library's own. A file can have
    /// any name: one that is packed into an archive, is copied to a temporary file, or is in memory alone.
    pub(crate) fn of_mapping(pid: u32, map: &Map<'_>) -> Option<Self> {
        Self::of_file_name(&map.file_name()).or_else(|| {
            let open = || File::mapped(pid, map).map(|found| found.file);
            let soname = map.executable.then(|| soname::of(map, open)).flatten()?;
            Self::of_file_name(&soname)
        })
    }

    /// Whether an exported symbol belongs to the API.
    pub fn owns_symbol(self, symbol: &str) -> bool {
        match self {
            Self::Hip => symbol.starts_with("hip") || symbol.starts_with("__hip"),
            Self::Hsa => symbol.starts_with("hsa_"),
            Self::Roctx => api::by_name(symbol).is_some_and(|op| op.domain == Domain::ROCTX),
        }
    }
}

/// A runtime library on disk or mapped by a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Library {
    /// The runtime.
    pub runtime: Runtime,
    /// Path for people: as the process sees it.
    pub path: PathBuf,
    /// Path by which this process can open the very file.
    pub open_path: PathBuf,
    /// Identity of the file.
    pub id: FileId,
    /// The file to which `open_path` leads, for a file that a process maps; none for one on disk.
    pub held: Option<Arc<PlannedFile>>,
}

impl Library {
    /// Opens the library's file, to be planned.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened, or has changed since it was found.
    pub fn open(&self) -> io::Result<PlannedFile> {
        let file = PlannedFile::open(&self.open_path)?;
        if file.id() == self.id { Ok(file) } else { Err(io::Error::other(Changed)) }
    }

    /// The release in the library's resolved file name: `5.2.50203` of `libamdhip64.so.5.2.50203`.
    /// Empty when the name has none.
    pub fn version(&self) -> String {
        let file = foreign::File::open(&self.open_path).ok();
        let real = file.and_then(|file| file.real_path()).unwrap_or_else(|| self.path.clone());
        let name = real.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let version = name.split_once(".so").map(|(_, version)| version).unwrap_or_default();
        version.trim_start_matches('.').to_owned()
    }
}

/// Why a process could not be looked into.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// There is no such process.
    #[error("process {pid}: no such process; `roctap ps` lists the running ROCm processes")]
    NoProcess {
        /// The process id asked for.
        pid: u32,
    },
    /// It has ended and waits for its parent.
    #[error("process {pid} ({name}) is a zombie: it has already exited")]
    Zombie {
        /// The process id.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// It may not be read.
    #[error(
        "process {pid}: not permitted to read its memory maps: that takes root or CAP_SYS_PTRACE, and a security module or a sandbox may forbid it all the same"
    )]
    NotPermitted {
        /// The process id.
        pid: u32,
    },
    /// Reading `/proc` failed.
    #[error("process {pid}: reading {what} failed: {cause}")]
    Proc {
        /// The process id.
        pid: u32,
        /// Which file.
        what: &'static str,
        /// How. Part of the message, hence no `source`.
        cause: procfs::ProcError,
    },
}

impl DiscoverError {
    fn proc(pid: u32, what: &'static str, cause: procfs::ProcError) -> Self {
        match cause {
            procfs::ProcError::NotFound(_) => Self::NoProcess { pid },
            procfs::ProcError::PermissionDenied(_) => Self::NotPermitted { pid },
            // A process that ends while its files are read answers ESRCH.
            procfs::ProcError::Io(ref e, _) if e.raw_os_error() == Some(3) => {
                Self::NoProcess { pid }
            }
            cause => Self::Proc { pid, what, cause },
        }
    }
}

fn process(pid: u32) -> Result<Process, DiscoverError> {
    let id = i32::try_from(pid).map_err(|_| DiscoverError::NoProcess { pid })?;
    Process::new(id).map_err(|e| DiscoverError::proc(pid, "/proc", e))
}

/// The names by which people know a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessInfo {
    /// Process id.
    pub pid: u32,
    /// Its command line, joined by spaces; its name in brackets when it has none.
    pub command: String,
}

/// Looks process `pid` up.
///
/// # Errors
///
/// When it does not exist, is a zombie or cannot be read.
pub fn process_info(pid: u32) -> Result<ProcessInfo, DiscoverError> {
    let process = process(pid)?;
    let stat = process.stat().map_err(|e| DiscoverError::proc(pid, "stat", e))?;
    if matches!(stat.state, 'Z' | 'X') {
        return Err(DiscoverError::Zombie { pid, name: stat.comm });
    }
    let command = match arguments(pid) {
        Err(error) => return Err(DiscoverError::proc(pid, "cmdline", error.into())),
        Ok(none) if none.is_empty() => format!("[{}]", stat.comm),
        Ok(arguments) => cut(&arguments.join(" "), MAX_COMMAND).into_owned(),
    };
    Ok(ProcessInfo { pid, command })
}

/// How far CLOCK_BOOTTIME is ahead of ours in the time namespace of process `pid`, ns. None if it cannot be determined:
/// the kernel tells it for the namespace of a process's children.
pub fn clock_ahead_ns(pid: u32) -> Option<i64> {
    let namespace = |pid: &str, name: &str| std::fs::read_link(format!("/proc/{pid}/ns/{name}"));
    let own = namespace("self", "time");
    let theirs = namespace(&pid.to_string(), "time");
    let (Ok(own), Ok(theirs)) = (own, theirs) else { return Some(0) };
    if own == theirs {
        return Some(0);
    }
    let children = namespace(&pid.to_string(), "time_for_children").ok()?;
    let path = PathBuf::from(format!("/proc/{pid}/timens_offsets"));
    let offsets = foreign::text(&path).ok().filter(|_| children == theirs)?;
    let offsets = foreign::lossy(&offsets);
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, ns) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// The arguments of process `pid`, empty ones left out; only the beginning if they are long. A program can make them as
/// long as its memory, and of any bytes.
pub(crate) fn arguments(pid: u32) -> io::Result<Vec<String>> {
    // One byte more, which shows that the arguments go on.
    let path = format!("/proc/{pid}/cmdline");
    let bytes = foreign::beginning(path.as_ref(), MAX_COMMAND as u64 + 1)?;
    let arguments = bytes.split(|&byte| byte == 0).filter(|argument| !argument.is_empty());
    Ok(arguments.map(shown::text_of).collect())
}

/// The runtime libraries that process `pid` maps now.
///
/// # Errors
///
/// When the process does not exist or its maps cannot be read.
pub fn libraries(pid: u32) -> Result<Vec<Library>, DiscoverError> {
    let found = mapped(pid, |map| Runtime::of_mapping(pid, map))?;
    let library = |(runtime, File { path, file })| Library {
        runtime,
        path,
        open_path: file.path(),
        id: file.id(),
        held: Some(Arc::new(file)),
    };
    Ok(found.into_iter().map(library).collect())
}

/// How many pages process `pid` has mapped: the number differs once the process has mapped another library. It costs a
/// thirtieth of reading the mappings.
///
/// # Errors
///
/// When the process is gone.
pub fn mapped_pages(pid: u32) -> Result<u64, DiscoverError> {
    let gone = |_| DiscoverError::NoProcess { pid };
    let text = foreign::text(format!("/proc/{pid}/statm").as_ref()).map_err(gone)?;
    let first = text.split(|byte| *byte == b' ').next();
    let pages = first.and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
    pages.ok_or(DiscoverError::NoProcess { pid })
}

/// The shims that process `pid` has loaded.
///
/// # Errors
///
/// As of [`libraries`].
pub fn shims(pid: u32) -> Result<Vec<PlannedFile>, DiscoverError> {
    // An injected shim is "memfd:libroctap_shim.so (deleted)".
    let found = mapped(pid, |map| map.file_name().contains(SHIM_FILE_NAME).then_some(()))?;
    Ok(found.into_iter().map(|((), File { file, .. })| file).collect())
}

/// A file that a process maps: see [`Library`].
pub(crate) struct File {
    /// Path for people: as the process sees it.
    pub path: PathBuf,
    /// The very file.
    pub file: PlannedFile,
}

impl File {
    /// The file that process `pid` has mapped; none when it cannot be opened.
    pub(crate) fn mapped(pid: u32, map: &Map<'_>) -> Option<Self> {
        let Range { start, end } = map.range;
        let mapped = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
        let path = map.plain_path()?;
        let file = match PlannedFile::open(&mapped) {
            Ok(file) => file,
            // Not permitted. The path may lead to another file.
            Err(_) => {
                let file = foreign::File::of_process(pid, &path).ok()?;
                PlannedFile::of(&file).ok().filter(|file| file.id().inode() == map.inode)?
            }
        };
        Some(Self { path, file })
    }
}

/// The files that process `pid` maps and that `wanted` accepts, each once.
pub(crate) fn mapped<T>(
    pid: u32,
    wanted: impl Fn(&Map<'_>) -> Option<T>,
) -> Result<Vec<(T, File)>, DiscoverError> {
    let maps = Maps::of(pid).map_err(|e| DiscoverError::proc(pid, "maps", e.into()))?;
    let (mut found, mut unopened) = (BTreeMap::new(), BTreeMap::new());
    for map in maps.iter() {
        let Some(wanted) = wanted(&map) else { continue };
        let key = (map.device, map.inode);
        if found.contains_key(&key) {
            continue;
        }
        if found.len() >= MAX_FILES {
            let name = map.file_name();
            tracing::info!("process {pid}: more than {MAX_FILES} files like {name} are mapped");
            break;
        }
        if let Some(file) = File::mapped(pid, &map) {
            found.insert(key, (wanted, file));
        } else {
            unopened.insert(key, map.plain_path().unwrap_or_default());
        }
    }
    unopened.retain(|key, _| !found.contains_key(key));
    // A process that ends has its maps a moment longer than the files.
    if !unopened.is_empty() && !has_program(pid) {
        return Err(DiscoverError::NoProcess { pid });
    }
    for path in unopened.into_values() {
        tracing::warn!(
            "process {pid}: {} is mapped but the mapped file cannot be opened",
            path.display()
        );
    }
    Ok(found.into_values().collect())
}

/// Whether process `pid` runs a program: a process that is about to end does not any more.
pub(crate) fn has_program(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    !program.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The ids of all processes that this user may see.
pub fn process_ids() -> Vec<u32> {
    let Ok(all) = procfs::process::all_processes() else { return Vec::new() };
    all.flatten().filter_map(|process| u32::try_from(process.pid()).ok()).collect()
}

/// The id of process `pid` as it sees itself.
pub fn id_inside(pid: u32) -> Option<u32> {
    let status = foreign::text(format!("/proc/{pid}/status").as_ref()).ok()?;
    innermost_id(&foreign::lossy(&status))
}

/// The id of a process, or of a thread, as its process sees it, from its `/proc/…/status`.
pub(crate) fn innermost_id(status: &str) -> Option<u32> {
    let ids = foreign::field(status, "NSpid").or_else(|| foreign::field(status, "Pid"))?;
    ids.split_whitespace().next_back()?.parse().ok()
}

/// The name of a thread, or empty.
pub fn thread_name(pid: u32, tid: u32) -> String {
    let path = format!("/proc/{pid}/task/{tid}/comm");
    let name = foreign::text(path.as_ref()).unwrap_or_default();
    shown::text_of(name.trim_ascii_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_names() {
        for (name, runtime) in [
            ("libamdhip64.so.5", Some(Runtime::Hip)),
            ("libamdhip64-1f0c3a2b.so.5.2.3", Some(Runtime::Hip)),
            ("libamdhip64_test.so", None),
            ("libamdhip64lite.so.6", None),
            ("libamdhip64-6.4", None),
            ("libroctx64.so", Some(Runtime::Roctx)),
            ("libroctx64.so.4.1.60403", Some(Runtime::Roctx)),
            ("libroctx64-0a1b2c3d.so.4", Some(Runtime::Roctx)),
            ("librocprofiler-sdk-roctx.so.1", Some(Runtime::Roctx)),
            ("librocprofiler-sdk-roctx-0a1b2c3d.so.1.0.0", Some(Runtime::Roctx)),
            ("librocprofiler-sdk.so.1", None),
            ("libroctracer64.so.4", None),
            ("libroctx64.a", None),
        ] {
            assert_eq!(Runtime::of_file_name(name), runtime, "{name}");
        }
        assert!(Runtime::Roctx.owns_symbol("roctxRangePop"));
        assert!(!Runtime::Roctx.owns_symbol("roctxProfilerPause"));
    }
}
