//! What a running process offers for GPU times.

use anyhow::{Context as _, anyhow};
use tracer_common::shim::{
    AMD_EXT_TABLE_BYTES, ATTACH_AGAIN_FUNCTION, Attach, LIFE_WORD, PROTOCOL_WORD, THREAD_NAME,
    VERSION, life, tier,
};

use super::{options::Gpu, target::Tier};
use crate::{
    discover::{self, Library, PlannedFile, Runtime, Subject},
    plan::{Located, Process, ProcessMemory as _},
    shim::dispatch_site_in,
};

/// Functions of the HSA runtime that pass their calls on through its two tables.
const CORE_STUB: &str = "hsa_init";
const AMD_EXT_STUB: &str = "hsa_amd_profiling_set_profiler_enabled";

/// A process that has loaded the HSA runtime.
pub struct Prospect {
    /// What the shim needs to know, but for the tier.
    pub attach: Attach,
    /// A shim that it has loaded already, that works and speaks our protocol. One that does not is left
    /// alone: ours is loaded beside it.
    pub loaded: Option<LoadedShim>,
    /// It is a forked child of a process that used the GPU, and cannot use it itself.
    pub cannot_use_gpu: bool,
    tables_known: bool,
    hip_known: bool,
}

impl Prospect {
    /// Looks at a process, from outside; none when it has not loaded the HSA runtime.
    ///
    /// # Errors
    ///
    /// When it cannot be looked into, or is not as expected.
    pub fn of(process: &Subject) -> anyhow::Result<Option<Self>> {
        process.by_number(Self::of_number)
    }

    fn of_number(pid: u32) -> anyhow::Result<Option<Self>> {
        let libraries = discover::libraries(pid)?;
        let of = |runtime| libraries.iter().find(|library| library.runtime == runtime);
        let Some(hsa) = of(Runtime::Hsa) else { return Ok(None) };
        let process = Process::open(pid)?;
        let runtime = Located::find(&process, &hsa.open_path)?;
        let missing = || anyhow!("{}: its API tables were not found", hsa.path.display());
        let mut attach = Attach {
            version: VERSION,
            core_table: runtime.table_of(CORE_STUB).with_context(missing)?,
            amd_ext_table: runtime.table_of(AMD_EXT_STUB).with_context(missing)?,
            ..Attach::default()
        };
        if attach.core_table == 0 || attach.amd_ext_table == 0 {
            // The library is mapped, and has not been initialised yet.
            return Ok(None);
        }
        // A table begins with its version: major, and its size as minor.
        let version = process.word(attach.amd_ext_table).unwrap_or(0);
        let tables_known = AMD_EXT_TABLE_BYTES.contains(&((version >> 32) as u32));
        let hip_known = match of(Runtime::Hip) {
            Some(hip) => hip_functions(&process, hip, &mut attach)?,
            None => false,
        };
        let shims: Vec<(PlannedFile, Located)> = discover::shims(pid)?
            .into_iter()
            .filter_map(|path| {
                let file = PlannedFile::open(&path).ok()?;
                let located = Located::find(&process, &file.path()).ok()?;
                Some((file, located))
            })
            .collect();
        let cannot_use_gpu = shims.iter().any(|(_, shim)| match shim.word(LIFE_WORD) {
            Some(life::FORKED_OPEN) => true,
            // A child of a raw `clone` does not know that it is one.
            Some(life::WORKING) => !discover::has_thread(pid, THREAD_NAME),
            _ => false,
        });
        let loaded = shims.into_iter().find_map(|(file, shim)| LoadedShim::of(file, &shim));
        Ok(Some(Self { attach, loaded, cannot_use_gpu, tables_known, hip_known }))
    }

    /// The ways to GPU times that may be tried, with what the shim is told for each.
    pub fn tiers(&self, gpu: Gpu) -> Vec<(Tier, u64)> {
        let mut tiers = Vec::new();
        if self.cannot_use_gpu {
            return tiers;
        }
        if self.tables_known && gpu != Gpu::Hip {
            tiers.push((Tier::Tables, tier::TABLES));
        }
        // Only when it is asked for: with it, HIP 5.2.3 hangs in programs that have it call them back on a
        // stream, and such a program cannot always be told (`tracer_hooks::hip`).
        if self.hip_known && gpu == Gpu::Hip {
            tiers.push((Tier::HipActivity, tier::HIP_ACTIVITY));
        }
        tiers
    }

    /// Why there is none.
    pub fn why_none(&self) -> String {
        if self.cannot_use_gpu {
            return "a forked child of a process that used the GPU cannot use it".to_owned();
        }
        let tables = if self.tables_known { "are known" } else { "are not (ROCm 4.5 to 5.5 are)" };
        let hip = if self.hip_known { "is known (--gpu hip)" } else { "is not (that of 5.2 is)" };
        format!("of this release, the HSA tables {tables}, and HIP's activity interface {hip}")
    }
}

/// Notes where HIP's activity functions are; false when one is missing.
fn hip_functions(process: &Process, hip: &Library, attach: &mut Attach) -> anyhow::Result<bool> {
    let hip = Located::find(process, &hip.open_path)?;
    let found = [
        (&mut attach.hip_init_activity, "hipInitActivityCallback"),
        (&mut attach.hip_register_activity, "hipRegisterActivityCallback"),
        (&mut attach.hip_remove_activity, "hipRemoveActivityCallback"),
        (&mut attach.hip_enable_activity, "hipEnableActivityCallback"),
    ]
    .map(|(address, name)| {
        *address = hip.function(name).unwrap_or(0);
        *address != 0
    });
    Ok(found.into_iter().all(|found| found))
}

/// A shim in a process.
pub struct LoadedShim {
    /// Its file.
    pub file: PlannedFile,
    /// Address of its function that attaches again.
    pub attach: u64,
    /// Where its dispatch site is probed: an offset in the file.
    pub site_offset: u64,
}

impl LoadedShim {
    fn of(file: PlannedFile, shim: &Located) -> Option<Self> {
        let ours = shim.word(PROTOCOL_WORD) == Some(VERSION);
        let works = shim.word(LIFE_WORD) == Some(life::WORKING);
        let attach = shim.function(ATTACH_AGAIN_FUNCTION).filter(|_| ours && works)?;
        let site_offset = dispatch_site_in(&file.path()).ok()??;
        Some(Self { file, attach, site_offset })
    }
}
