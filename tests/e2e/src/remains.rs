//! What recordings place, and must not leave: BPF programs and links, breakpoints, tracefs events.

use std::{
    collections::BTreeSet,
    fs,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::fs::FileExt as _,
    },
};

use libbpf_rs::query::{LinkInfoIter, ProgInfoIter};
use roctap::plan::{LiveProcess, ProcessMemory as _};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Addresses of code of the ROCm libraries that is not as in their files.
pub fn changed_code(pid: u32) -> Vec<u64> {
    let process = LiveProcess::open(pid).expect("alive");
    // Not by the process's reader, which gives up memory that was slow too often, as all is on a busy
    // machine.
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("memory");
    let (mut changed, mut compared) = (Vec::new(), 0);
    for mapping in process.mappings().iter().filter(|mapping| mapping.executable) {
        let Some(file) = &mapping.file else { continue };
        let name = file.path.to_string_lossy();
        if name.contains("libamdhip64") || name.contains("libhsa-runtime64") {
            let mut now = vec![0; (mapping.end - mapping.start) as usize];
            let mut on_disk = now.clone();
            memory.read_exact_at(&mut now, mapping.start).expect("code");
            // The last page goes beyond the file's code, not beyond the file.
            let file = fs::File::open(&file.path).expect("library");
            file.read_exact_at(&mut on_disk, mapping.file_offset).expect("code");
            let bytes = now.iter().zip(&on_disk).enumerate();
            let differs = bytes.filter(|(_, (now, on_disk))| now != on_disk);
            changed.extend(differs.map(|(at, _)| mapping.start + at as u64));
            compared += 1;
        }
    }
    assert!(compared > 0, "code of a ROCm library");
    changed
}

/// BPF programs and links, by the kernel's numbers, which it does not use again: those of other
/// recordings do not disturb.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InKernel {
    programs: BTreeSet<u32>,
    links: BTreeSet<u32>,
}

impl InKernel {
    /// Those that process `pid` holds.
    pub fn of(pid: u32) -> Self {
        let mut held = Self::default();
        for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let number = |name: &str| {
                let value = |line: &str| line.strip_prefix(name)?.trim().parse::<u32>().ok();
                text.lines().find_map(value)
            };
            held.programs.extend(number("prog_id:"));
            held.links.extend(number("link_id:"));
        }
        held
    }

    /// How many links these are.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// What of it the kernel still has.
    pub fn left(&self) -> Self {
        let programs = ProgInfoIter::default().map(|program| program.id);
        let links = LinkInfoIter::default().map(|link| link.id);
        Self {
            programs: programs.filter(|id| self.programs.contains(id)).collect(),
            links: links.filter(|id| self.links.contains(id)).collect(),
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.links.is_empty()
    }
}

/// Tracefs, wherever it is mounted and where it is not.
pub struct Tracefs(OwnedFd);

impl Default for Tracefs {
    fn default() -> Self {
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).expect("tracefs");
        fsconfig_create(&context).expect("tracefs");
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        Self(fsmount(&context, flags, MountAttrFlags::empty()).expect("tracefs"))
    }
}

impl Tracefs {
    /// The definitions of uprobe events that process `pid` made.
    pub fn definitions_of(&self, pid: u32) -> Vec<String> {
        let path = format!("/proc/self/fd/{}/uprobe_events", self.0.as_raw_fd());
        let all = fs::read_to_string(path).expect("uprobe_events");
        let own = format!(":roctap_{pid}_");
        all.lines().filter(|line| line.contains(&own)).map(str::to_owned).collect()
    }
}
