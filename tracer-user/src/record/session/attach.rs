//! Attaching: to the held command, to running processes, to one library after the other.

use std::{ffi::OsStr, sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use tracer_common::slots::tables;
use tracer_records::model;

use super::{Session, injections::Occasion};
use crate::{
    clock,
    discover::{self, DiscoverError, Ended, FileId, Inside, Library, Subject},
    priority,
    probe::Site,
    record::{
        gpu_source::GpuSource,
        stop::Stop,
        target::{Planned, Target},
    },
    shown,
};

/// The tables whose functions need no probes where the shim records their calls. Functions for images keep theirs:
/// they are rarely called, and their table need not be there.
const COVERED: [u8; 3] = [tables::CORE, tables::HIP, tables::HIP_COMPILER];

fn is_covered(site: &Site) -> bool {
    COVERED.contains(&site.capture.by_shim)
}

/// Whatever failed of a process that has ended, failed by that.
pub(super) fn ended_early(pid: u32) -> anyhow::Error {
    anyhow!("process {pid} ended before roctap was attached to it")
}

impl Session {
    /// Attaches to the held command: its libraries are guessed, since it maps none yet.
    pub fn attach_held(&mut self, pid: u32, program: &OsStr, command: &str) -> anyhow::Result<()> {
        let candidates = discover::candidates(program);
        let source = GpuSource::of_command(self.shims.gpu(), self.shims.shim().is_some());
        if !self.following.wanted {
            self.shims.keep_for(pid);
        }
        // It is a child of ours, and waits.
        self.add_target(Arc::new(Subject::open(pid)?), command.to_owned(), source)?;
        if let Some(target) = self.processes.get_mut(pid) {
            target.is_recorded_from_start = true;
        }
        self.probes.programs.track(pid)?;
        // Most commands have the dynamic linker that roctap has.
        self.watch_loader(pid);
        self.see_from_outside(pid, &candidates);
        self.attach_all(pid, candidates)?;
        self.attach_site(pid)
    }

    /// Attaches to the processes that were named. One that fails does not spoil the others. When the user asks for the
    /// end, shims on their way are not waited for.
    ///
    /// # Errors
    ///
    /// When none could be attached to: the first one's reason.
    pub fn attach_named(
        &mut self,
        named: Vec<(u32, Result<Subject, DiscoverError>)>,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        let mut errors = Vec::new();
        let count = named.len();
        for (pid, subject) in named {
            if self.processes.get(pid).is_some() {
                continue;
            }
            let attached = subject
                .map_err(anyhow::Error::from)
                .and_then(|subject| self.attach_running(Arc::new(subject)));
            if let Err(error) = attached {
                errors.push((pid, error));
            }
        }
        // Their probes are in place: records come while the shims are put in, and are lost if they are read too late.
        priority::prefer_for_records();
        while self.injections.are_any() && !stop.asked() {
            let failures = self.go_on(Duration::from_millis(1))?;
            for (subject, error) in failures {
                self.let_go(subject.pid());
                errors.push((subject.pid(), error));
            }
        }
        if errors.len() == count
            && let Some((_, error)) = errors.drain(..).next()
        {
            return Err(error);
        }
        self.failed = errors.len();
        for (pid, error) in errors {
            self.recorder.notice(&format!("process {pid} is not traced: {error:#}"));
        }
        Ok(())
    }

    /// Attaches to a running process. On an error nothing stays attached to it.
    pub fn attach_running(&mut self, subject: Arc<Subject>) -> anyhow::Result<()> {
        let pid = subject.pid();
        let mut attached = self.try_attach_running(Arc::clone(&subject));
        if let Err(error) = &attached {
            self.let_go(pid);
            // The process has ended, and that made the attachment fail.
            if !subject.is_alive() {
                tracing::debug!("process {pid}: {error:#}");
                attached = Err(ended_early(pid));
            }
        }
        // The shims of other processes have gone on writing.
        self.shims.drain_shares(&mut self.recorder.joiner)?;
        attached
    }

    /// Process `pid` is not traced after all.
    pub(super) fn let_go(&mut self, pid: u32) {
        self.processes.remove(pid);
        self.probes.programs.forget(pid);
    }

    fn try_attach_running(&mut self, subject: Arc<Subject>) -> anyhow::Result<()> {
        let pid = subject.pid();
        let info = subject.by_number(discover::process_info)?;
        let source = GpuSource::of_running(self.shims.gpu(), self.shims.shim().is_some());
        self.add_target(Arc::clone(&subject), info.command, source)?;
        self.look_at_clock(pid);
        self.probes.programs.track(pid)?;
        let libraries = subject.by_number(discover::libraries)?;
        if !libraries.iter().any(|library| library.runtime.is_of_rocm()) {
            self.recorder.notice(&format!(
                "process {pid} maps neither libamdhip64 nor libhsa-runtime64 yet; roctap waits for them"
            ));
        }
        let inside = subject.by_number(discover::threads_inside).unwrap_or_default();
        self.watch_loader(pid);
        self.attach_all(pid, libraries.clone())?;
        self.tell_that_it_is_outlived(pid);
        if inside != Inside::default() {
            self.recorder.notice(&format!(
                "process {pid}: when tracing began, {} threads waited inside a ROCm library and {} were running; a call that was open then is not in the trace",
                inside.waiting, inside.running
            ));
        }
        self.give_shim(pid, Occasion::Attaching);
        self.see_from_outside(pid, &libraries);
        Ok(subject.by_number(Ok::<_, Ended>).map(drop)?)
    }

    /// Adds a process, which may have the number of one that has ended.
    pub(super) fn add_target(
        &mut self,
        subject: Arc<Subject>,
        command: String,
        source: GpuSource,
    ) -> anyhow::Result<()> {
        let pid = subject.pid();
        if self.processes.has_ended(pid) {
            self.shims.look(|ended| ended == pid);
            self.shims.drain(&mut self.recorder.joiner, |_, _| {})?;
            self.give_up_memories();
            self.retire(pid);
            self.forget(pid)?;
        }
        let target = Target::new(subject, command, clock::now_ns(), source);
        self.recorder.process(pid, target.info.clone());
        self.processes.insert(target);
        Ok(())
    }

    pub(super) fn attach_site(&mut self, pid: u32) -> anyhow::Result<()> {
        if let (Some(shim), Some(target)) = (self.shims.shim(), self.processes.get_mut(pid)) {
            let site = self.probes.place_site(&target.subject, &shim.path, shim.site_offset)?;
            target.dispatch_site = Some(site);
        }
        Ok(())
    }

    pub(super) fn attach_all(&mut self, pid: u32, libraries: Vec<Library>) -> anyhow::Result<()> {
        for library in libraries {
            if self.plans.wants(library.runtime) {
                self.attach(pid, &library)?;
            }
        }
        Ok(())
    }

    pub(super) fn attach(&mut self, pid: u32, library: &Library) -> anyhow::Result<()> {
        let Some(target) = self.processes.get_mut(pid) else { return Ok(()) };
        if target.planned.contains_key(&library.id) {
            return Ok(());
        }
        let planned = self.plans.of(&target.subject, library, &mut self.recorder);
        // A library that cannot be probed is not tried again.
        let planned = planned.inspect_err(|_| target.refuse(library.id))?;
        if target.renew(&planned) {
            return Ok(());
        }
        self.attach_planned(pid, planned)
    }

    /// Places the probes of a plan.
    pub(super) fn attach_planned(&mut self, pid: u32, planned: Arc<Planned>) -> anyhow::Result<()> {
        let Some(target) = self.processes.get_mut(pid) else { return Ok(()) };
        let id = planned.file.id();
        if planned.sites.is_empty() {
            target.planned.insert(id, planned);
            return Ok(());
        }
        let placed = self.probes.place(&target.subject, &planned, |site| !is_covered(site));
        let placed = placed.with_context(|| planned.path.display().to_string());
        let attachment = placed.inspect_err(|_| target.refuse(id))?;
        let entry_only = planned.sites.iter().filter(|s| s.capture.entry_only != 0).count();
        let shown = model::ProbedLibrary {
            path: shown::path(&planned.path),
            version: planned.version.clone(),
            probed: planned.sites.len() as u32,
            entry_only: entry_only as u32,
        };
        target.add_library(id, shown, attachment);
        target.planned.insert(id, planned);
        self.recorder.process(pid, target.info.clone());
        self.attach_covered(pid, id, u8::MAX)
    }

    /// Probes the functions of a library that the shim records too if it records calls: those of `tables`.
    pub(super) fn attach_covered(
        &mut self,
        pid: u32,
        id: FileId,
        tables: u8,
    ) -> anyhow::Result<()> {
        let Some(target) = self.processes.get_mut(pid) else { return Ok(()) };
        let Some(planned) = target.planned.get(&id).map(Arc::clone) else { return Ok(()) };
        for table in COVERED.into_iter().filter(|table| table & tables != 0) {
            let is_of_it = |site: &Site| site.capture.by_shim == table;
            if planned.sites.iter().any(is_of_it) {
                let placed = self.probes.place(&target.subject, &planned, is_of_it)?;
                target.covered.insert((id, table), placed);
            }
        }
        Ok(())
    }
}
