//! What the program gets to see of a finished operation.
//!
//! Effects are collected while the queues are stepped and applied, in order, once the log is on its
//! way to the file. Memory that an operation copied or filled was written before that.

use crate::events::Events;
use crate::sys;

/// Offsets in `amd_signal_t` (amd_hsa_signal.h; frozen ABI).
pub mod signal {
    /// The value that completion decrements.
    pub const VALUE: u64 = 8;
    /// Address of the event's mailbox; 0 for a signal without an event.
    pub const EVENT_MAILBOX: u64 = 16;
    /// The driver's event id.
    pub const EVENT_ID: u64 = 24;
    /// GPU ticks at the start.
    pub const START_TS: u64 = 32;
    /// GPU ticks at the end.
    pub const END_TS: u64 = 40;
}

/// One visible change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Completes an AQL packet through its signal.
    Complete {
        /// The signal's handle.
        signal: u64,
        /// Start and end in ticks, when the queue's profiling is on.
        ticks: Option<(u64, u64)>,
        /// End of the operation.
        end_ns: u64,
    },
    /// Adds to a 64-bit word at a known time (an SDMA atomic on a signal's value).
    Add64 {
        /// Where.
        addr: u64,
        /// How much.
        delta: i64,
        /// End of the operation.
        end_ns: u64,
    },
    /// Wakes who waits for the signal with this handle, which was set (a queue's inactive signal).
    Notify(u64),
    /// Stores a 64-bit word (an SDMA timestamp).
    Store64(u64, u64),
    /// Stores a 32-bit word (an SDMA fence).
    Store32(u64, u32),
    /// Raises an event (an SDMA trap).
    Raise(u32),
}

/// When the engine last completed a signal, for barriers that wait on it. A small direct-mapped
/// cache, keyed by the address of the signal's value: a miss only costs precision.
#[derive(Debug)]
pub struct CompletionTimes(Vec<(u64, u64)>);

impl CompletionTimes {
    const SLOTS: usize = 1024;

    /// An empty cache.
    pub fn new() -> Self {
        CompletionTimes(vec![(0, 0); Self::SLOTS])
    }

    fn slot(value_addr: u64) -> usize {
        (value_addr >> 6) as usize % Self::SLOTS
    }

    fn record(&mut self, value_addr: u64, end_ns: u64) {
        self.0[Self::slot(value_addr)] = (value_addr, end_ns);
    }

    /// When the signal whose value is at that address was last completed.
    pub fn get(&self, value_addr: u64) -> Option<u64> {
        let (addr, ns) = self.0[Self::slot(value_addr)];
        (addr == value_addr).then_some(ns)
    }
}

/// Makes the effects visible, in order, and empties the list.
pub fn apply(effects: &mut Vec<Effect>, events: &Events, times: &mut CompletionTimes) {
    for effect in effects.drain(..) {
        match effect {
            Effect::Complete { signal: s, ticks, end_ns } => {
                // Read first: once the value has changed, the program may destroy the signal.
                let mailbox = sys::load_u64(s + signal::EVENT_MAILBOX);
                let event = sys::load_u32(s + signal::EVENT_ID);
                if let Some((start, end)) = ticks {
                    sys::store_u64(s + signal::START_TS, start);
                    sys::store_u64(s + signal::END_TS, end);
                }
                times.record(s + signal::VALUE, end_ns);
                sys::add_i64(s + signal::VALUE, -1);
                notify(mailbox, event, events);
            }
            Effect::Notify(s) => {
                let mailbox = sys::load_u64(s + signal::EVENT_MAILBOX);
                notify(mailbox, sys::load_u32(s + signal::EVENT_ID), events);
            }
            Effect::Add64 { addr, delta, end_ns } => {
                times.record(addr, end_ns);
                sys::add_i64(addr, delta);
            }
            Effect::Store64(addr, value) => sys::store_u64(addr, value),
            Effect::Store32(addr, value) => sys::store_u32(addr, value),
            Effect::Raise(event) => events.raise(event),
        }
    }
}

/// Wakes who waits for a signal, if it has an event.
fn notify(mailbox: u64, event: u32, events: &Events) {
    if mailbox != 0 {
        sys::store_u64(mailbox, u64::from(event));
        events.raise(event);
    }
}

#[cfg(test)]
mod tests {
    use super::{CompletionTimes, Effect, apply, signal};
    use crate::events::Events;

    #[repr(C, align(64))]
    struct Signal([u64; 8]);

    #[test]
    fn completion_writes_times_before_the_value() {
        let s = Signal([1, 1, 0, 0, 0, 0, 0, 0]);
        let handle = s.0.as_ptr() as u64;
        let mut times = CompletionTimes::new();
        let mut list = vec![Effect::Complete { signal: handle, ticks: Some((5, 9)), end_ns: 90 }];
        apply(&mut list, &Events::default(), &mut times);
        assert!(list.is_empty());
        assert_eq!(crate::sys::load_u64(handle + signal::VALUE), 0);
        assert_eq!(crate::sys::load_u64(handle + signal::START_TS), 5);
        assert_eq!(crate::sys::load_u64(handle + signal::END_TS), 9);
        assert_eq!(times.get(handle + signal::VALUE), Some(90));
    }

    #[test]
    fn without_profiling_the_times_stay() {
        let s = Signal([1, 3, 0, 0, 7, 7, 0, 0]);
        let handle = s.0.as_ptr() as u64;
        let mut list = vec![Effect::Complete { signal: handle, ticks: None, end_ns: 90 }];
        apply(&mut list, &Events::default(), &mut CompletionTimes::new());
        assert_eq!(crate::sys::load_u64(handle + signal::VALUE), 2);
        assert_eq!(crate::sys::load_u64(handle + signal::START_TS), 7);
    }
}
