//! Processes whose shims record HSA calls themselves: the probes there are removed.
//!
//! Probes are placed at all functions first, since whether the shim will be loaded, and knows the
//! runtime's tables, shows only when it is. When it begins to record calls, it tells the BPF programs,
//! which leave the functions alone that it covers from that moment on: no call is recorded twice, none
//! by nobody. What is left is to remove probes that do nothing any more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use tracer_common::{activity::Domain, bpf::ApiRecord};

use super::Session;
use crate::{
    discover::FileId,
    probe::{Attachment, Method},
    record::{connection::Connection, target::Target},
};

/// Probes that are being removed.
pub enum Removal {
    /// The entries are; what comes back are the return probes.
    Entries(JoinHandle<Attachment>),
    /// No new call is seen; calls that were open may return.
    Waiting(Attachment),
    /// The return probes are.
    Returns(JoinHandle<()>),
    /// All are, of a process that has ended, until this says stop; what comes back is left.
    OfTheDead(JoinHandle<Attachment>, Arc<AtomicBool>),
}

impl Removal {
    /// Begins. On a thread of its own, since the kernel takes its time.
    fn begin(mut attachment: Attachment) -> Self {
        Self::Entries(std::thread::spawn(move || {
            drop(attachment.take_entries());
            attachment
        }))
    }

    /// Removes the probes of a process that has ended: meanwhile, or at once if that is not possible.
    pub fn of_the_dead(probes: Vec<Attachment>) -> Option<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, probes) = (Arc::clone(&stop), Attachment::together(probes));
        let thread = std::thread::Builder::new().spawn(move || probes.remove_until(&seen));
        thread.ok().map(|thread| Self::OfTheDead(thread, stop))
    }

    /// Goes on as far as it can; `may_end` tells whether no call is open. None when all is done.
    fn go_on(self, may_end: impl FnOnce() -> bool) -> Option<Self> {
        match self {
            Self::Entries(thread) if thread.is_finished() => thread.join().ok().map(Self::Waiting),
            Self::Waiting(returns) if may_end() => {
                Some(Self::Returns(std::thread::spawn(move || drop(returns))))
            }
            Self::Returns(thread) if thread.is_finished() => None,
            Self::OfTheDead(thread, _) if thread.is_finished() => None,
            other => Some(other),
        }
    }

    /// Waits for what is being removed; the probes that are left.
    pub fn rest(self) -> Option<Attachment> {
        match self {
            Self::Entries(thread) => thread.join().ok(),
            Self::Waiting(returns) => Some(returns),
            Self::OfTheDead(thread, stop) => {
                stop.store(true, Ordering::Relaxed);
                thread.join().ok()
            }
            Self::Returns(thread) => {
                let _ = thread.join();
                None
            }
        }
    }
}

impl Session {
    /// Begins to remove probes in processes whose shim has begun to record calls.
    pub(super) fn take_over(&mut self) {
        for pid in self.connections.iter_mut().filter_map(Connection::takes_calls) {
            if let Some(target) = self.targets.get_mut(&pid) {
                target.calls_by_shim = true;
                if self.programs.method() == Method::Single {
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
        for target in self.targets.values_mut().filter(|target| !target.removals.is_empty()) {
            let programs = &self.programs;
            let threads = target.threads();
            let hsa = |call: &ApiRecord| call.header.operation >> 16 == Domain::HSA_API.0;
            let none_open = || !threads.iter().any(|&tid| programs.open_on(tid).iter().any(hsa));
            let removals = std::mem::take(&mut target.removals);
            target.removals = removals.into_iter().filter_map(|r| r.go_on(none_open)).collect();
        }
    }

    /// The process executes another program, whose calls nobody records until its own shim does:
    /// probes the functions again that the old one's covered.
    pub(super) fn cover_again(&mut self, pid: u32) -> anyhow::Result<()> {
        let Some(target) = self.targets.get_mut(&pid) else { return Ok(()) };
        let removed = std::mem::replace(&mut target.calls_by_shim, false);
        if !removed || self.programs.method() == Method::Single {
            return Ok(());
        }
        let libraries: Vec<FileId> = target.attached.keys().copied().collect();
        for id in libraries {
            self.attach_covered(pid, id)?;
        }
        Ok(())
    }

    /// A notice of functions that no probe reaches cheaply, and that no shim recorded either.
    pub(super) fn left_to_nobody(&self) -> Option<String> {
        let alone = |pid: u32, target: &Target| {
            let by_probes = !target.calls_by_shim && self.joiner.saw_hsa_by_probes(pid);
            by_probes && target.left_to_shim > 0
        };
        let (pid, target) = self.targets.iter().find(|&(&pid, target)| alone(pid, target))?;
        let count = target.left_to_shim;
        Some(format!(
            "process {pid}: no shim recorded HSA calls there, and {count} functions can be probed only at 16 µs a call: they were left out; --allow-slow includes them"
        ))
    }
}
