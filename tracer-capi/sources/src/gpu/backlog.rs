//! Operations that are done, and whose records could not be written without waiting.

use std::collections::{BTreeMap, VecDeque};

/// The operations that wait for the same are a queue: the first is tried first, and one that has no room holds up no
/// other queue.
pub struct Backlog<K, T> {
    queues: BTreeMap<K, VecDeque<(u64, T)>>,
    waiting: usize,
    most: usize,
    /// The number of the next one that comes.
    end: u64,
}

impl<K: Copy + Ord, T> Backlog<K, T> {
    /// An empty backlog that keeps `most` operations.
    pub const fn new(most: usize) -> Self {
        Self { queues: BTreeMap::new(), waiting: 0, most, end: 0 }
    }

    /// Adds an operation that waits for `whom`. If the backlog is full, drops the first of the longest queue and
    /// returns it.
    pub fn add(&mut self, whom: K, item: T) -> Option<T> {
        self.queues.entry(whom).or_default().push_back((self.end, item));
        self.end += 1;
        self.waiting += 1;
        if self.waiting <= self.most {
            return None;
        }
        let longest = self.queues.values_mut().max_by_key(|queue| queue.len())?;
        let (_, lost) = longest.pop_front()?;
        self.waiting -= 1;
        Some(lost)
    }

    /// Tries the operations of each queue again, from the first on, until one still waits for the same.
    pub fn try_again(&mut self, mut write: impl FnMut(T) -> Option<(K, T)>) {
        let mut moved = Vec::new();
        for (&whom, queue) in &mut self.queues {
            while let Some((number, item)) = queue.pop_front() {
                match write(item) {
                    Some((rest, item)) if rest == whom => {
                        queue.push_front((number, item));
                        break;
                    }
                    Some((rest, item)) => moved.push((rest, number, item)),
                    None => self.waiting -= 1,
                }
            }
        }
        for (whom, number, item) in moved {
            let queue = self.queues.entry(whom).or_default();
            let place = queue.partition_point(|&(before, _)| before < number);
            queue.insert(place, (number, item));
        }
        self.queues.retain(|_, queue| !queue.is_empty());
    }

    pub fn len(&self) -> usize {
        self.waiting
    }

    /// The number that the next operation gets.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether an operation that came before the one with the number `end` waits for something that `is_meant` holds for.
    pub fn waits(&self, end: u64, mut is_meant: impl FnMut(K) -> bool) -> bool {
        let first =
            |queue: &VecDeque<(u64, T)>| queue.front().is_some_and(|&(number, _)| number < end);
        self.queues.iter().any(|(&whom, queue)| first(queue) && is_meant(whom))
    }

    /// The number of operations in it that came before the one with the number `end`.
    pub fn before(&self, end: u64) -> usize {
        let before =
            |queue: &VecDeque<(u64, T)>| queue.partition_point(|&(number, _)| number < end);
        self.queues.values().map(before).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_first_is_tried_first_and_lost_first() {
        let mut backlog = Backlog::new(2);
        assert_eq!([1, 2, 3].map(|item| backlog.add((), item)), [None, None, Some(1)]);
        let end = backlog.end();
        let mut tried = Vec::new();
        backlog.try_again(|item| {
            tried.push(item);
            (item == 3).then_some(((), item))
        });
        assert_eq!(tried, [2, 3]);
        assert!(backlog.len() > 0 && backlog.before(end) > 0);
        assert_eq!(backlog.add((), 4), None);
        backlog.try_again(|_| None);
        assert!(backlog.len() == 0 && backlog.before(end) == 0);
    }

    #[test]
    fn a_queue_that_has_no_room_holds_up_no_other() {
        let mut backlog = Backlog::new(4);
        let (stuck, busy, both) = (1, 2, 3);
        for (whom, item) in [(both, 10), (stuck, 11), (busy, 12), (both, 13)] {
            assert_eq!(backlog.add(whom, item), None);
        }
        let mut written = Vec::new();
        backlog.try_again(|item| {
            written.push(item);
            (item != 12).then_some((stuck, item))
        });
        assert_eq!(written, [11, 12, 10, 13]);
        assert_eq!([0, 1].map(|end| backlog.before(end)), [0, 1]);
        assert_eq!([0, 1].map(|end| backlog.waits(end, |whom| whom == stuck)), [false, true]);
        assert!(!backlog.waits(4, |whom| whom == both));
        // One lets go of what it had, the other one loses what it does not take, in the order in which it came.
        backlog.try_again(|item| (item != 12).then_some((stuck, item)));
        let mut waits = |item| backlog.add(busy, item);
        assert_eq!([14, 15].map(&mut waits), [None, Some(10)]);
        let mut tried = Vec::new();
        backlog.try_again(|item| {
            tried.push(item);
            (item == 11).then_some((stuck, item))
        });
        assert_eq!(tried, [11, 14, 15]);
        assert!(backlog.len() > 0 && backlog.before(1) == 0 && backlog.before(2) == 1);
    }
}
