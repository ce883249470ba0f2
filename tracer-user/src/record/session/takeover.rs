//! Processes whose shims record calls themselves: the probes there are removed.
//!
//! Probes are placed at all functions first: whether the shim will be loaded, and knows the runtimes' tables, shows
//! only when it is loaded. When the shim begins to record HSA calls, it tells the BPF programs, which from that moment
//! on leave the functions alone that it covers. Of HIP's functions they leave out by themselves the calls that the
//! shim makes: a call that the shim records is one that it passes on. So each call is recorded exactly once.
//! It remains to remove the probes that do nothing any more.

use tracer_common::{activity::Domain, bpf::ApiRecord, slots::tables};

use super::Session;
use crate::{
    discover::{self, FileId, Runtime},
    record::{connection::Connection, removal::Removal, target::Target},
};

/// Takes out the probes at functions of these tables that do nothing any more. If a process maps several HIP
/// libraries, the shim records the calls of one of them, and it is not known of which: all keep their probes.
fn take_covered(target: &mut Target, tables: u8) -> Vec<(Domain, Removal)> {
    let of_hip = tables::HIP | tables::HIP_COMPILER;
    let mapped = target.subject.by_number(discover::libraries).unwrap_or_default();
    let has_several = mapped.iter().filter(|library| library.runtime == Runtime::Hip).count() > 1;
    let going = if has_several { tables & !of_hip } else { tables };
    let keys: Vec<_> = target.covered.keys().copied().filter(|key| key.1 & going != 0).collect();
    let take = |key: (FileId, u8)| {
        let probes = target.covered.remove(&key)?;
        Some((tables::domain(key.1), Removal::begin(probes)))
    };
    keys.into_iter().filter_map(take).collect()
}

impl Session {
    /// Begins to remove probes in processes whose shim has begun to record calls.
    pub(super) fn take_over(&mut self) {
        for (pid, tables) in self.shims.iter_mut().filter_map(Connection::takes_calls) {
            if let Some(target) = self.processes.get_mut(pid) {
                target.calls_by_shim |= tables;
                let going = take_covered(target, tables);
                target.removals.extend(going);
                tracing::info!("process {pid}: the shim records calls; their probes go");
            }
        }
    }

    /// Goes on removing probes; called now and then.
    pub(super) fn remove_covered(&mut self) {
        let removing = |target: &Target| !target.removals.is_empty();
        let targets = self.processes.iter_mut().map(|(_, target)| target);
        for target in targets.filter(|target| removing(target)) {
            let probes = &self.probes;
            let threads = target.threads();
            let none_open = |domain: Domain| {
                let is_open = |call: &ApiRecord| call.header.operation >> 16 == domain.0;
                !threads.iter().any(|&tid| probes.programs.open_on(tid).iter().any(is_open))
            };
            let removals = std::mem::take(&mut target.removals).into_iter();
            let go_on = |(domain, removal): (Domain, Removal)| {
                Some((domain, removal.go_on(|| none_open(domain))?))
            };
            target.removals = removals.filter_map(go_on).collect();
        }
    }

    /// The process executes another program, whose calls nobody records until its own shim does: probes again the
    /// functions that the old program's shim covered.
    pub(super) fn cover_again(&mut self, pid: u32) -> anyhow::Result<()> {
        let Some(target) = self.processes.get_mut(pid) else { return Ok(()) };
        let removed = std::mem::replace(&mut target.calls_by_shim, 0);
        if removed == 0 {
            return Ok(());
        }
        let libraries: Vec<FileId> = target.attached.keys().copied().collect();
        for id in libraries {
            self.attach_covered(pid, id, removed)?;
        }
        Ok(())
    }
}
