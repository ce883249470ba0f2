//! Attaching: to the held command, to running processes, to one library after the other.

use std::{ffi::OsStr, sync::Arc};

use anyhow::{Context as _, bail};
use tracer_common::{bpf::phase, calls::tables};

use super::Session;
use crate::{
    clock,
    discover::{self, FileId, Inside, Library},
    plan::{Process, ProcessMemory},
    probe::{Method, Site},
    record::{
        Gpu,
        target::{Planned, PlannedFile, Target, Tier},
    },
    trace::model,
};

/// Whether a probe is in vain where the shim records calls. Functions for images keep theirs: they are
/// rarely called, and their table need not be there.
fn is_covered(site: &Site) -> bool {
    site.capture.by_shim == tables::CORE
}

impl Session {
    /// Attaches to the held command: its libraries are guessed, since it maps none yet.
    pub fn attach_held(&mut self, pid: u32, program: &OsStr, command: &str) -> anyhow::Result<()> {
        let candidates = discover::candidates(program);
        let tier = if self.shim.is_some() { Tier::AtStart } else { self.tier_without_shim() };
        self.add_target(pid, command.to_owned(), tier);
        self.programs.track(pid)?;
        self.see_from_outside(pid, &candidates);
        self.attach_all(pid, candidates)?;
        self.attach_site(pid)
    }

    /// Attaches to the processes that were named. One that fails does not spoil the others.
    ///
    /// # Errors
    ///
    /// When none could be attached to: the first one's reason.
    pub fn attach_named(&mut self, pids: &[u32]) -> anyhow::Result<()> {
        let mut errors = Vec::new();
        for &pid in pids {
            if !self.targets.contains_key(&pid)
                && let Err(error) = self.attach_running(pid)
            {
                errors.push((pid, error));
            }
        }
        if errors.len() == pids.len()
            && let Some((_, error)) = errors.drain(..).next()
        {
            return Err(error);
        }
        self.failed = errors.len();
        for (pid, error) in errors {
            self.notice(format!("process {pid} is not traced: {error:#}"));
        }
        Ok(())
    }

    /// Attaches to a running process. On an error nothing stays attached to it.
    pub fn attach_running(&mut self, pid: u32) -> anyhow::Result<()> {
        let attached = self.try_attach_running(pid);
        if attached.is_err() {
            self.targets.remove(&pid);
            self.programs.forget(pid);
        }
        // The shims of others have gone on writing.
        self.take_frames(|_| {})?;
        attached
    }

    fn try_attach_running(&mut self, pid: u32) -> anyhow::Result<()> {
        let info = discover::process_info(pid)?;
        self.programs.track(pid)?;
        let libraries = discover::libraries(pid)?;
        let tier = if self.shim.is_some() { Tier::Waiting } else { self.tier_without_shim() };
        self.add_target(pid, info.command, tier);
        if libraries.is_empty() {
            self.notice(format!(
                "process {pid} maps neither libamdhip64 nor libhsa-runtime64 yet; roctap waits for them"
            ));
        }
        let inside = discover::threads_inside(pid).unwrap_or_default();
        self.attach_all(pid, libraries.clone())?;
        if inside != Inside::default() {
            self.notice(format!(
                "process {pid}: when tracing began, {} threads waited inside a ROCm library and {} were running; a call that was open then is not in the trace",
                inside.waiting, inside.running
            ));
        }
        self.give_shim(pid)?;
        self.see_from_outside(pid, &libraries);
        let alive = self.targets.get(&pid).is_some_and(Target::is_alive);
        alive.then_some(()).with_context(|| format!("process {pid} exited while attaching"))
    }

    fn tier_without_shim(&self) -> Tier {
        match self.gpu {
            Gpu::Off => Tier::Off,
            _ => Tier::Uprobes("nothing was to be put into the process (--gpu uprobes)".to_owned()),
        }
    }

    pub(super) fn add_target(&mut self, pid: u32, command: String, tier: Tier) {
        let target = Target::new(pid, command, clock::now_ns(), tier);
        self.trace.process(pid, target.info.clone());
        self.targets.insert(pid, target);
    }

    pub(super) fn attach_site(&mut self, pid: u32) -> anyhow::Result<()> {
        if let (Some(shim), Some(target)) = (&self.shim, self.targets.get_mut(&pid)) {
            let (path, offset) = (&shim.path, shim.site_offset);
            target.dispatch_site = Some(self.programs.attach_dispatch_site(pid, path, offset)?);
        }
        Ok(())
    }

    pub(super) fn attach_all(&mut self, pid: u32, libraries: Vec<Library>) -> anyhow::Result<()> {
        for library in libraries {
            if self.selection.wants(library.runtime) {
                self.attach(pid, library)?;
            }
        }
        Ok(())
    }

    pub(super) fn attach(&mut self, pid: u32, library: Library) -> anyhow::Result<()> {
        if self.targets.get(&pid).is_none_or(|target| target.planned.contains_key(&library.id)) {
            return Ok(());
        }
        let planned = match self.planned.get(&library.id) {
            Some(planned) => Arc::clone(planned),
            None => {
                let planned = self.plan(pid, &library);
                Arc::new(planned.inspect_err(|_| self.refuse(pid, library.id))?)
            }
        };
        if !self.selection.is_by_process() {
            self.planned.insert(library.id, Arc::clone(&planned));
        }
        self.attach_planned(pid, planned)
    }

    /// Remembers that a library of a process cannot be probed: it is not tried again.
    fn refuse(&mut self, pid: u32, id: FileId) {
        if let Some(target) = self.targets.get_mut(&pid) {
            target.refused.insert(id);
        }
    }

    /// Probes what is planned of a library.
    pub(super) fn attach_planned(&mut self, pid: u32, planned: Arc<Planned>) -> anyhow::Result<()> {
        let Some(target) = self.targets.get_mut(&pid) else { return Ok(()) };
        let id = planned.library.id;
        if planned.sites.is_empty() {
            target.planned.insert(id, planned);
            return Ok(());
        }
        self.programs.set_phase(phase::ATTACHING)?;
        let sites: Vec<Site> = planned.sites.iter().filter(|s| !is_covered(s)).cloned().collect();
        let attachment = self.programs.attach(pid, &planned.file.path(), &sites);
        self.programs.set_phase(phase::ATTACHED)?;
        let attachment = attachment.with_context(|| planned.library.path.display().to_string());
        let attachment = attachment.inspect_err(|_| {
            target.refused.insert(id);
        })?;
        let entry_only = planned.sites.iter().filter(|s| s.capture.entry_only != 0).count();
        let shown = model::Library {
            path: planned.library.path.display().to_string(),
            version: planned.library.version(),
            probed: planned.sites.len() as u32,
            entry_only: entry_only as u32,
        };
        target.add_library(id, shown, attachment);
        target.left_to_shim += planned.left_to_shim;
        target.planned.insert(id, planned);
        self.trace.process(pid, target.info.clone());
        self.attach_covered(pid, id)
    }

    /// Probes the functions that the shim records where it records calls.
    pub(super) fn attach_covered(&mut self, pid: u32, id: FileId) -> anyhow::Result<()> {
        let Some(target) = self.targets.get_mut(&pid) else { return Ok(()) };
        let Some(planned) = target.planned.get(&id) else { return Ok(()) };
        let covered: Vec<Site> = planned.sites.iter().filter(|s| is_covered(s)).cloned().collect();
        if covered.is_empty() {
            return Ok(());
        }
        self.programs.set_phase(phase::ATTACHING)?;
        let attachment = self.programs.attach(pid, &planned.file.path(), &covered);
        self.programs.set_phase(phase::ATTACHED)?;
        target.covered.insert(id, attachment?);
        Ok(())
    }

    /// Plans the probes of a library, and says what is not as one would wish.
    fn plan(&mut self, pid: u32, library: &Library) -> anyhow::Result<Planned> {
        let process = Process::open(pid).ok();
        let process = process.as_ref().map(|process| process as &dyn ProcessMemory);
        let file = PlannedFile::open(&library.open_path)
            .with_context(|| library.path.display().to_string())?;
        let selected = self.selection.choose(library, process)?;
        if FileId::of(&library.open_path).ok() != FileId::of(&file.path()).ok() {
            bail!("{}: it was replaced while it was looked at", library.path.display());
        }
        for text in selected.redirections.notices(pid) {
            self.notice(text);
        }
        for (domain, operation, name) in self.selection.foreign() {
            self.trace.operation(domain.0, operation.into(), name);
        }
        let path = library.path.display();
        if !selected.slow.is_empty() {
            let count = selected.slow.len();
            tracing::info!("{path}: left out, since slow: {}", selected.slow.join(", "));
            self.trace.notice(&format!(
                "{path}: {count} functions can be probed only at 16 µs a call and were left out; --allow-slow includes them"
            ));
        }
        if self.programs.method() == Method::Single {
            let count = selected.sites.len();
            self.notice(format!(
                "{path}: probes are placed and removed one by one here: {count} functions{}; root, who can use tracefs, has them all at once",
                if self.selection.is_few() { ", the most telling, are probed (--include '*' for all)" } else { "" }
            ));
        }
        if !selected.impossible.is_empty() {
            let names = selected.impossible.join(", ");
            self.trace.notice(&format!("{path}: the kernel allows no probe at {names}"));
        }
        let left_to_shim = selected.left_to_shim.len();
        Ok(Planned { library: library.clone(), file, sites: selected.sites, left_to_shim })
    }
}
