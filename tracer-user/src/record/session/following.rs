//! How late processes were followed: what they did before they had their probes, and their shims.

use std::{collections::BTreeSet, time::Duration};

/// Whether children are followed, and how late processes were, for the notices at the end.
pub struct Following {
    /// Whether they are.
    pub wanted: bool,
    /// Forked children with ROCm loaded, and for how long one of them ran without probes, at most.
    late_children: u64,
    longest_late: Duration,
    /// Processes that got a shim when they called ROCm: forked children, and others that did not load it at
    /// their start.
    late_shims: BTreeSet<u32>,
    /// Kernels that such processes launched before, of those that have ended.
    early_launches: u64,
}

impl Following {
    /// None was born yet.
    pub fn new(wanted: bool) -> Self {
        let (longest_late, late_shims) = (Duration::ZERO, BTreeSet::new());
        Self { wanted, late_children: 0, longest_late, late_shims, early_launches: 0 }
    }

    /// A child with ROCm loaded ran for so long before it had its probes.
    pub fn was_late(&mut self, late: Duration) {
        self.late_children += 1;
        self.longest_late = self.longest_late.max(late);
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
        let early = self.early_launches;
        if early > 0 {
            notices.push(format!(
                "{early} kernels were launched before the shims of their processes were there, and are not in the trace"
            ));
        }
        notices
    }
}
