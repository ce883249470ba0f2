//! Limits of the time for which roctap waits for the memory of one process, and of all processes of a user together.
//!
//! A hostile process can answer just in time, again and again, and so delay roctap as much as one that never answers.
//! So roctap adds up the time of slow answers, without most of the time that a busy machine adds
//! ([`super::reader_process`]), and reads nothing more of a process that has taken too much. A healthy process is slow
//! at times, too, as when its memory is on a disk: so a hundredth of the time that passes is subtracted from the sum.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// An answer that takes longer is a slow one.
const QUICK: Duration = Duration::from_millis(10);
/// The most time that one process's slow answers may take together; then nothing more is read of it.
const OF_A_PROCESS: Duration = Duration::from_secs(3);
/// The most time for all processes of one user: then none of them is read until some of the sum is subtracted.
const OF_A_USER: Duration = Duration::from_secs(12);
/// One part in so many of the time that passes is subtracted from each sum.
const TAKEN_OFF: u64 = 100;
/// When this many processes have been given up, roctap reads no process's memory any more: each may hold the reader
/// process that reads it in the kernel for as long as it pleases.
pub const MOST: usize = 16;
/// When this many of them are one user's, roctap reads no memory of that user's processes any more. Processes that were
/// being read by then may be given up later: they do not count, so that one user cannot use up the others' part.
const MOST_OF_A_USER: usize = MOST / 4;

/// The process that a memory belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The process.
    pub pid: u32,
    /// The time of its start, which tells it from a later process with this number.
    pub started: Option<u64>,
    /// The real user of the process. Processes whose user cannot be determined count as one user's.
    pub user: Option<u32>,
}

/// Why a memory is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The process did not answer, or too slowly too often.
    Process,
    /// Too many processes of its user did not answer, or too slowly.
    User,
    /// Too many processes did not answer, or answered too slowly.
    All,
}

/// The sum of slow answers.
#[derive(Clone, Copy, Default)]
struct Slow {
    slow_ns: u64,
    /// The time at which the sum was that large.
    at_ns: u64,
}

impl Slow {
    fn at(self, now_ns: u64) -> u64 {
        self.slow_ns.saturating_sub(now_ns.saturating_sub(self.at_ns) / TAKEN_OFF)
    }

    fn add(&mut self, time: Duration, now_ns: u64) {
        let slow_ns = self.at(now_ns).saturating_add(time.as_nanos() as u64);
        *self = Self { slow_ns, at_ns: now_ns };
    }

    fn is_beyond(self, most: Duration, now_ns: u64) -> bool {
        u128::from(self.at(now_ns)) > most.as_nanos()
    }
}

/// The key of a process: its number and when it started.
type Key = (u32, Option<u64>);

/// The sums of one user's processes.
#[derive(Default)]
struct User {
    slow: Slow,
    /// The processes that answered slowly.
    processes: BTreeMap<Key, Slow>,
    given_up: BTreeSet<Key>,
}

/// The sums of all users.
pub struct Budgets(BTreeMap<Option<u32>, User>);

impl Budgets {
    /// No process has answered slowly yet.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Why a memory may not be asked about; none if it may.
    pub fn refusal(&self, owner: Owner, now_ns: u64) -> Option<Refusal> {
        let given_up = |user: &User| user.given_up.len().min(MOST_OF_A_USER);
        let own = self.0.get(&owner.user);
        if own.is_some_and(|user| user.given_up.contains(&(owner.pid, owner.started))) {
            return Some(Refusal::Process);
        }
        let used_up = |user: &User| {
            given_up(user) == MOST_OF_A_USER || user.slow.is_beyond(OF_A_USER, now_ns)
        };
        if own.is_some_and(used_up) {
            return Some(Refusal::User);
        }
        (self.0.values().map(given_up).sum::<usize>() >= MOST).then_some(Refusal::All)
    }

    /// An answer took this long. Returns whether the process is given up because of it.
    pub fn answered(&mut self, owner: Owner, took: Duration, now_ns: u64) -> bool {
        if took <= QUICK {
            return false;
        }
        let user = self.0.entry(owner.user).or_default();
        user.slow.add(took, now_ns);
        user.processes.retain(|_, slow| slow.at(now_ns) > 0);
        let key = (owner.pid, owner.started);
        let process = user.processes.entry(key).or_default();
        process.add(took, now_ns);
        process.is_beyond(OF_A_PROCESS, now_ns) && user.given_up.insert(key)
    }

    /// There was no answer within that time: nothing more is read of the process.
    pub fn was_silent(&mut self, owner: Owner, waited: Duration, now_ns: u64) {
        let user = self.0.entry(owner.user).or_default();
        user.slow.add(waited, now_ns);
        user.given_up.insert((owner.pid, owner.started));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const SLOW: Duration = Duration::from_millis(900);

    fn process(pid: u32, user: u32) -> Owner {
        Owner { pid, started: Some(7), user: Some(user) }
    }

    #[test]
    fn who_is_slow_again_and_again_is_given_up() {
        let (mut budgets, slow) = (Budgets::new(), process(1, 1));
        let given_up: Vec<bool> = (0..5).map(|_| budgets.answered(slow, SLOW, 0)).collect();
        assert_eq!(given_up, [false, false, false, true, false], "told once");
        assert_eq!(budgets.refusal(slow, u64::MAX), Some(Refusal::Process), "for good");
        let later = Owner { started: Some(8), ..slow };
        for other in [later, process(2, 1), process(1, 2)] {
            assert_eq!(budgets.refusal(other, 0), None, "{other:?}");
        }
    }

    #[test]
    fn quick_answers_and_rare_slow_ones_cost_nothing() {
        let (mut budgets, busy) = (Budgets::new(), process(1, 1));
        for number in 0..1000 {
            assert!(!budgets.answered(busy, QUICK, 0));
            assert!(!budgets.answered(busy, SLOW, number * 100 * SLOW.as_nanos() as u64));
        }
        assert_eq!(budgets.refusal(busy, u64::MAX), None);
        assert_eq!(budgets.0[&Some(1)].processes.len(), 1);
    }

    /// Each process is quick enough by itself.
    #[test]
    fn one_users_processes_share_a_budget() {
        let mut budgets = Budgets::new();
        for pid in 0..13 {
            assert_eq!(budgets.refusal(process(pid, 1), 0), None);
            assert!(!budgets.answered(process(pid, 1), SECOND, 0));
        }
        assert_eq!(budgets.refusal(process(99, 1), 0), Some(Refusal::User));
        assert_eq!(budgets.refusal(process(99, 2), 0), None);
        let later_ns = TAKEN_OFF * 1_000_000_000;
        assert_eq!(budgets.refusal(process(99, 1), later_ns), None, "some was taken off");
        assert!(!budgets.answered(process(99, 1), QUICK * 2, 13 * later_ns));
        assert_eq!(budgets.0[&Some(1)].processes.len(), 1, "those of long ago are forgotten");
    }

    #[test]
    fn one_users_silent_processes_leave_places_to_others() {
        let mut budgets = Budgets::new();
        for user in 0..4 {
            for pid in 0..MOST as u32 {
                let expected = (pid >= MOST_OF_A_USER as u32).then_some(Refusal::User);
                assert_eq!(budgets.refusal(process(pid, user), 0), expected);
                // Requests that were on their way count too.
                budgets.was_silent(process(pid, user), SECOND / 100, 0);
            }
            assert_eq!(budgets.refusal(process(0, user), 0), Some(Refusal::Process));
            let expected = (user == 3).then_some(Refusal::All);
            assert_eq!(budgets.refusal(process(99, 9), 0), expected, "after user {user}");
        }
    }
}
