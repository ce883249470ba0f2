//! Processes whose shims record HSA calls themselves: the probes there are removed.
//!
//! Probes are placed at all functions first, since whether the shim will be loaded, and knows the
//! runtime's tables, shows only when it is. When it begins to record calls, it tells the BPF programs,
//! which leave the functions alone that it covers from that moment on: no call is recorded twice, none
//! by nobody. What is left is to remove probes that do nothing any more.

use tracer_common::{activity::Domain, bpf::ApiRecord};

use super::Session;
use crate::{
    discover::FileId,
    probe::Placing,
    record::{connection::Connection, removal::Removal, target::Target},
};

impl Session {
    /// Begins to remove probes in processes whose shim has begun to record calls.
    pub(super) fn take_over(&mut self) {
        for pid in self.shims.iter_mut().filter_map(Connection::takes_calls) {
            if let Some(target) = self.processes.get_mut(pid) {
                target.calls_by_shim = true;
                if self.probes.placing() == Placing::Single {
                    continue; // Removing them would take longer than most recordings.
                }
                let covered = std::mem::take(&mut target.covered).into_values();
                target.removals.extend(covered.map(Removal::begin));
                tracing::info!("process {pid}: the shim records HSA calls; their probes go");
            }
        }
    }

    /// Goes on removing; now and then.
    pub(super) fn remove_covered(&mut self) {
        let removing = |target: &Target| !target.removals.is_empty();
        let targets = self.processes.iter_mut().map(|(_, target)| target);
        for target in targets.filter(|target| removing(target)) {
            let probes = &self.probes;
            let threads = target.threads();
            let hsa = |call: &ApiRecord| call.header.operation >> 16 == Domain::HSA_API.0;
            let none_open = || !threads.iter().any(|&tid| probes.open_on(tid).iter().any(hsa));
            let removals = std::mem::take(&mut target.removals);
            target.removals = removals.into_iter().filter_map(|r| r.go_on(none_open)).collect();
        }
    }

    /// The process executes another program, whose calls nobody records until its own shim does:
    /// probes the functions again that the old one's covered.
    pub(super) fn cover_again(&mut self, pid: u32) -> anyhow::Result<()> {
        let Some(target) = self.processes.get_mut(pid) else { return Ok(()) };
        let removed = std::mem::replace(&mut target.calls_by_shim, false);
        if !removed || self.probes.placing() == Placing::Single {
            return Ok(());
        }
        let libraries: Vec<FileId> = target.attached.keys().copied().collect();
        for id in libraries {
            self.attach_covered(pid, id)?;
        }
        Ok(())
    }
}
