//! The end: probes removed, the rest taken, losses and processes written.

use std::{
    collections::{BTreeMap, HashSet},
    process::{ExitCode, ExitStatus},
    time::{Duration, Instant},
};

use tracer_common::{
    bpf::{ApiRecord, Header, Loss, phase},
    shim::{self, control},
};

use super::Session;
use crate::{
    clock, discover,
    probe::Attachment,
    record::{Options, summary, target::Target},
    shim::Memory,
};

impl Session {
    /// Detaches, takes the rest, and writes the end of the trace.
    pub fn finish(
        mut self,
        options: &Options,
        status: Option<ExitStatus>,
    ) -> anyhow::Result<ExitCode> {
        for shim in &self.shims {
            let word = shim.memory().word(control::RECORD);
            word.store(0, std::sync::atomic::Ordering::Release);
        }
        self.remove_entries()?;
        self.let_shims_drain()?;
        self.remove_returns()?;
        self.joiner.finish(&mut self.trace)?;
        let losses = self.write_losses()?;
        let report = summary::Report {
            options,
            status,
            counts: self.joiner.counts(),
            losses,
            rocm_seen: self.targets.values().any(|t| !t.info.libraries.is_empty())
                && self.joiner.counts().calls > 0,
            shim: self.shim_presence(),
        };
        let notices = report.notices();
        for text in &notices {
            self.trace.notice(text);
        }
        self.write_processes();
        self.trace.finish(clock::offsets())?;
        report.print(&notices);
        Ok(report.exit_code())
    }

    fn remove_entries(&mut self) -> anyhow::Result<()> {
        self.programs.set_phase(phase::DETACHING)?;
        let attached = self.targets.values_mut().flat_map(|target| target.attached.values_mut());
        Attachment::remove_all(attached.map(Attachment::take_entries).collect::<Vec<_>>());
        self.drain_all()
    }

    /// Records what is open, then removes the return probes. A call that returns in between has
    /// both an open and a whole record: the whole one counts.
    fn remove_returns(&mut self) -> anyhow::Result<()> {
        let open = self.programs.open_calls();
        let targets = self.targets.values_mut();
        let attached =
            targets.flat_map(|target| std::mem::take(&mut target.attached).into_values());
        Attachment::remove_all(attached.collect::<Vec<_>>());
        let mut returned = HashSet::new();
        let records = self.reader.take_all()?;
        self.take_records(&records, |call| {
            returned.insert(call.correlation_id);
        })?;
        for call in open.into_iter().filter(|call| !returned.contains(&call.correlation_id)) {
            let tid = call.header.tid;
            let known = self.threads.get(&tid).copied();
            let pid = known.or_else(|| discover::process_of_thread(tid)).unwrap_or(0);
            let header = Header { pid, ..call.header };
            self.joiner.api(&ApiRecord { header, ..call }, &mut self.trace)?;
        }
        Ok(())
    }

    fn shim_presence(&self) -> summary::Shim {
        let loaded: Vec<&Memory> =
            self.shims.iter().map(|s| s.memory()).filter(|m| m.owner().is_some()).collect();
        if loaded.is_empty() {
            summary::Shim::NotLoaded
        } else if loaded.iter().all(|m| m.is_unsupported()) {
            summary::Shim::Unsupported
        } else {
            summary::Shim::Loaded
        }
    }

    /// Waits, for a bounded time, until living shims have written what was in flight.
    fn let_shims_drain(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_millis(500);
        loop {
            self.drain(Duration::from_millis(1))?;
            let busy = self.shims.iter().any(|shim| {
                let state = shim.memory().word(control::STATE);
                let living = shim
                    .memory()
                    .owner()
                    .and_then(|pid| self.targets.get(&pid))
                    .is_some_and(Target::is_alive);
                living && state.load(std::sync::atomic::Ordering::Acquire) == shim::state::ACTIVE
            });
            if !busy || Instant::now() > deadline {
                return self.drain_all();
            }
        }
    }

    /// Writes all loss counters, zero ones too, and returns those above zero.
    fn write_losses(&mut self) -> anyhow::Result<Vec<(String, u64)>> {
        let mut losses: Vec<(u32, String, u64)> = Vec::new();
        for (cause, count) in Loss::ALL.into_iter().zip(self.programs.losses()?) {
            losses.push((0, cause.describe().to_owned(), count));
        }
        for reader in &self.shims {
            let Some(pid) = reader.memory().owner() else { continue };
            let causes = shim::Loss::ALL.into_iter().zip(reader.memory().losses());
            // What the shim saw unfinished is in the trace, and counted by the join.
            for (cause, count) in causes.filter(|&(c, _)| c != shim::Loss::UNFINISHED) {
                losses.push((pid, cause.describe().to_owned(), count));
            }
            let (_, malformed) = reader.dropped();
            losses.push((pid, "shim records: not understood".to_owned(), malformed));
        }
        let counts = self.joiner.counts();
        losses.push((0, "GPU operations: no completion seen".to_owned(), counts.incomplete));
        losses.push((0, "GPU operations: enqueue record lost".to_owned(), counts.orphans));
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (pid, cause, count) in losses {
            self.trace.loss(pid, &cause, count);
            *sums.entry(cause).or_default() += count;
        }
        Ok(sums.into_iter().filter(|&(_, count)| count > 0).collect())
    }

    fn write_processes(&mut self) {
        let shims: BTreeMap<u32, u64> = self
            .shims
            .iter()
            .map(crate::shim::Reader::memory)
            .filter(|memory| !memory.is_unsupported())
            .filter_map(|memory| {
                let error = memory.word(control::CLOCK_ERROR_NS);
                let error = error.load(std::sync::atomic::Ordering::Relaxed);
                memory.owner().map(|pid| (pid, error))
            })
            .collect();
        for (&pid, target) in &mut self.targets {
            if let Some(&error) = shims.get(&pid) {
                target.info.gpu_tier = "tools interface at start (HSA_TOOLS_LIB)".to_owned();
                target.info.clock_error_ns = error;
            }
            if target.info.detached_ns == 0 {
                target.info.detached_ns = clock::now_ns();
            }
            self.trace.process(pid, target.info.clone());
        }
    }
}
