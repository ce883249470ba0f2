//! Following: children, programs that are executed, libraries that are loaded later, the dead.

use tracer_common::bpf::{LifeRecord, kind};

use super::{Session, drain::SCAN_INTERVAL};
use crate::{
    clock,
    discover::{self, Library},
    record::{pause::Pause, target::Target},
};

impl Session {
    /// A fork or an exec of a traced process.
    pub(super) fn life(&mut self, life: &LifeRecord) -> anyhow::Result<()> {
        match life.header.kind {
            kind::FORK if self.follow => {
                self.follow_child(life.header.pid, life.child_pid, life.time_ns)
            }
            kind::EXEC => {
                let pid = life.header.pid;
                if let (Ok(info), Some(target)) =
                    (discover::process_info(pid), self.targets.get_mut(&pid))
                {
                    target.info.command = info.command;
                    self.trace.process(pid, target.info.clone());
                }
                Ok(())
            }
            _ => Ok(()),
        }
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
        let Some(parent) = self.targets.get(&parent) else { return Ok(()) };
        let command = parent.info.command.clone();
        let libraries: Vec<Library> = parent
            .attached
            .keys()
            .filter_map(|id| self.planned.get(id).map(|planned| planned.library.clone()))
            .collect();
        self.add_target(child, command);
        let attached = self.attach_all(child, libraries).and_then(|()| self.attach_site(child));
        drop(pause);
        if let Err(error) = attached
            && self.targets.get(&child).is_some_and(Target::is_alive)
        {
            self.notice(format!("child process {child} is not traced: {error:#}"));
        } else if discover::libraries(child).is_ok_and(|mapped| !mapped.is_empty()) {
            let late_ms = (clock::now_ns() - born_ns) / 1_000_000;
            self.notice(format!(
                "child process {child} was forked with ROCm loaded and is traced {late_ms} ms later; calls in between are not in the trace"
            ));
        }
        Ok(())
    }

    /// Looks for libraries that were mapped since, and frees what belongs to the dead.
    pub(super) fn scan(&mut self) -> anyhow::Result<()> {
        let living: Vec<u32> =
            self.targets.iter().filter(|(_, t)| t.is_alive()).map(|(&pid, _)| pid).collect();
        for pid in living {
            let Ok(libraries) = discover::libraries(pid) else { continue };
            for library in libraries {
                let known = |t: &Target| t.attached.contains_key(&library.id);
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
        }
        for (&pid, target) in self.targets.iter_mut().filter(|(_, t)| !t.is_alive()) {
            target.attached.clear();
            target.dispatch_site = None;
            if target.info.detached_ns == 0 {
                target.info.detached_ns = clock::now_ns();
                self.programs.forget(pid);
            }
        }
        for reader in &self.shims {
            if let Some(pid) = reader.memory().owner() {
                let task = |tid| format!("/proc/{pid}/task/{tid}");
                reader.free_rings(|tid| std::path::Path::new(&task(tid)).exists());
            }
        }
        Ok(())
    }
}
