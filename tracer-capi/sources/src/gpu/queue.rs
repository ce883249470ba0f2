//! The events of the work of GPUs: a queue, in which nobody waits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use roctracer::queue::{Queue, TakenValues};
use tracer_common::shim::{Agent, Complete};

use super::client::{Client, Work};
use super::kernels::Kernel;

/// An operation that is enqueued.
pub struct Enqueued<C: Client> {
    pub sequence: u64,
    /// None if another event will name it.
    pub caller: Option<C::Caller>,
    pub work: Work,
    /// The agent that has the queue; 0 of copies.
    pub agent: u64,
    pub queue_id: u64,
    pub kept: C::OperationData,
}

/// Whether a thread has enqueued an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It has found the packet: another thread may have enqueued it, and say so.
    Found,
    /// It has enqueued it, and the operation's event came before.
    Certain,
    /// It has enqueued it, and the operation's event will come.
    Ahead,
}

/// An event.
pub enum Event<C: Client> {
    /// A recording begins: all kernels are announced again.
    Begins,
    Agent(Agent),
    /// This kernel is at this address, from `since_ns` on.
    Symbol {
        address: u64,
        since_ns: u64,
        kernel: Arc<Kernel>,
    },
    Enqueued(Enqueued<C>),
    /// A thread may have enqueued an operation.
    Launched {
        sequence: u64,
        caller: C::Caller,
        claim: Claim,
    },
    Done(Complete),
    /// The operation is not recorded.
    Refused(u64),
    /// The operation is done, or lost: its times are not known.
    NoTimes(u64),
    /// Somebody waits for what was enqueued.
    Drain(Arc<Drain>),
}

/// The number of operations that the queue holds, which take up to 300 MB: where a callback of the client's stands
/// still, nobody takes them.
pub const MOST: usize = 1 << 19;

/// A queue of events. A thread that finds no memory for an event, or no room for an operation, adds none.
pub struct Events<C: Client> {
    queue: Queue<Event<C>>,
    operations: AtomicUsize,
    most: usize,
    /// Operations for which there was no room.
    refused: AtomicUsize,
}

impl<C: Client> Events<C> {
    pub const fn new(most: usize) -> Self {
        let (operations, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { queue: Queue::new(), operations, most, refused }
    }

    pub fn push(&self, event: Event<C>) -> bool {
        self.queue.push(event)
    }

    /// An operation is to be recorded; false if it cannot be.
    pub fn enqueue(&self, enqueued: Enqueued<C>) -> bool {
        let is_room = self.operations.fetch_add(1, Ordering::Relaxed) < self.most;
        let pushed = is_room && self.push(Event::Enqueued(enqueued));
        if !pushed {
            self.operations.fetch_sub(1, Ordering::Relaxed);
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        pushed
    }

    /// The next event: of those that were taken before, or of the queue when none of these is left.
    pub fn next(&self, taken: &mut TakenValues<Event<C>>) -> Option<Event<C>> {
        let event = taken.next().or_else(|| {
            *taken = self.queue.take();
            taken.next()
        });
        if matches!(event, Some(Event::Enqueued(_))) {
            self.operations.fetch_sub(1, Ordering::Relaxed);
        }
        event
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Somebody waits for what is under way.
#[derive(Default)]
pub struct Drain {
    /// Nobody waits after this drain, and its caller wants the number of operations that drains have ever waited for in
    /// vain.
    is_last: AtomicBool,
    /// The address of the buffer, or of the pool, whose callback is waited for as long as it takes; 0 for none.
    whom: usize,
    /// That number, once the drain is over.
    left: Mutex<Option<usize>>,
    over: Condvar,
}

impl Drain {
    /// Nobody has waited yet.
    pub fn new(is_last: bool, whom: usize) -> Self {
        Self { is_last: AtomicBool::new(is_last), whom, ..Self::default() }
    }

    /// Whether nobody waits after it.
    pub fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Relaxed)
    }

    /// See [`Self::new`].
    pub fn whom(&self) -> usize {
        self.whom
    }

    /// Waits until the drain is over, or until a time. Returns the number of operations that were waited for in vain,
    /// if it is over and was the last one.
    pub fn wait_until(&self, until: Instant) -> Option<usize> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let time = until.saturating_duration_since(Instant::now());
        let waited = self.over.wait_timeout_while(left, time, |left| left.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Nobody waits for it any more.
    pub fn abandon(&self) {
        self.is_last.store(false, Ordering::Relaxed);
    }

    /// It is over.
    pub fn ends(&self, unfinished: impl FnOnce() -> usize) {
        let left = if self.is_last() { unfinished() } else { 0 };
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
        self.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::testing::Nobody;

    #[test]
    fn operations_beyond_the_most_are_refused_until_some_are_taken() {
        let events = Events::<Nobody>::new(2);
        let enqueue = |sequence| {
            let (work, caller) = (Work::Barrier, None);
            events.enqueue(Enqueued { sequence, caller, work, agent: 0, queue_id: 0, kept: () })
        };
        assert!(enqueue(1) && enqueue(2) && !enqueue(3));
        // An event that belongs to an operation in the queue has room.
        assert!(events.push(Event::NoTimes(1)));
        let mut taken = TakenValues::default();
        assert!(matches!(events.next(&mut taken), Some(Event::Enqueued(_))));
        assert!(enqueue(4) && !enqueue(5));
        let numbers = std::iter::from_fn(|| events.next(&mut taken)).map(|event| match event {
            Event::Enqueued(Enqueued { sequence, .. }) | Event::NoTimes(sequence) => sequence,
            _ => panic!("nothing else was pushed"),
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [2, 1, 4]);
        assert!(events.is_empty() && events.refused() == 2);
    }
}
