//! The driver's events: what a thread of the runtime sleeps on until a signal changes.
//!
//! An auto-reset event that nobody waits for stays signalled until one wait consumes it. The mailbox of an event is a
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

/// An event to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Its id.
    pub id: u32,
    /// How old it was when the caller last looked: an event of another age is over at once. 0 for
    /// whoever does not know of ages.
    pub seen_age: u64,
}

impl From<u32> for Awaited {
    fn from(id: u32) -> Self {
        Self { id, seen_age: 0 }
    }
}

#[derive(Debug)]
struct Event {
    manual_reset: bool,
    signalled: bool,
    // 1 and how often it was raised.
    age: u64,
    // Threads that sleep on it, and whether it was raised for them.
    waiters: Vec<Waiter>,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    id: u64,
    activated: bool,
}

impl Event {
    /// Gives the event to all that wait for it now, or keeps it for the next one. A thread that comes
    /// later cannot take it from one that was already waiting, as in the driver's `set_event`.
    fn raise(&mut self) -> bool {
        for waiter in &mut self.waiters {
            waiter.activated = true;
        }
        self.age += 1;
        self.signalled = self.manual_reset || self.waiters.is_empty();
        !self.waiters.is_empty()
    }

    fn add_waiter(&mut self, id: u64, seen_age: u64) {
        let missed = seen_age != 0 && seen_age != self.age;
        self.waiters.push(Waiter { id, activated: self.signalled || missed });
        self.signalled &= self.manual_reset;
    }

    fn is_activated(&self, id: u64) -> bool {
        self.waiters.iter().any(|w| w.id == id && w.activated)
    }
}

#[derive(Debug)]
struct Table {
    // Slot 0 stays empty: no event has id 0.
    events: Vec<Option<Event>>,
    next_waiter: u64,
}

impl Table {
    fn get(&mut self, id: u32) -> Option<&mut Event> {
        self.events.get_mut(id as usize)?.as_mut()
    }

    /// How a wait stands; none while it has to go on.
    fn outcome(&mut self, awaited: &[Awaited], waiter: u64, want: Want) -> Option<Waited> {
        let mut activated = 0;
        for &Awaited { id, .. } in awaited {
            match self.get(id) {
                None => return Some(Waited::BadEvent),
                Some(event) => activated += usize::from(event.is_activated(waiter)),
            }
        }
        let enough = match want {
            Want::Any => activated > 0,
            Want::All => activated == awaited.len(),
        };
        enough.then_some(Waited::Signalled)
    }
}

/// All events of the process.
#[derive(Debug)]
pub struct Events {
    table: Mutex<Table>,
    raised: Condvar,
    mailboxes: u64,
}

impl Default for Events {
    /// No events yet.
    fn default() -> Self {
        let mailboxes = sys::map_anonymous(MAX_EVENTS as u64 * 8, 4096).unwrap_or(0);
        let table = Table { events: vec![None], next_waiter: 0 };
        Events { table: Mutex::new(table), raised: Condvar::new(), mailboxes }
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new event's id and the address of its mailbox; none when there are too many.
    pub fn create(&self, manual_reset: bool, signalled: bool) -> Option<(u32, u64)> {
        let events = &mut self.lock().events;
        let free = (1..events.len()).find(|&i| events[i].is_none());
        let id = free.unwrap_or(events.len());
        if id >= MAX_EVENTS || self.mailboxes == 0 {
            return None;
        }
        let event = Some(Event { manual_reset, signalled, age: 1, waiters: Vec::new() });
        if id == events.len() {
            events.push(event)
        } else {
            events[id] = event
        }
        Some((id as u32, self.mailboxes + id as u64 * 8))
    }

    /// Forgets an event; whether there was one.
    pub fn destroy(&self, id: u32) -> bool {
        let gone = self.lock().events.get_mut(id as usize).and_then(Option::take);
        if gone.as_ref().is_some_and(|e| !e.waiters.is_empty()) {
            self.raised.notify_all();
        }
        gone.is_some()
    }

    /// Signals an event. Unknown ids are ignored: the event may just have been destroyed.
    pub fn raise(&self, id: u32) {
        let waiting = self.lock().get(id).is_some_and(Event::raise);
        if waiting {
            self.raised.notify_all();
        }
    }

    /// Sleeps until the events are signalled, and consumes those that reset themselves. Where the caller
    /// knows of ages, they are those of the end of the wait then.
    pub fn wait(&self, awaited: &mut [Awaited], want: Want, timeout_ms: u32) -> Waited {
        let deadline = (timeout_ms != u32::MAX)
            .then(|| Instant::now() + Duration::from_millis(u64::from(timeout_ms)));
        let mut table = self.lock();
        let waiter = table.next_waiter;
        table.next_waiter += 1;
        for &Awaited { id, seen_age } in &*awaited {
            if let Some(event) = table.get(id) {
                event.add_waiter(waiter, seen_age);
            }
        }
        let outcome = loop {
            if let Some(outcome) = table.outcome(awaited, waiter, want) {
                break outcome;
            }
            let left = deadline
                .map_or(Duration::from_secs(3600), |d| d.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break Waited::TimedOut;
            }
            let waited = self.raised.wait_timeout(table, left);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        for Awaited { id, seen_age } in awaited {
            if let Some(event) = table.get(*id) {
                event.waiters.retain(|w| w.id != waiter);
                if *seen_age != 0 {
                    *seen_age = event.age;
                }
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::{Awaited, Events, Waited, Want};

    #[test]
    fn an_auto_reset_event_is_consumed_by_one_wait() {
        let events = Events::default();
        let (id, mailbox) = events.create(false, false).unwrap();
        assert_ne!((id, mailbox), (0, 0));
        events.raise(id);
        events.raise(id);
        assert_eq!(events.wait(&mut [id.into()], Want::Any, 0), Waited::Signalled);
        assert_eq!(events.wait(&mut [id.into()], Want::Any, 0), Waited::TimedOut);
    }

    #[test]
    fn a_manual_event_stays() {
        let events = Events::default();
        let (id, _) = events.create(true, true).unwrap();
        for _ in 0..2 {
            assert_eq!(events.wait(&mut [id.into()], Want::Any, 0), Waited::Signalled);
        }
        assert!(events.destroy(id));
        assert_eq!(events.wait(&mut [id.into()], Want::Any, 0), Waited::BadEvent);
    }

    #[test]
    fn an_event_that_was_raised_since_the_last_look_is_over() {
        let events = Events::default();
        let (id, _) = events.create(false, false).unwrap();
        let mut seen = [Awaited { id, seen_age: 1 }];
        assert_eq!(events.wait(&mut seen, Want::Any, 0), Waited::TimedOut);
        events.raise(id);
        // Somebody else's wait consumes it.
        assert_eq!(events.wait(&mut [id.into()], Want::Any, 0), Waited::Signalled);
        assert_eq!(events.wait(&mut seen, Want::Any, 0), Waited::Signalled);
        assert_eq!(seen, [Awaited { id, seen_age: 2 }]);
        assert_eq!(events.wait(&mut seen, Want::Any, 0), Waited::TimedOut);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let events = Events::default();
        let (a, _) = events.create(false, false).unwrap();
        let (b, _) = events.create(false, false).unwrap();
        std::thread::scope(|s| {
            let sleeper = s.spawn(|| events.wait(&mut [a.into(), b.into()], Want::All, 10_000));
            events.raise(b);
            events.raise(a);
            assert_eq!(sleeper.join().unwrap(), Waited::Signalled);
        });
    }

    #[test]
    fn a_latecomer_does_not_take_the_event_from_a_sleeper() {
        let events = Events::default();
        let (id, _) = events.create(false, false).unwrap();
        std::thread::scope(|s| {
            let sleeper = s.spawn(|| events.wait(&mut [id.into()], Want::Any, 10_000));
            while events.lock().get(id).unwrap().waiters.is_empty() {
                std::thread::yield_now();
            }
            events.raise(id);
            assert_eq!(events.wait(&mut [id.into()], Want::Any, 0), Waited::TimedOut);
            assert_eq!(sleeper.join().unwrap(), Waited::Signalled);
        });
    }
}
