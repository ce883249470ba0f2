//! Looking out for ROCm processes, those of `record -a`.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use super::Session;
use crate::discover::{self, FileId};

/// How often a program that was executed lately is looked at: it may load a runtime at any moment.
const YOUNG_INTERVAL: Duration = Duration::from_millis(20);
/// How long a program counts as executed lately.
const YOUTH: Duration = Duration::from_secs(5);
/// How often all processes are looked at.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// A round costs at most this part of the time.
const ROUND_SHARE: u32 = 50;

/// What has been looked at.
pub struct Watch {
    /// This program, whose helpers are not traced.
    own: Option<FileId>,
    /// Programs that were executed lately, and when.
    young: Vec<(u32, Instant)>,
    /// Processes that could not be attached to.
    refused: HashSet<u32>,
    next_young: Instant,
    next_round: Instant,
}

impl Watch {
    /// Nothing has been looked at.
    pub fn new() -> Self {
        let now = Instant::now();
        Self {
            own: FileId::of("/proc/self/exe".as_ref()).ok(),
            young: Vec::new(),
            refused: HashSet::new(),
            next_young: now,
            next_round: now,
        }
    }

    /// Process `pid` executed a program.
    pub fn executed(&mut self, pid: u32) {
        self.refused.remove(&pid);
        self.young.push((pid, Instant::now()));
    }

    /// The processes that are to be looked at now.
    fn candidates(&mut self, now: Instant) -> Vec<u32> {
        let mut found = Vec::new();
        if now >= self.next_young {
            self.next_young = now + YOUNG_INTERVAL;
            self.young.retain(|(_, born)| now - *born < YOUTH);
            found.extend(self.young.iter().map(|(pid, _)| *pid));
        }
        if now >= self.next_round {
            found = discover::process_ids();
        }
        found.retain(|pid| !self.refused.contains(pid));
        found
    }

    fn is_own(&self, pid: u32) -> bool {
        let executable = FileId::of(format!("/proc/{pid}/exe").as_ref()).ok();
        executable.is_some() && executable == self.own
    }
}

impl Session {
    /// Attaches to the ROCm processes that have appeared.
    pub(super) fn look_out(&mut self, now: Instant) -> anyhow::Result<()> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let round = now >= watch.next_round;
        for pid in watch.candidates(now) {
            let new = !self.targets.get(&pid).is_some_and(|target| target.is_alive());
            if new && discover::libraries(pid).is_ok_and(|libraries| !libraries.is_empty()) {
                self.attach_found(pid)?;
            }
        }
        if let Some(watch) = self.watch.as_mut().filter(|_| round) {
            watch.next_round = Instant::now() + ROUND_INTERVAL.max(now.elapsed() * ROUND_SHARE);
        }
        Ok(())
    }

    /// Attaches to a process that nobody named. A failure is that process's alone.
    fn attach_found(&mut self, pid: u32) -> anyhow::Result<()> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        if watch.is_own(pid) {
            watch.refused.insert(pid);
            return Ok(());
        }
        if let Err(error) = self.attach_running(pid)
            && discover::process_info(pid).is_ok()
        {
            if let Some(watch) = &mut self.watch {
                watch.refused.insert(pid);
            }
            self.notice(format!("process {pid} is not traced: {error:#}"));
        }
        Ok(())
    }
}
