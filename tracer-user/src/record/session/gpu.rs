//! Giving a running process the shim, and with it GPU times.

use std::{os::fd::AsRawFd as _, sync::Arc};

use anyhow::{Context as _, bail};
use tracer_common::shim::{Attach, attach_status};

use super::Session;
use crate::{
    clock,
    discover::{self, Ended, SHIM_FILE_NAME, Subject},
    inject::{self, Entry, Handed, Injected, Request},
    probe::Attachment,
    record::{connection::Connection, options::Gpu, prospect::Prospect, target::Tier},
    shown::say,
};

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
        if self.ending || self.processes.get(pid).is_none_or(|target| target.tier != Tier::Waiting)
        {
            return Ok(());
        }
        let tier = match self.inject(pid) {
            Ok(None) => return Ok(()),
            Ok(Some(tier)) => tier,
            Err(_) if !self.has_program(pid) => {
                Tier::Uprobes("it ended before the shim was in it".to_owned())
            }
            Err(error) if self.shims.gpu() == Gpu::Auto => {
                self.recorder.notice(&format!(
                    "process {pid}: seen from outside, with few GPU times: {error:#}"
                ));
                Tier::Uprobes(format!("{error:#}"))
            }
            Err(error) => {
                // It is not tried again.
                if let Some(target) = self.processes.get_mut(pid) {
                    target.tier = Tier::Uprobes(format!("{error:#}"));
                }
                return Err(error.context(format!("process {pid}: no GPU times")));
            }
        };
        if !matches!(tier, Tier::Uprobes(_) | Tier::Forked) {
            say(&format!("process {pid}: GPU times: {tier}"));
        }
        if let Some(target) = self.processes.get_mut(pid) {
            target.info.attached_ns = clock::now_ns();
            if !matches!(tier, Tier::Uprobes(_)) {
                self.recorder.gpu_from(pid, target.info.attached_ns);
            }
            target.tier = tier;
            target.info.gpu_tier = target.tier.to_string();
            self.recorder.process(pid, target.info.clone());
        }
        Ok(())
    }

    fn has_program(&self, pid: u32) -> bool {
        self.processes.is_alive(pid) && discover::has_program(pid)
    }

    /// Tries the tiers in their order, until the shim records; none when the process has not loaded the
    /// HSA runtime.
    fn inject(&mut self, pid: u32) -> anyhow::Result<Option<Tier>> {
        let mut reasons = Vec::new();
        let subject = Arc::clone(&self.processes.get(pid).ok_or(Ended { pid })?.subject);
        loop {
            // Anew each time: the first try may have loaded the shim.
            let Some(prospect) = Prospect::of(&subject)? else { return Ok(None) };
            if prospect.cannot_use_gpu {
                return Ok(Some(Tier::Forked));
            }
            let tiers = prospect.tiers(self.shims.gpu());
            let Some((tier, number)) = tiers.into_iter().nth(reasons.len()) else {
                let why = if reasons.is_empty() { prospect.why_none() } else { reasons.join("; ") };
                bail!("{why}");
            };
            match self.inject_tier(&subject, &prospect, number)? {
                Answer::Recording => return Ok(Some(tier)),
                Answer::No(reason) => reasons.push(format!("{tier}: {reason}")),
            }
        }
    }

    fn inject_tier(
        &mut self,
        subject: &Subject,
        prospect: &Prospect,
        tier: u64,
    ) -> anyhow::Result<Answer> {
        let pid = subject.pid();
        let Some(shim) = self.shims.shim().cloned() else { bail!("there is no shim") };
        let attach = Attach { tier, ..prospect.attach };
        let loaded = prospect.loaded.as_ref();
        let library = match loaded {
            Some(_) => Vec::new(),
            None => std::fs::read(&shim.path)
                .with_context(|| format!("{}: cannot be read", shim.path.display()))?,
        };
        let entry = match loaded {
            Some(loaded) => Entry::Loaded { address: loaded.attach },
            None => Entry::Library { bytes: &library, name: SHIM_FILE_NAME },
        };
        let beat = || self.shims.beat();
        let request = Request { process: subject, entry, attach, meanwhile: &beat };
        let (programs, shims) = (self.probes.programs(), &self.shims);
        let prepare = |handed: Handed| -> anyhow::Result<(Connection, Attachment)> {
            let site = subject.by_number(|pid| -> anyhow::Result<_> {
                let (path, offset) = match (loaded, &handed.library) {
                    (Some(loaded), _) => (loaded.file.path(), loaded.site_offset),
                    // Our own descriptor: under its own number the process may have another file by now.
                    (None, Some(library)) => {
                        (format!("/proc/self/fd/{}", library.as_raw_fd()).into(), shim.site_offset)
                    }
                    (None, None) => bail!("no library was handed over"),
                };
                let site = programs.attach_dispatch_site(pid, &path, offset)?;
                loaded.map_or(Ok(()), |loaded| loaded.file.check())?;
                Ok(site)
            })?;
            Ok((shims.adopt(pid, handed.memory)?, site))
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
            attach_status::SECOND_RUNTIME => Answer::No(
                "the process has several HSA runtimes, and the shim is in another one's tables",
            ),
            attach_status::COVERED => Answer::No(
                "the HSA runtime was initialized anew under another tool, which may call the shim already",
            ),
            attach_status::SLOT_TAKEN => Answer::No("another tool has HIP's one callback slot"),
            attach_status::BUSY => bail!("another roctap records this process"),
            attach_status::MEMORY => bail!(
                "the shim could not map the shared memory: a limit of the process is in the way \
                 (RLIMIT_AS, or RLIMIT_MEMLOCK where it has called mlockall(MCL_FUTURE); see \
                 /proc/PID/limits)"
            ),
            attach_status::THREAD => bail!("the shim could not start its thread"),
            attach_status::UNUSABLE => bail!("its shim is broken"),
            other => bail!("the shim answered {other}"),
        };
        if matches!(answer, Answer::Recording) {
            self.shims.add(connection);
            if let Some(target) = self.processes.get_mut(pid) {
                target.info.stopped_ns = stopped.as_nanos() as u64;
                target.dispatch_site = Some(site);
            }
        }
        Ok(answer)
    }
}
