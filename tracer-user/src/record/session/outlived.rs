//! Processes whose first thread has ended while others go on.
//!
//! The kernel knows the process of a probe by its first thread, and when that thread has gone it does not find what
//! the other threads map. From then on roctap places the probes in all processes, and runs them for this one alone.

use std::sync::Arc;

use super::Session;
use crate::{
    discover::{self, FileId, Library},
    probe::Placing,
    record::target::Planned,
};

impl Session {
    /// The first thread of process `pid` was about to end: handles the case that it has ended, and others go on.
    pub(super) fn look_at_first_thread(&mut self, pid: u32) -> anyhow::Result<()> {
        let Some(target) = self.processes.get_mut(pid).filter(|t| t.first_thread_ends) else {
            return Ok(());
        };
        let subject = Arc::clone(&target.subject);
        if !subject.look_at_its_first_thread() {
            return Ok(());
        }
        target.first_thread_ends = false;
        let libraries = subject.by_number(discover::libraries)?;
        // The probes in libraries that are mapped already go on.
        let stays = |id: FileId| {
            self.probes.programs.placing() == Placing::Multi && libraries.iter().any(|l| l.id == id)
        };
        let anew: Vec<FileId> = target.planned.keys().copied().filter(|&id| !stays(id)).collect();
        if self.probes.programs.placing() != Placing::Multi && !libraries.is_empty() {
            self.departed.was_late = true;
            self.recorder.notice(&format!(
                "process {pid}: its first thread has ended, and with it its probes; calls from then until now are not in the trace"
            ));
        }
        if libraries
            .iter()
            .any(|library| stays(library.id) && target.planned.contains_key(&library.id))
        {
            self.recorder.notice(&format!(
                "process {pid}: its first thread has ended: if another recording of the same libraries ends, or another tool removes its probes, the kernel removes those of this process, and calls from then on are not in the trace"
            ));
        }
        for id in anew {
            let Some(target) = self.processes.get_mut(pid) else { return Ok(()) };
            let Some(planned) = target.take_plan(id) else { continue };
            self.attach_planned(pid, planned)?;
        }
        self.place_rest_anew(pid, &libraries)?;
        self.tell_that_it_is_outlived(pid);
        Ok(())
    }

    /// Places anew the probes of a process other than those at functions, if their files are not mapped yet or the
    /// probes do not go on.
    fn place_rest_anew(&mut self, pid: u32, libraries: &[Library]) -> anyhow::Result<()> {
        let Some(target) = self.processes.get_mut(pid) else { return Ok(()) };
        let runs_on = self.probes.programs.placing() == Placing::Multi;
        let has_shim = target.subject.by_number(discover::shims).is_ok_and(|all| !all.is_empty());
        let site_is_new = target.dispatch_site.is_some() && !(runs_on && has_shim);
        let doorbells = target.doorbell_places.clone();
        let doorbells = doorbells.filter(|found| {
            let mapped = libraries.iter().any(|library| library.id == found.file.id());
            !(runs_on && mapped)
        });
        if !runs_on && target.loader.take().is_some() {
            self.watch_loader(pid);
        }
        if site_is_new {
            self.attach_site(pid)?;
        }
        if let Some(doorbells) = doorbells
            && let Some(target) = self.processes.get_mut(pid)
            && target.doorbells.take_if(|placed| placed.links() > 0).is_some()
        {
            self.see_child_from_outside(pid, doorbells);
        }
        Ok(())
    }

    /// Tells the user that every process that maps the same libraries pays for the probes of a process that has
    /// outlived its first thread.
    pub(super) fn tell_that_it_is_outlived(&mut self, pid: u32) {
        let Some(target) = self.processes.get(pid) else { return };
        let files: Vec<&Arc<Planned>> = target.planned.values().collect();
        if files.is_empty() || !target.subject.has_outlived_its_first_thread() {
            return;
        }
        let names = files.iter().map(|planned| planned.path.display().to_string());
        let names = names.collect::<Vec<_>>().join(", ");
        self.recorder.notice(&format!(
            "process {pid}: its first thread has ended: while it is traced, other processes that map {names} pay for its probes, some µs a call; nothing of them is recorded"
        ));
    }
}
