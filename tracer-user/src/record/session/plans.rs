//! The probes that are planned for libraries: planned once, for all processes that map the same file.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context as _;

use super::recorder::Recorder;
use crate::{
    discover::{self, FileId, Library, Loader, Runtime, Subject},
    plan::{Followed, LiveProcess, ProcessMemory},
    record::{
        select::{Doorbells, Selection},
        target::Planned,
    },
    shown::counted,
};

/// Plans that are kept of one file, for processes with other tables.
const MOST_PLANS: usize = 4;
/// Files whose plans are kept. A ROCm release has two, and other files may have the same names.
const MOST_FILES: usize = 64;

/// Plans by their files, for processes that map these files later. Each plan holds its files open itself: it outlives
/// the process that it was made for.
struct PlanCache<T>(BTreeMap<FileId, Vec<Arc<T>>>);

impl<T> PlanCache<T> {
    /// Keeps a plan for other processes. Plans of the same file as it was before it was touched are dropped. Beyond
    /// [`MOST_FILES`], those of another file are dropped, if possible of one that no traced process maps: a process can
    /// make as many files as it likes.
    fn remember(&mut self, id: FileId, plan: &Arc<T>) {
        let files = &mut self.0;
        files.retain(|&known, _| known == id || !known.has_inode_of(id));
        if files.len() >= MOST_FILES && !files.contains_key(&id) {
            let is_unused =
                |plans: &Vec<Arc<T>>| plans.iter().all(|plan| Arc::strong_count(plan) == 1);
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

    /// The plan of a file that holds in a process, if there is one.
    fn holding(
        &self,
        subject: &Subject,
        id: FileId,
        followed: impl Fn(&T) -> &Followed,
    ) -> anyhow::Result<Option<Arc<T>>> {
        let Some(known) = self.0.get(&id) else { return Ok(None) };
        subject.by_number(|pid| {
            let process = LiveProcess::open(pid).ok();
            let process = process.as_ref().map(|process| process as &dyn ProcessMemory);
            Ok(known.iter().find(|plan| followed(plan).holds_in(process)).cloned())
        })
    }
}

/// Plans, and the means to make them.
pub struct Plans {
    selection: Selection,
    libraries: PlanCache<Planned>,
    doorbells: PlanCache<Doorbells>,
    loaders: PlanCache<Loader>,
}

impl Plans {
    /// Nothing is planned yet.
    pub fn new(selection: Selection) -> Self {
        let (libraries, doorbells) = (PlanCache(BTreeMap::new()), PlanCache(BTreeMap::new()));
        let loaders = PlanCache(BTreeMap::new());
        Self { selection, libraries, doorbells, loaders }
    }

    /// Whether any function of the runtime is to be probed.
    pub fn wants(&self, runtime: Runtime) -> bool {
        self.selection.wants(runtime)
    }

    /// Notices of patterns that matched no function.
    pub fn unused_globs(&self) -> Vec<String> {
        self.selection.unused_globs()
    }

    /// The plan for a library in a process.
    pub fn of(
        &mut self,
        subject: &Subject,
        library: &Library,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Arc<Planned>> {
        let known = self.libraries.holding(subject, library.id, |planned| &planned.followed)?;
        if let Some(planned) = known {
            return Ok(planned);
        }
        let planned = Arc::new(self.plan(subject, library, recorder)?);
        self.libraries.remember(library.id, &planned);
        Ok(planned)
    }

    /// Plans the probes of a library, and reports functions that cannot be recorded as one would wish.
    fn plan(
        &mut self,
        subject: &Subject,
        library: &Library,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Planned> {
        let selection = &mut self.selection;
        let planned = subject.by_number(|pid| -> anyhow::Result<_> {
            let process = LiveProcess::open(pid).ok();
            let process = process.as_ref().map(|process| process as &dyn ProcessMemory);
            let file = library.open()?;
            let selected = selection.choose(library, &file, process)?;
            Ok((file, library.version(), selected))
        });
        let (file, version, selected) =
            planned.with_context(|| library.path.display().to_string())?;
        for text in selected.redirections.notices(subject.pid()) {
            recorder.notice(&text);
        }
        for (domain, operation, name) in self.selection.unlisted() {
            recorder.joiner.sink().operation(domain.0, operation.into(), name);
        }
        let path = library.path.display();
        if !selected.slow.is_empty() {
            let functions = counted(selected.slow.len(), "function");
            tracing::info!("{path}: left out, since slow: {}", selected.slow.join(", "));
            recorder.write_notice(&format!(
                "{path}: calls of {functions} were left out, which can be probed only at 16 µs a call; --allow-slow includes them"
            ));
        }
        if !selected.dear.is_empty() {
            let names = selected.dear.join(", ");
            recorder.write_notice(&format!("{path}: a probe costs 16 µs a call at {names}"));
        }
        if !selected.impossible.is_empty() {
            let names = selected.impossible.join(", ");
            recorder.write_notice(&format!("{path}: the kernel allows no probe at {names}"));
        }
        Ok(Planned {
            path: library.path.clone(),
            version,
            file,
            left_to_shim: selected.left_to_shim,
            sites: selected.sites,
            followed: selected.followed,
        })
    }

    /// Where the functions of the HSA runtime that ring doorbells are probed.
    pub fn doorbells(
        &mut self,
        subject: &Subject,
        library: &Library,
    ) -> anyhow::Result<Arc<Doorbells>> {
        let known = self.doorbells.holding(subject, library.id, |doorbells| &doorbells.followed)?;
        if let Some(found) = known {
            return Ok(found);
        }
        let found = subject.by_number(|pid| -> anyhow::Result<_> {
            let process = LiveProcess::open(pid).ok();
            let process = process.as_ref().map(|p| p as &dyn ProcessMemory);
            let file = library.open()?;
            Ok(self.selection.doorbells(library, file, process)?)
        })?;
        if found.stores.is_empty() {
            anyhow::bail!("{}: no function that rings doorbells was found", library.path.display());
        }
        let found = Arc::new(found);
        self.doorbells.remember(library.id, &found);
        Ok(found)
    }

    /// The dynamic linker of a process; none if the process has no linker that tells what it loads.
    pub fn loader(
        &mut self,
        subject: &Subject,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Option<Arc<Loader>>> {
        let Some(file) = subject.by_number(discover::mapped_loader)? else { return Ok(None) };
        let id = file.id();
        let known = self.loaders.0.get(&id).and_then(|loaders| loaders.first());
        let loader = match known {
            Some(known) => Arc::clone(known),
            None => {
                let loader = Arc::new(Loader::read(file)?);
                self.loaders.remember(id, &loader);
                if loader.calls.is_empty() {
                    recorder.notice(&format!(
                        "process {}: how its dynamic linker tells what it loads is not known: libraries that come late are looked for every 0.1 s, and calls before that are not in the trace",
                        subject.pid()
                    ));
                }
                loader
            }
        };
        Ok(Some(loader).filter(|loader| !loader.calls.is_empty()))
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
        let mut plans = PlanCache(BTreeMap::new());
        let used = Arc::new(0);
        let first = make(0);
        plans.remember(first, &used);
        for number in 1..2 * MOST_FILES {
            plans.remember(make(number), &Arc::new(number));
        }
        assert_eq!(plans.0.len(), MOST_FILES);
        assert!(plans.0.contains_key(&first), "a target maps it");
        // The file is touched: its time of change differs as soon as the clock has gone on.
        let mut touched = first;
        while touched == first {
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(path(0), mode).unwrap();
            touched = FileId::of(&path(0)).unwrap();
        }
        plans.remember(touched, &used);
        assert!(!plans.0.contains_key(&first) && plans.0.contains_key(&touched));
        (0..2 * MOST_PLANS).for_each(|plan| plans.remember(touched, &Arc::new(plan)));
        assert_eq!(plans.0[&touched].len(), MOST_PLANS);
    }
}
