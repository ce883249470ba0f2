//! Processes that have ended: their probes are removed, their memories are offered to others, and facts for the notices
//! at the end are kept. Nothing else of these processes stays.

use super::Session;
use crate::{
    clock,
    join::Launches,
    record::{
        connection::{Account, ProgramEnd},
        gpu_source::{Claim, Gpu, GpuSource},
        outcome::Silent,
        target::Target,
    },
    shown::counted,
};

impl Session {
    /// Gives up the memories of programs that are gone, after all of their records were read.
    pub(super) fn give_up_memories(&mut self) {
        for gone in self.shims.give_up_the_gone(&mut self.recorder) {
            // A cause without losses is written at the end, once for all processes.
            let lost = gone.account.losses.iter().filter(|(_, count)| *count > 0);
            lost.for_each(|&(cause, count)| self.recorder.loss(gone.pid, cause, count));
            self.take_account(gone.pid, &gone.account, Some(gone.over));
        }
    }

    /// Takes over the losses and the clock error that a memory holds; `over` is set if its program is gone.
    pub(super) fn take_account(&mut self, pid: u32, account: &Account, over: Option<ProgramEnd>) {
        let Some(target) = self.processes.get_mut(pid) else { return };
        if account.helpless.is_none() {
            // The largest error of all programs that the process has run.
            target.info.clock_error_ns = target.info.clock_error_ns.max(account.clock_error_ns);
        }
        target.claim = match (over, account.helpless) {
            (_, Some(why)) => Claim::Helpless(why),
            (Some(ProgramEnd::Executed), _) => Claim::Earlier,
            _ => Claim::Recording,
        };
    }

    /// Process `pid` has ended, or another process has its number by now: removes its probes.
    pub(super) fn retire(&mut self, pid: u32) {
        let request = self.probes.reader.ask();
        let Some(target) = self.processes.get_mut(pid).filter(|target| target.retired.is_none())
        else {
            return;
        };
        if target.info.detached_ns == 0 {
            target.info.detached_ns = clock::now_ns();
        }
        target.retire(request);
        self.probes.programs.forget(pid);
    }

    /// Retires the processes that have ended, and forgets those whose records have all come.
    pub(super) fn retire_ended(&mut self) -> anyhow::Result<()> {
        let answered = self.probes.reader.answered();
        let has_come = |target: &Target| {
            target.retired.is_some_and(|request| request <= answered) && target.removals.is_empty()
        };
        for pid in self.processes.those(has_come) {
            // A shim that was on its way may have recorded: its memory is added when the injection ends.
            let on_its_way = self.injections.subject(pid).is_some();
            if !on_its_way && !self.outside.knows(pid) && self.shims.of(pid).next().is_none() {
                self.forget(pid)?;
            }
        }
        let dead = self.processes.those(|target| target.retired.is_none() && !target.is_alive());
        dead.into_iter().for_each(|pid| self.retire(pid));
        Ok(())
    }

    /// Forgets process `pid`, except for the facts that the end needs.
    pub(super) fn forget(&mut self, pid: u32) -> anyhow::Result<()> {
        let Some(mut target) = self.processes.remove(pid) else { return Ok(()) };
        let departed = &mut self.departed;
        departed.rocm_seen |= !target.info.libraries.is_empty() || target.leaves_to_shim();
        let left = target.left_to_nobody(|domain| self.recorder.joiner.saw_by_probes(pid, domain));
        if left > 0 && departed.left_to_nobody.is_none() {
            departed.left_to_nobody = Some(format!(
                "process {pid}: no shim recorded calls of {} there, which can be probed only at 16 µs a call: they were left out; --allow-slow includes them",
                counted(left, "function")
            ));
        }
        let were_full = self.shims.were_full_since(target.info.attached_ns);
        target.info.gpu_tier = target.gpu_source.tier(target.claim, were_full);
        // The records that wait are written first: missing kernels may be among them.
        let Launches { launches, early, dispatches } = self.recorder.joiner.ended(pid)?;
        if self.shims.gpu() != Gpu::Off && launches > 0 && dispatches == 0 {
            let reason = target.gpu_source.why_silent(target.claim, were_full);
            if target.gpu_source == GpuSource::AtStart {
                target.info.gpu_tier = format!("none: {reason}");
            }
            self.departed.add_silent(Silent { pid, launches, reason });
        }
        // That none was recorded is told above.
        let unseen = if dispatches > 0 { launches.saturating_sub(dispatches) } else { 0 };
        if target.is_recorded_from_start {
            self.departed.unmatched += unseen;
        }
        // The shim was put in late, and had not answered when the process ended.
        let is_unanswered =
            !target.is_recorded_from_start && target.gpu_source != GpuSource::Tables;
        self.following.ended(pid, early + if is_unanswered { unseen } else { 0 });
        if target.info.detached_ns == 0 {
            target.info.detached_ns = clock::now_ns();
        }
        self.recorder.process(pid, target.info);
        Ok(())
    }
}
