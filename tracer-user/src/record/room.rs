//! How much of a process's limits the shim may take. Whatever it reserves, used or not, the process itself cannot
//! have.

use std::{fs, path::Path};

use procfs::{
    Current as _, LoadAverage,
    process::{Limit, LimitValue, Limits, Process, Status},
};
use tracer_common::shim::Layout;

use crate::{
    cgroups::{self, Version},
    foreign,
};

/// The shim takes at most one part in so many of what a limit leaves.
const PARTS: u64 = 8;
/// The smallest ring, bytes.
const SMALLEST_RING: usize = 16 << 10;
/// The address space that the C library reserves for the allocations of each thread, of which there are three at
/// first (glibc's arenas), and that of the shim's file and tables.
const ALLOCATIONS: u64 = 3 * (64 << 20) + (8 << 20);
/// Stacks of the usual size at the same time: of the thread that loads the shim, and of the shim's own.
const STACKS: u64 = 2;
/// The usual size of a stack, where no limit sets it.
const STACK: u64 = 2 << 20;
/// Descriptors that the shim has open at the same time.
const DESCRIPTORS: u64 = 2;
/// Threads that the shim needs at the same time.
const THREADS: u64 = 2;
/// Mappings of the shim: its library, its memory, stacks, and what the C library allocates for three threads.
const MAPPINGS: u64 = 24;
/// The bytes that are written of the shim's memory beside its rings: its library, stacks, packets in flight, and
/// signals.
const WRITTEN: u64 = 16 << 20;
/// The least number of threads, of all processes of a cgroup, whose rings are taken to be written.
const WRITERS: u64 = 256;

/// A limit of a process that leaves too little room.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{} {name} leaves {left}, and the shim takes an eighth of that at most, but needs {needed}; raise it{} or record from outside (--gpu uprobes)",
    owner.0,
    owner.1,
    left = shown(*left, unit),
    needed = shown(*needed, unit)
)]
pub struct TightLimit {
    owner: LimitOwner,
    name: &'static str,
    unit: &'static str,
    left: u64,
    needed: u64,
}

/// The owner of a limit, as the message names it, and how the limit is raised.
type LimitOwner = (&'static str, &'static str);
const OF_PROCESS: LimitOwner = ("its limit", " (prlimit --pid)");
const OF_GROUP: LimitOwner = ("its cgroup's limit", "");
const OF_SYSTEM: LimitOwner = ("the system's limit", " (sysctl)");

fn shown(count: u64, unit: &str) -> String {
    if unit.is_empty() { count.to_string() } else { format!("{} {unit}", count >> 20) }
}

/// The part of a limit that is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Left {
    owner: LimitOwner,
    name: &'static str,
    unit: &'static str,
    left: u64,
    /// The amount that the shim takes of it beside its rings.
    needed: u64,
    /// The rings that count against it.
    rings: Rings,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rings {
    None,
    /// The rings of so many threads.
    Written(u64),
    /// All rings that are mapped.
    All,
}

impl Left {
    fn tight(self, needed: u64) -> TightLimit {
        let Self { owner, name, unit, left, .. } = self;
        TightLimit { owner, name, unit, left, needed }
    }
}

/// The sizes of a memory for process `pid`: as `wanted`, or with smaller rings where its limits leave less.
///
/// # Errors
///
/// Which limit leaves too little room for the shim.
pub fn layout(pid: u32, wanted: Layout) -> Result<Layout, TightLimit> {
    // Of a process that cannot be looked at no limit is known.
    fit(&limits(pid).unwrap_or_default(), wanted)
}

fn fit(limits: &[Left], wanted: Layout) -> Result<Layout, TightLimit> {
    let mut layout = wanted;
    for limit in limits {
        loop {
            let rings = match limit.rings {
                Rings::None => 0,
                Rings::Written(threads) => {
                    threads.min(layout.rings as u64) * layout.ring_bytes as u64
                }
                Rings::All => layout.total_bytes() as u64,
            };
            let needed = limit.needed + rings;
            if needed.saturating_mul(PARTS) <= limit.left {
                break;
            }
            if limit.rings == Rings::None || layout.ring_bytes <= SMALLEST_RING {
                return Err(limit.tight(needed));
            }
            layout.ring_bytes /= 2;
        }
    }
    Ok(layout)
}

fn limits(pid: u32) -> procfs::ProcResult<Vec<Left>> {
    let process = Process::new(i32::try_from(pid).unwrap_or(i32::MAX))?;
    let (limits, status) = (process.limits()?, process.status()?);
    let bytes = |kib: fn(&Status) -> Option<u64>| kib(&status).unwrap_or(0) << 10;
    let left = |limit: Limit, used: u64| match limit.soft_limit {
        LimitValue::Unlimited => None,
        LimitValue::Value(limit) => Some(limit.saturating_sub(used)),
    };
    let stacks = STACKS * left(limits.max_stack_size, 0).unwrap_or(STACK);
    let space = left(limits.max_address_space, bytes(|status| status.vmsize));
    let data = left(limits.max_data_size, bytes(|status| status.vmdata));
    // A process that has locked some memory may have asked the kernel to lock all that it maps later:
    // mlockall(MCL_FUTURE).
    let locked = bytes(|status| status.vmlck);
    let lockable = left(limits.max_locked_memory, locked).filter(|_| locked > 0);
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |open| open.count() as u64);
    let descriptors = match limits.max_open_files.soft_limit {
        LimitValue::Unlimited => None,
        LimitValue::Value(limit) => Some(limit.saturating_sub(open())),
    };
    let of = |name, left: Option<u64>, needed, rings| {
        left.map(|left| Left { owner: OF_PROCESS, name, unit: "MiB", left, needed, rings })
    };
    let of_group = |(name, left), unit, needed, rings| Left {
        owner: OF_GROUP,
        name,
        unit,
        left,
        needed,
        rings,
    };
    let counted = |owner, name, left: Option<u64>, needed| {
        left.map(|left| Left { owner, name, unit: "", left, needed, rings: Rings::None })
    };
    let writers = Rings::Written(status.threads.max(WRITERS));
    let all = [
        of("RLIMIT_AS", space, ALLOCATIONS + stacks, Rings::All),
        of("RLIMIT_DATA", data, stacks, Rings::None),
        of("RLIMIT_MEMLOCK", lockable, stacks, Rings::All),
        counted(OF_PROCESS, "RLIMIT_NOFILE", descriptors, DESCRIPTORS),
        counted(OF_PROCESS, "RLIMIT_NPROC", users_threads_left(&limits, &status), THREADS),
        counted(OF_SYSTEM, "vm.max_map_count", mappings_left(pid), MAPPINGS),
        least(pid, "memory", memory_left).map(|left| of_group(left, "MiB", WRITTEN, writers)),
        least(pid, "pids", threads_left).map(|left| of_group(left, "", THREADS, Rings::None)),
    ];
    Ok(all.into_iter().flatten().collect())
}

/// The threads that the user of a process may still start: RLIMIT_NPROC counts those of all of the user's processes. None
/// where there is no limit, as for root.
fn users_threads_left(limits: &Limits, status: &Status) -> Option<u64> {
    const EXEMPT: u64 = 1 << 21 | 1 << 24; // CAP_SYS_ADMIN, CAP_SYS_RESOURCE
    let LimitValue::Value(limit) = limits.max_processes.soft_limit else { return None };
    if status.ruid == 0 || status.capeff & EXEMPT != 0 {
        return None;
    }
    // Counting is needed only where all threads that there are would not fit.
    let all = LoadAverage::current().map_or(u64::MAX, |load| u64::from(load.max));
    if limit.saturating_sub(all) >= THREADS * PARTS {
        return None;
    }
    let processes = procfs::process::all_processes().ok()?;
    let all = processes.filter_map(|process| process.ok()?.status().ok());
    let own = all.filter(|other| other.ruid == status.ruid).map(|other| other.threads);
    Some(limit.saturating_sub(own.sum()))
}

/// The mappings that a process may still make.
fn mappings_left(pid: u32) -> Option<u64> {
    let most = number(Path::new("/proc/sys/vm"), "max_map_count")?;
    let mapped = foreign::Maps::of(pid).ok()?.iter().count();
    Some(most.saturating_sub(mapped as u64))
}

/// The name of a cgroup's limit, and how much of it is not used.
type OfGroup = (&'static str, u64);

/// The limit that leaves least, of those of the cgroups that a process is in.
fn least(
    pid: u32,
    controller: &str,
    left: fn(&Path, Version) -> Option<OfGroup>,
) -> Option<OfGroup> {
    let groups = cgroups::of(pid, controller).unwrap_or_default();
    let all = groups
        .iter()
        .flat_map(|group| group.directories().map(|directory| (directory, group.version)));
    all.filter_map(|(directory, version)| left(directory, version)).min_by_key(|&(_, left)| left)
}

/// How much of a cgroup's memory is not used. Pages of files and reclaimable slabs count as not used: the kernel can
/// drop them.
fn memory_left(directory: &Path, version: Version) -> Option<OfGroup> {
    // Above `memory.high` the kernel slows down the processes that allocate.
    let (limits, used, of_all): (&[&'static str], _, _) = match version {
        Version::One => (&["memory.limit_in_bytes"], "memory.usage_in_bytes", "total_"),
        Version::Two => (&["memory.max", "memory.high"], "memory.current", ""),
    };
    let limits = limits.iter().filter_map(|&name| Some((name, number(directory, name)?)));
    let (name, limit) = limits.min_by_key(|&(_, limit)| limit)?;
    let stat = text(directory, "memory.stat");
    let kept = ["inactive_file", "active_file", "slab_reclaimable"].map(|name| {
        let value =
            |line: &str| line.strip_prefix(of_all)?.strip_prefix(name)?.trim().parse::<u64>().ok();
        stat.lines().find_map(value).unwrap_or(0)
    });
    let used = number(directory, used)?.saturating_sub(kept.into_iter().sum());
    Some((name, limit.saturating_sub(used)))
}

/// How many more threads a cgroup may have.
fn threads_left(directory: &Path, _: Version) -> Option<OfGroup> {
    let used = number(directory, "pids.current")?;
    Some(("pids.max", number(directory, "pids.max")?.saturating_sub(used)))
}

/// The number in a file of a cgroup; none where the file says "max".
fn number(directory: &Path, name: &str) -> Option<u64> {
    text(directory, name).trim().parse().ok()
}

fn text(directory: &Path, name: &str) -> String {
    foreign::lossy(&foreign::text(&directory.join(name)).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: Left = Left {
        owner: OF_PROCESS,
        name: "RLIMIT_AS",
        unit: "MiB",
        left: 2600 << 20,
        needed: ALLOCATIONS + 2 * STACK,
        rings: Rings::All,
    };

    #[test]
    fn rings_are_as_large_as_there_is_room() {
        assert_eq!(fit(&[], Layout::DEFAULT), Ok(Layout::DEFAULT));
        let ample = Left { left: 1 << 40, ..SPACE };
        assert_eq!(fit(&[ample], Layout::DEFAULT), Ok(Layout::DEFAULT));
        let fitting = fit(&[SPACE], Layout::DEFAULT).unwrap();
        assert_eq!(fitting.rings, Layout::DEFAULT.rings);
        assert!(fitting.is_sane() && fitting.ring_bytes < Layout::DEFAULT.ring_bytes);
        assert!((SPACE.needed + fitting.total_bytes() as u64) * PARTS <= SPACE.left);
        assert_eq!(fit(&[ample, SPACE], Layout::DEFAULT), Ok(fitting), "the least counts");
    }

    #[test]
    fn a_limit_that_leaves_too_little_is_named() {
        let little = Left { left: 300 << 20, ..SPACE };
        let why = fit(&[little], Layout::DEFAULT).unwrap_err().to_string();
        assert!(why.contains("RLIMIT_AS leaves 300 MiB, "), "{why}");
        let descriptors = Left { name: "RLIMIT_NOFILE", unit: "", left: 3, needed: 2, ..SPACE };
        let descriptors = Left { rings: Rings::None, ..descriptors };
        let why = fit(&[descriptors], Layout::DEFAULT).unwrap_err().to_string();
        assert!(why.contains("RLIMIT_NOFILE leaves 3, ") && why.contains("needs 2;"), "{why}");
    }

    #[test]
    fn rings_that_may_be_written_count_for_the_memory_of_a_group() {
        let of = |left| Left {
            owner: OF_GROUP,
            name: "memory.max",
            left,
            needed: WRITTEN,
            rings: Rings::Written(WRITERS),
            ..SPACE
        };
        assert_eq!(fit(&[of(16 << 30)], Layout::DEFAULT), Ok(Layout::DEFAULT));
        let fitting = fit(&[of(1 << 30)], Layout::DEFAULT).unwrap();
        assert_eq!(fitting.ring_bytes, 256 << 10);
        let why = fit(&[of(100 << 20)], Layout::DEFAULT).unwrap_err().to_string();
        let expected = "its cgroup's limit memory.max leaves 100 MiB, and the shim takes an eighth of that at most, but needs 20 MiB; raise it or record";
        assert!(why.starts_with(expected), "{why}");
    }

    #[test]
    fn limits_of_groups_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let files = [
            ("memory.max", "1000000\n"),
            ("memory.current", "900000\n"),
            ("memory.stat", "anon 600000\nfile 300000\ninactive_file 200000\nactive_file 50000\n"),
            ("memory.limit_in_bytes", "5000\n"),
            ("memory.usage_in_bytes", "3000\n"),
            ("pids.max", "max\n"),
            ("pids.current", "7\n"),
        ];
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        let left = |version| memory_left(directory.path(), version);
        assert_eq!(left(Version::Two), Some(("memory.max", 350_000)));
        fs::write(directory.path().join("memory.high"), "800000").unwrap();
        assert_eq!(left(Version::Two), Some(("memory.high", 150_000)));
        assert_eq!(left(Version::One), Some(("memory.limit_in_bytes", 2_000)));
        assert_eq!(threads_left(directory.path(), Version::One), None);
        fs::write(directory.path().join("pids.max"), "10").unwrap();
        assert_eq!(threads_left(directory.path(), Version::Two), Some(("pids.max", 3)));
    }

    #[test]
    fn limits_of_this_process_are_read() {
        let own = limits(std::process::id()).unwrap();
        let descriptors = own.iter().find(|limit| limit.name == "RLIMIT_NOFILE").unwrap();
        assert!(descriptors.left > 0);
    }
}
