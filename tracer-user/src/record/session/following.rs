//! How late processes were followed: what they did before they had their probes, and their shims.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::record::{
    gpu_source::GpuSource,
    select::Doorbells,
    target::{Planned, Target},
};

/// What a child has of its parent: its memory, tables and all.
#[derive(Clone)]
pub struct Inheritance {
    pub command: String,
    pub source: GpuSource,
    pub planned: Vec<Arc<Planned>>,
    pub doorbells: Option<Arc<Doorbells>>,
}

impl Inheritance {
    /// A child's of this process.
    pub fn of(parent: &Target) -> Self {
        Self {
            command: parent.info.command.clone(),
            source: match &parent.gpu_source {
                GpuSource::Tables | GpuSource::Unused | GpuSource::Forked => GpuSource::Unused,
                source => source.clone(),
            },
            planned: parent.planned.values().cloned().collect(),
            doorbells: parent.doorbell_places.clone(),
        }
    }
}

/// Whether children are followed, and how late processes were, for the notices at the end.
pub struct Following {
    /// Whether they are.
    pub wanted: bool,
    /// Forked children with ROCm loaded, and for how long one of them ran without probes, at most.
    late_children: u64,
    longest_late: Duration,
    /// Those that had ended before they could have any.
    missed_children: u64,
    /// Processes that got a shim when they called ROCm: forked children, and others that did not load it at
    /// their start.
    late_shims: BTreeSet<u32>,
    /// Kernels that such processes launched before, of those that have ended.
    early_launches: u64,
    /// What children that had ended before they were followed leave to their own, and the request with whose answer the
    /// births of all of these have come.
    left: BTreeMap<u32, (Inheritance, u64)>,
}

impl Following {
    /// None was born yet.
    pub fn new(wanted: bool) -> Self {
        let (longest_late, late_shims) = (Duration::ZERO, BTreeSet::new());
        let left = BTreeMap::new();
        Self {
            wanted,
            late_children: 0,
            missed_children: 0,
            longest_late,
            late_shims,
            early_launches: 0,
            left,
        }
    }

    /// Child `pid` has ended, whose own children are followed all the same.
    pub fn leaves(&mut self, pid: u32, inheritance: Inheritance, request: u64) {
        self.left.insert(pid, (inheritance, request));
    }

    /// What such a child has left to its own.
    pub fn left_by(&self, pid: u32) -> Option<Inheritance> {
        self.left.get(&pid).map(|(inheritance, _)| inheritance.clone())
    }

    /// All births of before request `answered` have come. Whether others may have to.
    pub fn awaits_births(&mut self, answered: u64) -> bool {
        self.left.retain(|_, (_, request)| *request > answered);
        !self.left.is_empty()
    }

    /// A child with ROCm loaded ran for so long before it had its probes.
    pub fn was_late(&mut self, late: Duration) {
        self.late_children += 1;
        self.longest_late = self.longest_late.max(late);
    }

    /// A child with ROCm loaded had ended before it was followed.
    pub fn was_too_late(&mut self) {
        self.missed_children += 1;
    }

    /// A process gets its shim when it calls ROCm.
    pub fn has_late_shim(&mut self, pid: u32) {
        self.late_shims.insert(pid);
    }

    /// A process has ended that launched so many kernels before its shim was there, if it got one.
    pub fn ended(&mut self, pid: u32, early_launches: u64) {
        if self.late_shims.remove(&pid) {
            self.early_launches += early_launches;
        }
    }

    /// Notices of what processes may have done before.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if self.late_children > 0 {
            notices.push(format!(
                "child processes that were forked with ROCm loaded: {}; they ran for up to {:.1} ms before they had their probes, and calls in that time are not in the trace",
                self.late_children,
                self.longest_late.as_secs_f64() * 1e3
            ));
        }
        if self.missed_children > 0 {
            notices.push(format!(
                "child processes that were forked with ROCm loaded and ended before they had probes: {}; what they called is not in the trace",
                self.missed_children
            ));
        }
        let early = self.early_launches;
        if early > 0 {
            notices.push(format!(
                "{early} kernels were launched before the shims of their processes were there, and are not in the trace"
            ));
        }
        notices
    }
}
