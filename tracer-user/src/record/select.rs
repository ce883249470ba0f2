//! Which functions of a library are probed, where, and under which operation ids.

use std::{cell::Cell, collections::HashMap, path::PathBuf};

use globset::{Glob, GlobSet, GlobSetBuilder};
use tracer_common::{
    activity::Domain,
    bpf::Capture,
    calls::Wanted,
    hip_functions,
    hip_wrappers::EXAMPLES,
    hsa_functions::{self, RENAMED, Slot},
    slots::{self, SLOT_COUNT, tables},
};
use tracer_records::api;

use super::{
    options::{Api, Options},
    redirections::Redirections,
};
use crate::{
    discover::{Changed, ElfError, Image, Library, PlannedFile, Runtime},
    plan::{
        Binary, Followed, FunctionPlan, HipServed, PlanError, Planner, Probed, ProcessMemory,
        ReachedBy, ReturnProbe,
    },
    probe::Site,
};

/// First operation id for functions that the operation table does not know: those of other
/// releases. The table's own ids stay below. Those of the runtimes' tables come first, by slot.
const FIRST_UNLISTED_ID: u16 = 0x8000;

/// Functions of the HSA runtime by which programs ring doorbells.
const DOORBELLS: [&str; 2] = ["hsa_signal_store_relaxed", "hsa_signal_store_screlease"];
/// The function that ends signals.
const SIGNAL_END: &str = "hsa_signal_destroy";

/// Why the functions of a library could not be chosen.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// The functions cannot be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The probe sites of the functions cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A file has changed since it was planned.
    #[error("{}: {cause}", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// How it has changed. Part of the message, hence no `source`.
        cause: Changed,
    },
}

/// The chosen functions of a library.
pub struct Selected {
    /// Where the library's stubs led.
    pub followed: Followed,
    /// The places to probe.
    pub sites: Vec<Site>,
    /// Functions that are left out because a probe there would cost 16 µs a call.
    pub slow: Vec<String>,
    /// Slow functions that are probed all the same.
    pub dear: Vec<String>,
    /// The tables of the functions that would be left out as slow, but that the shim can record.
    pub left_to_shim: Vec<u8>,
    /// Functions at which the kernel allows no probe.
    pub impossible: Vec<String>,
    /// Functions that another tool has redirected.
    pub redirections: Redirections,
}

/// Where GPU work can be seen from outside.
pub struct Doorbells {
    /// The library's file.
    pub file: PlannedFile,
    /// Where the library's stubs led.
    pub followed: Followed,
    /// Functions that ring doorbells.
    pub stores: Vec<Site>,
    /// Functions that destroy signals.
    pub ends: Vec<Site>,
}

/// Chooses functions.
pub struct Selection {
    apis: Vec<Api>,
    include: Option<Patterns>,
    exclude: Patterns,
    allow_slow: bool,
    /// Whether the functions of a library were looked at.
    has_chosen: Cell<bool>,
    /// Whether processes may have the shim, which records calls.
    shim: bool,
    planner: Planner,
    /// The ids of functions that the operation table does not know.
    unlisted: HashMap<(Domain, String), u16>,
}

/// Globs, and which of them have matched a name.
struct Patterns {
    set: GlobSet,
    globs: Vec<(Glob, Cell<bool>)>,
}

impl Patterns {
    fn new(globs: impl IntoIterator<Item = Glob>) -> Result<Self, globset::Error> {
        let globs: Vec<_> = globs.into_iter().map(|glob| (glob, Cell::new(false))).collect();
        let mut builder = GlobSetBuilder::new();
        for (glob, _) in &globs {
            builder.add(glob.clone());
        }
        Ok(Self { set: builder.build()?, globs })
    }

    fn matches(&self, name: &str) -> bool {
        let matching = self.set.matches(name);
        matching.iter().for_each(|&index| self.globs[index].1.set(true));
        !matching.is_empty()
    }

    /// The globs that have matched no name.
    fn unused(&self) -> impl Iterator<Item = &Glob> {
        self.globs.iter().filter(|(_, used)| !used.get()).map(|(glob, _)| glob)
    }
}

impl Selection {
    /// The selection that the command line asks for.
    ///
    /// # Errors
    ///
    /// When the globs are too large together.
    pub fn new(options: &Options, shim: bool) -> Result<Self, globset::Error> {
        let include = (!options.include.is_empty())
            .then(|| Patterns::new(options.include.iter().cloned()))
            .transpose()?;
        Ok(Self {
            apis: options.api.clone(),
            include,
            exclude: Patterns::new(options.exclude.iter().cloned())?,
            allow_slow: options.allow_slow,
            has_chosen: Cell::new(false),
            shim,
            planner: Planner::for_running_kernel(),
            unlisted: HashMap::new(),
        })
    }

    /// Whether any function of the runtime can be chosen.
    pub fn wants(&self, runtime: Runtime) -> bool {
        self.apis.iter().any(|api| api.runtime() == runtime)
    }

    fn accepts(&self, runtime: Runtime, name: &str) -> bool {
        if !runtime.owns_symbol(name) || !self.apis.contains(&Api::of(runtime, name)) {
            return false;
        }
        let included = self.include.as_ref().is_none_or(|globs| globs.matches(name));
        // Asked in any case, so that the glob counts as used.
        let excluded = self.exclude.matches(name);
        included && !excluded
    }

    /// Globs of --include and --exclude that match no function of the libraries that were looked at, as notices.
    pub fn unused_globs(&self) -> Vec<String> {
        if !self.has_chosen.get() {
            return Vec::new();
        }
        let include = self.include.iter().flat_map(Patterns::unused).map(|glob| ("include", glob));
        let exclude = self.exclude.unused().map(|glob| ("exclude", glob));
        let say = |(option, glob): (_, &Glob)| {
            format!(
                "--{option} '{glob}' matches no function of the libraries that the processes mapped, among those of --api"
            )
        };
        include.chain(exclude).map(say).collect()
    }

    /// The calls that shims are to record, by slot: [`Wanted`] words.
    pub fn shim_calls(&self) -> Vec<u64> {
        let word = |slot: usize| {
            let function = slots::function(slot);
            let runtime = if slots::HIP.contains(&slot) { Runtime::Hip } else { Runtime::Hsa };
            let wanted = self.wants_of_shim(runtime, &function).then(|| {
                api::shim_call(&function).or_else(|| unknown_call(runtime, function.name))
            });
            wanted.flatten().map_or(0, Wanted::to_word)
        };
        (0..SLOT_COUNT).map(word).collect()
    }

    /// Whether the shim is to record a function, under its present name or an older one.
    fn wants_of_shim(&self, runtime: Runtime, slot: &Slot) -> bool {
        let older = RENAMED.iter().filter_map(|(old, new)| {
            slot.name.strip_suffix(new).map(|stem| format!("{stem}{old}"))
        });
        self.shim
            && self.wants(runtime)
            && older.chain([slot.name.to_owned()]).any(|name| self.accepts(runtime, &name))
    }

    /// The table through which the shim records the functions of these names, which share their code;
    /// 0 if it does not record all of them. `served` are the functions of HIP that go through its tables.
    fn by_shim<'a>(
        &self,
        runtime: Runtime,
        served: &HipServed,
        mut names: impl Iterator<Item = &'a str>,
    ) -> u8 {
        let table = |name: &str| match runtime {
            Runtime::Hip if !served.has(name) => 0,
            _ => slot_of(runtime, name).map_or(0, tables::of_slot),
        };
        let first = names.next().map_or(0, table);
        if self.shim && names.all(|name| table(name) == first) { first } else { 0 }
    }

    /// The places to probe in a library. Stubs are followed through the tables of `process` if that process has
    /// loaded the library, else through the tables that the file makes.
    ///
    /// # Errors
    ///
    /// When the library cannot be read.
    pub fn choose(
        &mut self,
        library: &Library,
        file: &PlannedFile,
        process: Option<&dyn ProcessMemory>,
    ) -> Result<Selected, SelectError> {
        let runtime = library.runtime;
        self.has_chosen.set(true);
        let accepts = |name: &str| self.accepts(runtime, name);
        let (plans, followed, served) = self.plans(library, file, process, accepts)?;
        let mut selected = Selected {
            followed,
            sites: Vec::new(),
            slow: Vec::new(),
            dear: Vec::new(),
            left_to_shim: Vec::new(),
            impossible: Vec::new(),
            redirections: Redirections::default(),
        };
        for plan in plans {
            self.take(library, &served, plan, &mut selected)?;
        }
        Ok(selected)
    }

    /// Where to probe the functions of the HSA runtime that ring doorbells and end signals, at cheap sites. If a tool
    /// has redirected a function, its implementation is probed.
    ///
    /// # Errors
    ///
    /// When the library cannot be read.
    pub fn doorbells(
        &self,
        library: &Library,
        file: PlannedFile,
        process: Option<&dyn ProcessMemory>,
    ) -> Result<Doorbells, SelectError> {
        let wanted = |name: &str| DOORBELLS.contains(&name) || name == SIGNAL_END;
        let site = |plan: FunctionPlan| {
            let is_function = match &plan.reached {
                ReachedBy::Exported | ReachedBy::Implementation { .. } => true,
                ReachedBy::Redirected { probed, .. } => {
                    matches!(probed, Probed::Implementation { .. })
                }
                ReachedBy::Stub { .. } => false,
            };
            let site = plan.site.filter(|site| is_function && site.class.is_cheap())?;
            let (file_offset, capture) = (site.file_offset, Capture::default());
            Some(Site { symbol: plan.symbol, file_offset, capture })
        };
        let (plans, followed, _) = self.plans(library, &file, process, wanted)?;
        let sites = plans.into_iter().filter_map(site);
        let (ends, stores) = sites.partition(|site| site.symbol == SIGNAL_END);
        Ok(Doorbells { file, followed, stores, ends })
    }

    /// The plans for the functions of a library that are `wanted`, and the functions that go through HIP's tables if
    /// the shim is to record those. `file` is the library's file, and is the one that is read.
    fn plans(
        &self,
        library: &Library,
        file: &PlannedFile,
        process: Option<&dyn ProcessMemory>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(Vec<FunctionPlan>, Followed, HipServed), SelectError> {
        let changed = |cause| SelectError::Changed { path: library.path.clone(), cause };
        if file.id() != library.id {
            return Err(changed(Changed));
        }
        let path = file.path();
        let image = Image::open(&path)?;
        let functions = image.functions(&wanted)?;
        let binary = Binary::open(&path)?;
        let mut served = HipServed::default();
        if self.shim && library.runtime == Runtime::Hip {
            let with_examples = |name: &str| EXAMPLES.contains(&name) || wanted(name);
            served = HipServed::of(&binary, &image.functions(with_examples)?);
        }
        let plans = self.planner.plan_library(&binary, &functions, process);
        let followed = Followed::new(binary, &functions, process);
        file.check().map_err(changed)?;
        Ok((plans, followed, served))
    }

    fn take(
        &mut self,
        library: &Library,
        served: &HipServed,
        plan: FunctionPlan,
        selected: &mut Selected,
    ) -> Result<(), SelectError> {
        let names = || plan.names().map(str::to_owned);
        if !plan.aliases.is_empty() {
            let (aliases, name) = (plan.aliases.join(", "), &plan.symbol);
            tracing::debug!("{aliases}: the same code as {name}, recorded under that name");
        }
        selected.redirections.add(&plan, &library.path);
        let by_shim = self.by_shim(library.runtime, served, plan.names());
        let Some(site) = &plan.site else {
            selected.impossible.extend(names());
            return Ok(());
        };
        // A range needs both of its ends.
        let is_needed = library.runtime == Runtime::Roctx;
        if is_needed && !site.class.is_cheap() {
            selected.dear.extend(names());
        }
        if !site.class.is_cheap() && !self.allow_slow && !is_needed {
            if by_shim == 0 {
                selected.slow.extend(names());
            } else {
                selected.left_to_shim.extend(plan.names().map(|_| by_shim));
                // Its id has a name then.
                self.capture(library.runtime.domain(), &plan.symbol);
            }
            return Ok(());
        }
        let mut capture = self.capture(library.runtime.domain(), &plan.symbol);
        if site.return_probe != ReturnProbe::Allowed {
            capture.entry_only = 1;
        }
        capture.by_shim = by_shim;
        if library.runtime == Runtime::Hip && by_shim != 0 {
            // The shim itself records the calls that it passes on: the probe leaves these out.
            capture.shim_calls = 1;
        }
        selected.sites.push(Site { capture, file_offset: site.file_offset, symbol: plan.symbol });
        Ok(())
    }

    /// The capture for a function. A function that the operation table does not know gets an id.
    fn capture(&mut self, domain: Domain, name: &str) -> Capture {
        if let Some(operation) = api::by_name(name).filter(|o| o.domain == domain) {
            return api::captured(operation);
        }
        let next = FIRST_UNLISTED_ID.saturating_add((SLOT_COUNT + self.unlisted.len()) as u16);
        let runtime = Runtime::ALL.into_iter().find(|runtime| runtime.domain() == domain);
        let of_slot = runtime.and_then(|runtime| unknown_id(runtime, name));
        let unlisted = self.unlisted.entry((domain, name.to_owned()));
        let operation = *unlisted.or_insert(of_slot.unwrap_or(next));
        let shim_calls = api::is_called_by_shim(name).into();
        Capture { domain: domain.0 as u8, operation, shim_calls, ..Capture::default() }
    }

    /// Functions that got ids of their own: domain, id, name.
    pub fn unlisted(&self) -> impl Iterator<Item = (Domain, u16, &str)> {
        self.unlisted.iter().map(|((domain, name), &id)| (*domain, id, name.as_str()))
    }
}

/// The slot of a runtime's function, if the shim can record it.
fn slot_of(runtime: Runtime, name: &str) -> Option<usize> {
    match runtime {
        Runtime::Hsa => hsa_functions::slot_of(name),
        Runtime::Hip => hip_functions::slot_of(name).map(|slot| slots::HIP.start + slot),
        Runtime::Roctx => None,
    }
}

/// The operation id of a function in the runtimes' tables that the operation table does not know.
fn unknown_id(runtime: Runtime, name: &str) -> Option<u16> {
    let slot = slot_of(runtime, name).filter(|_| api::by_name(name).is_none())?;
    Some(FIRST_UNLISTED_ID + slot as u16)
}

/// The record that the shim is to make of a function that the operation table does not know.
fn unknown_call(runtime: Runtime, name: &str) -> Option<Wanted> {
    let domain = runtime.domain().0 as u8;
    unknown_id(runtime, name).map(|operation| Wanted { domain, operation, ..Wanted::default() })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn globs_that_match_nothing_are_told() {
        let line = ["roctap", "--include", "hipMal*", "--include", "hipmalloc", "--exclude"];
        let line = line.into_iter().chain(["hsa_*", "--exclude", "hipMallocHost"]);
        let options = Line::parse_from(line).options;
        let selection = Selection::new(&options, false).unwrap();
        assert!(selection.accepts(Runtime::Hip, "hipMalloc"));
        assert!(!selection.accepts(Runtime::Hip, "hipMallocHost"));
        // Of an API that was not asked for.
        assert!(!selection.accepts(Runtime::Hsa, "hsa_init"));
        assert!(selection.unused_globs().is_empty(), "no library has been looked at");
        selection.has_chosen.set(true);
        let [include, exclude] = &selection.unused_globs()[..] else {
            panic!("{:?}", selection.unused_globs())
        };
        assert!(include.starts_with("--include 'hipmalloc' matches no function"), "{include}");
        assert!(exclude.starts_with("--exclude 'hsa_*' matches no function"), "{exclude}");
    }
}
