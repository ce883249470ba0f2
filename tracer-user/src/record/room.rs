//! How much of a process's limits the shim may take: what it takes is missing when the process itself asks
//! for more, whatever is used of it.

use std::fs;

use procfs::process::{Limit, LimitValue, Process, Status};
use tracer_common::shim::Layout;

/// The shim takes one part of so many that are left.
const PARTS: u64 = 8;
/// The smallest ring, bytes.
const SMALLEST_RING: usize = 16 << 10;
/// What the C library reserves for the allocations of each thread, of which there are three at first (glibc's
/// arenas), and the shim's file and tables.
const ALLOCATIONS: u64 = 3 * (64 << 20) + (8 << 20);
/// Threads at once that have a stack of the usual size: the one that loads the shim, and the shim's own.
const STACKS: u64 = 2;
/// The usual size, where there is no limit of it.
const STACK: u64 = 2 << 20;
/// Descriptors at once.
const DESCRIPTORS: u64 = 2;

/// A limit of a process that leaves too little room.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "its limit {name} leaves {left}, and the shim takes an eighth of that at most, but needs {needed}; raise it (prlimit --pid) or record from outside (--gpu uprobes)",
    left = shown(*left, unit),
    needed = shown(*needed, unit)
)]
pub struct Tight {
    name: &'static str,
    unit: &'static str,
    left: u64,
    needed: u64,
}

fn shown(count: u64, unit: &str) -> String {
    if unit.is_empty() { count.to_string() } else { format!("{} {unit}", count >> 20) }
}

/// What is left of one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Left {
    name: &'static str,
    unit: &'static str,
    left: u64,
    /// What the shim takes beside its rings.
    needed: u64,
    /// The rings count.
    has_rings: bool,
}

impl Left {
    fn tight(self, needed: u64) -> Tight {
        let Self { name, unit, left, .. } = self;
        Tight { name, unit, left, needed }
    }
}

/// The sizes of a memory for process `pid`: as `wanted`, or with smaller rings where its limits leave less.
///
/// # Errors
///
/// Which limit leaves too little room for the shim.
pub fn layout(pid: u32, wanted: Layout) -> Result<Layout, Tight> {
    // Of a process that cannot be looked at nothing is known.
    fit(&limits(pid).unwrap_or_default(), wanted)
}

fn fit(limits: &[Left], wanted: Layout) -> Result<Layout, Tight> {
    let mut layout = wanted;
    for limit in limits {
        loop {
            let rings = if limit.has_rings { layout.total_bytes() as u64 } else { 0 };
            let needed = limit.needed + rings;
            if needed.saturating_mul(PARTS) <= limit.left {
                break;
            }
            if !limit.has_rings || layout.ring_bytes <= SMALLEST_RING {
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
    // Where it has locked some, it may have asked for all that comes: mlockall(MCL_FUTURE).
    let locked = bytes(|status| status.vmlck);
    let lockable = left(limits.max_locked_memory, locked).filter(|_| locked > 0);
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |open| open.count() as u64);
    let descriptors = match limits.max_open_files.soft_limit {
        LimitValue::Unlimited => None,
        LimitValue::Value(limit) => Some(limit.saturating_sub(open())),
    };
    let of = |name, left: Option<u64>, needed, has_rings| {
        left.map(|left| Left { name, unit: "MiB", left, needed, has_rings })
    };
    let all = [
        of("RLIMIT_AS", space, ALLOCATIONS + stacks, true),
        of("RLIMIT_DATA", data, stacks, false),
        of("RLIMIT_MEMLOCK", lockable, stacks, true),
        descriptors.map(|left| Left {
            name: "RLIMIT_NOFILE",
            unit: "",
            left,
            needed: DESCRIPTORS,
            has_rings: false,
        }),
    ];
    Ok(all.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: Left = Left {
        name: "RLIMIT_AS",
        unit: "MiB",
        left: 2600 << 20,
        needed: ALLOCATIONS + 2 * STACK,
        has_rings: true,
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
        let descriptors = Left { has_rings: false, ..descriptors };
        let why = fit(&[descriptors], Layout::DEFAULT).unwrap_err().to_string();
        assert!(why.contains("RLIMIT_NOFILE leaves 3, ") && why.contains("needs 2;"), "{why}");
    }

    #[test]
    fn limits_of_this_process_are_read() {
        let own = limits(std::process::id()).unwrap();
        let descriptors = own.iter().find(|limit| limit.name == "RLIMIT_NOFILE").unwrap();
        assert!(descriptors.left > 0);
    }
}
