//! The operations of one process that are not written yet.

use std::collections::{HashMap, VecDeque};

use super::operation::Operation;
use crate::shim;

/// Most operations at once: as many as one drain brings before roctap takes the records of the calls that they
/// wait for, as many as those records name next, and twice as many as can run at once (`shim`: 131,072 signals).
/// If there are more, the oldest will hardly be joined: their process lost a record, or lies.
pub const MOST: usize = 2 * shim::MOST_AT_ONCE + (1 << 18);

/// Bytes that count for an operation, with the call that launched it and its doorbell.
const BYTES: usize = 2 * size_of::<(u64, (u64, Operation))>() + 256;
/// The number of operations for which the lists keep room when they shrink.
const FEW: usize = 1 << 12;

/// An operation's place in the order in which the joiner heard of operations: a process can use a sequence number
/// again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Arrival {
    number: u64,
    sequence: u64,
}

/// Operations by their sequence numbers.
#[derive(Default)]
pub struct Pending {
    operations: HashMap<u64, (u64, Operation)>,
    arrivals: u64,
    /// All operations, in the order in which they arrived, and some that are written by now.
    order: VecDeque<Arrival>,
    /// The operations that ran and wait for another record, oldest first, and since when; and some that are written by
    /// now.
    waiting: Vec<(Arrival, u64)>,
}

impl Pending {
    /// The operation, if anything was heard of it.
    pub fn get(&self, sequence: u64) -> Option<&Operation> {
        self.operations.get(&sequence).map(|(_, operation)| operation)
    }

    /// The operation, to be changed, if anything was heard of it.
    pub fn get_mut(&mut self, sequence: u64) -> Option<&mut Operation> {
        self.operations.get_mut(&sequence).map(|(_, operation)| operation)
    }

    /// The operation that the caller has to write before it calls [`Pending::entry`] for `sequence`, if there
    /// are too many.
    pub fn in_the_way_of(&mut self, sequence: u64) -> Option<u64> {
        if self.operations.len() < MOST || self.operations.contains_key(&sequence) {
            return None;
        }
        self.oldest()
    }

    /// The bytes of all operations.
    pub fn bytes(&self) -> usize {
        self.operations.len() * BYTES
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Gives room back that is not needed any more; called now and then.
    pub fn shrink(&mut self) {
        let room = FEW.max(2 * self.operations.len());
        if self.operations.capacity() > 2 * room {
            self.operations.shrink_to(room);
            self.order.shrink_to(room);
            self.waiting.shrink_to(room);
        }
    }

    /// The operation that arrived first. The caller has to remove it.
    pub fn oldest(&mut self) -> Option<u64> {
        while let Some(oldest) = self.order.pop_front() {
            if self.is_pending(oldest) {
                return Some(oldest.sequence);
            }
        }
        None
    }

    /// The operation; a new one if nothing was heard of it.
    pub fn entry(&mut self, sequence: u64) -> &mut Operation {
        let (arrivals, order) = (&mut self.arrivals, &mut self.order);
        let new = || {
            *arrivals += 1;
            order.push_back(Arrival { number: *arrivals, sequence });
            (*arrivals, Operation::default())
        };
        let (_, operation) = self.operations.entry(sequence).or_insert_with(new);
        operation
    }

    /// An operation ran, and waits for another record from `now_ns` on.
    pub fn waits(&mut self, sequence: u64, now_ns: u64) {
        if let Some((number, operation)) = self.operations.get_mut(&sequence)
            && !std::mem::replace(&mut operation.waits, true)
        {
            self.waiting.push((Arrival { number: *number, sequence }, now_ns));
        }
    }

    /// Takes the operation out.
    pub fn remove(&mut self, sequence: u64) -> Option<Operation> {
        let (_, operation) = self.operations.remove(&sequence)?;
        // Only when most of a list is written by now, so that this costs little.
        if self.order.len() > 2 * self.operations.len() + 64 {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|&arrival| self.is_pending(arrival));
            self.order = order;
        }
        if self.waiting.len() > 2 * self.operations.len() + 64 {
            let mut waiting = std::mem::take(&mut self.waiting);
            waiting.retain(|&(arrival, _)| self.is_pending(arrival));
            self.waiting = waiting;
        }
        Some(operation)
    }

    fn is_pending(&self, Arrival { number, sequence }: Arrival) -> bool {
        self.operations.get(&sequence).is_some_and(|(known, _)| *known == number)
    }

    /// The operations that need not wait any longer, oldest first; `is_over` decides, and gets the time since when
    /// each waits. They do not count as waiting from then on; the caller writes them.
    pub fn waited(&mut self, mut is_over: impl FnMut(&Operation, u64) -> bool) -> Vec<u64> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut over = Vec::new();
        waiting.retain(|&(arrival, since_ns)| {
            let operation = self.get(arrival.sequence).filter(|_| self.is_pending(arrival));
            let is_over = operation.map(|operation| is_over(operation, since_ns));
            over.extend((is_over == Some(true)).then_some(arrival.sequence));
            is_over == Some(false)
        });
        self.waiting = waiting;
        over
    }

    /// The sequence numbers of the operations that `wanted` accepts, in their order.
    pub fn sequences(&self, wanted: impl Fn(&Operation) -> bool) -> Vec<u64> {
        let wanted = self.operations.iter().filter(|(_, (_, operation))| wanted(operation));
        let mut sequences: Vec<u64> = wanted.map(|(&sequence, _)| sequence).collect();
        sequences.sort_unstable();
        sequences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that uses numbers again, completes some operations and never others.
    #[test]
    fn nothing_grows_without_bound() {
        let mut pending = Pending::default();
        let mut given_up = Vec::new();
        for nth in 0..4 * MOST as u64 {
            let sequence = if nth % 4 == 0 { nth } else { nth % 64 };
            if let Some(old) = pending.in_the_way_of(sequence) {
                given_up.push(old);
                pending.remove(old);
            }
            pending.entry(sequence);
            pending.waits(sequence, nth);
            if nth % 4 != 0 {
                pending.remove(sequence);
            }
            let most = 2 * MOST + 65;
            assert!(pending.operations.len() <= MOST);
            assert!(pending.order.len() <= most && pending.waiting.len() <= most);
        }
        assert!(!given_up.is_empty() && given_up.is_sorted(), "the oldest first");
        let left = pending.sequences(|_| true);
        assert_eq!(left.first(), Some(&(given_up.last().unwrap() + 4)));
        assert_eq!(pending.waited(|_, _| true), left);
        assert!(pending.waited(|_, _| true).is_empty());
    }
}
