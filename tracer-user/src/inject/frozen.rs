//! Whether a process's cgroup is frozen, as a paused container's is. The threads of such a process cannot be used, and
//! their state does not show it.

use std::path::PathBuf;

use crate::{
    cgroups::{self, Group, Version},
    foreign,
};

/// The frozen cgroup of process `pid`; none too if the kernel does not tell.
pub fn cgroup(pid: u32) -> Option<PathBuf> {
    let groups = cgroups::of(pid, "freezer").unwrap_or_default();
    groups.into_iter().find(is_frozen).map(|group| group.directory)
}

fn is_frozen(group: &Group) -> bool {
    let lines = |name: &str| foreign::text(&group.directory.join(name)).unwrap_or_default();
    match group.version {
        Version::One => foreign::lossy(&lines("freezer.state")).starts_with("FR"),
        Version::Two => foreign::lossy(&lines("cgroup.events")).lines().any(|it| it == "frozen 1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_frozen() {
        assert_eq!(cgroup(std::process::id()), None);
    }
}
