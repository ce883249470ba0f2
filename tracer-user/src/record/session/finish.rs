//! The end: probes removed, the rest taken, losses and processes written.

use std::{
    collections::{BTreeMap, HashSet},
    process::ExitCode,
    sync::atomic::Ordering,
    time::Duration,
};

use anyhow::Context as _;
use tracer_common::{
    bpf::{ApiRecord, Loss, flag, phase},
    shim::{self, control},
};
use tracer_records::sink::RecordSink as _;

use super::{Session, outside::UNKNOWN_TABLES};
use crate::{
    clock::{self, Patience},
    privileges,
    probe::{self, Attachment, Method},
    record::{
        Options,
        connection::Connection,
        summary,
        target::{Target, Tier},
    },
    shown::say,
    trace,
};

/// Names that programs without end give themselves.
const BEYOND_LIMITS: &str = "names and descriptions: left out, a trace holds 256 MiB of them, 16 MiB of the descriptions of one process";

/// What the thread that reads the BPF rings had taken, or would have, when it failed.
const UNREAD: &str = "BPF records: unread, since the thread that reads them failed (at least)";

const _: () = assert!(trace::limits::WRITTEN_TABLES == 256 << 20);
const _: () = assert!(trace::limits::WRITTEN_OF_A_PROCESS == 16 << 20);

impl Session {
    /// Detaches, takes the rest, and writes the end of the trace.
    pub fn finish(
        mut self,
        options: &Options,
        command: &summary::CommandState,
    ) -> anyhow::Result<ExitCode> {
        (self.ending, self.watch) = (true, None);
        for target in self.targets.values_mut().filter(|t| t.info.detached_ns == 0 && t.is_alive())
        {
            target.info.detached_ns = clock::now_ns();
        }
        self.joiner.gpu_until(clock::now_ns());
        // The shims first: a call that is recorded without its kernel is less than a kernel whose call
        // is not known.
        self.connections.iter().for_each(Connection::stop);
        self.let_shims_drain()?;
        self.take_open_shim_calls()?;
        self.remove_entries()?;
        self.remove_returns()?;
        self.settle_calls(u64::MAX)?;
        self.look_outside()?;
        self.outside.pids().into_iter().try_for_each(|pid| self.end_outside(pid))?;
        // Dropped probes and written files are all that is left.
        privileges::drop_all();
        self.joiner.finish(&mut self.trace)?;
        self.write_processes();
        let losses = self.write_losses()?;
        let broken = self.reader.failure().into_iter().map(str::to_owned).collect();
        let report = summary::Report {
            options,
            command,
            counts: self.joiner.counts(),
            losses,
            rocm_seen: self.targets.values().any(|t| !t.info.libraries.is_empty())
                && self.joiner.counts().calls > 0,
            failed: self.failed,
            broken,
            silent: self.silent(options),
        };
        let mut notices = report.notices();
        notices.extend(self.selection.unused_globs());
        notices.extend(self.left_to_nobody());
        notices.extend(self.before_the_probes());
        for text in &notices {
            self.trace.notice(text);
        }
        self.trace.finish(clock::offsets())?;
        report.print(&notices);
        drop(self.life);
        hand_over(self.left)?;
        Ok(report.exit_code())
    }

    /// Removes probes; where that takes the kernel long, later and by another process.
    fn remove(&mut self, probes: Vec<Attachment>) {
        match self.programs.method() {
            Method::Single => self.left.extend(probes),
            Method::Multi | Method::Event => Attachment::remove_all(probes),
        }
    }

    fn remove_entries(&mut self) -> anyhow::Result<()> {
        self.programs.set_phase(phase::DETACHING)?;
        let attached = self.targets.values_mut().flat_map(|t| {
            t.attached.values_mut().chain(t.covered.values_mut()).chain(&mut t.doorbells)
        });
        let entries = attached.map(Attachment::take_entries).collect();
        self.remove(entries);
        self.drain_all()
    }

    /// Records what is open, then removes the return probes. A call that returns in between has
    /// both an open and a whole record: the whole one counts.
    fn remove_returns(&mut self) -> anyhow::Result<()> {
        let open = self.programs.open_calls();
        let probes = self.targets.values_mut().flat_map(Target::take_probes).collect();
        self.remove(probes);
        self.programs.set_phase(phase::ENDED)?;
        let mut returned = HashSet::new();
        let records = self.reader.take_all();
        self.take_records(&records, |call| {
            returned.insert((call.header.pid, call.correlation_id));
        })?;
        let returned =
            |call: &ApiRecord| returned.contains(&(call.header.pid, call.correlation_id));
        for call in open.into_iter().filter(|call| !returned(call)) {
            self.joiner.api(&call, &mut self.trace)?;
        }
        Ok(())
    }

    /// Records the calls that are open in the shims' processes. One that returns in between has both
    /// an open and a whole record, as in [`Session::remove_returns`].
    fn take_open_shim_calls(&mut self) -> anyhow::Result<()> {
        let open: Vec<_> = self.connections.iter_mut().flat_map(Connection::open_calls).collect();
        let mut returned = HashSet::new();
        self.take_frames(|pid, id| {
            returned.insert((pid, id));
        })?;
        for (pid, tid, call) in open {
            if !returned.contains(&(pid, call.correlation_id)) {
                self.joiner.shim_call(pid, tid, &call, flag::OPEN_AT_END);
            }
        }
        self.drain_all()
    }

    /// The processes that launched kernels of which none was recorded, although that was asked for.
    fn silent(&self, options: &Options) -> Vec<summary::Silent> {
        if !options.gpu.wants_shim() {
            return Vec::new();
        }
        let silent = self.targets.iter().filter_map(|(&pid, target)| {
            let (launches, dispatches) = self.joiner.launches(pid);
            let reason = self.reason_for_silence(pid, &target.tier);
            (launches > 0 && dispatches == 0).then_some(summary::Silent { pid, launches, reason })
        });
        silent.collect()
    }

    fn reason_for_silence(&self, pid: u32, tier: &Tier) -> String {
        let mut memories =
            self.connections.iter().filter(|c| c.is_last_of(pid)).map(Connection::memory);
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
            let busy = self.connections.iter().any(|connection| {
                let target = connection.pid().and_then(|pid| self.targets.get(&pid));
                target.is_some_and(Target::is_alive) && connection.is_active()
            });
            if !busy || patience.has_ended() {
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
        losses.push((0, "BPF records: not understood".to_owned(), self.reader.malformed()));
        losses.push((0, UNREAD.to_owned(), self.reader.failure().is_some().into()));
        for connection in &self.connections {
            let Some(pid) = connection.process() else { continue };
            let causes = shim::Loss::ALL.into_iter().zip(connection.memory().losses());
            // What the shim saw unfinished is in the trace, and counted by the join.
            for (cause, count) in causes.filter(|&(c, _)| c != shim::Loss::UNFINISHED) {
                losses.push((pid, cause.describe().to_owned(), count));
            }
            let (_, malformed) = connection.dropped();
            losses.push((pid, "shim records: not understood".to_owned(), malformed));
        }
        let counts = self.joiner.counts();
        losses.push((0, "GPU operations: no completion seen".to_owned(), counts.incomplete));
        losses.push((0, "GPU operations: enqueue record lost".to_owned(), counts.orphans));
        for (cause, count) in [
            ("GPU operations: given up, too many of one process without an end", counts.given_up),
            ("HSA calls: their HIP call not looked for, too many of one process", counts.unplaced),
            ("shim records: of another process's calls", counts.foreign),
            ("agents and kernels: beyond 64 MiB of names of one process", counts.left_out),
        ] {
            losses.push((0, cause.to_owned(), count));
        }
        let outside =
            self.outside.losses().map(|(cause, count)| (0, cause.describe().to_owned(), count));
        losses.extend(outside);
        losses.push((0, BEYOND_LIMITS.to_owned(), self.trace.left_out()));
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (pid, cause, count) in losses {
            self.trace.loss(pid, &cause, count);
            *sums.entry(cause).or_default() += count;
        }
        Ok(sums.into_iter().filter(|&(_, count)| count > 0).collect())
    }

    fn write_processes(&mut self) {
        let errors: BTreeMap<u32, u64> = self
            .connections
            .iter()
            .filter(|connection| !connection.memory().is_unsupported())
            .filter_map(|connection| {
                let error = connection.memory().word(control::CLOCK_ERROR_NS);
                Some((connection.process()?, error.load(Ordering::Relaxed)))
            })
            .collect();
        for (&pid, target) in &mut self.targets {
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
            self.trace.process(pid, target.info.clone());
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
