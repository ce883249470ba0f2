//! Processes whose cgroup is frozen, as a paused container's is.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::wait_until;

/// A hierarchy of cgroups that can freeze: where it is mounted, and what is written and read for it.
struct Freezer {
    mount: PathBuf,
    file: &'static str,
    freeze: &'static str,
    thaw: &'static str,
    state: (&'static str, &'static str),
}

/// Those that this machine has; one at least.
fn freezers() -> Vec<Freezer> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let of = |mount: Vec<&str>| {
        let [_, at, kind, options, ..] = mount[..] else { return None };
        let mount = PathBuf::from(at);
        match kind {
            "cgroup2" => Some(Freezer {
                mount,
                file: "cgroup.freeze",
                freeze: "1",
                thaw: "0",
                state: ("cgroup.events", "frozen 1"),
            }),
            "cgroup" if options.split(',').any(|option| option == "freezer") => Some(Freezer {
                mount,
                file: "freezer.state",
                freeze: "FROZEN",
                thaw: "THAWED",
                state: ("freezer.state", "FROZEN"),
            }),
            _ => None,
        }
    };
    let found: Vec<_> = mounts.filter_map(of).collect();
    assert!(!found.is_empty(), "no cgroups that can be frozen");
    found
}

/// How many kinds of freezers there are.
pub fn kinds() -> usize {
    freezers().len()
}

/// A process in a frozen cgroup of its own, until this is dropped.
pub struct Frozen {
    pid: u32,
    freezer: Freezer,
    group: PathBuf,
}

impl Frozen {
    /// Freezes process `pid` by the freezer of this number.
    pub fn new(pid: u32, kind: usize) -> Self {
        let freezer = freezers().swap_remove(kind);
        let group = freezer.mount.join(format!("roctap-test-{pid}"));
        fs::create_dir(&group).expect("a cgroup");
        let frozen = Self { pid, freezer, group };
        frozen.enter(&frozen.group);
        frozen.write(frozen.freezer.freeze);
        let (file, line) = frozen.freezer.state;
        wait_until("it is frozen", || {
            let state = fs::read_to_string(frozen.group.join(file)).expect("its state");
            state.lines().any(|it| it == line)
        });
        frozen
    }

    fn enter(&self, group: &Path) {
        // It may have ended when it is to leave.
        let entered = fs::write(group.join("cgroup.procs"), self.pid.to_string());
        let ended = !Path::new(&format!("/proc/{}", self.pid)).exists();
        assert!(entered.is_ok() || ended, "{entered:?}");
    }

    fn write(&self, text: &str) {
        fs::write(self.group.join(self.freezer.file), text).expect("freezing and thawing");
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.write(self.freezer.thaw);
        self.enter(&self.freezer.mount);
        wait_until("the cgroup is removed", || fs::remove_dir(&self.group).is_ok());
    }
}
