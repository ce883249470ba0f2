//! The driver's events: what a thread of the runtime sleeps on until a signal changes.
//!
//! An auto-reset event stays signalled until one wait consumes it. The mailbox of an event is a
//! 64-bit word that the GPU writes the event's id to.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::sys;

/// As many signal events as the driver gives to a process; the runtime copes with running out.
const MAX_EVENTS: usize = 4096;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The condition held.
    Signalled,
    /// It did not hold in time.
    TimedOut,
    /// An id names no event.
    BadEvent,
}

/// How many of the events a wait wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// One is enough.
    Any,
    /// Every one of them.
    All,
}

#[derive(Clone, Copy, Debug, Default)]
struct Event {
    manual_reset: bool,
    signalled: bool,
    waiters: u32,
}

/// All events of the process.
#[derive(Debug)]
pub struct Events {
    // Slot 0 stays empty: no event has id 0.
    table: Mutex<Vec<Option<Event>>>,
    raised: Condvar,
    mailboxes: u64,
}

impl Events {
    /// No events yet.
    pub fn new() -> Self {
        let mailboxes = sys::map_anonymous(MAX_EVENTS as u64 * 8, 4096).unwrap_or(0);
        Events { table: Mutex::new(vec![None]), raised: Condvar::new(), mailboxes }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Event>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new event's id and the address of its mailbox; none when there are too many.
    pub fn create(&self, manual_reset: bool, signalled: bool) -> Option<(u32, u64)> {
        let mut table = self.lock();
        let free = (1..table.len()).find(|&i| table[i].is_none());
        let id = free.unwrap_or(table.len());
        if id >= MAX_EVENTS || self.mailboxes == 0 {
            return None;
        }
        let event = Some(Event { manual_reset, signalled, waiters: 0 });
        if id == table.len() { table.push(event) } else { table[id] = event }
        Some((id as u32, self.mailboxes + id as u64 * 8))
    }

    /// Forgets an event; whether there was one.
    pub fn destroy(&self, id: u32) -> bool {
        let gone = self.lock().get_mut(id as usize).and_then(Option::take);
        if gone.is_some_and(|e| e.waiters > 0) {
            self.raised.notify_all();
        }
        gone.is_some()
    }

    /// Signals an event. Unknown ids are ignored: the event may just have been destroyed.
    pub fn raise(&self, id: u32) {
        let waiting = match self.lock().get_mut(id as usize) {
            Some(Some(event)) => {
                event.signalled = true;
                event.waiters > 0
            }
            _ => false,
        };
        if waiting {
            self.raised.notify_all();
        }
    }

    /// Sleeps until the events are signalled, and consumes those that reset themselves.
    pub fn wait(&self, ids: &[u32], want: Want, timeout_ms: u32) -> Waited {
        let deadline = (timeout_ms != u32::MAX)
            .then(|| Instant::now() + Duration::from_millis(u64::from(timeout_ms)));
        let mut table = self.lock();
        if !self.add_waiter(&mut table, ids) {
            return Waited::BadEvent;
        }
        let outcome = loop {
            if let Some(outcome) = try_consume(&mut table, ids, want) {
                break outcome;
            }
            let left = deadline.map_or(Duration::from_secs(3600), |d| d.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break Waited::TimedOut;
            }
            let waited = self.raised.wait_timeout(table, left);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        for &id in ids {
            if let Some(Some(event)) = table.get_mut(id as usize) {
                event.waiters = event.waiters.saturating_sub(1);
            }
        }
        outcome
    }

    fn add_waiter(&self, table: &mut [Option<Event>], ids: &[u32]) -> bool {
        let known = ids.iter().all(|&id| matches!(table.get(id as usize), Some(Some(_))));
        for &id in ids.iter().filter(|_| known) {
            if let Some(Some(event)) = table.get_mut(id as usize) {
                event.waiters += 1;
            }
        }
        known
    }
}

/// Consumes the events if the condition holds.
fn try_consume(table: &mut [Option<Event>], ids: &[u32], want: Want) -> Option<Waited> {
    let state = |table: &[Option<Event>], id: u32| table.get(id as usize).copied().flatten();
    if ids.iter().any(|&id| state(table, id).is_none()) {
        return Some(Waited::BadEvent);
    }
    let signalled = |id: &&u32| state(table, **id).is_some_and(|e| e.signalled);
    let n = ids.iter().filter(signalled).count();
    let enough = match want {
        Want::Any => n > 0,
        Want::All => n == ids.len(),
    };
    if !enough {
        return None;
    }
    for &id in ids {
        if let Some(Some(event)) = table.get_mut(id as usize) {
            event.signalled &= event.manual_reset;
        }
    }
    Some(Waited::Signalled)
}

#[cfg(test)]
mod tests {
    use super::{Events, Waited, Want};

    #[test]
    fn an_auto_reset_event_is_consumed_by_one_wait() {
        let events = Events::new();
        let (id, mailbox) = events.create(false, false).unwrap();
        assert_ne!((id, mailbox), (0, 0));
        events.raise(id);
        events.raise(id);
        assert_eq!(events.wait(&[id], Want::Any, 0), Waited::Signalled);
        assert_eq!(events.wait(&[id], Want::Any, 0), Waited::TimedOut);
    }

    #[test]
    fn a_manual_event_stays() {
        let events = Events::new();
        let (id, _) = events.create(true, true).unwrap();
        for _ in 0..2 {
            assert_eq!(events.wait(&[id], Want::Any, 0), Waited::Signalled);
        }
        assert!(events.destroy(id));
        assert_eq!(events.wait(&[id], Want::Any, 0), Waited::BadEvent);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let events = Events::new();
        let (a, _) = events.create(false, false).unwrap();
        let (b, _) = events.create(false, false).unwrap();
        std::thread::scope(|s| {
            let sleeper = s.spawn(|| events.wait(&[a, b], Want::All, 10_000));
            events.raise(b);
            events.raise(a);
            assert_eq!(sleeper.join().unwrap(), Waited::Signalled);
        });
    }
}
