//! The phase of the hooks: one word for the process, and the one table of its changes.
//!
//! ```text ┌──────┐ Install ┌─────────┐ Begin ┌────────┐ End ┌──────────┐ │ NONE ├─────────►│ DORMANT ├───────►│ ACTIVE
//! ├─────►│ DRAINING │ └──────┘ └─▲────▲──┘ └───▲────┘ └────┬─────┘ Install │ │ Settle │ Begin │ Release │
//! └───────────────┤ │ │ ┌─────┴────┐ │ │ │ SETTLING │◄──────────┘ │ └──────────┘ DORMANT, ACTIVE, DRAINING, SETTLING
//! ──Close──► CLOSED ──Install──► DORMANT every phase but ENDED and INERT ──Finish──► ENDED, ──Fork──► INERT ```
//!
//! A change that the table does not list is refused. A thread acts on a change only if its own [`Machine::apply`] made
//! it, and of two threads that want the same change only one makes it.

use core::sync::atomic::{AtomicU32, Ordering};

/// A phase of the hooks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// Nothing is installed.
    None = 0,
    /// Everything passes through; nothing is in flight.
    Dormant = 1,
    /// Intercepting.
    Active = 2,
    /// Nothing new is recorded, but a thread may be in the middle of it: doorbells take their queue's lock. Operations
    /// in flight are looked after.
    Draining = 3,
    /// Everything passes through; operations in flight are still looked after.
    Settling = 4,
    /// The runtime is gone or going, no function of it may be called.
    Closed = 5,
    /// The process ends: nothing begins any more. Operations in flight are looked after to the very end, because
    /// destructors that run after ours may wait for them.
    Ended = 6,
    /// A forked child: the worker does not exist here, nothing may ever be done again.
    Inert = 7,
}

/// An event that changes the phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The hooks have been put into the tables of a runtime that is open.
    Install,
    /// A recording begins.
    Begin,
    /// A recording ends.
    End,
    /// Nobody is in the middle of recording any more.
    Release,
    /// Nothing is in flight any more.
    Settle,
    /// The runtime goes, or has gone.
    Close,
    /// The process ends.
    Finish,
    /// This is a forked child.
    Fork,
}

impl Phase {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Dormant,
        Self::Active,
        Self::Draining,
        Self::Settling,
        Self::Closed,
        Self::Ended,
        Self::Inert,
    ];

    /// The table: the phase after `event`, if it may happen in this one.
    pub const fn after(self, event: Event) -> Option<Self> {
        Some(match (event, self) {
            (Event::Install, Self::None | Self::Closed) => Self::Dormant,
            (Event::Begin, Self::Dormant | Self::Settling) => Self::Active,
            (Event::End, Self::Active) => Self::Draining,
            (Event::Release, Self::Draining) => Self::Settling,
            (Event::Settle, Self::Settling) => Self::Dormant,
            (Event::Close, Self::Dormant | Self::Active | Self::Draining | Self::Settling) => {
                Self::Closed
            }
            (Event::Finish, Self::Ended | Self::Inert) | (Event::Fork, Self::Inert) => return None,
            (Event::Finish, _) => Self::Ended,
            (Event::Fork, _) => Self::Inert,
            _ => return None,
        })
    }

    /// The hooks are in place and the runtime is open.
    pub const fn is_installed(self) -> bool {
        matches!(self, Self::Dormant | Self::Active | Self::Draining | Self::Settling)
    }

    /// A recording has ended, and what was in flight may still be.
    pub const fn is_ending(self) -> bool {
        matches!(self, Self::Draining | Self::Settling)
    }

    /// The hooks are installed, or the process ends: our threads may look at what is in flight, and call the runtime.
    pub const fn may_call_runtime(self) -> bool {
        self.is_installed() || matches!(self, Self::Ended)
    }
}

/// The phase of the process. Every change goes through [`Machine::apply`].
pub struct Machine(AtomicU32);

// `watches_doorbells` tests both phases by one mask: their numbers differ in bit 0 alone. `named` takes a number as a
// place in `ALL`.
const _: () = {
    let (active, draining) = (Phase::Active as u32, Phase::Draining as u32);
    assert!(active | 1 == draining && active & 1 == 0);
    let mut number = 0;
    while number < Phase::ALL.len() {
        assert!(Phase::ALL[number] as usize == number);
        number += 1;
    }
};

impl Machine {
    /// One of a process in which nothing has happened yet.
    pub const fn new() -> Self {
        Self(AtomicU32::new(Phase::None as u32))
    }

    /// Makes the change that `event` means, and returns the phase before.
    ///
    /// # Errors
    ///
    /// The phase in which the event cannot happen; nothing was changed.
    pub fn apply(&self, event: Event) -> Result<Phase, Phase> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let from = Self::named(word);
            let to = from.after(event).ok_or(from)?;
            // Release pairs with the Acquire loads of `get` and `is_recording`: what was prepared for
            // the new phase is seen in it.
            match self.0.compare_exchange(word, to as u32, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(from),
                Err(now) => word = now,
            }
        }
    }

    fn named(word: u32) -> Phase {
        // The word is only ever written with numbers of phases.
        Phase::ALL.get(word as usize).copied().unwrap_or(Phase::Inert)
    }

    /// The phase.
    #[inline]
    pub fn get(&self) -> Phase {
        Self::named(self.0.load(Ordering::Acquire))
    }

    /// Whether to record. Relaxed: what was prepared for the recording need not be visible.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Phase::Active as u32
    }

    /// Whether to record. Acquire: what was prepared for the recording is visible.
    #[inline]
    pub fn is_active_acquire(&self) -> bool {
        self.0.load(Ordering::Acquire) == Phase::Active as u32
    }

    /// Whether a thread that rings a doorbell must take the queue's lock. While nothing is recorded, this test is all
    /// that a doorbell costs.
    ///
    /// Also while draining: another thread may still be instrumenting a packet, and a doorbell that is rung without the
    /// lock would let the packet processor take that packet.
    #[inline]
    pub fn watches_doorbells(&self) -> bool {
        self.0.load(Ordering::Relaxed) & !1 == Phase::Active as u32
    }

    /// Whether operations may be in flight whose completions are relayed.
    #[inline]
    pub fn relays(&self) -> bool {
        const PHASES: u32 = 1 << Phase::Active as u32
            | 1 << Phase::Draining as u32
            | 1 << Phase::Settling as u32
            | 1 << Phase::Ended as u32;
        PHASES >> self.0.load(Ordering::Relaxed) & 1 != 0
    }

    /// Whether this is a forked child.
    #[inline]
    pub fn is_inert(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Phase::Inert as u32
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 8] = [
        Event::Install,
        Event::Begin,
        Event::End,
        Event::Release,
        Event::Settle,
        Event::Close,
        Event::Finish,
        Event::Fork,
    ];

    fn machine(at: Phase) -> Machine {
        Machine(AtomicU32::new(at as u32))
    }

    #[test]
    fn what_every_order_of_events_can_come_to() {
        for from in Phase::ALL {
            for event in EVENTS {
                let machine = machine(from);
                let applied = machine.apply(event);
                let to = machine.get();
                assert_eq!(applied, from.after(event).map(|_| from).ok_or(from));
                assert_eq!(to, from.after(event).unwrap_or(from));
                assert_eq!(machine.is_active(), to == Phase::Active);
                assert_eq!(machine.is_active_acquire(), to == Phase::Active);
                assert_eq!(machine.is_inert(), to == Phase::Inert);
                let watched = matches!(to, Phase::Active | Phase::Draining);
                assert_eq!(machine.watches_doorbells(), watched);
                // Nothing leads back from the end, and from a forked child nothing leads at all.
                assert!(from != Phase::Inert || to == Phase::Inert);
                assert!(from != Phase::Ended || matches!(to, Phase::Ended | Phase::Inert));
                // Recording begins only where nobody is in the middle of the one before.
                assert!(event != Event::Begin || from != Phase::Draining || to == from);
            }
        }
    }

    /// Of many who want the same change one makes it.
    #[test]
    fn a_change_is_made_once() {
        for _ in 0..200 {
            let machine = machine(Phase::Dormant);
            let made: usize = std::thread::scope(|scope| {
                let begin = || usize::from(machine.apply(Event::Begin).is_ok());
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
                threads.into_iter().map(|t| t.join().expect("no panic")).sum()
            });
            assert_eq!(made, 1);
        }
    }
}
