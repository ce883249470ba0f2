//! Looking out for ROCm processes, those of `record -a`.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::Session;
use crate::discover::{self, FileId, Subject};

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
    /// Processes that could not be attached to: when each started, by its number.
    refused: HashMap<u32, u64>,
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
            refused: HashMap::new(),
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
        found
    }

    fn refuse(&mut self, subject: &Subject) {
        self.refused.insert(subject.pid(), subject.started());
    }

    fn is_refused(&self, subject: &Subject) -> bool {
        self.refused.get(&subject.pid()) == Some(&subject.started())
    }

    fn is_own(&self, subject: &Subject) -> bool {
        let executable = subject.by_number(|pid| -> anyhow::Result<_> {
            Ok(FileId::of(format!("/proc/{pid}/exe").as_ref())?)
        });
        executable.ok().zip(self.own).is_some_and(|(theirs, own)| theirs.has_inode_of(own))
    }
}

impl Session {
    /// Attaches to the ROCm processes that have appeared.
    pub(super) fn look_out(&mut self, now: Instant) -> anyhow::Result<()> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let round = now >= watch.next_round;
        for pid in watch.candidates(now) {
            let new = !self.targets.get(&pid).is_some_and(|target| target.is_alive());
            let Some(subject) = new.then(|| Subject::open(pid).ok()).flatten() else { continue };
            if !self.watch.as_ref().is_some_and(|watch| watch.is_refused(&subject))
                && subject.by_number(discover::libraries).is_ok_and(|found| !found.is_empty())
            {
                self.attach_found(Arc::new(subject))?;
            }
        }
        if let Some(watch) = self.watch.as_mut().filter(|_| round) {
            watch.next_round = Instant::now() + ROUND_INTERVAL.max(now.elapsed() * ROUND_SHARE);
        }
        Ok(())
    }

    /// Attaches to a process that nobody named. A failure is that process's alone.
    fn attach_found(&mut self, subject: Arc<Subject>) -> anyhow::Result<()> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        if watch.is_own(&subject) {
            watch.refuse(&subject);
            return Ok(());
        }
        if let Err(error) = self.attach_running(Arc::clone(&subject))
            && subject.is_alive()
        {
            if let Some(watch) = &mut self.watch {
                watch.refuse(&subject);
            }
            self.notice(format!("process {} is not traced: {error:#}", subject.pid()));
        }
        Ok(())
    }
}
