//! Giving a running process the shim, and with it GPU times.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use tracer_common::shim::{
    ATTACH_FUNCTION, Attach, DISPATCH_SITE, PROTOCOL_WORD, VERSION, attach_status, tier,
};

use super::Session;
use crate::{
    clock,
    discover::{self, Library, Runtime, SHIM_FILE_NAME},
    inject::{self, Entry, Handed, Injected, Request},
    plan::{Located, Process},
    probe::Attachment,
    record::{Gpu, connection::Connection, target::Tier},
    shim::Memory,
};

/// Functions of the HSA runtime that pass their calls on through its two tables.
const CORE_STUB: &str = "hsa_init";
const AMD_EXT_STUB: &str = "hsa_amd_profiling_set_profiler_enabled";

/// How the shim answered.
enum Answer {
    Recording,
    /// It cannot do it this way; another may be possible.
    No(&'static str),
}

impl Session {
    /// Puts the shim into process `pid` if that waits for it, and has loaded the HSA runtime.
    ///
    /// A process for which that is impossible is traced from outside, unless it was insisted on.
    pub(super) fn give_shim(&mut self, pid: u32) -> anyhow::Result<()> {
        if self.targets.get(&pid).is_none_or(|target| target.tier != Tier::Waiting) {
            return Ok(());
        }
        let libraries = discover::libraries(pid)?;
        let Some(hsa) = libraries.iter().find(|l| l.runtime == Runtime::Hsa) else {
            return Ok(());
        };
        let hip = libraries.iter().find(|l| l.runtime == Runtime::Hip);
        let tier = match self.inject(pid, hsa, hip) {
            Ok(tier) => tier,
            Err(error) if self.gpu == Gpu::Auto => {
                self.notice(format!("process {pid}: API calls only, no GPU times: {error:#}"));
                Tier::Uprobes(format!("{error:#}"))
            }
            Err(error) => return Err(error.context(format!("process {pid}: no GPU times"))),
        };
        if let Some(target) = self.targets.get_mut(&pid) {
            target.info.attached_ns = clock::now_ns();
            target.tier = tier;
            target.info.gpu_tier = target.tier.to_string();
            self.trace.process(pid, target.info.clone());
        }
        Ok(())
    }

    /// Tries the tiers in their order, until the shim records.
    fn inject(&mut self, pid: u32, hsa: &Library, hip: Option<&Library>) -> anyhow::Result<Tier> {
        let process = Process::open(pid)?;
        let mut attach = Attach { version: VERSION, ..Attach::default() };
        let runtime = Located::find(&process, &hsa.open_path)?;
        let missing = || anyhow!("{}: its API tables were not found", hsa.path.display());
        attach.core_table = runtime.table_of(CORE_STUB).with_context(missing)?;
        attach.amd_ext_table = runtime.table_of(AMD_EXT_STUB).with_context(missing)?;
        let with_hip = match hip {
            Some(hip) => hip_functions(&Located::find(&process, &hip.open_path)?, &mut attach),
            None => false,
        };
        let mut reasons = Vec::new();
        for (tier, wanted) in [
            (Tier::Tables, self.gpu != Gpu::Hip),
            (Tier::HipActivity, self.gpu != Gpu::Tables && with_hip),
        ] {
            if !wanted {
                continue;
            }
            attach.tier = if tier == Tier::Tables { tier::TABLES } else { tier::HIP_ACTIVITY };
            match self.inject_tier(pid, attach)? {
                Answer::Recording => return Ok(tier),
                Answer::No(reason) => reasons.push(format!("{tier}: {reason}")),
            }
        }
        if reasons.is_empty() {
            bail!(
                "it has no HIP activity interface that is known (libamdhip64 of ROCm 5.2 or earlier)"
            );
        }
        bail!("{}", reasons.join("; "))
    }

    fn inject_tier(&mut self, pid: u32, attach: Attach) -> anyhow::Result<Answer> {
        let Some(shim) = self.shim.clone() else { bail!("there is no shim") };
        let loaded = LoadedShim::find(pid)?;
        let library = match &loaded {
            Some(_) => Vec::new(),
            None => std::fs::read(&shim.path)
                .with_context(|| format!("{}: cannot be read", shim.path.display()))?,
        };
        let entry = match &loaded {
            Some(loaded) => Entry::Loaded { address: loaded.attach },
            None => Entry::Library { bytes: &library, name: SHIM_FILE_NAME },
        };
        let request = Request { pid, entry, attach };
        let (programs, layout) = (&self.programs, self.layout);
        let prepare = |handed: Handed| -> anyhow::Result<(Connection, Attachment)> {
            let site = match (&loaded, &handed.library) {
                (Some(loaded), _) => {
                    programs.attach_dispatch_site(pid, &loaded.path, loaded.site_offset)?
                }
                (None, Some(path)) => programs.attach_dispatch_site(pid, path, shim.site_offset)?,
                (None, None) => bail!("no library was handed over"),
            };
            let connection = Connection::to(pid, Memory::adopt(handed.memory, layout)?);
            // The shim looks whether it is read before it records.
            connection.beat();
            Ok((connection, site))
        };
        let Injected { prepared: (connection, site), status, stopped, took, .. } =
            inject::inject(&request, prepare)?;
        tracing::info!(
            "process {pid}: the shim answered {status} after {:.1} ms; a thread was stopped for {} µs",
            took.as_secs_f64() * 1e3,
            stopped.as_micros()
        );
        let answer = match status {
            attach_status::RECORDING => Answer::Recording,
            attach_status::UNSUPPORTED => {
                Answer::No("the shim does not know this release's tables or functions")
            }
            attach_status::SLOT_TAKEN => Answer::No("another tool has HIP's one callback slot"),
            attach_status::BUSY => bail!("another roctap records this process"),
            attach_status::MEMORY => bail!("the shim could not map the shared memory"),
            attach_status::THREAD => bail!("the shim could not start its thread"),
            attach_status::UNUSABLE => bail!("the process is a forked child of one with a shim"),
            other => bail!("the shim answered {other}"),
        };
        if matches!(answer, Answer::Recording) {
            self.connections.push(connection);
            if let Some(target) = self.targets.get_mut(&pid) {
                target.dispatch_site = Some(site);
            }
        }
        Ok(answer)
    }
}

/// Notes where HIP's activity functions are; false when one is missing.
fn hip_functions(hip: &Located<'_>, attach: &mut Attach) -> bool {
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
    found.into_iter().all(|found| found)
}

/// A shim that a process has loaded already, and that speaks our protocol.
struct LoadedShim {
    path: PathBuf,
    attach: u64,
    site_offset: u64,
}

impl LoadedShim {
    /// One of another protocol is left alone: ours is loaded beside it.
    fn find(pid: u32) -> anyhow::Result<Option<Self>> {
        let process = Process::open(pid)?;
        for path in discover::shims(pid)? {
            let Ok(located) = Located::find(&process, &path) else { continue };
            if located.word(PROTOCOL_WORD) == Some(VERSION)
                && let Some(attach) = located.function(ATTACH_FUNCTION)
                && let Some(site_offset) = located.file_offset(DISPATCH_SITE)
            {
                return Ok(Some(Self { path, attach, site_offset }));
            }
        }
        Ok(None)
    }
}
