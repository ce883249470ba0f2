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

/// Of which kind a hierarchy of cgroups is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// One for some controllers.
    One,
    /// The one for all others.
    Two,
}

/// A cgroup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    pub version: Version,
    pub directory: PathBuf,
    /// That of the topmost group that can be seen from here.
    top: PathBuf,
}

impl Group {
    /// Its directory, and those of the groups that it is in.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.directory.ancestors().take_while(|directory| directory.starts_with(&self.top))
    }
}

/// Where a hierarchy is mounted.
struct Mount {
    version: Version,
    /// Of the first version: for which controllers, among other words.
    options: BTreeSet<String>,
    directory: PathBuf,
    /// Which of its groups that directory is.
    root: PathBuf,
}

/// They stay.
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
            // One that is outside of what is mounted begins with `/..`.
            let is_inside = inside.components().all(|part| matches!(part, Component::Normal(_)));
            is_inside.then_some((mount, inside))
        };
        // Where most of the groups around it can be seen.
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
