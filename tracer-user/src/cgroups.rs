//! The cgroups that a process is in.

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
    sync::LazyLock,
};

use procfs::{
    ProcResult, ProcessCGroup,
    process::{MountInfo, Process},
};

/// The version of a hierarchy of cgroups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Version 1: a hierarchy for some controllers.
    One,
    /// Version 2: the hierarchy for all other controllers.
    Two,
}

/// A cgroup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    pub version: Version,
    pub directory: PathBuf,
    /// The directory of the topmost group that can be seen from here.
    top: PathBuf,
}

impl Group {
    /// The group's directory, and those of the groups around it.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directory.ancestors().take_while(|directory| directory.starts_with(&self.top))
    }
}

/// Where a hierarchy is mounted.
struct Mount {
    version: Version,
    /// In version 1: the controllers, among other words.
    options: BTreeSet<String>,
    directory: PathBuf,
    /// The group whose directory that is.
    root: PathBuf,
}

/// Read once: mounts of cgroups do not change.
static MOUNTS: LazyLock<Vec<Mount>> = LazyLock::new(|| {
    let mounts = Process::myself().and_then(|own| own.mountinfo());
    let mounts = mounts.map_or_else(|_| Vec::new(), |mounts| mounts.0);
    let of = |mount: MountInfo| {
        let version = match mount.fs_type.as_str() {
            "cgroup2" => Version::Two,
            "cgroup" => Version::One,
            _ => return None,
        };
        let options = mount.super_options.into_keys().collect();
        Some(Mount { version, options, directory: mount.mount_point, root: mount.root.into() })
    };
    mounts.into_iter().filter_map(of).collect()
});

/// The groups by which a controller can act on process `pid`: in the hierarchy for that controller, and in the one for
/// all.
///
/// # Errors
///
/// When the kernel does not tell.
pub fn of(pid: u32, controller: &str) -> ProcResult<Vec<Group>> {
    let groups = Process::new(i32::try_from(pid).unwrap_or(i32::MAX))?.cgroups()?;
    let of = |group: ProcessCGroup| {
        let version = match group.hierarchy {
            0 => Version::Two,
            _ if group.controllers.iter().any(|one| one == controller) => Version::One,
            _ => return None,
        };
        let is_it = |mount: &&Mount| {
            mount.version == version
                && (version == Version::Two || mount.options.contains(controller))
        };
        let below = |mount: &'static Mount| {
            let inside = Path::new(&group.pathname).strip_prefix(&mount.root).ok()?;
            // The path of a group outside of the mounted part begins with `/..`.
            let is_inside = inside.components().all(|part| matches!(part, Component::Normal(_)));
            is_inside.then_some((mount, inside))
        };
        // The mount in which most of the groups around it can be seen.
        let mounted = MOUNTS.iter().filter(is_it).filter_map(below);
        let (Mount { directory: top, .. }, inside) =
            mounted.min_by_key(|(mount, _)| mount.root.components().count())?;
        Some(Group { version, directory: top.join(inside), top: top.clone() })
    };
    Ok(groups.into_iter().filter_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_this_process_are_found() {
        let own = of(std::process::id(), "freezer").unwrap();
        assert!(!own.is_empty(), "a system without cgroups?");
        for group in own {
            assert!(group.directories().all(|directory| directory.join("cgroup.procs").exists()));
            assert_eq!(group.directories().last(), Some(&*group.top));
        }
    }
}
