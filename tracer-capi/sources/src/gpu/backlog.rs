//! Operations that are done, and whose records could not be written without waiting.

use std::collections::VecDeque;

/// The first that could not be written are the first that are tried again, so that who has room gets what was done earlier.
pub struct Backlog<T> {
    waiting: VecDeque<T>,
    most: usize,
    /// How many have left it: written, or lost.
    left: u64,
}

impl<T> Backlog<T> {
    /// So many are kept.
    pub const fn new(most: usize) -> Self {
        Self { waiting: VecDeque::new(), most, left: 0 }
    }

    /// One more; the first one where there is no room for it.
    pub fn add(&mut self, item: T) -> Option<T> {
        self.waiting.push_back(item);
        let is_too_many = self.waiting.len() > self.most;
        is_too_many.then(|| self.take()).flatten()
    }

    /// Tries all again, from the first on, until one stays.
    pub fn try_again(&mut self, mut write: impl FnMut(T) -> Option<T>) {
        while let Some(item) = self.take() {
            if let Some(item) = write(item) {
                self.waiting.push_front(item);
                self.left -= 1;
                return;
            }
        }
    }

    fn take(&mut self) -> Option<T> {
        let first = self.waiting.pop_front();
        self.left += u64::from(first.is_some());
        first
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many will have left it when all have that are in it now.
    pub fn end(&self) -> u64 {
        self.left + self.waiting.len() as u64
    }

    /// Whether so many have left it.
    pub fn has_reached(&self, end: u64) -> bool {
        self.left >= end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_first_is_tried_first_and_lost_first() {
        let mut backlog = Backlog::new(2);
        assert_eq!([1, 2, 3].map(|item| backlog.add(item)), [None, None, Some(1)]);
        let end = backlog.end();
        let mut tried = Vec::new();
        backlog.try_again(|item| {
            tried.push(item);
            (item == 3).then_some(item)
        });
        assert_eq!(tried, [2, 3]);
        assert!(!backlog.is_empty() && !backlog.has_reached(end));
        assert_eq!(backlog.add(4), None);
        backlog.try_again(|_| None);
        assert!(backlog.is_empty() && backlog.has_reached(end));
    }
}
