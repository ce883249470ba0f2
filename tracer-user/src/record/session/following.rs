//! How late processes were followed, and what they did before they had their probes and their shims.

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

/// The state that a child inherits from its parent, whose memory and tables it has.
#[derive(Clone)]
pub struct Inheritance {
    pub command: String,
    pub source: GpuSource,
    pub planned: Vec<Arc<Planned>>,
    pub doorbells: Option<Arc<Doorbells>>,
}

impl Inheritance {
    /// The state that a child of this process inherits.
    pub fn of(parent: &Target) -> Self {
        Self {
            command: parent.info.command.clone(),
            source: parent.gpu_source.of_child(),
            planned: parent.planned.values().cloned().collect(),
            doorbells: parent.doorbell_places.clone(),
        }
    }
}

/// Whether children are followed, and how late processes were, for the notices at the end.
pub struct Following {
    /// Whether children are followed.
    pub wanted: bool,
    /// Forked children with ROCm loaded that ran without probes at first, and for how long one of them did, at most.
    late_children: u64,
    longest_late: Duration,
    /// Those that had ended before they could have any.
    missed_children: u64,
    /// Processes that got a shim only when they called ROCm: forked children, and others that did not load the shim at
    /// their start.
    late_shims: BTreeSet<u32>,
    /// Kernels that such processes launched before they had the shim, of those that have ended.
    early_launches: u64,
    /// For each child that had ended before it was followed: what its own children inherit, and the request whose
    /// answer means that the births of all of these have come.
    left: BTreeMap<u32, (Inheritance, u64)>,
}

impl Following {
    /// No child was born yet.
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

    /// Child `pid` has ended; its own children are followed all the same.
    pub fn leaves(&mut self, pid: u32, inheritance: Inheritance, request: u64) {
        self.left.insert(pid, (inheritance, request));
    }

    /// The state that the children of such a child inherit.
    pub fn left_by(&self, pid: u32) -> Option<Inheritance> {
        self.left.get(&pid).map(|(inheritance, _)| inheritance.clone())
    }

    /// Notes that all births before request `answered` have come. Returns whether other births are still to come.
    pub fn awaits_births(&mut self, answered: u64) -> bool {
        self.left.retain(|_, (_, request)| *request > answered);
        !self.left.is_empty()
    }

    /// A child with ROCm loaded ran for this long before it had its probes.
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

    /// A process has ended that launched this many kernels before it got its shim, if it got one.
    pub fn ended(&mut self, pid: u32, early_launches: u64) {
        if self.late_shims.remove(&pid) {
            self.early_launches += early_launches;
        }
    }

    /// Notices of calls and work that may have been missed before probes and shims were in place.
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
