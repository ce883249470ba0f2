//! Cgroups with limits of their own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::wait_until;

/// A process in a cgroup of its own, until this is dropped.
pub struct Limited {
    pid: u32,
    /// The one that it was in.
    before: PathBuf,
    group: PathBuf,
    /// It is of the hierarchy for all controllers.
    pub is_of_all: bool,
}

impl Limited {
    /// Puts process `pid` into a group with a controller.
    pub fn new(pid: u32, controller: &str) -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        let of = |mount: &str| {
            let [_, at, kind, options, ..] = mount.split(' ').collect::<Vec<_>>()[..] else {
                return None;
            };
            let has = |words: &str| words.split([',', ' ', '\n']).any(|word| word == controller);
            let controllers = || fs::read_to_string(Path::new(at).join("cgroup.controllers"));
            let is_of_all = kind == "cgroup2" && controllers().is_ok_and(|all| has(&all));
            (is_of_all || kind == "cgroup" && has(options)).then(|| (PathBuf::from(at), is_of_all))
        };
        let (top, is_of_all) = mounts.lines().find_map(of).expect("a hierarchy");
        if is_of_all {
            let enable = format!("+{controller}");
            let enabled = fs::write(top.join("cgroup.subtree_control"), enable);
            // Not inside of a container, whose top group has processes.
            enabled.expect("controllers for groups: run on the machine, not in a container");
        }
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("its cgroups");
        let of_hierarchy = |line: &str| {
            let [number, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else {
                return None;
            };
            let is_it = if is_of_all {
                number == "0"
            } else {
                controllers.split(',').any(|one| one == controller)
            };
            is_it.then(|| top.join(path.trim_start_matches('/')))
        };
        let before = groups.lines().find_map(of_hierarchy).expect("its group");
        let group = top.join(format!("roctap-test-{pid}-{controller}"));
        fs::create_dir(&group).expect("a cgroup");
        let limited = Self { pid, before, group, is_of_all };
        limited.enter(&limited.group);
        limited
    }

    fn enter(&self, group: &Path) {
        let entered = fs::write(group.join("cgroup.procs"), self.pid.to_string());
        let has_ended = !Path::new(&format!("/proc/{}", self.pid)).exists();
        assert!(entered.is_ok() || has_ended, "{entered:?}");
    }

    /// What one of its files says.
    pub fn read(&self, file: &str) -> String {
        fs::read_to_string(self.group.join(file)).expect(file).trim().to_owned()
    }

    /// Sets a limit.
    pub fn set(&self, file: &str, limit: u64) {
        fs::write(self.group.join(file), limit.to_string()).expect(file);
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.enter(&self.before);
        wait_until("the cgroup is removed", || fs::remove_dir(&self.group).is_ok());
    }
}
