//! The registry of traced processes, by their numbers.

use std::collections::BTreeMap;

use crate::record::target::Target;

/// All processes that are traced, and those that were traced before and whose records may still come.
#[derive(Default)]
pub struct Processes {
    targets: BTreeMap<u32, Target>,
    /// The process that has its turn first the next time.
    next: u32,
}

impl Processes {
    /// Process `pid`.
    pub fn get(&self, pid: u32) -> Option<&Target> {
        self.targets.get(&pid)
    }

    /// Process `pid`, to be changed.
    pub fn get_mut(&mut self, pid: u32) -> Option<&mut Target> {
        self.targets.get_mut(&pid)
    }

    /// Whether process `pid` is traced, and lives.
    pub fn is_alive(&self, pid: u32) -> bool {
        self.get(pid).is_some_and(Target::is_alive)
    }

    /// Whether process `pid` was traced, and has ended.
    pub fn has_ended(&self, pid: u32) -> bool {
        self.get(pid).is_some_and(|target| !target.is_alive())
    }

    /// The numbers of the processes that `wanted` accepts.
    pub fn those(&self, wanted: impl Fn(&Target) -> bool) -> Vec<u32> {
        self.iter().filter(|(_, target)| wanted(target)).map(|(pid, _)| pid).collect()
    }

    /// Whether any traced process lives.
    pub fn any_alive(&self) -> bool {
        self.iter().any(|(_, target)| target.is_alive())
    }

    /// Adds a process, in the place of an earlier one with its number.
    pub fn insert(&mut self, target: Target) {
        self.targets.insert(target.subject.pid(), target);
    }

    /// Removes a process.
    pub fn remove(&mut self, pid: u32) -> Option<Target> {
        self.targets.remove(&pid)
    }

    /// All processes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Target)> {
        self.targets.iter().map(|(&pid, target)| (pid, target))
    }

    /// All processes, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Target)> {
        self.targets.iter_mut().map(|(&pid, target)| (pid, target))
    }

    /// The living processes, beginning with the one that was not reached the last time: each gets its turn, however
    /// much others have mapped.
    pub fn in_turn(&self) -> Vec<u32> {
        let living = self.iter().filter(|(_, target)| target.is_alive());
        let mut living: Vec<u32> = living.map(|(pid, _)| pid).collect();
        let turn = living.partition_point(|&pid| pid < self.next);
        living.rotate_left(turn);
        living
    }

    /// Process `pid` was not reached: it is the first the next time.
    pub fn go_on_with(&mut self, pid: u32) {
        self.next = pid;
    }
}
