//! Giving a running process the shim, and with it GPU times.

use std::{os::fd::AsRawFd as _, sync::Arc};

use anyhow::{Context as _, bail};
use tracer_common::shim::attach_status;
use tracer_records::sink::RecordSink as _;

use super::{Session, call_ids};
use crate::{
    clock,
    discover::{self, Ended, SHIM_FILE_NAME, Subject},
    inject::{self, Access, Entry, Handed, Injected, Request},
    probe::Attachment,
    record::{
        Gpu,
        connection::Connection,
        prospect::Prospect,
        target::{Target, Tier},
    },
    shim::Memory,
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
        if self.ending || self.targets.get(&pid).is_none_or(|target| target.tier != Tier::Waiting) {
            return Ok(());
        }
        let tier = match self.inject(pid) {
            Ok(None) => return Ok(()),
            Ok(Some(tier)) => tier,
            Err(_) if !self.has_program(pid) => {
                Tier::Uprobes("it ended before the shim was in it".to_owned())
            }
            Err(error) if self.gpu == Gpu::Auto => {
                self.notice(format!(
                    "process {pid}: seen from outside, with few GPU times: {error:#}"
                ));
                Tier::Uprobes(format!("{error:#}"))
            }
            Err(error) => {
                // It is not tried again.
                if let Some(target) = self.targets.get_mut(&pid) {
                    target.tier = Tier::Uprobes(format!("{error:#}"));
                }
                return Err(error.context(format!("process {pid}: no GPU times")));
            }
        };
        if !matches!(tier, Tier::Uprobes(_) | Tier::Forked) {
            say(&format!("process {pid}: GPU times: {tier}"));
        }
        if let Some(target) = self.targets.get_mut(&pid) {
            target.info.attached_ns = clock::now_ns();
            if !matches!(tier, Tier::Uprobes(_)) {
                self.joiner.gpu_from(pid, target.info.attached_ns);
            }
            target.tier = tier;
            target.info.gpu_tier = target.tier.to_string();
            self.trace.process(pid, target.info.clone());
        }
        Ok(())
    }

    fn has_program(&self, pid: u32) -> bool {
        let target = self.targets.get(&pid);
        target.is_some_and(Target::is_alive) && discover::has_program(pid)
    }

    /// Has the shim patch the HSA runtime's tables; none when the process has not loaded the runtime.
    fn inject(&mut self, pid: u32) -> anyhow::Result<Option<Tier>> {
        let subject = Arc::clone(&self.targets.get(&pid).ok_or(Ended { pid })?.subject);
        let Some(prospect) = Prospect::of(&subject, Access::Write)? else { return Ok(None) };
        if prospect.cannot_use_gpu {
            return Ok(Some(Tier::Forked));
        }
        if let Some(why) = prospect.why_none() {
            bail!("{why}");
        }
        match self.inject_shim(&subject, &prospect)? {
            Answer::Recording => Ok(Some(Tier::Tables)),
            Answer::No(reason) => bail!("{}: {reason}", Tier::Tables),
        }
    }

    fn inject_shim(&mut self, subject: &Subject, prospect: &Prospect) -> anyhow::Result<Answer> {
        let pid = subject.pid();
        let Some(shim) = self.shim.clone() else { bail!("there is no shim") };
        let attach = prospect.attach;
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
        let beat = || self.connections.iter().for_each(Connection::beat);
        let memory = &prospect.memory;
        let request = Request { process: subject, memory, entry, attach, meanwhile: &beat };
        let (programs, relief, layout) = (&self.programs, &self.relief, self.layout);
        let (words, ids) = (self.selection.shim_calls(), call_ids(self.connections.len()));
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
            let memory = Memory::adopt(handed.memory, layout)?;
            memory.want_calls(&words, ids.start);
            let connection = Connection::to(pid, memory, ids.clone(), relief);
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
            attach_status::SECOND_RUNTIME => Answer::No(
                "the process has several HSA runtimes, and the shim is in another one's tables",
            ),
            attach_status::COVERED => Answer::No(
                "the HSA runtime was initialized anew under another tool, which may call the shim already",
            ),
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
            self.connections.push(connection);
            if let Some(target) = self.targets.get_mut(&pid) {
                target.info.stopped_ns = stopped.as_nanos() as u64;
                target.dispatch_site = Some(site);
            }
        }
        Ok(answer)
    }
}
