//! Shares a fixed amount of something that is kept among all processes.
//!
//! Any number of processes can try to take the whole amount, and names that stand in the trace are never given back. So
//! no process gets all that is left, and small ones have a part of their own.

use std::{collections::HashMap, hash::Hash};

/// Of 16 parts, the number of those that go out in small pieces, one to each process.
const FOR_SMALL: usize = 7;
/// A small piece is one in so many parts of what the others leave of these: it shrinks, but never to nothing, however
/// many processes come.
const SMALL: usize = 128;
/// Beyond its small piece a process may have one in so many parts of what others leave of the rest.
const LARGE: usize = 2;

/// A fixed amount, shared out to processes, or to other owners that `K` tells apart.
pub struct Budget<K> {
    most: usize,
    all: Usage,
    had: HashMap<K, Usage>,
}

#[derive(Clone, Copy, Default)]
struct Usage {
    /// The amount from the part for small pieces.
    small: usize,
    large: usize,
}

impl<K: Copy + Eq + Hash> Budget<K> {
    /// Nothing of `most` is taken yet.
    pub fn new(most: usize) -> Self {
        Self { most, all: Usage::default(), had: HashMap::new() }
    }

    /// The amount that `who` has.
    pub fn of(&self, who: K) -> usize {
        self.had.get(&who).map_or(0, |had| had.small + had.large)
    }

    /// The amount that all have together.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.all.small + self.all.large
    }

    /// Gives `who` this much more, if that is not beyond its share.
    pub fn take(&mut self, who: K, amount: usize) -> bool {
        let had = self.had.get(&who).copied().unwrap_or_default();
        let others = Usage { small: self.all.small - had.small, large: self.all.large - had.large };
        let for_small = self.most / 16 * FOR_SMALL;
        let after = had.small + had.large + amount;
        // A piece that was given stays, although others may have come since.
        let small = after.min((for_small - others.small) / SMALL).max(had.small);
        let large = after - small;
        if large > had.large && large > (self.most - for_small - others.large) / LARGE {
            return false;
        }
        self.all = Usage { small: others.small + small, large: others.large + large };
        self.had.insert(who, Usage { small, large });
        true
    }

    /// `who` is gone, with all that it had.
    pub fn give_back(&mut self, who: K) {
        if let Some(Usage { small, large }) = self.had.remove(&who) {
            self.all.small -= small;
            self.all.large -= large;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 256 << 20;

    /// Takes as much as possible, as a process does that wants everything.
    fn take_all(budget: &mut Budget<u32>, who: u32) -> usize {
        for amount in (0..28).rev().map(|bit| 1 << bit) {
            while budget.take(who, amount) {}
        }
        budget.of(who)
    }

    #[test]
    fn one_alone_may_have_a_quarter() {
        let mut budget = Budget::new(MOST);
        assert!(take_all(&mut budget, 1) > MOST / 4);
        assert!(budget.taken() < MOST / 3, "{}", budget.taken());
    }

    #[test]
    fn however_many_take_all_they_can_there_is_something_for_the_next() {
        let mut budget = Budget::new(MOST);
        for (processes, left) in [(4, 512 << 10), (100, 256 << 10), (1000, 256)] {
            (0..processes).map(|who| take_all(&mut budget, who)).for_each(drop);
            assert!(budget.taken() <= MOST, "{}", budget.taken());
            assert!(budget.take(u32::MAX, left), "after {processes}");
            assert_eq!(budget.of(u32::MAX), left);
            budget.give_back(u32::MAX);
        }
    }

    #[test]
    fn what_is_given_back_is_there_again() {
        let mut budget = Budget::new(MOST);
        (0..100).map(|who| take_all(&mut budget, who)).for_each(drop);
        (0..100).for_each(|who| budget.give_back(who));
        assert_eq!((budget.taken(), budget.of(5)), (0, 0));
        assert!(budget.take(5, MOST / 4));
    }
}
