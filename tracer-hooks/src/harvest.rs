//! Completions: relays those that nobody has relayed, tells the sink of all, and gives our signals back.
//!
//! A thread that waits for a completion relays it itself ([`crate::relay`]). The rest is done here, by the
//! thread that holds [`WORK`]: mostly the worker, or a thread that has just waited ([`collect_now`]), or one that
//! launches while the worker does not come after ([`help`]).

use core::sync::atomic::Ordering;

use tracer_common::loss::ShimLoss;
use tracer_common::shim::Complete;
use tracer_common::waited::Waited;

use crate::abi::{AmdSignal, Times};
use crate::clock::Clocks;
use crate::lock::{Guard, Lock};
use crate::pool::Batch;
use crate::queue::{Queue, Stage};
use crate::relay::{self, TrackKind};
use crate::sink::Sink;
use crate::state::State;
use crate::track::{Entry, EntryFate, HarvestExtent, HarvestResult, ReadEntry, Track};
use crate::{sys, view};

/// The time for which an overtaken packet's signal is watched. If the GPU still writes the signal, that write is only
/// late: it does not wait for other work.
const WATCH_NS: u64 = 10_000_000_000;
/// Shortest and longest time until the worker, if it has nothing else to do, looks again at packets that were
/// overtaken: as long as the youngest of them has been watched. At signals that rest it looks again after the shortest.
const REST_NS: (u64, u64) = (20_000_000, 1_000_000_000);
/// Most overtaken packets that are watched at once.
const WATCHES: usize = 1024;

/// Longest that a thread that has waited for the GPU waits for the one that collects.
pub const COLLECT_WAIT_NS: u64 = 10_000_000;
/// Threads that launch do not collect more often, whatever is in flight.
const HELP_EVERY_NS: u64 = 200_000;
/// Number of times, at most, that a thread that collects looks for others that ask it to, before it goes on.
const LOOKS_FOR_OTHERS: u32 = 3;

/// The right to look at what is in flight and to call the runtime for it.
pub static WORK: Lock<Work> = Lock::new(Work::new());

/// The data that the holder of [`WORK`] works with.
pub struct Work {
    /// Signals to give back to the pool.
    returned: Batch,
    /// Signals to give back once no thread watches them any more. Few are watched at once, so they fit.
    resting: Batch,
    overtaken: Vec<Overtaken>,
    /// The GPUs' clocks.
    pub clocks: Clocks,
}

/// A packet that the GPU seems to have run with the application's signal: a later one with the barrier bit
/// has completed, and this one has not.
struct Overtaken {
    queue: &'static Queue,
    entry: Entry,
    /// The time for which it has been watched, without times in which the process stood still.
    waited: Waited<{ 2 * REST_NS.1 }>,
}

/// The choice of a thread that cannot collect because another one holds [`WORK`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfTaken {
    /// Goes on: the holder looks again for it.
    Leave,
    /// Waits for the holder if that has been collecting for long: see [`crate::collecting`].
    Wait,
}

/// Tells the sink what has completed, or asks the thread that is doing so now to look again.
pub fn collect_now(state: &'static State, if_taken: IfTaken) {
    let Some(&sink) = state.sink.get() else { return };
    // A signal handler that jumped out of here would leave our lock taken, and the runtime's.
    sys::uninterrupted(|| collect_uninterrupted(state, sink, sys::now_ns(), if_taken));
}

/// More is in flight than should be if the worker came after: collects for it, unless somebody has just begun to. Waits
/// for nobody.
#[cold]
pub fn help(state: &'static State) {
    if !state.collecting.has_begun_within(sys::now_ns(), HELP_EVERY_NS) {
        collect_now(state, IfTaken::Leave);
    }
}

fn collect_uninterrupted(state: &'static State, sink: &dyn Sink, now_ns: u64, if_taken: IfTaken) {
    let waits = if_taken == IfTaken::Wait && state.collecting.takes_long(now_ns);
    state.collecting.ask();
    let mut work = WORK.try_lock();
    if work.is_none() && waits {
        work = WORK.lock_for(COLLECT_WAIT_NS);
        if work.is_none() {
            state.collecting.waited_in_vain();
        }
    }
    // Asked last: `can_complete` may take a place in the sink, which a thread that collects nothing does not
    // need.
    if let Some(work) = work.filter(|_| sink.can_complete(now_ns)) {
        unlock(work, state);
    }
}

/// Looks for the threads that asked for it because they could not get the lock of the work, and gives the
/// lock back.
pub fn unlock(mut work: Guard<'static, Work>, state: &'static State) {
    for left in (0..LOOKS_FOR_OTHERS).rev() {
        // A thread that closes the runtime does so under the lock.
        if state.collecting.is_asked() && state.phase.get().may_call_runtime() {
            let round = work.round(state, HarvestExtent::Near);
            state.collected.fetch_add(round.chained, Ordering::Relaxed);
        }
        drop(work);
        if left == 0 || !state.collecting.is_asked() {
            return;
        }
        match WORK.try_lock() {
            Some(again) => work = again,
            None => return,
        }
    }
}

/// The result of one round of looking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Round {
    /// Operations that completed.
    pub done: usize,
    /// Those of them that had a signal of the application.
    pub chained: usize,
    /// Those of these that were relayed here, not by a thread that waited.
    pub relayed: usize,
    /// Something is in flight.
    pub pending: bool,
    /// The time after which to look again at signals that rest and packets that were overtaken, if there are any.
    pub resting_ns: Option<u64>,
    /// A doorbell is held back.
    pub held: bool,
}

impl Work {
    /// Nothing done yet.
    pub const fn new() -> Self {
        Self {
            returned: Batch::new(),
            resting: Batch::new(),
            overtaken: Vec::new(),
            clocks: Clocks::new(),
        }
    }

    /// Looks at everything that is in flight.
    pub fn round(&mut self, state: &'static State, look: HarvestExtent) -> Round {
        let mut round = Round::default();
        let Some(&sink) = state.sink.get() else { return round };
        let now = sys::now_ns();
        state.collecting.begins(now);
        // Acquire pairs with the addition in `recording::activate`.
        self.clocks.recording(state.epoch.load(Ordering::Acquire));
        // The sink writes the names that it has put off before completions of what they name: another kernel
        // may have had the address before.
        sink.housekeeping(now);
        for queue in state.registry.objects() {
            match queue.stage() {
                Stage::Live | Stage::Closing => {
                    self.queue(state, sink, queue, (look, now), &mut round);
                    round.held |= queue.held.load(Ordering::Relaxed);
                }
                Stage::Dead => self.retire(state, sink, queue),
                Stage::Free => {}
            }
        }
        self.copies(state, sink, (look, now), &mut round);
        if round.done > 0 {
            sink.collected();
        }
        if look == HarvestExtent::Full {
            self.watch(state, now);
        }
        let returned = &mut self.returned;
        self.resting.retain(|signal| {
            let slept_on = state.watched.is_watched(signal, now);
            if !slept_on {
                recycle(signal);
                state.pool.take_back(returned, signal);
            }
            slept_on
        });
        let youngest = self.overtaken.iter().map(|overtaken| overtaken.waited.at_last_look()).min();
        let rests = self.has_resting().then_some(0);
        round.resting_ns =
            rests.or(youngest).map(|waited_ns| waited_ns.clamp(REST_NS.0, REST_NS.1));
        state.pool.give(&mut self.returned);
        round
    }

    /// Whether a thread watches a signal of ours that has completed.
    pub fn has_resting(&self) -> bool {
        !self.resting.is_empty()
    }

    /// When the worker should look again for completions that it has to relay: how long the kernels up to
    /// such a one usually take says when a queue is due. Returns, of the queue that is due first, since when
    /// its first entry has been the first, and when it is due.
    pub fn due(&self, state: &'static State, now: u64) -> Option<(u64, u64)> {
        let prompt = state.prompt.load(Ordering::Relaxed);
        let due = |track: &Track| {
            let wanted = |entry: &Entry| {
                (prompt || state.needed.is_marked(entry.original))
                    && !state.watched.is_watched(entry.signal, now)
            };
            let mut usual = 0;
            let since = track.ahead(now, wanted, |entry| usual += state.usual.ns(entry.usual))?;
            Some((since, since.saturating_add(usual)))
        };
        let queues = state.registry.objects().map(|queue| &queue.track);
        let tracks = queues.chain([&state.copies.track]).filter(|track| track.chained());
        tracks.filter_map(due).min_by_key(|&(_, due)| due)
    }

    fn queue(
        &mut self,
        state: &'static State,
        sink: &dyn Sink,
        queue: &'static Queue,
        (look, now): (HarvestExtent, u64),
        round: &mut Round,
    ) {
        let agent = queue.agent.load(Ordering::Relaxed);
        self.clocks.begin(agent);
        if queue.track.is_empty() {
            return;
        }
        let Self { returned, resting, overtaken, clocks } = self;
        let mut reported_ns = 0;
        let done = |seen: &ReadEntry| {
            if seen.is_cancelled() {
                state.pool.take_back(returned, seen.entry.signal);
                return EntryFate::Done;
            }
            let collected = collect(state, TrackKind::Queue, seen, now, round);
            let Some(signal) = collected else { return EntryFate::Pending };
            let entry = &seen.entry;
            let start = signal.start_ts.load(Ordering::Relaxed);
            let end = signal.end_ts.load(Ordering::Relaxed);
            let timed = start != 0 && end != 0;
            let times = timed.then(|| clocks.times(agent, Times { start, end })).flatten();
            if let Some(times) = times {
                state.usual.note(entry.usual, times.end.saturating_sub(times.start));
            }
            tell_error(sink, clocks, &mut reported_ns);
            report(sink, entry, times);
            let interrupts = signal.event_mailbox.load(Ordering::Relaxed) != 0;
            let watched = interrupts && state.watched.is_watched(entry.signal, now);
            put_away(state, entry.signal, watched, returned, resting);
            EntryFate::Done
        };
        let left_behind = |seen: &ReadEntry| {
            if relay::completed(seen).is_some() || (seen.entry.original != 0 && !seen.claim()) {
                // It is done after all.
                return EntryFate::Pending;
            }
            // Most likely the packet processor read the packet before our signal was in it, and has
            // decremented the application's own signal. Ours is not used again before the GPU has written
            // it, which it may never do, or the queue is gone.
            sink.lost(ShimLoss::PACKET_PASSED, 1);
            sink.no_times(seen.entry.sequence, ShimLoss::PACKET_PASSED);
            if overtaken.len() < WATCHES && overtaken.try_reserve(1).is_ok() {
                overtaken.push(Overtaken { queue, entry: seen.entry, waited: Waited::since(now) });
            }
            EntryFate::Done
        };
        let found = queue.track.harvest(look, done, left_behind);
        round.add(found);
    }

    fn copies(
        &mut self,
        state: &'static State,
        sink: &dyn Sink,
        (look, now): (HarvestExtent, u64),
        round: &mut Round,
    ) {
        if state.copies.track.is_empty() {
            return;
        }
        let Self { returned, resting, clocks, .. } = self;
        let mut reported_ns = 0;
        let done = |seen: &ReadEntry| {
            if seen.is_cancelled() {
                state.pool.take_back(returned, seen.entry.signal);
                return EntryFate::Done;
            }
            let collected = collect(state, TrackKind::Copies, seen, now, round);
            if collected.is_none() {
                return EntryFate::Pending;
            }
            let times = clocks.copy_times(seen.entry.signal);
            tell_error(sink, clocks, &mut reported_ns);
            report(sink, &seen.entry, times);
            let watched = state.watched.is_watched(seen.entry.signal, now);
            put_away(state, seen.entry.signal, watched, returned, resting);
            EntryFate::Done
        };
        // Copies have no barrier bits.
        let found = state.copies.track.harvest(look, done, |_| EntryFate::Pending);
        round.add(found);
    }

    /// Looks at packets that were overtaken, and relays one that completes after all. It has been counted as
    /// lost already, so the sink is told nothing.
    fn watch(&mut self, state: &'static State, now: u64) {
        self.overtaken.retain_mut(|Overtaken { entry, waited, .. }| {
            let Some(signal) = view::signal(entry.signal) else { return false };
            // Acquire: the times were written before the decrement.
            if signal.value.load(Ordering::Acquire) > 0 {
                return waited.look(now) < WATCH_NS;
            }
            let times = |ts: &core::sync::atomic::AtomicU64| ts.load(Ordering::Relaxed);
            relay::decrement(entry.original, (times(&signal.start_ts), times(&signal.end_ts)));
            recycle(entry.signal);
            state.pool.readmit(entry.signal);
            false
        });
    }

    /// The queue is gone: what did not complete never will.
    fn retire(&mut self, state: &'static State, sink: &dyn Sink, queue: &'static Queue) {
        // First what has completed by now.
        relay::everything_of(state, TrackKind::Queue, &queue.track);
        self.watch(state, sys::now_ns());
        self.overtaken.retain(|overtaken| {
            let gone = core::ptr::eq(overtaken.queue, queue);
            if gone {
                recycle(overtaken.entry.signal);
                state.pool.readmit(overtaken.entry.signal);
            }
            !gone
        });
        let returned = &mut self.returned;
        leftovers(sink, &queue.track, |entry| {
            recycle(entry.signal);
            state.pool.take_back(returned, entry.signal);
        });
        state.pool.give(returned);
        queue.release(&state.pool);
        queue.becomes(Stage::Free);
    }

    /// The runtime shuts down, or has: forgets everything that is in flight, and touches nothing of the runtime's. The
    /// signals in flight are not used again: the GPU may still write them.
    pub fn forget(&mut self, state: &'static State) {
        let Some(&sink) = state.sink.get() else { return };
        self.clocks = Clocks::new();
        self.overtaken = Vec::new();
        for queue in state.registry.objects() {
            if !queue.is(Stage::Free) {
                state.registry.remove(queue.address.load(Ordering::Relaxed));
                queue.becomes(Stage::Dead);
                leftovers(sink, &queue.track, |_| ());
                queue.release(&state.pool);
                queue.becomes(Stage::Free);
            }
        }
        leftovers(sink, &state.copies.track, |_| ());
        let Self { returned, resting, .. } = self;
        resting.retain(|signal| {
            state.pool.take_back(returned, signal);
            false
        });
        state.pool.give(returned);
    }
}

impl Default for Work {
    fn default() -> Self {
        Self::new()
    }
}

impl Round {
    fn add(&mut self, found: HarvestResult) {
        self.done += found.done;
        self.pending |= found.left > 0;
    }
}

/// Relays an entry that has completed, if no thread has relayed it, and returns its signal. `None` if it has
/// not completed, or if a thread that watches it is about to relay it.
fn collect(
    state: &State,
    of: TrackKind,
    seen: &ReadEntry,
    now: u64,
    round: &mut Round,
) -> Option<&'static AmdSignal> {
    let signal = relay::completed(seen)?;
    if seen.entry.original != 0 {
        if seen.is_open() {
            if state.watched.is_watched(seen.entry.signal, now) {
                return None;
            }
            round.relayed += usize::from(relay::relay(state, of, seen));
        }
        round.chained += 1;
    }
    Some(signal)
}

/// Tells the sink by how much times can be off, if that has grown, before it is told a time that can be off
/// by so much: the process can be killed in between.
fn tell_error(sink: &dyn Sink, clocks: &Clocks, reported_ns: &mut u64) {
    let error_ns = clocks.error_ns();
    if error_ns > *reported_ns {
        *reported_ns = error_ns;
        sink.clock_error(error_ns);
    }
}

fn report(sink: &dyn Sink, entry: &Entry, times: Option<Times>) {
    match times {
        _ if entry.sequence == 0 => {}
        Some(Times { start, end }) => {
            sink.complete(Complete { sequence: entry.sequence, start_ns: start, end_ns: end });
        }
        None => {
            sink.lost(ShimLoss::NO_TIMES, 1);
            sink.no_times(entry.sequence, ShimLoss::NO_TIMES);
        }
    }
}

/// Gives a signal back, or lets it rest as long as a thread watches it. That thread may sleep on it, or ask
/// the runtime for the times of the copy.
fn put_away(state: &State, handle: u64, watched: bool, returned: &mut Batch, resting: &mut Batch) {
    if watched {
        resting.push(handle);
    } else {
        recycle(handle);
        state.pool.take_back(returned, handle);
    }
}

/// Empties a track, handing what did not complete to `each`.
fn leftovers(sink: &dyn Sink, track: &Track, mut each: impl FnMut(&Entry)) {
    let mut unfinished = 0;
    track.discard(|seen| {
        if !seen.is_cancelled() {
            unfinished += 1;
            sink.no_times(seen.entry.sequence, ShimLoss::UNFINISHED);
        }
        each(&seen.entry);
    });
    if unfinished > 0 {
        sink.lost(ShimLoss::UNFINISHED, unfinished);
    }
}

/// Makes one of our signals as good as new.
fn recycle(signal: u64) {
    if let Some(signal) = view::signal(signal) {
        signal.start_ts.store(0, Ordering::Relaxed);
        signal.end_ts.store(0, Ordering::Relaxed);
        // Pairs with the Acquire of the thread that waits for the signal next: it finds the times at 0.
        signal.value.store(1, Ordering::Release);
    }
}
