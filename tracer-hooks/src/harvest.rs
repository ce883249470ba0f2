//! Completions: copy the times to the application's signal, decrement it, report, recycle.
//!
//! Why relay at all, instead of leaving the application's own signal on the packet and reading its
//! times? Because the application may use its signal again the moment that it completes, and may
//! put one signal on many packets: by the time that anybody looks, the times are another packet's.
//! Only a signal that nobody else knows keeps them. The price is that the application's signal is
//! decremented some microseconds later than the GPU would have; the worker polls accordingly.

use core::sync::atomic::Ordering;

use tracer_common::shim::{Complete, Loss};

use crate::abi::{AmdSignal, signal_kind};
use crate::pool::Batch;
use crate::queue::{Queue, life};
use crate::runtime::RUNTIME;
use crate::sink::Sink;
use crate::state::State;
use crate::track::{Entry, Fate, Found, Look, Track};
use crate::view;

/// What the holder of [`State::work`] works with.
pub struct Work {
    /// Signals to give back to the pool.
    returned: Batch,
}

/// What one round of looking found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Round {
    /// Operations that completed.
    pub done: usize,
    /// Something is in flight.
    pub pending: bool,
    /// The application waits for something that is in flight, or may.
    pub chained: bool,
    /// A doorbell is held back.
    pub held: bool,
}

impl Work {
    /// Nothing done yet.
    pub const fn new() -> Self {
        Self { returned: Batch::new() }
    }

    /// Looks at everything that is in flight.
    pub fn round(&mut self, state: &'static State, look: Look) -> Round {
        let mut round = Round::default();
        let Some(&sink) = state.sink.get() else { return round };
        for queue in state.registry.objects() {
            match queue.life.load(Ordering::Acquire) {
                life::LIVE | life::CLOSING => {
                    round.add(self.queue(state, sink, queue, look));
                    round.held |= queue.held.load(Ordering::Relaxed);
                }
                life::DEAD => self.bury(state, sink, queue),
                _ => {}
            }
        }
        round.add(self.copies(state, sink, look));
        state.pool.give(&mut self.returned);
        round
    }

    /// Looks at one queue.
    pub fn queue(
        &mut self,
        state: &'static State,
        sink: &dyn Sink,
        queue: &Queue,
        look: Look,
    ) -> Found {
        if queue.track.is_empty() {
            return Found::default();
        }
        let agent = queue.agent.load(Ordering::Relaxed);
        self.track(state, sink, &queue.track, look, |entry, signal| {
            let start = signal.start_ts.load(Ordering::Relaxed);
            let end = signal.end_ts.load(Ordering::Relaxed);
            relay(entry.original, (start, end));
            // The runtime of Debian 12 prints to stderr when it is asked for times that are 0.
            (start != 0 && end != 0).then(|| RUNTIME.dispatch_times(agent, entry.signal)).flatten()
        })
    }

    fn copies(&mut self, state: &'static State, sink: &dyn Sink, look: Look) -> Found {
        if state.copies.track.is_empty() {
            return Found::default();
        }
        self.track(state, sink, &state.copies.track, look, |entry, _| {
            let times = RUNTIME.copy_times(entry.signal);
            if let Some(times) = times {
                // Before the decrement: whoever waits for it may ask at once.
                state.copies.answer(entry.original, times);
            }
            relay(entry.original, (0, 0));
            times
        })
    }

    fn track(
        &mut self,
        state: &State,
        sink: &dyn Sink,
        track: &Track,
        look: Look,
        mut finish: impl FnMut(&Entry, &AmdSignal) -> Option<crate::abi::Times>,
    ) -> Found {
        let returned = &mut self.returned;
        track.harvest(
            look,
            |entry| {
                if let Some(signal) = entry.cancelled() {
                    state.pool.take_back(returned, signal);
                    return Fate::Done;
                }
                let Some(signal) = view::signal(entry.signal) else { return Fate::Done };
                // Acquire: the times were written before the decrement.
                if signal.value.load(Ordering::Acquire) > 0 {
                    return Fate::Pending;
                }
                match finish(entry, signal) {
                    _ if entry.sequence == 0 => {}
                    Some(times) => sink.complete(Complete {
                        sequence: entry.sequence,
                        start_ns: times.start,
                        end_ns: times.end,
                    }),
                    None => sink.lost(Loss::NO_TIMES, 1),
                }
                recycle(signal);
                state.pool.take_back(returned, entry.signal);
                Fate::Done
            },
            |_| {
                // The packet processor read the packet before our signal was in it; the
                // application's own signal was decremented then.
                state.pool.quarantine();
                sink.lost(Loss::PACKET_PASSED, 1);
            },
        )
    }

    /// The queue is gone: what did not complete never will.
    fn bury(&mut self, state: &State, sink: &dyn Sink, queue: &Queue) {
        self.queue_leftovers(state, sink, &queue.track);
        queue.release(&state.pool);
        queue.life.store(life::FREE, Ordering::Release);
    }

    fn queue_leftovers(&mut self, state: &State, sink: &dyn Sink, track: &Track) {
        let mut unfinished = 0;
        track.discard(|entry| match entry.cancelled() {
            Some(signal) => state.pool.take_back(&mut self.returned, signal),
            None => {
                unfinished += 1;
                if let Some(signal) = view::signal(entry.signal) {
                    recycle(signal);
                    state.pool.take_back(&mut self.returned, entry.signal);
                }
            }
        });
        state.pool.give(&mut self.returned);
        if unfinished > 0 {
            sink.lost(Loss::UNFINISHED, unfinished);
        }
    }

    /// The runtime goes, or is gone: forgets what is in flight, and touches nothing of it. The GPU may
    /// write the signals as long as they are there.
    pub fn forget(&mut self, state: &'static State) {
        let mut unfinished = 0;
        for queue in state.registry.objects() {
            if queue.life.load(Ordering::Acquire) != life::FREE {
                state.registry.remove(queue.address.load(Ordering::Relaxed));
                queue.life.store(life::DEAD, Ordering::Release);
                queue.track.discard(|_| unfinished += 1);
                queue.release(&state.pool);
                queue.life.store(life::FREE, Ordering::Release);
            }
        }
        state.copies.track.discard(|_| unfinished += 1);
        self.returned = Batch::new();
        if unfinished > 0
            && let Some(sink) = state.sink.get()
        {
            sink.lost(Loss::UNFINISHED, unfinished);
        }
    }
}

impl Default for Work {
    fn default() -> Self {
        Self::new()
    }
}

impl Round {
    fn add(&mut self, found: Found) {
        self.done += found.done;
        self.pending |= found.left > 0;
        self.chained |= found.chained_left;
    }
}

/// Does to the application's signal what the packet processor would have done.
fn relay(original: u64, (start, end): (u64, u64)) {
    let Some(signal) = view::signal(original) else { return };
    if signal.kind.load(Ordering::Acquire) != signal_kind::USER {
        // Destroyed while its packet was in flight, which only a broken program does.
        return;
    }
    if end != 0 {
        signal.start_ts.store(start, Ordering::Relaxed);
        signal.end_ts.store(end, Ordering::Relaxed);
    }
    if signal.event_mailbox.load(Ordering::Relaxed) == 0 {
        // No interrupt belongs to it (GPU-only and IPC signals): its waiters spin on the value.
        // Release: the times, and what the packet wrote, are visible before.
        signal.value.fetch_sub(1, Ordering::AcqRel);
    } else {
        RUNTIME.decrement(original);
    }
}

/// Makes one of our signals as good as new.
fn recycle(signal: &AmdSignal) {
    signal.start_ts.store(0, Ordering::Relaxed);
    signal.end_ts.store(0, Ordering::Relaxed);
    signal.value.store(1, Ordering::Release);
}
