//! Looking out for ROCm processes, those of `record -a`.

use std::{
    collections::{BTreeMap, HashMap},
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
/// How long processes are looked at in one go.
const LOOK_FOR: Duration = Duration::from_millis(200);

/// What has been looked at.
pub struct Watch {
    /// This program, whose helpers are not traced.
    own: Option<FileId>,
    /// Processes that executed a program lately, and when.
    young: BTreeMap<u32, Instant>,
    /// Processes that could not be attached to: when each started, by its number.
    refused: HashMap<u32, u64>,
    next_young: Instant,
    next_round: Instant,
    /// The process that is looked at first the next time.
    next_looked: u32,
}

impl Watch {
    /// Nothing has been looked at.
    pub fn new() -> Self {
        let now = Instant::now();
        Self {
            own: FileId::of("/proc/self/exe".as_ref()).ok(),
            young: BTreeMap::new(),
            refused: HashMap::new(),
            next_young: now,
            next_round: now,
            next_looked: 0,
        }
    }

    /// Process `pid` executed a program.
    pub fn executed(&mut self, pid: u32) {
        self.refused.remove(&pid);
        self.young.insert(pid, Instant::now());
    }

    /// The processes that are to be looked at now.
    fn candidates(&mut self, now: Instant) -> Vec<u32> {
        let mut found = Vec::new();
        if now >= self.next_young {
            self.next_young = now + YOUNG_INTERVAL;
            self.young.retain(|_, born| now.duration_since(*born) < YOUTH);
            found.extend(self.young.keys());
        }
        if now >= self.next_round {
            found = discover::process_ids();
        }
        // Everybody has their turn, whatever others have mapped.
        found.sort_unstable();
        let turn = found.partition_point(|&pid| pid < self.next_looked);
        found.rotate_left(turn);
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
        let began = Instant::now();
        for pid in watch.candidates(now) {
            if began.elapsed() > LOOK_FOR {
                if let Some(watch) = &mut self.watch {
                    watch.next_looked = pid;
                }
                break;
            }
            let new = !self.targets.get(&pid).is_some_and(|target| target.is_alive());
            let Some(subject) = new.then(|| Subject::open(pid).ok()).flatten() else { continue };
            if !self.watch.as_ref().is_some_and(|watch| watch.is_refused(&subject))
                && subject.by_number(discover::libraries).is_ok_and(|found| !found.is_empty())
            {
                self.attach_found(Arc::new(subject))?;
            }
        }
        if let Some(watch) = &mut self.watch {
            // As much time is for everything else.
            watch.next_young = watch.next_young.max(Instant::now() + began.elapsed());
            if round {
                watch.next_round = Instant::now() + ROUND_INTERVAL.max(now.elapsed() * ROUND_SHARE);
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_their_turn_once() {
        let mut watch = Watch::new();
        watch.next_round = watch.next_young + YOUTH;
        for pid in [5, 3, 9, 3, 3, 5] {
            watch.executed(pid);
        }
        watch.next_looked = 4;
        assert_eq!(watch.candidates(Instant::now()), [5, 9, 3]);
    }
}
