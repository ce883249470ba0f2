//! Attaching: to the held command, to running processes, to one library after the other.

use std::{collections::BTreeMap, ffi::OsStr, sync::Arc};

use anyhow::{Context as _, anyhow};
use tracer_common::{bpf::phase, calls::tables};
use tracer_records::model;
use tracer_records::sink::RecordSink as _;

use super::Session;
use crate::{
    clock,
    discover::{self, DiscoverError, Ended, FileId, Inside, Library, Subject},
    plan::{Followed, Process, ProcessMemory},
    probe::{Attachment, Method, Programs, Site},
    record::{
        Gpu,
        target::{Planned, Target, Tier},
    },
    shown,
};

/// Whether a probe is in vain where the shim records calls. Functions for images keep theirs: they are
/// rarely called, and their table need not be there.
fn is_covered(site: &Site) -> bool {
    site.capture.by_shim == tables::CORE
}

/// Plans that are kept of one file, for processes with other tables.
const MOST_PLANS: usize = 4;
/// Files that plans are kept of. There are two a ROCm release, and whatever else is called like them.
const MOST_FILES: usize = 64;

/// Plans by the files that they are of, for whoever maps these later.
pub(super) type Plans<T> = BTreeMap<FileId, Vec<Arc<T>>>;

/// Keeps a plan for other processes. What is known of the file as it was before it was touched is dropped,
/// and beyond [`MOST_FILES`] that of another file, if possible one that no target maps: a target makes as
/// many files as it likes.
pub(super) fn remember<T>(files: &mut Plans<T>, id: FileId, plan: &Arc<T>) {
    files.retain(|&known, _| known == id || !known.has_inode_of(id));
    if files.len() >= MOST_FILES && !files.contains_key(&id) {
        let is_unused = |plans: &Vec<Arc<T>>| plans.iter().all(|plan| Arc::strong_count(plan) == 1);
        let unused = files.iter().find(|(_, plans)| is_unused(plans)).map(|(&id, _)| id);
        let dropped = unused.or_else(|| files.keys().next().copied());
        dropped.map(|id| files.remove(&id));
    }
    let plans = files.entry(id).or_default();
    if plans.len() == MOST_PLANS {
        plans.remove(0);
    }
    plans.push(Arc::clone(plan));
}

impl Session {
    /// Attaches to the held command: its libraries are guessed, since it maps none yet.
    pub fn attach_held(&mut self, pid: u32, program: &OsStr, command: &str) -> anyhow::Result<()> {
        let candidates = discover::candidates(program);
        let tier = if self.shim.is_some() { Tier::AtStart } else { self.tier_without_shim() };
        if !self.follow {
            self.connections.iter().for_each(|connection| connection.memory().keep_for(pid));
        }
        // It is a child of ours, and waits.
        self.add_target(Arc::new(Subject::open(pid)?), command.to_owned(), tier)?;
        self.see_from_outside(pid, &candidates);
        self.attach_all(pid, candidates)?;
        self.attach_site(pid)
    }

    /// Attaches to the processes that were named. One that fails does not spoil the others.
    ///
    /// # Errors
    ///
    /// When none could be attached to: the first one's reason.
    pub fn attach_named(
        &mut self,
        named: Vec<(u32, Result<Subject, DiscoverError>)>,
    ) -> anyhow::Result<()> {
        let mut errors = Vec::new();
        let count = named.len();
        for (pid, subject) in named {
            if self.targets.contains_key(&pid) {
                continue;
            }
            let attached = subject
                .map_err(anyhow::Error::from)
                .and_then(|subject| self.attach_running(Arc::new(subject)));
            if let Err(error) = attached {
                errors.push((pid, error));
            }
        }
        if errors.len() == count
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
    pub fn attach_running(&mut self, subject: Arc<Subject>) -> anyhow::Result<()> {
        let pid = subject.pid();
        let mut attached = self.try_attach_running(Arc::clone(&subject));
        if let Err(error) = &attached {
            self.targets.remove(&pid);
            self.programs.forget(pid);
            // Whatever failed, failed by that.
            if !subject.is_alive() {
                tracing::debug!("process {pid}: {error:#}");
                attached = Err(anyhow!("process {pid} ended before roctap was attached to it"));
            }
        }
        // The shims of others have gone on writing.
        self.take_frames(|_, _| {})?;
        attached
    }

    fn try_attach_running(&mut self, subject: Arc<Subject>) -> anyhow::Result<()> {
        let pid = subject.pid();
        let info = subject.by_number(discover::process_info)?;
        let tier = if self.shim.is_some() { Tier::Waiting } else { self.tier_without_shim() };
        self.add_target(Arc::clone(&subject), info.command, tier)?;
        let libraries = subject.by_number(discover::libraries)?;
        if libraries.is_empty() {
            self.notice(format!(
                "process {pid} maps neither libamdhip64 nor libhsa-runtime64 yet; roctap waits for them"
            ));
        }
        let inside = subject.by_number(discover::threads_inside).unwrap_or_default();
        self.attach_all(pid, libraries.clone())?;
        if inside != Inside::default() {
            self.notice(format!(
                "process {pid}: when tracing began, {} threads waited inside a ROCm library and {} were running; a call that was open then is not in the trace",
                inside.waiting, inside.running
            ));
        }
        self.give_shim(pid)?;
        self.see_from_outside(pid, &libraries);
        Ok(subject.by_number(Ok::<_, Ended>).map(drop)?)
    }

    fn tier_without_shim(&self) -> Tier {
        match self.gpu {
            Gpu::Off => Tier::Off,
            _ => Tier::Uprobes("nothing was to be put into the process (--gpu uprobes)".to_owned()),
        }
    }

    /// Begins to trace a process, which may have the number of one that has ended.
    pub(super) fn add_target(
        &mut self,
        subject: Arc<Subject>,
        command: String,
        tier: Tier,
    ) -> anyhow::Result<()> {
        let pid = subject.pid();
        if self.targets.get(&pid).is_some_and(|former| !former.is_alive()) {
            self.take_frames(|_, _| {})?;
            self.end_connections(pid);
            self.bury(pid);
        }
        let target = Target::new(subject, command, clock::now_ns(), tier);
        self.trace.process(pid, target.info.clone());
        self.targets.insert(pid, target);
        Ok(self.programs.track(pid)?)
    }

    /// Places probes in process `pid`: they stay if it is still there then.
    pub(super) fn place(
        &self,
        pid: u32,
        place: impl FnOnce(&Programs, u32) -> anyhow::Result<Attachment>,
    ) -> anyhow::Result<Attachment> {
        let target = self.targets.get(&pid).ok_or(Ended { pid })?;
        target.subject.by_number(|pid| place(&self.programs, pid))
    }

    pub(super) fn attach_site(&mut self, pid: u32) -> anyhow::Result<()> {
        let Some(shim) = &self.shim else { return Ok(()) };
        let (path, offset) = (shim.path.clone(), shim.site_offset);
        let placed = self
            .place(pid, |programs, pid| Ok(programs.attach_dispatch_site(pid, &path, offset)?))?;
        if let Some(target) = self.targets.get_mut(&pid) {
            target.dispatch_site = Some(placed);
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
        let known = self.planned.get(&library.id).into_iter().flatten();
        let planned = match self.holding(pid, known, |planned| &planned.followed)? {
            Some(planned) => planned,
            None => {
                let planned = self.plan(pid, &library);
                let planned = Arc::new(planned.inspect_err(|_| self.refuse(pid, library.id))?);
                if !self.selection.is_by_process() {
                    remember(&mut self.planned, library.id, &planned);
                }
                planned
            }
        };
        if self.targets.get_mut(&pid).is_some_and(|target| target.renew(&planned)) {
            return Ok(());
        }
        self.attach_planned(pid, planned)
    }

    /// The one that holds in process `pid`, of plans that were made for others.
    pub(super) fn holding<'a, T: 'a>(
        &self,
        pid: u32,
        known: impl Iterator<Item = &'a Arc<T>>,
        followed: impl Fn(&T) -> &Followed,
    ) -> anyhow::Result<Option<Arc<T>>> {
        let mut known = known.peekable();
        let target = self.targets.get(&pid).filter(|_| known.peek().is_some());
        let Some(target) = target else { return Ok(None) };
        target.subject.by_number(|pid| {
            let process = Process::open(pid).ok();
            let process = process.as_ref().map(|process| process as &dyn ProcessMemory);
            Ok(known.find(|plan| followed(plan).holds_in(process)).cloned())
        })
    }

    /// Remembers that a library of a process cannot be probed: it is not tried again.
    fn refuse(&mut self, pid: u32, id: FileId) {
        if let Some(target) = self.targets.get_mut(&pid) {
            target.refuse(id);
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
        let attachment = self.place_sites(pid, &planned, |site| !is_covered(site));
        let attachment = attachment.with_context(|| planned.library.path.display().to_string());
        let Some(target) = self.targets.get_mut(&pid) else { return Ok(()) };
        let attachment = attachment.inspect_err(|_| {
            target.refuse(id);
        })?;
        let entry_only = planned.sites.iter().filter(|s| s.capture.entry_only != 0).count();
        let shown = model::Library {
            path: shown::path(&planned.library.path),
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
        let Some(target) = self.targets.get(&pid) else { return Ok(()) };
        let Some(planned) = target.planned.get(&id).map(Arc::clone) else { return Ok(()) };
        if !planned.sites.iter().any(is_covered) {
            return Ok(());
        }
        let attachment = self.place_sites(pid, &planned, is_covered)?;
        if let Some(target) = self.targets.get_mut(&pid) {
            target.covered.insert(id, attachment);
        }
        Ok(())
    }

    /// Places the probes of a plan that are wanted, if its files are what they were when it was made.
    fn place_sites(
        &mut self,
        pid: u32,
        planned: &Planned,
        wanted: impl Fn(&Site) -> bool,
    ) -> anyhow::Result<Attachment> {
        let sites: Vec<Site> = planned.sites.iter().filter(|site| wanted(site)).cloned().collect();
        planned.check()?;
        self.programs.set_phase(phase::ATTACHING)?;
        let placed = self.place(pid, |programs, pid| {
            let placed = programs.attach(pid, &planned.file.path(), &sites)?;
            planned.check()?;
            Ok(placed)
        });
        self.programs.set_phase(phase::ATTACHED)?;
        placed
    }

    /// Plans the probes of a library, and says what is not as one would wish.
    fn plan(&mut self, pid: u32, library: &Library) -> anyhow::Result<Planned> {
        let subject = Arc::clone(&self.targets.get(&pid).ok_or(Ended { pid })?.subject);
        let selection = &mut self.selection;
        let planned = subject.by_number(|pid| -> anyhow::Result<_> {
            let process = Process::open(pid).ok();
            let process = process.as_ref().map(|process| process as &dyn ProcessMemory);
            let file = library.open()?;
            let selected = selection.choose(library, &file, process)?;
            Ok((file, selected))
        });
        let (file, selected) = planned.with_context(|| library.path.display().to_string())?;
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
        Ok(Planned {
            library: library.clone(),
            file,
            left_to_shim: selected.left_to_shim.len(),
            sites: selected.sites,
            followed: selected.followed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn plans_are_of_few_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: usize| directory.path().join(number.to_string());
        let make = |number| {
            std::fs::write(path(number), "").unwrap();
            FileId::of(&path(number)).unwrap()
        };
        let mut plans = Plans::new();
        let used = Arc::new(0);
        let first = make(0);
        remember(&mut plans, first, &used);
        for number in 1..2 * MOST_FILES {
            remember(&mut plans, make(number), &Arc::new(number));
        }
        assert_eq!(plans.len(), MOST_FILES);
        assert!(plans.contains_key(&first), "a target maps it");
        // The file is touched: its time of change is another as soon as the clock has gone on.
        let mut touched = first;
        while touched == first {
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(path(0), mode).unwrap();
            touched = FileId::of(&path(0)).unwrap();
        }
        remember(&mut plans, touched, &used);
        assert!(!plans.contains_key(&first) && plans.contains_key(&touched));
        (0..2 * MOST_PLANS).for_each(|plan| remember(&mut plans, touched, &Arc::new(plan)));
        assert_eq!(plans[&touched].len(), MOST_PLANS);
    }
}
