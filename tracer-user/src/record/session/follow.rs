//! Following: children, programs that are executed, libraries that are loaded later, the dead.

use std::sync::Arc;

use tracer_common::bpf::{LifeRecord, flag, kind};

use super::{Session, drain::SCAN_INTERVAL};
use crate::{
    clock,
    discover::{self, Runtime},
    record::{
        pause::Pause,
        target::{Planned, Target, Tier},
    },
};

impl Session {
    /// A fork or an exec of a traced process.
    pub(super) fn life(&mut self, life: &LifeRecord) -> anyhow::Result<()> {
        match life.header.kind {
            kind::FORK if self.follow => {
                self.follow_child(life.header.pid, life.child_pid, life.time_ns)
            }
            kind::EXEC => self.executed(life.header.pid, life.time_ns),
            _ => Ok(()),
        }
    }

    /// A process executes another program: what its shim had in flight is gone with the old one.
    fn executed(&mut self, pid: u32, time_ns: u64) -> anyhow::Result<()> {
        if let Some(watch) = &mut self.watch {
            watch.executed(pid);
        }
        let Some(target) = self.targets.get_mut(&pid) else { return Ok(()) };
        if let Ok(info) = discover::process_info(pid) {
            target.info.command = info.command;
        }
        let ended = matches!(
            target.tier,
            Tier::Tables | Tier::HipActivity | Tier::Unused | Tier::Forked | Tier::Uprobes(_)
        );
        if ended && self.gpu.wants_shim() {
            target.tier = Tier::Waiting;
            target.dispatch_site = None;
            target.doorbells = None;
        }
        target.forget_wrappers();
        self.trace.process(pid, target.info.clone());
        self.take_frames(|_| {})?;
        let connections = self.connections.iter_mut().filter(|c| c.pid() == Some(pid));
        connections.for_each(|connection| connection.ended_at(time_ns));
        self.end_outside(pid)?;
        self.joiner.executed(pid, time_ns, &mut self.trace)?;
        self.cover_again(pid)
    }

    /// Probes a child as its parent is probed. A failure is that child's alone: it may be gone.
    pub(super) fn follow_child(
        &mut self,
        parent: u32,
        child: u32,
        born_ns: u64,
    ) -> anyhow::Result<()> {
        // Stopped at once, so that it does not get far without probes.
        let pause = Pause::of(child);
        let ran_ns = clock::now_ns().saturating_sub(born_ns);
        let Some(parent) = self.targets.get(&parent) else { return Ok(()) };
        let command = parent.info.command.clone();
        let tier = match &parent.tier {
            Tier::Tables | Tier::HipActivity | Tier::Unused | Tier::Forked => Tier::Unused,
            tier => tier.clone(),
        };
        // It has its parent's memory, tables and all.
        let planned: Vec<Arc<Planned>> = parent.planned.values().cloned().collect();
        self.add_target(child, command, tier);
        let attached = planned
            .into_iter()
            .try_for_each(|planned| {
                let path = planned.library.open_path.clone();
                self.attach_planned(child, &path, planned)
            })
            .and_then(|()| self.attach_site(child));
        drop(pause);
        if let Err(error) = attached
            && self.targets.get(&child).is_some_and(Target::is_alive)
        {
            self.notice(format!("child process {child} is not traced: {error:#}"));
        } else if discover::libraries(child).is_ok_and(|mapped| !mapped.is_empty()) {
            self.late_children.push(ran_ns);
        }
        Ok(())
    }

    /// A notice of the calls that forked children may have made before they had probes.
    pub(super) fn before_the_probes(&self) -> Option<String> {
        let longest = self.late_children.iter().max()?;
        Some(format!(
            "{} child processes were forked with ROCm loaded and ran for up to {:.1} ms before they were stopped for their probes; calls in that time are not in the trace",
            self.late_children.len(),
            *longest as f64 / 1e6
        ))
    }

    /// Gives forked children the shim that have begun to call ROCm: most never do, or execute another
    /// program first. What they call first, to open the runtime, takes longer than that.
    pub(super) fn give_shims_to_children(&mut self) {
        let unused = |(&pid, target): (&u32, &Target)| (target.tier == Tier::Unused).then_some(pid);
        let children: Vec<u32> = self.targets.iter().filter_map(unused).collect();
        for pid in children {
            let called = self.threads.values().any(|&of| of == pid);
            if !called && self.programs.open_on(pid).is_empty() {
                continue;
            }
            if let Some(target) = self.targets.get_mut(&pid).filter(|target| target.is_alive()) {
                target.tier = Tier::Waiting;
                if let Err(error) = self.give_shim(pid) {
                    self.notice(format!("{error:#}"));
                }
            }
        }
    }

    /// Looks for libraries that were mapped since, and frees what belongs to the dead.
    pub(super) fn scan(&mut self) -> anyhow::Result<()> {
        self.replace_helpless_shims();
        let living: Vec<u32> =
            self.targets.iter().filter(|(_, t)| t.is_alive()).map(|(&pid, _)| pid).collect();
        for pid in living {
            let Ok(libraries) = discover::libraries(pid) else { continue };
            let uses_gpu = libraries.iter().any(|library| library.runtime == Runtime::Hsa);
            self.see_from_outside(pid, &libraries);
            for library in libraries {
                let known = |t: &Target| t.planned.contains_key(&library.id);
                if !self.selection.wants(library.runtime)
                    || self.targets.get(&pid).is_none_or(known)
                {
                    continue;
                }
                let path = library.path.display().to_string();
                match self.attach(pid, library) {
                    Ok(()) => self.notice(format!(
                        "process {pid}: {path} was found up to {} ms after it was mapped; earlier calls are not in the trace",
                        SCAN_INTERVAL.as_millis()
                    )),
                    Err(error) => self.notice(format!("process {pid}: {error:#}")),
                }
            }
            if uses_gpu
                && self.targets.get(&pid).is_some_and(|target| target.tier == Tier::Waiting)
                && let Err(error) = self.give_shim(pid)
            {
                self.notice(format!("{error:#}"));
            }
        }
        for pid in self.outside.pids() {
            let alive = self.targets.get(&pid).is_some_and(Target::is_alive);
            if !alive && self.outside.is_quiet(pid) {
                self.end_outside(pid)?;
            }
        }
        let unburied = |target: &Target| target.info.detached_ns == 0 && !target.is_alive();
        for (&pid, target) in self.targets.iter_mut().filter(|(_, target)| unburied(target)) {
            target.info.detached_ns = clock::now_ns();
            target.bury();
            self.programs.forget(pid);
        }
        for connection in &mut self.connections {
            let joiner = &mut self.joiner;
            connection.free_rings(|pid, tid, call| {
                joiner.shim_call(pid, tid, &call, flag::OPEN_AT_END);
            });
        }
        Ok(())
    }
}
