//! Whether a process's cgroup is frozen, as a paused container's is. Its threads cannot be used then, and
//! their state does not show it.

use std::{
    path::{Component, Path, PathBuf},
    sync::LazyLock,
};

use procfs::{
    ProcResult, ProcessCGroup,
    process::{MountInfo, Process},
};

use crate::foreign;

/// The frozen cgroup of process `pid`; none also where the kernel does not tell.
pub fn cgroup(pid: u32) -> Option<PathBuf> {
    let groups = groups(pid).unwrap_or_default();
    groups.into_iter().find(|(directory, version)| version.is_frozen(directory)).map(|(it, _)| it)
}

/// How a hierarchy of cgroups tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl Version {
    fn is_frozen(self, group: &Path) -> bool {
        let lines = |name: &str| foreign::text(&group.join(name)).unwrap_or_default();
        match self {
            Self::One => foreign::lossy(&lines("freezer.state")).starts_with("FR"),
            Self::Two => foreign::lossy(&lines("cgroup.events")).lines().any(|it| it == "frozen 1"),
        }
    }
}

/// Where cgroups that can freeze are mounted, and which of their hierarchy's groups is there. They stay.
static MOUNTS: LazyLock<Vec<(Version, PathBuf, PathBuf)>> = LazyLock::new(|| {
    let mounts = Process::myself().and_then(|own| own.mountinfo());
    let mounts = mounts.map_or_else(|_| Vec::new(), |mounts| mounts.0);
    let of = |mount: MountInfo| {
        let version = match mount.fs_type.as_str() {
            "cgroup2" => Version::Two,
            "cgroup" if mount.super_options.contains_key("freezer") => Version::One,
            _ => return None,
        };
        Some((version, mount.mount_point, mount.root.into()))
    };
    mounts.into_iter().filter_map(of).collect()
});

/// The directories of the cgroups by which a process can be frozen.
fn groups(pid: u32) -> ProcResult<Vec<(PathBuf, Version)>> {
    let groups = Process::new(i32::try_from(pid).unwrap_or(i32::MAX))?.cgroups()?;
    let of = |group: ProcessCGroup| {
        let freezes = group.controllers.iter().any(|controller| controller == "freezer");
        let version = match group.hierarchy {
            0 => Version::Two,
            _ if freezes => Version::One,
            _ => return None,
        };
        let (_, mount, root) = MOUNTS.iter().find(|(mounted, ..)| *mounted == version)?;
        // One that is outside of what is mounted begins with `/..`.
        let inside = Path::new(&group.pathname).strip_prefix(root).ok()?;
        let is_inside = inside.components().all(|part| matches!(part, Component::Normal(_)));
        is_inside.then(|| (mount.join(inside), version))
    };
    Ok(groups.into_iter().filter_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_frozen() {
        let own = groups(std::process::id()).unwrap();
        assert!(!own.is_empty(), "a system without cgroups?");
        for (group, version) in own {
            assert!(group.join("cgroup.procs").exists(), "{group:?} {version:?}");
        }
        assert_eq!(cgroup(std::process::id()), None);
    }
}
