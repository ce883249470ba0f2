//! Following traced processes: they fork, execute other programs, load libraries later, and end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tracer_common::bpf::{ProcessRecord, kind};
use tracer_records::model::Process;

use super::{
    Session,
    following::Inheritance,
    injections::Occasion,
    pace::{SCAN_INTERVAL, Scan},
};
use crate::{
    clock,
    discover::{self, Ended, Subject},
    record::{gpu_source::GpuSource, pause::Pause, target::Planned},
};

/// After this time a scan begins with no further process: other work is to be done.
const SCAN_FOR: Duration = Duration::from_millis(20);

impl Session {
    /// Takes a record of BPF: a traced process has forked, has executed a program, has called ROCm for the first time,
    /// or its first thread ends.
    pub(super) fn life(&mut self, life: &ProcessRecord) -> anyhow::Result<()> {
        match life.header.kind {
            kind::FORK if self.following.wanted && !self.ending => self.follow_child(life),
            kind::EXEC => self.executed(life.header.pid, life.other_id, life.time_ns),
            kind::CALLER => {
                self.called(life.header.pid);
                Ok(())
            }
            kind::FIRST_THREAD => {
                // Most processes end with their first thread. The next scan tells whether this one goes on.
                if let Some(target) = self.processes.get_mut(life.header.pid) {
                    target.first_thread_ends = true;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A thread of process `pid`, whose id was `by` before, has executed another program. The work that the old
    /// program's shim had in flight is gone.
    fn executed(&mut self, pid: u32, by: u32, time_ns: u64) -> anyhow::Result<()> {
        if let Some(watch) = &mut self.watch {
            watch.executed(pid);
        }
        let Some(target) = self.processes.get_mut(pid) else { return Ok(()) };
        if let Ok(info) = target.subject.by_number(discover::process_info) {
            target.info.command = info.command;
        }
        self.look_at_clock(pid);
        let Some(target) = self.processes.get_mut(pid) else { return Ok(()) };
        if let Some(source) = target.gpu_source.of_next_program(self.shims.gpu()) {
            target.gpu_source = source;
            target.dispatch_site = None;
            target.doorbells = None;
        }
        if target.gpu_source == GpuSource::AtStart {
            // The probes may have been removed because the old program's shim recorded: the new program may need them.
            target.doorbells.take_if(|placed| placed.links() == 0);
        }
        target.is_recorded_from_start = true;
        target.forget_stale();
        target.seen = None;
        self.recorder.process(pid, target.info.clone());
        self.shims.drain(&mut self.recorder.joiner, |_, _| {})?;
        self.shims.executed(pid, time_ns, &mut self.recorder.joiner);
        self.injections.executed(pid, time_ns);
        self.end_outside(pid)?;
        self.recorder.joiner.executed(pid, time_ns)?;
        if by != pid
            && let Err(error) = self.place_anew(pid, time_ns)
            && self.processes.is_alive(pid)
        {
            self.recorder.notice(&format!("process {pid} is not traced any more: {error:#}"));
        }
        // A failure concerns this process alone, which may be gone.
        if let Err(error) = self.cover_again(pid)
            && self.processes.is_alive(pid)
        {
            self.recorder
                .notice(&format!("process {pid}: some functions are not probed: {error:#}"));
        }
        self.watch_loader(pid);
        Ok(())
    }

    /// Looks whether process `pid` has a clock of its own (a time namespace), and how far that clock is ahead.
    pub(super) fn look_at_clock(&mut self, pid: u32) {
        let Some(target) = self.processes.get_mut(pid) else { return };
        let ahead = target.subject.by_number(|pid| Ok::<_, Ended>(discover::clock_ahead_ns(pid)));
        let Ok(ahead_ns) = ahead else { return };
        let before = std::mem::replace(&mut target.info.clock_ahead_ns, ahead_ns.unwrap_or(0));
        match ahead_ns {
            None => self.recorder.notice(&format!(
                "process {pid}: how far the clock of its time namespace is ahead is unknown; its GPU times may be missing"
            )),
            Some(ahead_ns) if ahead_ns != 0 && ahead_ns != before => {
                let seconds = ahead_ns as f64 / 1e9;
                self.tell(&format!(
                    "process {pid} has a time namespace, whose clock is {seconds:+.3} s off; its times are given by the machine's clock"
                ));
            }
            Some(_) => {}
        }
    }

    /// A thread that executes another program gets the process's number, but the kernel keeps the links of the
    /// process's probes at the thread that had the number before: it places none of them in the files that the new
    /// program maps. So this stops the process, before it has got far, and places new probes.
    fn place_anew(&mut self, pid: u32, executed_ns: u64) -> anyhow::Result<()> {
        let Some(target) = self.processes.get_mut(pid) else { return Ok(()) };
        let subject = Arc::clone(&target.subject);
        // The thread that executed the program is the first one now.
        subject.look_at_its_first_thread();
        let _pause = Pause::of(&subject);
        let late = Duration::from_nanos(clock::now_ns().saturating_sub(executed_ns));
        if subject.by_number(discover::libraries).is_ok_and(|mapped| !mapped.is_empty()) {
            self.departed.was_late = true;
            self.recorder.notice(&format!(
                "process {pid}: a thread executed another program, which ran for {:.1} ms before it had its probes; calls in that time are not in the trace",
                late.as_secs_f64() * 1e3
            ));
        }
        let Some(target) = self.processes.get_mut(pid) else { return Ok(()) };
        let planned = std::mem::take(&mut target.planned).into_values().collect();
        let doorbells = target.doorbell_places.clone();
        // The old probes are removed first: else both would record the same calls.
        drop((target.take_probes(), target.dispatch_site.take()));
        target.calls_by_shim = 0;
        let placed = self.attach_child(&subject, planned);
        if let Some(doorbells) = doorbells {
            self.see_child_from_outside(pid, doorbells);
        }
        placed
    }

    /// Probes a child as its parent is probed. A failure concerns this child alone, which may be gone.
    fn follow_child(&mut self, born: &ProcessRecord) -> anyhow::Result<()> {
        let child = born.other_id;
        // The child may have ended, and another process may have its number: that one started after the birth.
        let subject = Subject::open(child).ok().filter(|child| child.was_there_at(born.time_ns));
        let subject = subject.map(Arc::new);
        // Stopped at once, so that it does not get far without probes.
        let pause = subject.as_ref().and_then(Pause::of);
        let mut stopped_ns = clock::now_ns();
        if self.processes.is_alive(child) {
            return Ok(()); // It was found before.
        }
        let parent = self.processes.get(born.header.pid).map(Inheritance::of);
        let Some(parent) = parent.or_else(|| self.following.left_by(born.header.pid)) else {
            // The parent is not traced after all. The BPF programs have followed the child since its birth.
            self.probes.programs.forget(child);
            return Ok(());
        };
        // A forked child has its parent's libraries; one that shares its memory executes another program first.
        let has_rocm = born.shares_memory == 0 && !parent.planned.is_empty();
        let Some(subject) = subject else {
            if has_rocm {
                self.departed.was_late = true;
                self.following.was_too_late();
            }
            let (attached_ns, command) = (clock::now_ns(), parent.command.clone());
            self.recorder.process(child, Process { command, attached_ns, ..Process::default() });
            self.following.leaves(child, parent, self.probes.reader.ask());
            // The BPF programs have followed the child since its birth.
            self.probes.programs.forget(child);
            // The child has ended, but its shim may have written records into one of the shared memories: they are
            // read.
            self.shims.look(|pid| pid == child);
            self.shims.drain(&mut self.recorder.joiner, |_, _| {})?;
            return Ok(());
        };
        let Inheritance { command, source, planned, doorbells } = parent;
        self.add_target(Arc::clone(&subject), command, source)?;
        if let Some(target) = self.processes.get_mut(child) {
            target.is_recorded_from_start = true;
        }
        self.look_at_clock(child);
        let attached = self.attach_child(&subject, planned);
        if let Some(doorbells) = doorbells {
            self.see_child_from_outside(child, doorbells);
        }
        if pause.is_none() {
            stopped_ns = clock::now_ns();
        }
        drop(pause);
        self.watch_loader(child);
        if let Err(error) = attached
            && let Some(target) = self.processes.get_mut(child).filter(|target| target.is_alive())
        {
            target.explained.clone_from(&target.refused);
            self.recorder.notice(&format!("child process {child} is not traced: {error:#}"));
        } else if born.shares_memory == 0
            && subject.by_number(discover::libraries).is_ok_and(|mapped| !mapped.is_empty())
        {
            let late = Duration::from_nanos(stopped_ns.saturating_sub(born.time_ns));
            self.departed.was_late = true;
            self.following.was_late(late);
        } else if has_rocm && !(subject.is_alive() && discover::has_program(child)) {
            // A process that exits loses its program before it counts as dead: both are asked.
            self.departed.was_late = true;
            self.following.was_too_late();
        }
        Ok(())
    }

    /// Places a child's probes: those of its parent if no file has changed.
    fn attach_child(&mut self, child: &Subject, planned: Vec<Arc<Planned>>) -> anyhow::Result<()> {
        let pid = child.pid();
        self.probes.programs.track(pid)?;
        if planned.iter().all(|planned| planned.check().is_ok()) {
            planned.into_iter().try_for_each(|planned| self.attach_planned(pid, planned))?;
        } else {
            // Files have changed since: the libraries that the child maps are planned anew.
            self.attach_all(pid, child.by_number(discover::libraries)?)?;
        }
        self.attach_site(pid)
    }

    /// A thread of process `pid` has made its first call of ROCm. A forked child gets the shim now and not earlier,
    /// since most children never call ROCm, or execute another program first. The first call opens the runtime, which
    /// takes longer than putting the shim in.
    fn called(&mut self, pid: u32) {
        let Some(target) = self.processes.get_mut(pid) else { return };
        if target.gpu_source == GpuSource::Unused {
            target.gpu_source = GpuSource::Waiting;
            self.following.has_late_shim(pid);
            self.give_shim(pid, Occasion::Later);
        }
    }

    /// Looks for libraries that processes have mapped since the last scan, and retires processes that have ended.
    /// Returns whether it came to all processes, or was out of time before.
    pub(super) fn scan(&mut self) -> anyhow::Result<Scan> {
        self.replace_helpless_shims();
        self.replace_missing_shims();
        let (began, mut scan) = (Instant::now(), Scan::Whole);
        for pid in self.processes.in_turn() {
            if began.elapsed() > SCAN_FOR {
                self.processes.go_on_with(pid);
                scan = Scan::Part;
                break;
            }
            let Some(subject) = self.processes.get(pid).map(|t| Arc::clone(&t.subject)) else {
                continue;
            };
            if let Err(error) = self.look_at_first_thread(pid)
                && subject.is_alive()
            {
                self.recorder.notice(&format!("process {pid} is not traced any more: {error:#}"));
            }
            // The pages are counted before the libraries are read: the next scan then sees what is mapped meanwhile.
            let Ok(pages) = subject.by_number(discover::mapped_pages) else { continue };
            let Some(target) = self.processes.get_mut(pid) else { continue };
            if target.maps_the_same(pages) {
                continue;
            }
            let late = target.seen.map_or(SCAN_INTERVAL, |seen| seen.at.elapsed());
            let Some(libraries) = self.look_at_libraries(pid, pages) else { continue };
            if self.linker_will_report(pid, &libraries) {
                continue;
            }
            if self.take_up(pid, libraries, Some(late)) {
                self.give_shim(pid, Occasion::Later);
            }
        }
        for pid in self.outside.pids() {
            let alive = self.processes.is_alive(pid);
            if !alive && self.outside.is_quiet(pid) {
                self.end_outside(pid)?;
            }
        }
        self.retire_ended()?;
        self.following.awaits_births(self.probes.reader.answered());
        self.shims.free_rings(&mut self.recorder.joiner);
        if let Some(text) = self.descriptors.look() {
            self.recorder.notice(&text);
        }
        Ok(scan)
    }
}
