//! Asynchronous copies, observed through a completion signal of ours.
//!
//! Two quirks of the runtime (5.2.3) shape this:
//!
//! * A copy of 0 bytes returns success and **never touches its completion signal**; it passes
//!   through untouched.
//! * `hsa_amd_profiling_get_async_copy_time` needs the copy's agent, which the runtime notes in the
//!   C++ object of the signal that it was given, i.e. ours. HIP asks for its own signal's times to
//!   answer `hipEventElapsedTime`. That is why the answers are kept here ([`Copies::times_of`]) and
//!   the function is intercepted.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use tracer_common::loss::ShimLoss;
use tracer_common::shim::{self};

use crate::abi::Times;
use crate::lock::Lock;
use crate::pool::{Batch, Pool};
use crate::queue::Context;
use crate::runtime::RUNTIME;
use crate::sink::Sink;
use crate::track::{Entry, Track};
use crate::{abi, sys, view};

const WAIT_NS: u64 = 1_000_000_000;
/// Answers that are kept.
const ANSWERS: usize = 16 << 10;
/// Places that an answer may be at.
const PROBES: usize = 8;

/// Copies in flight.
pub struct Copies {
    /// Those in flight.
    pub track: Track,
    cache: Lock<Batch>,
    /// The recording for which the runtime was told to time copies.
    profiled: AtomicU32,
    /// The application has turned it off by `hsa_amd_profiling_async_copy_enable`.
    is_turned_off: AtomicBool,
    answers: Answers,
}

/// A copy that is about to be requested with `signal` instead of the application's.
#[derive(Clone, Copy)]
pub struct Ticket {
    /// Ours.
    pub signal: u64,
    /// Where it is in [`Copies::track`].
    at: u64,
    /// The copy that is being requested.
    record: shim::Copy,
}

impl Copies {
    /// None in flight.
    pub const fn new() -> Self {
        Self {
            track: Track::new(),
            cache: Lock::new(Batch::new()),
            profiled: AtomicU32::new(0),
            is_turned_off: AtomicBool::new(false),
            answers: Answers::new(),
        }
    }

    /// Takes a signal for a copy that is about to be requested; `None`: request it as it is.
    ///
    /// From here on the copy is in flight, before the runtime is asked: the application's signal is relayed whatever
    /// becomes of the thread, which waits for nothing any more, and the thread that ends a recording sees that the
    /// signal is used.
    pub fn begin(
        &self,
        context: &Context<'_>,
        record: shim::Copy,
        original: u64,
    ) -> Option<Ticket> {
        let amd = view::signal(original)?;
        if amd.kind.load(Ordering::Relaxed) != abi::signal_kind::USER {
            return None;
        }
        let epoch = context.recording()?;
        // Acquire pairs with the swap below: the runtime times the copies of a thread that finds the epoch there.
        if self.profiled.load(Ordering::Acquire) != epoch {
            sys::uninterrupted(|| RUNTIME.profile_copies());
            // Pairs with the swap in `release`: the thread that ends the recording sees that copies are timed for it.
            self.profiled.swap(epoch, Ordering::AcqRel);
        }
        let Some(sequence) = context.sink.reserve(record.enqueue_ns) else {
            context.sink.lost(ShimLoss::NO_RING, 1);
            return None;
        };
        let Some(mut cache) = self.cache.lock_or_lose(WAIT_NS) else {
            context.sink.lost(ShimLoss::LEFT_ALONE, 1);
            return None;
        };
        // Under the lock: the thread that ends the recording empties the cache after this.
        context.recording()?;
        let interrupts = amd.event_mailbox.load(Ordering::Relaxed) != 0;
        let bell = interrupts.then(|| context.pool.bells.take()).flatten();
        if bell.is_none() && cache.is_empty() {
            context.pool.take(&mut cache, || RUNTIME.create_signal());
        }
        let (at, _) = self.track.pushed();
        let entry = |signal| Entry { signal, original, sequence, barrier: false, usual: 0 };
        let signal = bell.or(cache.last()).filter(|&signal| self.track.push(entry(signal)));
        let Some(signal) = signal else {
            bell.map(|bell| context.pool.bells.give(bell));
            context.sink.lost(ShimLoss::SIGNAL_POOL, 1);
            return None;
        };
        if bell.is_none() {
            cache.pop();
        }
        Some(Ticket { signal, at, record: shim::Copy { sequence, ..record } })
    }

    /// The runtime accepted the copy: records it; its sequence number.
    ///
    /// Not before: HIP tries rectangular copies that the runtime refuses (`HSA_ENABLE_SDMA=0`).
    pub fn started(&self, sink: &dyn Sink, ticket: Ticket) -> Option<u64> {
        let Ticket { at, mut record, .. } = ticket;
        let sequence = record.sequence;
        let recorded = sink.copy(&mut record);
        if !recorded {
            self.track.forget_sequence(at, sequence);
        }
        recorded.then_some(sequence)
    }

    /// The runtime refused the copy.
    pub fn cancelled(&self, ticket: &Ticket) {
        self.track.cancel(ticket.at);
    }

    /// Gives the cached signals back.
    pub fn give_back(&self, pool: &Pool) {
        if let Some(mut cache) = self.cache.lock_or_lose(WAIT_NS) {
            pool.give(&mut cache);
        }
    }

    /// Recording stopped.
    pub fn release(&self, pool: &Pool) {
        self.give_back(pool);
        if self.profiled.swap(0, Ordering::AcqRel) != 0
            && self.is_turned_off.load(Ordering::Relaxed)
        {
            RUNTIME.set_copy_profiling(false);
        }
    }

    /// The application switches the timing of copies, as it told the runtime; true when that must not
    /// happen while anything is recorded. A copy that is not timed leaves the times of the one before it in
    /// the signal.
    pub fn wishes(&self, enable: bool) -> bool {
        self.is_turned_off.store(!enable, Ordering::Relaxed);
        !enable && self.profiled.load(Ordering::Acquire) != 0
    }

    /// Keeps the answer for an application's signal.
    pub fn answer(&self, original: u64, times: Times) {
        self.answers.put(original, Some(times));
    }

    /// The application's signal is about to complete a copy that we do not observe.
    #[inline]
    pub fn forget(&self, original: u64) {
        if self.answers.used() {
            self.answers.put(original, None);
        }
    }

    /// The times of the copy that last completed an application's signal, if we observed it.
    pub fn times_of(&self, original: u64) -> Option<Times> {
        self.answers.get(original)
    }
}

impl Default for Copies {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Default)]
struct Answer([AtomicU64; 3]);

#[expect(unsafe_code, reason = "promises that atomics may begin as zeros")]
// SAFETY: three atomics, for which zeros are valid, without a destructor.
unsafe impl sys::Zeroed for Answer {}

/// Times by signal handle: a small cache; what is old is overwritten.
struct Answers {
    table: OnceLock<&'static [Answer]>,
    lock: Lock<usize>,
}

impl Answers {
    const fn new() -> Self {
        Self { table: OnceLock::new(), lock: Lock::new(0) }
    }

    fn used(&self) -> bool {
        self.table.get().is_some()
    }

    fn places(&self, signal: u64) -> impl Iterator<Item = &'static [AtomicU64; 3]> {
        let table = self.table.get().copied().unwrap_or_default();
        let first = ((signal >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50) as usize;
        (0..PROBES).filter_map(move |i| table.get((first + i) & (ANSWERS - 1)).map(|a| &a.0))
    }

    fn put(&self, signal: u64, times: Option<Times>) {
        let Some(mut next) = self.lock.lock_or_lose(WAIT_NS) else { return };
        // Under the lock, which can be lost: a thread that set it beside another would wait for that one.
        if !self.used()
            && let Some(fresh) = sys::zeroed_slice(ANSWERS)
        {
            let _ = self.table.set(fresh);
        }
        let by = |key: u64| self.places(signal).find(|p| p[0].load(Ordering::Relaxed) == key);
        let place = match (by(signal), times) {
            (Some(place), _) => Some(place),
            (None, None) => None,
            (None, Some(_)) => by(0).or_else(|| {
                *next = (*next + 1) % PROBES;
                self.places(signal).nth(*next)
            }),
        };
        if let Some(place) = place {
            place[0].store(times.map_or(0, |_| signal), Ordering::Relaxed);
            place[1].store(times.map_or(0, |t| t.start), Ordering::Relaxed);
            place[2].store(times.map_or(0, |t| t.end), Ordering::Relaxed);
        }
    }

    fn get(&self, signal: u64) -> Option<Times> {
        if signal == 0 || !self.used() {
            return None;
        }
        let _held = self.lock.lock_or_lose(WAIT_NS)?;
        let place = self.places(signal).find(|p| p[0].load(Ordering::Relaxed) == signal)?;
        let [_, start, end] = place;
        Some(Times { start: start.load(Ordering::Relaxed), end: end.load(Ordering::Relaxed) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_replaced_and_forgotten() {
        let copies: Box<Copies> = Box::default();
        let times = |n| Times { start: n, end: n + 1 };
        copies.forget(64);
        assert_eq!(copies.times_of(64), None);
        for signal in 1..2000u64 {
            copies.answer(signal * 64, times(signal));
        }
        let kept = (1..2000u64).filter(|s| copies.times_of(s * 64) == Some(times(*s))).count();
        assert!(kept > 1990, "{kept}");
        copies.answer(64, times(9));
        assert_eq!(copies.times_of(64), Some(times(9)));
        copies.forget(64);
        assert_eq!(copies.times_of(64), None);
    }
}
