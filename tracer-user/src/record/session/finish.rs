//! The end: removes the probes, takes the remaining records, and writes losses and processes.

use std::{collections::HashSet, process::ExitCode, time::Duration};

use tracer_common::bpf::flag;
use tracer_common::loss::BpfLoss;

use super::Session;
use crate::{
    clock::{self, Patience},
    privileges,
    probe::Attachment,
    record::{connection::Connection, options::Options, outcome, stop::Stop},
    trace,
};

/// The loss of names and descriptions beyond the limits: a program can make any number of them.
const BEYOND_LIMITS: &str = "names and descriptions: left out, a trace holds 256 MiB of them, of one process no more than half of what others leave, and 16 MiB of descriptions";

/// The records that the thread that reads the BPF rings had taken, or had still to take, when it failed.
const UNREAD: &str = "BPF records: unread, since the thread that reads them failed (at least)";

const _: () = assert!(trace::limits::WRITTEN_TABLES == 256 << 20);
const _: () = assert!(trace::limits::WRITTEN_OF_A_PROCESS == 16 << 20);

impl Session {
    /// Detaches, takes the remaining records, and writes the end of the trace.
    pub fn finish(
        mut self,
        options: &Options,
        command: &outcome::CommandState,
        stop: &Stop,
    ) -> anyhow::Result<ExitCode> {
        (self.ending, self.watch) = (true, None);
        self.let_injections_end(stop)?;
        let ended_ns = clock::now_ns();
        let living = self.processes.iter_mut().map(|(_, target)| target);
        for target in living.filter(|t| t.info.detached_ns == 0 && t.is_alive()) {
            target.info.detached_ns = ended_ns;
        }
        self.recorder.gpu_until(ended_ns);
        // The shims stop first: a call that is recorded without its kernel does less harm than a kernel whose call is
        // not known.
        self.shims.stop();
        self.let_shims_drain()?;
        self.take_open_shim_calls()?;
        self.remove_entries()?;
        self.remove_returns()?;
        self.recorder.settle_calls(u64::MAX)?;
        self.look_outside()?;
        self.outside.pids().into_iter().try_for_each(|pid| self.end_outside(pid))?;
        // From here on probes are only dropped, and files only written.
        privileges::drop_all();
        self.recorder.join_the_rest()?;
        self.write_losses()?;
        let all = self.processes.those(|_| true);
        all.into_iter().try_for_each(|pid| self.forget(pid))?;
        let outcome = outcome::RecordingOutcome {
            options,
            command,
            counts: self.recorder.counts(),
            losses: self.recorder.losses(),
            rocm_seen: self.departed.rocm_seen && self.recorder.counts().calls > 0,
            failed: self.failed,
            broken: self.probes.failure().into_iter().map(str::to_owned).collect(),
            silent: self.departed.silent,
            unmatched: self.departed.unmatched,
            was_late: self.departed.was_late,
        };
        let mut notices = outcome.notices();
        if self.departed.more_silent > 0 {
            let more = self.departed.more_silent;
            notices
                .push(format!("{more} more processes launched kernels of which none was recorded"));
        }
        if self.departed.on_other_stacks > 0 {
            notices.push(format!(
                "{} calls were made on stacks of fibres: they were recorded at their entry, without duration and result",
                self.departed.on_other_stacks
            ));
        }
        notices.extend(self.plans.unused_globs());
        notices.extend(self.departed.left_to_nobody);
        notices.extend(self.following.notices());
        self.recorder.last_notices(&mut notices);
        self.recorder.finish()?;
        outcome.print(&notices);
        Ok(outcome.exit_code())
    }

    fn remove_entries(&mut self) -> anyhow::Result<()> {
        self.probes.begin_to_detach()?;
        let attached = self.processes.iter_mut().flat_map(|(_, t)| {
            t.attached.values_mut().chain(t.covered.values_mut()).chain(&mut t.doorbells)
        });
        let entries: Vec<_> = attached.map(Attachment::take_entries).collect();
        Attachment::remove_all(entries);
        self.drain_all()
    }

    /// Removes the return probes, and records the calls that are open. A call that returns meanwhile has both an open
    /// and a whole record: the whole one counts. A call that was just being entered is recorded as open only when no
    /// BPF program runs any more.
    fn remove_returns(&mut self) -> anyhow::Result<()> {
        let mut open = self.probes.open_calls();
        let probes: Vec<_> = self.processes.iter_mut().flat_map(|(_, t)| t.take_probes()).collect();
        Attachment::remove_all(probes);
        self.probes.end()?;
        let mut recorded = HashSet::new();
        let records = self.probes.take_all();
        self.take_records(&records, |call| {
            recorded.insert((call.header.pid, call.correlation_id));
        })?;
        open.extend(self.probes.open_calls());
        open.retain(|call| recorded.insert((call.header.pid, call.correlation_id)));
        open.iter().try_for_each(|call| self.recorder.api(call))?;
        Ok(())
    }

    /// Records the calls that are open in the shims' processes. One that returns in between has both
    /// an open and a whole record, as in [`Session::remove_returns`].
    fn take_open_shim_calls(&mut self) -> anyhow::Result<()> {
        let open: Vec<_> = self.shims.iter_mut().flat_map(Connection::open_calls).collect();
        let mut returned = HashSet::new();
        self.shims.drain(&mut self.recorder, |pid, id| {
            returned.insert((pid, id));
        })?;
        for (pid, tid, call) in open {
            if !returned.contains(&(pid, call.correlation_id)) {
                self.recorder.shim_call(pid, tid, &call, flag::OPEN_AT_END);
            }
        }
        self.drain_all()
    }

    /// Waits, for a bounded time, until living shims have written the work that was in flight.
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

    /// Writes all loss counters, including those that are zero.
    fn write_losses(&mut self) -> anyhow::Result<()> {
        let recorder = &mut self.recorder;
        for (cause, count) in BpfLoss::ALL.into_iter().zip(self.probes.losses()?) {
            recorder.loss(0, cause.describe(), count);
        }
        recorder.loss(0, "BPF records: not understood", self.probes.malformed());
        recorder.loss(0, UNREAD, self.probes.failure().is_some().into());
        for (cause, count) in recorder.counts().losses() {
            recorder.loss(0, cause, count);
        }
        for (cause, count) in self.outside.losses() {
            recorder.loss(0, cause, count);
        }
        recorder.loss(0, BEYOND_LIMITS, recorder.left_out());
        // The losses of processes that have ended were written; causes without losses were not.
        for cause in self.shims.causes() {
            recorder.loss(0, cause, 0);
        }
        let accounts =
            self.shims.iter().filter_map(|c| Some((c.process()?, c.over(), c.account())));
        for (pid, over, account) in accounts.collect::<Vec<_>>() {
            for &(cause, count) in &account.losses {
                self.recorder.loss(pid, cause, count);
            }
            self.take_account(pid, &account, over);
        }
        Ok(())
    }
}
