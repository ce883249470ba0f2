//! A traced process: its probes, and whether it lives.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tracer_common::{activity::Domain, slots::tables};
use tracer_records::model::{self, Process};

use super::{
    gpu_source::{Claim, GpuSource},
    removal::Removal,
    select::Doorbells,
};
use crate::{
    discover::{Changed, FileId, Loader, PlannedFile, Subject},
    plan::Followed,
    probe::{Attachment, Site},
};

/// The interval in which roctap looks at a process's mappings as long as the number of its mapped pages is the same.
const SEEN_INTERVAL: Duration = Duration::from_secs(1);
/// Looking at a process's mappings takes at most one part in so many of the time.
const SEEN_SHARE: u32 = 50;

/// A look at the mappings of a process.
#[derive(Clone, Copy, Debug)]
pub struct MappingsLook {
    /// When roctap looked.
    pub at: Instant,
    /// How many pages the process had mapped then.
    pub pages: u64,
    /// The time that the look took: the more mappings, the longer.
    pub took: Duration,
}

/// The probes that are to be placed in a library.
pub struct Planned {
    /// The path for people: as the process saw it for which the plan was made.
    pub path: PathBuf,
    /// The library's release.
    pub version: String,
    /// Its file.
    pub file: PlannedFile,
    /// Where the library's stubs led. The plan holds in each process in which they lead to the same places.
    pub followed: Followed,
    /// The places in the file.
    pub sites: Vec<Site>,
    /// The tables of the functions that only the shim can record, because probes there would be slow.
    pub left_to_shim: Vec<u8>,
}

impl Planned {
    /// Checks that the file is as it was when it was planned. To be called when the probes are in place.
    ///
    /// # Errors
    ///
    /// When the file has changed.
    pub fn check(&self) -> Result<(), Changed> {
        self.file.check()
    }
}

/// One process.
pub struct Target {
    /// The process itself.
    pub subject: Arc<Subject>,
    /// The description of the process that the trace gets.
    pub info: Process,
    /// The plans of its libraries.
    pub planned: BTreeMap<FileId, Arc<Planned>>,
    /// Libraries that could not be probed.
    pub refused: BTreeSet<FileId>,
    /// The libraries for which roctap has said why they are not probed: once, whatever the process executes.
    pub explained: BTreeSet<FileId>,
    /// The probes in its libraries.
    pub attached: BTreeMap<FileId, Attachment>,
    /// Of these libraries, the probes at functions that the shim records too if it records calls of a table.
    pub covered: BTreeMap<(FileId, u8), Attachment>,
    /// Probes at such functions that are being removed, and the domain of the calls.
    pub removals: Vec<(Domain, Removal)>,
    /// The tables whose calls the shim records: [`tracer_common::slots::tables`].
    pub calls_by_shim: u8,
    /// HIP libraries that it loaded when it had one already: the shim records the calls of the first alone.
    pub beside_shim: BTreeSet<FileId>,
    /// The shim's dispatch site.
    pub dispatch_site: Option<Attachment>,
    /// The probes where it rings doorbells, if nothing else tells of its GPU work.
    pub doorbells: Option<Attachment>,
    /// The places of these probes, which its children get too.
    pub doorbell_places: Option<Arc<Doorbells>>,
    /// Its dynamic linker, and the probes in it.
    pub loader: Option<(Arc<Loader>, Attachment)>,
    /// It has mapped a library that its dynamic linker has not reported yet.
    pub waits_for_loader: bool,
    /// Its first thread was about to end.
    pub first_thread_ends: bool,
    /// It was traced when its program began: no launch of that program is too early to be recorded.
    pub is_recorded_from_start: bool,
    /// The source of its GPU times.
    pub gpu_source: GpuSource,
    /// It was being attached to, and could not get its shim yet: the threads that put shims in were busy, none could be
    /// started, or the process was held.
    pub is_being_attached: bool,
    /// The last look at its mappings.
    pub seen: Option<MappingsLook>,
    /// The time that was spent on reading messages of marks and ranges in its memory.
    pub looked_for_messages: Duration,
    /// Whether it has a shared memory: known when it has ended.
    pub claim: Claim,
    /// The process has ended, and this request asks for all records made before that: when the request is answered,
    /// all records of the process have come.
    pub retired: Option<u64>,
}

impl Target {
    /// Whether no look at the mappings is needed; `pages` is the number of pages that are mapped now. True if the last
    /// look saw as many, not long ago, and nothing waits for another look; also true just after a look
    /// that took long, to bound the time that looks take.
    pub fn maps_the_same(&self, pages: u64) -> bool {
        if self.seen.is_some_and(|seen| seen.at.elapsed() < seen.took * SEEN_SHARE) {
            return true;
        }
        let waits = self.gpu_source.waits_for_library(self.doorbells.is_some());
        let same = |seen: MappingsLook| seen.pages == pages && seen.at.elapsed() < SEEN_INTERVAL;
        !waits && self.seen.is_some_and(same)
    }

    /// A process to which nothing is attached yet.
    pub fn new(
        subject: Arc<Subject>,
        command: String,
        attached_ns: u64,
        gpu_source: GpuSource,
    ) -> Self {
        Self {
            subject,
            info: Process { command, attached_ns, ..Process::default() },
            planned: BTreeMap::new(),
            refused: BTreeSet::new(),
            explained: BTreeSet::new(),
            attached: BTreeMap::new(),
            covered: BTreeMap::new(),
            removals: Vec::new(),
            calls_by_shim: 0,
            beside_shim: BTreeSet::new(),
            dispatch_site: None,
            doorbells: None,
            doorbell_places: None,
            loader: None,
            waits_for_loader: false,
            first_thread_ends: false,
            is_recorded_from_start: false,
            gpu_source,
            is_being_attached: false,
            seen: None,
            looked_for_messages: Duration::ZERO,
            claim: Claim::None,
            retired: None,
        }
    }

    /// Whether the process is still there (a zombie is not).
    pub fn is_alive(&self) -> bool {
        self.subject.is_alive()
    }

    /// Its threads.
    pub fn threads(&self) -> Vec<u32> {
        let tasks =
            std::fs::read_dir(format!("/proc/{}/task", self.subject.pid())).into_iter().flatten();
        tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
    }

    /// All its probes.
    pub fn take_probes(&mut self) -> Vec<Attachment> {
        let removals = std::mem::take(&mut self.removals);
        let attached = std::mem::take(&mut self.attached).into_values();
        let covered = std::mem::take(&mut self.covered).into_values();
        let removals = removals.into_iter().filter_map(|(_, removal)| removal.rest());
        let loader = self.loader.take().map(|(_, probes)| probes);
        attached.chain(covered).chain(removals).chain(self.doorbells.take()).chain(loader).collect()
    }

    /// Removes the probes where it rings doorbells, for good: its shim records its GPU work.
    pub fn remove_doorbells(&mut self) {
        if let Some(placed) = self.doorbells.replace(Attachment::default())
            && placed.links() > 0
        {
            self.removals.push((Domain::HSA_API, Removal::begin(placed)));
        }
    }

    /// The process has ended: has its probes removed on a thread, since that takes time. `request` asks for all
    /// records that were made before.
    pub fn retire(&mut self, request: u64) {
        self.retired = Some(request);
        let mut probes = self.take_probes();
        probes.extend(self.dispatch_site.take());
        let removal = Removal::of_the_dead(probes);
        self.removals.extend(removal.map(|removal| (Domain::HSA_API, removal)));
    }

    /// Whether there are functions that only the shim can record.
    pub fn leaves_to_shim(&self) -> bool {
        self.planned.values().any(|planned| !planned.left_to_shim.is_empty())
    }

    /// How many functions neither probes nor the shim record, of those of the domains that `counts`.
    pub fn left_to_nobody(&self, counts: impl Fn(Domain) -> bool) -> usize {
        let left = self.planned.iter().flat_map(|(id, planned)| {
            let by_shim = if self.beside_shim.contains(id) { 0 } else { self.calls_by_shim };
            planned.left_to_shim.iter().filter(move |&&table| table & by_shim == 0)
        });
        left.filter(|&&table| counts(tables::domain(table))).count()
    }

    /// Remembers a probed library.
    pub fn add_library(
        &mut self,
        id: FileId,
        library: model::ProbedLibrary,
        attachment: Attachment,
    ) {
        self.info.libraries.retain(|known| known.path != library.path);
        self.info.libraries.push(library);
        self.attached.insert(id, attachment);
    }

    /// Remembers that a library cannot be probed, as it is now.
    pub fn refuse(&mut self, id: FileId) {
        self.refused.retain(|known| !known.has_inode_of(id));
        self.refused.insert(id);
    }

    /// Whether it has not been said yet why a library, as it is now, is not probed.
    pub fn explain(&mut self, id: FileId) -> bool {
        let new = !self.explained.contains(&id);
        self.explained.retain(|known| !known.has_inode_of(id));
        self.explained.insert(id);
        new
    }

    /// The process executes another program: no tool has redirected the new program's tables yet, and libraries may
    /// have been replaced. Forgets the plans with another tool's wrappers, and those of files that have changed: their
    /// libraries are planned again when the new program has mapped them.
    pub fn forget_stale(&mut self) {
        self.refused.clear();
        self.beside_shim.clear();
        let is_stale = |planned: &Planned| planned.check().is_err();
        let stale: Vec<FileId> =
            self.planned.iter().filter(|(_, p)| is_stale(p)).map(|(&id, _)| id).collect();
        stale.into_iter().for_each(|id| self.forget(id));
    }

    /// Forgets a plan, and removes its probes.
    fn forget(&mut self, id: FileId) {
        self.covered.retain(|&(of, _), _| of != id);
        drop((self.take_plan(id), self.attached.remove(&id)));
    }

    /// Takes a plan out, so that its probes are placed anew.
    pub fn take_plan(&mut self, id: FileId) -> Option<Arc<Planned>> {
        self.planned.remove(&id)
    }

    /// Takes a new plan of a file that was planned before, and has been touched since. Where the new plan probes the
    /// same places, the probes stay and this returns true; else the old ones are removed.
    pub fn renew(&mut self, planned: &Arc<Planned>) -> bool {
        let id = planned.file.id();
        let Some(old) = self.planned.keys().copied().find(|old| old.has_inode_of(id)) else {
            return false;
        };
        if self.planned[&old].sites != planned.sites {
            self.forget(old);
            return false;
        }
        self.planned.remove(&old);
        self.planned.insert(id, Arc::clone(planned));
        if let Some(probes) = self.attached.remove(&old) {
            self.attached.insert(id, probes);
        }
        let covered = std::mem::take(&mut self.covered).into_iter();
        let renewed = |(of, table)| (if of == old { id } else { of }, table);
        self.covered = covered.map(|(key, probes)| (renewed(key), probes)).collect();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_seen_when_it_changes_and_when_something_waits_for_it() {
        let subject = Arc::new(Subject::open(std::process::id()).unwrap());
        let mut target = Target::new(subject, String::new(), 1, GpuSource::AtStart);
        assert!(!target.maps_the_same(7), "it was never seen");
        let seen =
            MappingsLook { at: Instant::now() + SEEN_INTERVAL, pages: 7, took: Duration::ZERO };
        target.seen = Some(seen);
        assert!(target.maps_the_same(7) && !target.maps_the_same(8));
        for source in [GpuSource::Waiting, GpuSource::Uprobes(String::new())] {
            target.gpu_source = source;
            assert!(!target.maps_the_same(7), "{}", target.gpu_source);
        }
        target.doorbells = Some(Attachment::default());
        assert!(target.maps_the_same(7));
        let at = Instant::now().checked_sub(SEEN_INTERVAL).expect("the machine runs longer");
        target.seen = Some(MappingsLook { at, ..seen });
        assert!(!target.maps_the_same(7), "long ago");
        target.seen = Some(MappingsLook { at, took: SEEN_INTERVAL, ..seen });
        assert!(target.maps_the_same(8), "it takes long");
    }
}
