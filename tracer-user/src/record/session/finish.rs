//! The end: removes the probes, takes the remaining records, and writes losses and processes.

use std::{collections::HashSet, process::ExitCode, time::Duration};

use tracer_common::bpf::flag;

use super::Session;
use crate::{
    clock::{self, Patience},
    losses::{Loss, Losses},
    privileges,
    probe::Attachment,
    record::{connection::Connection, options::Options, outcome, stop::Stop},
};

/// A step of the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// No process gets a shim any more, and threads that put shims into processes have ended.
    EndInjections,
    /// The time of the end is taken: GPU work that is enqueued later is not recorded.
    TakeTime,
    /// The shims are told to stop, and what they had in flight is recorded.
    StopShims,
    /// Calls that are open in the shims' processes are recorded as such.
    TakeOpenShimCalls,
    /// The entry probes are removed.
    RemoveEntries,
    /// All other probes are removed, and calls that are open are recorded as such.
    RemoveReturns,
    /// The shims' calls are written, with the calls around them.
    SettleCalls,
    /// Nobody's GPU work is seen from outside any more.
    EndOutside,
    /// From here on probes are only dropped, and files only written.
    DropPrivileges,
    /// Operations that wait for a part are written without it.
    JoinTheRest,
    /// The counters of losses are written.
    WriteLosses,
    /// The processes are described as they were at the end.
    ForgetProcesses,
}

impl Step {
    /// The steps in their order.
    const ORDER: [Self; 12] = [
        Self::EndInjections,
        Self::TakeTime,
        Self::StopShims,
        Self::TakeOpenShimCalls,
        Self::RemoveEntries,
        Self::RemoveReturns,
        Self::SettleCalls,
        Self::EndOutside,
        Self::DropPrivileges,
        Self::JoinTheRest,
        Self::WriteLosses,
        Self::ForgetProcesses,
    ];

    /// The steps that have to be done before this one.
    #[cfg(test)]
    fn needs(self) -> &'static [Self] {
        match self {
            Self::EndInjections => &[],
            // A shim that is put in now would record.
            Self::TakeTime | Self::StopShims => &[Self::EndInjections],
            // Calls that return while the shims stop are whole.
            Self::TakeOpenShimCalls => &[Self::StopShims],
            // A call that is recorded without its kernel does less harm than a kernel whose call is not known.
            Self::RemoveEntries => &[Self::StopShims, Self::TakeOpenShimCalls],
            // A call whose entry is probed needs its return.
            Self::RemoveReturns => &[Self::RemoveEntries],
            // The calls around them are known now.
            Self::SettleCalls => &[Self::TakeOpenShimCalls, Self::RemoveReturns],
            // The last packets have come.
            Self::EndOutside => &[Self::RemoveReturns],
            // Probes, and the memory of processes, need them.
            Self::DropPrivileges => &[Self::RemoveReturns, Self::EndOutside],
            Self::JoinTheRest => &[Self::SettleCalls, Self::EndOutside],
            // What is incomplete is counted.
            Self::WriteLosses => &[Self::JoinTheRest],
            // What a process's memory says of its losses says also how exact its clock was.
            Self::ForgetProcesses => &[Self::WriteLosses],
        }
    }

    fn run(self, session: &mut Session, stop: &Stop) -> anyhow::Result<()> {
        match self {
            Self::EndInjections => session.end_injections(stop),
            Self::TakeTime => {
                session.take_time();
                Ok(())
            }
            Self::StopShims => {
                session.shims.stop();
                session.let_shims_drain()
            }
            Self::TakeOpenShimCalls => session.take_open_shim_calls(),
            Self::RemoveEntries => session.remove_entries(),
            Self::RemoveReturns => session.remove_returns(),
            Self::SettleCalls => Ok(session.recorder.joiner.settle_calls(u64::MAX)?),
            Self::EndOutside => {
                session.look_outside()?;
                session.outside.pids().into_iter().try_for_each(|pid| session.end_outside(pid))
            }
            Self::DropPrivileges => {
                privileges::drop_all();
                Ok(())
            }
            Self::JoinTheRest => Ok(session.recorder.joiner.join_the_rest()?),
            Self::WriteLosses => session.write_losses(),
            Self::ForgetProcesses => {
                let all = session.processes.those(|_| true);
                all.into_iter().try_for_each(|pid| session.forget(pid))
            }
        }
    }
}

impl Session {
    /// Detaches, takes the remaining records, and writes the end of the trace.
    pub fn finish(
        mut self,
        options: &Options,
        command: &outcome::CommandState,
        stop: &Stop,
    ) -> anyhow::Result<ExitCode> {
        Step::ORDER.into_iter().try_for_each(|step| step.run(&mut self, stop))?;
        let outcome = outcome::RecordingOutcome {
            options,
            command,
            counts: self.recorder.joiner.counts(),
            losses: self.recorder.losses(),
            rocm_seen: self.departed.rocm_seen && self.recorder.joiner.counts().calls > 0,
            failed: self.failed,
            broken: self.probes.reader.failure().into_iter().map(str::to_owned).collect(),
            silent: std::mem::take(&mut self.departed.silent),
            unmatched: self.departed.unmatched,
            was_late: self.departed.was_late,
        };
        let mut notices = outcome.notices();
        notices.extend(self.departed.notices());
        notices.extend(self.plans.unused_globs());
        notices.extend(self.following.notices());
        self.recorder.last_notices(&mut notices);
        self.recorder.finish()?;
        outcome.print(&notices);
        Ok(outcome.exit_code())
    }

    fn end_injections(&mut self, stop: &Stop) -> anyhow::Result<()> {
        (self.ending, self.watch) = (true, None);
        self.let_injections_end(stop)
    }

    fn take_time(&mut self) {
        let ended_ns = clock::now_ns();
        let living = self.processes.iter_mut().map(|(_, target)| target);
        for target in living.filter(|t| t.info.detached_ns == 0 && t.is_alive()) {
            target.info.detached_ns = ended_ns;
        }
        self.recorder.joiner.gpu_until(ended_ns);
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
        let mut open = self.probes.programs.open_calls();
        let probes: Vec<_> = self.processes.iter_mut().flat_map(|(_, t)| t.take_probes()).collect();
        Attachment::remove_all(probes);
        self.probes.end()?;
        let mut recorded = HashSet::new();
        let records = self.probes.take_all();
        self.take_records(&records, |call| {
            recorded.insert((call.header.pid, call.correlation_id));
        })?;
        open.extend(self.probes.programs.open_calls());
        open.retain(|call| recorded.insert((call.header.pid, call.correlation_id)));
        open.iter().try_for_each(|call| self.recorder.joiner.api(call))?;
        Ok(())
    }

    /// Records the calls that are open in the shims' processes. One that returns in between has both
    /// an open and a whole record, as in [`Session::remove_returns`].
    fn take_open_shim_calls(&mut self) -> anyhow::Result<()> {
        let open: Vec<_> = self.shims.iter_mut().flat_map(Connection::open_calls).collect();
        let mut returned = HashSet::new();
        self.shims.drain(&mut self.recorder.joiner, |pid, id| {
            returned.insert((pid, id));
        })?;
        for (pid, tid, call) in open {
            if !returned.contains(&(pid, call.correlation_id)) {
                self.recorder.joiner.shim_call(pid, tid, &call, flag::OPEN_AT_END);
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
        for counting in self.all_that_lose().map(Losses::losses) {
            for Loss { pid, cause, count } in counting? {
                self.recorder.loss(pid, cause, count);
            }
        }
        let accounts =
            self.shims.iter().filter_map(|c| Some((c.process()?, c.over(), c.account())));
        for (pid, over, account) in accounts.collect::<Vec<_>>() {
            self.take_account(pid, &account, over);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_comes_behind_those_that_it_needs() {
        for (place, step) in Step::ORDER.into_iter().enumerate() {
            let before = &Step::ORDER[..place];
            assert!(!before.contains(&step), "{step:?} twice");
            for needed in step.needs() {
                assert!(before.contains(needed), "{step:?} before {needed:?}");
            }
        }
    }
}
