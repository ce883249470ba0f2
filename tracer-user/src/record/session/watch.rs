//! The processes of `record -a` that are worth a look now.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, Instant},
};

use crate::discover::{self, FileId, Subject};

/// How often a program that was executed lately is looked at: it may load a runtime at any moment.
const YOUNG_INTERVAL: Duration = Duration::from_millis(20);
/// The time for which a program counts as executed lately.
const YOUTH: Duration = Duration::from_secs(5);
/// How often all processes are looked at.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// A round takes at most one part in so many of the time.
const ROUND_SHARE: u32 = 50;
/// The same for a part of a round, which the rest is to follow soon.
const PART_SHARE: u32 = 10;

/// The processes that were looked at, and when to look again.
pub struct Watch {
    /// The file of roctap itself, whose helper processes are not traced.
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
    /// No process has been looked at yet.
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
    pub fn candidates(&mut self, now: Instant) -> Vec<u32> {
        let mut found = Vec::new();
        if now >= self.next_young {
            self.next_young = now + YOUNG_INTERVAL;
            self.young.retain(|_, born| now.duration_since(*born) < YOUTH);
            found.extend(self.young.keys());
        }
        if now >= self.next_round {
            found = discover::process_ids();
            let there: HashSet<u32> = found.iter().copied().collect();
            self.refused.retain(|pid, _| there.contains(pid));
        }
        // Each process gets its turn, however much others have mapped.
        found.sort_unstable();
        let turn = found.partition_point(|&pid| pid < self.next_looked);
        found.rotate_left(turn);
        found
    }

    /// A look that began at `began` ended at `ended`. It was a round if one was due then. `left` is the process that
    /// the look did not get to, which is the first the next time.
    pub fn looked(&mut self, began: Instant, ended: Instant, left: Option<u32>) {
        let took = ended - began;
        self.next_looked = left.unwrap_or(self.next_looked);
        // At least as much time is left for everything else.
        self.next_young = self.next_young.max(ended + took);
        if began >= self.next_round {
            let pause = match left {
                Some(_) => took * PART_SHARE,
                None => ROUND_INTERVAL.max(took * ROUND_SHARE),
            };
            self.next_round = ended + pause;
        }
    }

    /// The process is not looked at again.
    pub fn refuse(&mut self, subject: &Subject) {
        self.refused.insert(subject.pid(), subject.started());
    }

    /// Whether the process is not to be looked at again.
    pub fn is_refused(&self, subject: &Subject) -> bool {
        self.refused.get(&subject.pid()) == Some(&subject.started())
    }

    /// Whether the process runs this very program.
    pub fn is_own(&self, subject: &Subject) -> bool {
        let executable = subject.by_number(|pid| -> anyhow::Result<_> {
            Ok(FileId::of(format!("/proc/{pid}/exe").as_ref())?)
        });
        executable.ok().zip(self.own).is_some_and(|(theirs, own)| theirs.has_inode_of(own))
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

    #[test]
    fn a_round_that_was_cut_goes_on_soon() {
        let mut watch = Watch::new();
        let began = Instant::now();
        assert!(watch.candidates(began).contains(&std::process::id()));
        let ended = began + Duration::from_millis(20);
        watch.looked(began, ended, Some(7));
        assert_eq!((watch.next_looked, watch.next_round), (7, ended + 10 * (ended - began)));
        let (began, ended) = (watch.next_round, watch.next_round + Duration::from_millis(20));
        watch.looked(began, ended, None);
        assert_eq!(watch.next_round, ended + ROUND_INTERVAL);
    }
}
