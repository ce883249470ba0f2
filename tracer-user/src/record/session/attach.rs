//! Attaching: to the held command, to running processes, to one library after the other.

use std::{collections::BTreeSet, ffi::OsStr};

use anyhow::Context as _;
use tracer_common::{bpf::phase, calls::tables};

use super::{Planned, Session};
use crate::{
    clock,
    discover::{self, FileId, Inside, Library, Runtime, SHIM_FILE_NAME, Scout},
    plan::{Process, ProcessMemory},
    probe::Site,
    record::{
        Gpu,
        select::{SelectError, Selected},
        target::{Target, Tier},
    },
    trace::model,
};

/// More probes than this that are placed one by one are worth a warning: removing a pair takes about
/// a quarter of a second.
const MANY_SINGLE_PROBES: usize = 50;

/// Whether a probe is in vain where the shim records calls. Functions for images keep theirs: they are
/// rarely called, and their table need not be there.
fn is_covered(site: &Site) -> bool {
    site.cookie.by_shim == tables::CORE
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
        let id = library.id;
        if !self.planned.contains_key(&id) {
            let planned = self.plan(pid, &library)?;
            self.planned.insert(id, planned);
        }
        let (Some(planned), Some(target)) = (self.planned.get(&id), self.targets.get_mut(&pid))
        else {
            return Ok(());
        };
        if target.attached.contains_key(&id) || planned.sites.is_empty() {
            return Ok(());
        }
        self.programs.set_phase(phase::ATTACHING)?;
        let sites: Vec<Site> = planned.sites.iter().filter(|s| !is_covered(s)).cloned().collect();
        let attachment = self.programs.attach(pid, &library.open_path, &sites);
        self.programs.set_phase(phase::ATTACHED)?;
        let attachment = attachment?;
        let entry_only = planned.sites.iter().filter(|s| s.cookie.entry_only != 0).count();
        let shown = model::Library {
            path: planned.library.path.display().to_string(),
            version: planned.library.version(),
            probed: planned.sites.len() as u32,
            entry_only: entry_only as u32,
        };
        target.add_library(id, shown, attachment);
        target.left_to_shim += planned.left_to_shim;
        self.trace.process(pid, target.info.clone());
        self.attach_covered(pid, id)
    }

    /// Probes the functions that the shim records where it records calls.
    pub(super) fn attach_covered(&mut self, pid: u32, id: FileId) -> anyhow::Result<()> {
        let (Some(planned), Some(target)) = (self.planned.get(&id), self.targets.get_mut(&pid))
        else {
            return Ok(());
        };
        let covered: Vec<Site> = planned.sites.iter().filter(|s| is_covered(s)).cloned().collect();
        if covered.is_empty() {
            return Ok(());
        }
        self.programs.set_phase(phase::ATTACHING)?;
        let attachment = self.programs.attach(pid, &planned.library.open_path, &covered);
        self.programs.set_phase(phase::ATTACHED)?;
        target.covered.insert(id, attachment?);
        Ok(())
    }

    /// Chooses a library's functions; stubs are followed through the tables of process `pid`.
    pub(super) fn choose(&mut self, library: &Library, pid: u32) -> Result<Selected, SelectError> {
        let process = Process::open(pid).ok();
        self.selection.choose(library, process.as_ref().map(|p| p as &dyn ProcessMemory))
    }

    /// Chooses a library's functions; stubs are followed through the tables of a process of our own,
    /// which nobody has redirected.
    pub(super) fn choose_by_scout(&mut self, library: &Library) -> Result<Selected, SelectError> {
        match Scout::start(&library.open_path) {
            Ok(scout) => self.choose(library, scout.pid()),
            Err(error) => {
                tracing::info!("{}: not loaded: {error}", library.path.display());
                self.selection.choose(library, None)
            }
        }
    }

    /// Plans the probes of a library. Its stubs are followed through process `pid` if that has mapped
    /// it, else through a process of our own.
    pub(super) fn plan(&mut self, pid: u32, library: &Library) -> anyhow::Result<Planned> {
        let mapped = discover::libraries(pid).is_ok_and(|l| l.iter().any(|l| l.id == library.id));
        let mut selected = match library.runtime {
            Runtime::Hsa if !mapped => self.choose_by_scout(library)?,
            _ => self.choose(library, pid)?,
        };
        // What our own shim has left there in an earlier recording is no news.
        let ours = selected.redirected.iter().all(|(_, to)| to.contains(SHIM_FILE_NAME));
        if let (Some(_), true) = (selected.redirected.first(), ours) {
            selected = self.choose_by_scout(library)?;
        }
        if let Some((name, _)) = selected.redirected.first() {
            let others: BTreeSet<&str> =
                selected.redirected.iter().map(|(_, to)| to.as_str()).collect();
            let (count, to) = (selected.redirected.len(), others.into_iter().collect::<Vec<_>>());
            self.notice(format!(
                "process {pid}: {count} functions, {name} among them, have been redirected to {}; their implementations in {} are probed",
                to.join(", "),
                library.path.display()
            ));
            selected = self.choose_by_scout(library)?;
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
        if !self.programs.places_at_once() && selected.sites.len() > MANY_SINGLE_PROBES {
            let count = selected.sites.len();
            self.notice(format!(
                "{path}: this kernel places probes one by one; removing those of {count} functions can take {} s; choose fewer with --include",
                count / 4
            ));
        }
        if !selected.impossible.is_empty() {
            let names = selected.impossible.join(", ");
            self.trace.notice(&format!("{path}: the kernel allows no probe at {names}"));
        }
        let left_to_shim = selected.left_to_shim.len();
        Ok(Planned { library: library.clone(), sites: selected.sites, left_to_shim })
    }
}
