//! The end: probes removed, the rest taken, losses and processes written.

use std::{
    collections::{BTreeMap, HashSet},
    process::{ExitCode, ExitStatus},
    sync::atomic::Ordering,
    time::Duration,
};

use anyhow::Context as _;
use tracer_common::{
    bpf::{Loss, flag},
    shim::{self, control},
};

use super::{Session, outside::UNKNOWN_TABLES};
use crate::{
    clock::{self, Patience},
    privileges,
    probe::{self, Attachment},
    record::{connection::Connection, options::Options, summary, target::Tier},
    shown::say,
    trace,
};

/// Names that programs without end give themselves.
const BEYOND_LIMITS: &str = "names and descriptions: left out, a trace holds 256 MiB of them, 16 MiB of the descriptions of one process";

const _: () = assert!(trace::limits::WRITTEN_TABLES == 256 << 20);
const _: () = assert!(trace::limits::WRITTEN_OF_A_PROCESS == 16 << 20);

impl Session {
    /// Detaches, takes the rest, and writes the end of the trace.
    pub fn finish(
        mut self,
        options: &Options,
        status: Option<ExitStatus>,
    ) -> anyhow::Result<ExitCode> {
        (self.ending, self.watch) = (true, None);
        let living = self.processes.iter_mut().map(|(_, target)| target);
        for target in living.filter(|t| t.info.detached_ns == 0 && t.is_alive()) {
            target.info.detached_ns = clock::now_ns();
        }
        self.recorder.gpu_until(clock::now_ns());
        // The shims first: a call that is recorded without its kernel is less than a kernel whose call
        // is not known.
        self.shims.iter().for_each(Connection::stop);
        self.let_shims_drain()?;
        self.take_open_shim_calls()?;
        self.remove_entries()?;
        self.remove_returns()?;
        self.recorder.settle_calls(u64::MAX)?;
        self.look_outside()?;
        self.outside.pids().into_iter().try_for_each(|pid| self.end_outside(pid))?;
        // Dropped probes and written files are all that is left.
        privileges::drop_all();
        self.recorder.join_the_rest()?;
        self.write_processes();
        let losses = self.write_losses()?;
        let report = summary::Report {
            options,
            status,
            counts: self.recorder.counts(),
            losses,
            rocm_seen: self.processes.iter().any(|(_, t)| !t.info.libraries.is_empty())
                && self.recorder.counts().calls > 0,
            failed: self.failed,
            silent: self.silent(options),
        };
        let mut notices = report.notices();
        notices.extend(self.left_to_nobody());
        notices.extend(self.following.notices(|pid| self.recorder.early_launches(pid)));
        for text in &notices {
            self.recorder.note(text);
        }
        self.recorder.finish()?;
        report.print(&notices);
        hand_over(self.probes.close())?;
        Ok(report.exit_code())
    }

    fn remove_entries(&mut self) -> anyhow::Result<()> {
        self.probes.begin_to_detach()?;
        let attached = self.processes.iter_mut().flat_map(|(_, t)| {
            t.attached.values_mut().chain(t.covered.values_mut()).chain(&mut t.doorbells)
        });
        let entries = attached.map(Attachment::take_entries).collect();
        self.probes.remove(entries);
        self.drain_all()
    }

    /// Records what is open, then removes the return probes. A call that returns in between has
    /// both an open and a whole record: the whole one counts.
    fn remove_returns(&mut self) -> anyhow::Result<()> {
        let open = self.probes.open_calls();
        let probes = self.processes.iter_mut().flat_map(|(_, t)| t.take_probes()).collect();
        self.probes.remove(probes);
        self.probes.end()?;
        let mut returned = HashSet::new();
        let records = self.probes.take_all()?;
        self.take_records(&records, |call| {
            returned.insert(call.correlation_id);
        })?;
        for call in open.into_iter().filter(|call| !returned.contains(&call.correlation_id)) {
            self.recorder.api(&call)?;
        }
        Ok(())
    }

    /// Records the calls that are open in the shims' processes. One that returns in between has both
    /// an open and a whole record, as in [`Session::remove_returns`].
    fn take_open_shim_calls(&mut self) -> anyhow::Result<()> {
        let open: Vec<_> = self.shims.iter_mut().flat_map(Connection::open_calls).collect();
        let mut returned = HashSet::new();
        self.shims.drain(&mut self.recorder, |id| {
            returned.insert(id);
        })?;
        for (pid, tid, call) in open {
            if !returned.contains(&call.correlation_id) {
                self.recorder.shim_call(pid, tid, &call, flag::OPEN_AT_END);
            }
        }
        self.drain_all()
    }

    /// The processes that launched kernels of which none was recorded, although that was asked for.
    fn silent(&self, options: &Options) -> Vec<summary::Silent> {
        if !options.gpu.wants_shim() {
            return Vec::new();
        }
        let silent = self.processes.iter().filter_map(|(pid, target)| {
            let (launches, dispatches) = self.recorder.launches(pid);
            let reason = self.reason_for_silence(pid, &target.tier);
            (launches > 0 && dispatches == 0).then_some(summary::Silent { pid, launches, reason })
        });
        silent.collect()
    }

    fn reason_for_silence(&self, pid: u32, tier: &Tier) -> String {
        let mut memories = self.shims.iter().filter(|c| c.is_last_of(pid)).map(Connection::memory);
        match (tier, memories.next()) {
            (Tier::Uprobes(why), _) => why.clone(),
            (_, Some(memory)) if memory.is_unsupported() => UNKNOWN_TABLES.to_owned(),
            (_, Some(_)) => "the shim recorded none of them".to_owned(),
            (Tier::AtStart, None) => {
                "the shim was not loaded: the HSA runtime ignored HSA_TOOLS_LIB, or the process could not open roctap's shared memory"
                    .to_owned()
            }
            (tier, None) => tier.to_string(),
        }
    }

    /// Waits, for a bounded time, until living shims have written what was in flight.
    fn let_shims_drain(&mut self) -> anyhow::Result<()> {
        let mut patience = Patience::of(Duration::from_secs(1));
        loop {
            self.drain(Duration::from_millis(1))?;
            let busy = self.shims.iter().any(|connection| {
                connection.pid().is_some_and(|pid| self.processes.is_alive(pid))
                    && connection.is_active()
            });
            if !busy || patience.has_ended() {
                return self.drain_all();
            }
        }
    }

    /// Writes all loss counters, zero ones too, and returns those above zero.
    fn write_losses(&mut self) -> anyhow::Result<Vec<(String, u64)>> {
        let mut losses: Vec<(u32, String, u64)> = Vec::new();
        for (cause, count) in Loss::ALL.into_iter().zip(self.probes.losses()?) {
            losses.push((0, cause.describe().to_owned(), count));
        }
        for connection in self.shims.iter() {
            let Some(pid) = connection.process() else { continue };
            let causes = shim::Loss::ALL.into_iter().zip(connection.memory().losses());
            // What the shim saw unfinished is in the trace, and counted by the join.
            for (cause, count) in causes.filter(|&(c, _)| c != shim::Loss::UNFINISHED) {
                losses.push((pid, cause.describe().to_owned(), count));
            }
            let (_, malformed) = connection.dropped();
            losses.push((pid, "shim records: not understood".to_owned(), malformed));
        }
        let counts = self.recorder.counts();
        losses.push((0, "GPU operations: no completion seen".to_owned(), counts.incomplete));
        losses.push((0, "GPU operations: enqueue record lost".to_owned(), counts.orphans));
        let outside =
            self.outside.losses().map(|(cause, count)| (0, cause.describe().to_owned(), count));
        losses.extend(outside);
        losses.push((0, BEYOND_LIMITS.to_owned(), self.recorder.left_out()));
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (pid, cause, count) in losses {
            self.recorder.loss(pid, &cause, count);
            *sums.entry(cause).or_default() += count;
        }
        Ok(sums.into_iter().filter(|&(_, count)| count > 0).collect())
    }

    fn write_processes(&mut self) {
        let errors: BTreeMap<u32, u64> = self
            .shims
            .iter()
            .filter(|connection| !connection.memory().is_unsupported())
            .filter_map(|connection| {
                let error = connection.memory().word(control::CLOCK_ERROR_NS);
                Some((connection.process()?, error.load(Ordering::Relaxed)))
            })
            .collect();
        for (pid, target) in self.processes.iter_mut() {
            let error = errors.get(&pid);
            target.info.gpu_tier = match (&target.tier, error) {
                (Tier::Off, _) => String::new(),
                (Tier::AtStart, None) => "none: the shim was not loaded".to_owned(),
                (tier, _) => tier.to_string(),
            };
            if let Some(&error) = error {
                target.info.clock_error_ns = error;
            }
            if target.info.detached_ns == 0 {
                target.info.detached_ns = clock::now_ns();
            }
            self.recorder.process(pid, target.info.clone());
        }
    }
}

/// Has another process remove the probes that were not, and says so.
fn hand_over(left: Vec<Attachment>) -> anyhow::Result<()> {
    let count: usize = left.iter().map(Attachment::links).sum();
    if count > 0 {
        let helper = probe::hand_over(left).context("starting the process that removes probes")?;
        say(&format!(
            "{count} probes are being removed one by one, by process {helper}: this kernel takes its time for each, and calls of the probed functions stay slow until then"
        ));
    }
    Ok(())
}
