//! Finds in a running process what GPU times take: the HSA runtime's dispatch tables, and a shim if one is loaded.

use anyhow::{Context as _, anyhow, ensure};
use tracer_common::{
    hsa_layout::{self, Mismatch, TableVersion},
    shim::{
        ATTACH_AGAIN_FUNCTION, Attach, LIFE_WORD, PROCESS_WORD, PROTOCOL_WORD, VERSION, shim_status,
    },
};

use crate::{
    discover::{self, PlannedFile, Runtime, Subject},
    foreign::{Access, TargetMemory},
    plan::{LiveProcess, Located, ProcessMemory as _},
    shim::dispatch_site_in,
};

/// Functions of the HSA runtime that pass their calls on through its two tables.
const CORE_STUB: &str = "hsa_shut_down";
const AMD_EXT_STUB: &str = "hsa_amd_profiling_set_profiler_enabled";
const LATE: &str = "reading its API tables and its shim takes too long";

/// A process that has loaded the HSA runtime.
pub struct Prospect {
    /// The memory of the process, in which the rest was found.
    pub memory: TargetMemory,
    /// The arguments with which the shim attaches.
    pub attach: Attach,
    /// A shim that the process has loaded already, that works and speaks our protocol. Any other shim is left alone:
    /// ours is loaded beside it.
    pub loaded: Option<LoadedShim>,
    /// It is a forked child of a process that used the GPU, and cannot use it itself.
    pub cannot_use_gpu: bool,
    /// How the process's tables differ from those that the shim knows, if they do.
    mismatch: Option<Mismatch>,
}

impl Prospect {
    /// Looks into a process from outside; none when it has not loaded the HSA runtime.
    ///
    /// # Errors
    ///
    /// When the process cannot be looked into, or is not as expected.
    pub fn of(process: &Subject, access: Access) -> anyhow::Result<Option<Self>> {
        process.by_number(|pid| Self::of_number(pid, access))
    }

    fn of_number(pid: u32, access: Access) -> anyhow::Result<Option<Self>> {
        let libraries = discover::libraries(pid)?;
        let of = |runtime| libraries.iter().find(|library| library.runtime == runtime);
        let Some(hsa) = of(Runtime::Hsa) else { return Ok(None) };
        let memory = TargetMemory::open(pid, access)
            .context("opening its memory (to write to another user's needs CAP_DAC_OVERRIDE)")?;
        let process = LiveProcess::with(memory, pid)?;
        let runtime = Located::find(&process, &hsa.open_path)?;
        // A table that was not read looks like one that does not exist.
        let missing = || match process.was_cut_short() {
            true => anyhow!(LATE),
            false => anyhow!("{}: its API tables were not found", hsa.path.display()),
        };
        let attach = Attach {
            version: VERSION,
            core_table: runtime.table_of(CORE_STUB).with_context(missing)?,
            amd_ext_table: runtime.table_of(AMD_EXT_STUB).with_context(missing)?,
            ..Attach::default()
        };
        if attach.core_table == 0 || attach.amd_ext_table == 0 {
            // The library is mapped, and has not been initialised yet.
            return Ok(None);
        }
        let mismatch = mismatch(&process, &runtime, &attach)?;
        let shims: Vec<(PlannedFile, Located)> = discover::shims(pid)?
            .into_iter()
            .filter_map(|file| {
                let located = Located::find(&process, &file.path()).ok()?;
                Some((file, located))
            })
            .collect();
        let cannot_use_gpu = shims.iter().any(|(_, shim)| match shim.word(LIFE_WORD) {
            Some(shim_status::FORKED_OPEN) => true,
            // A child of a raw `clone` does not know that it is one.
            Some(shim_status::WORKING) => {
                let ids = shim.word(PROCESS_WORD).zip(discover::id_inside(pid));
                ids.is_some_and(|(of, own)| of != u64::from(own))
            }
            _ => false,
        });
        let loaded = shims.into_iter().find_map(|(file, shim)| LoadedShim::of(file, &shim));
        ensure!(!process.was_cut_short(), LATE);
        let memory = process.into_memory();
        Ok(Some(Self { memory, attach, loaded, cannot_use_gpu, mismatch }))
    }

    /// Why the shim cannot record GPU times; none when it can.
    pub fn why_none(&self) -> Option<String> {
        if self.cannot_use_gpu {
            Some("a forked child of a process that used the GPU cannot use it".into())
        } else {
            self.mismatch.map(|mismatch| mismatch.to_string())
        }
    }
}

/// Why the shim will not use the tables; none when it will.
///
/// # Errors
///
/// When they cannot be read.
fn mismatch(
    process: &LiveProcess,
    runtime: &Located<'_>,
    &Attach { core_table, amd_ext_table, .. }: &Attach,
) -> anyhow::Result<Option<Mismatch>> {
    let version = |table| {
        process.word(table).map(TableVersion::of_word).context("its API tables cannot be read")
    };
    let offset_in = |table: u64| move |name| Some(runtime.entry_of(name)?.wrapping_sub(table));
    let core = hsa_layout::core(version(core_table)?, offset_in(core_table));
    let amd_ext = hsa_layout::amd_ext(version(amd_ext_table)?, offset_in(amd_ext_table));
    Ok(core.err().or(amd_ext.err()))
}

/// A shim in a process.
pub struct LoadedShim {
    /// Its file.
    pub file: PlannedFile,
    /// Address of its function that attaches again.
    pub attach: u64,
    /// The place of the probe at its dispatch site: an offset in the file.
    pub site_offset: u64,
}

impl LoadedShim {
    fn of(file: PlannedFile, shim: &Located) -> Option<Self> {
        let ours = shim.word(PROTOCOL_WORD) == Some(VERSION);
        let works = shim.word(LIFE_WORD) == Some(shim_status::WORKING);
        let attach = shim.function(ATTACH_AGAIN_FUNCTION).filter(|_| ours && works)?;
        let site_offset = dispatch_site_in(&file.path()).ok()??;
        Some(Self { file, attach, site_offset })
    }
}
