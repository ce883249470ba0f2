//! What all processes together may have of something that they keep.
//!
//! Any number of processes can be there to take all there is, and what was taken is not given up again:
//! names stand in the trace. So no process gets all that is left, and small ones have a part of their own.

use std::{collections::HashMap, hash::Hash};

/// Of 16 parts, those that go out in small pieces, one to each process.
const FOR_SMALL: usize = 7;
/// A small piece is this part of what the others leave there: it shrinks, but never to nothing, however
/// many processes come.
const SMALL: usize = 128;
/// Beyond its small piece a process may have this part of what others leave of the rest.
const LARGE: usize = 2;

/// A fixed amount, shared out to processes, or to whatever else `K` tells apart.
pub struct Budget<K> {
    most: usize,
    all: Had,
    had: HashMap<K, Had>,
}

#[derive(Clone, Copy, Default)]
struct Had {
    /// Of the part for small pieces.
    small: usize,
    large: usize,
}

impl<K: Copy + Eq + Hash> Budget<K> {
    /// Nobody has anything yet of `most`.
    pub fn new(most: usize) -> Self {
        Self { most, all: Had::default(), had: HashMap::new() }
    }

    /// What `who` has.
    pub fn of(&self, who: K) -> usize {
        self.had.get(&who).map_or(0, |had| had.small + had.large)
    }

    /// What all have.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.all.small + self.all.large
    }

    /// Gives `who` so much more, if that is not beyond its share.
    pub fn take(&mut self, who: K, amount: usize) -> bool {
        let had = self.had.get(&who).copied().unwrap_or_default();
        let others = Had { small: self.all.small - had.small, large: self.all.large - had.large };
        let for_small = self.most / 16 * FOR_SMALL;
        let after = had.small + had.large + amount;
        // What was given stays, although others may have come since.
        let small = after.min((for_small - others.small) / SMALL).max(had.small);
        let large = after - small;
        if large > had.large && large > (self.most - for_small - others.large) / LARGE {
            return false;
        }
        self.all = Had { small: others.small + small, large: others.large + large };
        self.had.insert(who, Had { small, large });
        true
    }

    /// `who` is gone, with all that it had.
    pub fn give_back(&mut self, who: K) {
        if let Some(Had { small, large }) = self.had.remove(&who) {
            self.all.small -= small;
            self.all.large -= large;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 256 << 20;

    /// Takes as much as there is, as a process does that wants everything.
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
