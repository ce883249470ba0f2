//! The one state of the process: the tables are global, so is what patches them.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::OnceLock;

use crate::collecting::Collecting;
use crate::copies::Copies;
use crate::marks::{Needed, Watched};
use crate::phase::{Event, Machine};
use crate::pool::Pool;
use crate::queue::{Context, Rung};
use crate::registry::Registry;
use crate::sink::{Enqueuer, Sink};
use crate::sys;
use crate::track::Track;
use crate::usual::Usual;

/// How soundly the worker sleeps; value of [`State::sleep`].
pub mod sleep {
    /// It looks by itself soon enough for everybody.
    pub const AWAKE: u32 = 0;
    /// It looks by itself soon enough for what it need not relay.
    pub const SLOW: u32 = 1;
    /// It has nothing to look at.
    pub const IDLE: u32 = 2;
}

/// Everything that the hooks and the worker share.
pub struct State {
    /// The phase of the hooks.
    pub phase: Machine,
    /// Something of ours has failed: never begin to record again.
    broken: AtomicBool,
    /// Counts recordings.
    pub epoch: AtomicU32,
    /// One of [`sleep`]; the worker's futex.
    pub sleep: AtomicU32,
    /// Counts the reasons for the worker to look at everything anew.
    pub calls: AtomicU32,
    /// See [`State::is_ready`].
    ready: AtomicBool,
    /// The tables were patched live: nobody tells us when the runtime shuts down.
    pub late: AtomicBool,
    /// The embedder's sink.
    pub sink: OnceLock<&'static dyn Sink>,
    /// Signals.
    pub pool: Pool,
    /// The count of operations enqueued at the time when the idle signals were destroyed: none are made until more are
    /// enqueued.
    pub emptied_at: AtomicU64,
    /// Queues.
    pub registry: Registry,
    /// Copies.
    pub copies: Copies,
    /// Counts what the worker is to look at at once; see [`State::urge`].
    pub urgent: AtomicU32,
    /// Many operations that completed lately were relayed by the worker and not by a waiting thread: everything in
    /// flight counts as urgent.
    pub prompt: AtomicBool,
    /// Completions with a signal of the application that were collected between two looks of the worker.
    pub collected: AtomicUsize,
    /// The requests of the application's threads to the one that collects.
    pub collecting: Collecting,
    /// The signals that waiting threads watch themselves.
    pub watched: Watched,
    /// The signals for which something waits that cannot relay them.
    pub needed: Needed,
    /// The times that kernels usually take.
    pub usual: Usual,
}

/// The state.
pub static STATE: State = State::new();

impl State {
    /// Nothing installed.
    pub const fn new() -> Self {
        Self {
            phase: Machine::new(),
            broken: AtomicBool::new(false),
            epoch: AtomicU32::new(0),
            sleep: AtomicU32::new(sleep::AWAKE),
            calls: AtomicU32::new(0),
            ready: AtomicBool::new(false),
            late: AtomicBool::new(false),
            sink: OnceLock::new(),
            pool: Pool::new(),
            emptied_at: AtomicU64::new(0),
            registry: Registry::new(),
            copies: Copies::new(),
            urgent: AtomicU32::new(0),
            prompt: AtomicBool::new(false),
            collected: AtomicUsize::new(0),
            collecting: Collecting::new(),
            watched: Watched::new(),
            needed: Needed::new(),
            usual: Usual::new(),
        }
    }

    /// Whether the hooks are in place and the runtime is open.
    pub fn is_installed(&self) -> bool {
        self.phase.get().is_installed()
    }

    /// Whether anything can be installed in this process at all.
    pub fn is_usable(&self) -> bool {
        !self.phase.is_inert() && !self.gave_up()
    }

    /// Something of ours is broken: never touch anything again, except to complete what is in flight.
    #[cold]
    pub fn give_up(&self) {
        if self.is_installed() {
            let _ = self.phase.apply(Event::End);
            // Pairs with the Acquire in `gave_up`: a thread that sees it sees that the recording has ended.
            self.broken.store(true, Ordering::Release);
        }
    }

    /// Whether [`State::give_up`] was called.
    pub fn gave_up(&self) -> bool {
        // Pairs with the Release in `give_up`.
        self.broken.load(Ordering::Acquire)
    }

    /// Whether the runtime has finished its initialization: its functions may be called.
    pub fn is_ready(&self) -> bool {
        // Acquire pairs with the Releases of the next two: what was learned of the runtime is there.
        self.ready.load(Ordering::Acquire)
    }

    /// The runtime is ready; whether the caller is the first who says so.
    pub fn becomes_ready(&self) -> bool {
        // Release pairs with the Acquire in `is_ready`.
        !self.ready.swap(true, Ordering::AcqRel)
    }

    /// The runtime is about to be initialized, or gone.
    pub fn clear_ready(&self) {
        // Release pairs with the Acquire in `is_ready`.
        self.ready.store(false, Ordering::Release);
    }

    /// Whether to record.
    #[inline]
    pub fn active(&self) -> bool {
        self.phase.is_active()
    }

    /// As [`Machine::watches_doorbells`].
    #[inline]
    pub fn watches_doorbells(&self) -> bool {
        self.phase.watches_doorbells()
    }

    /// The context that instrumenting needs, once there is a sink.
    #[inline]
    pub fn context(&'static self) -> Option<Context<'static>> {
        let sink = *self.sink.get()?;
        let Self { pool, phase, epoch, needed, .. } = self;
        Some(Context { sink, pool, phase, epoch, needed })
    }

    /// Wakes the worker and tells the sink, after a doorbell and outside of the queue's lock.
    #[inline]
    pub fn has_rung(&self, rung: Rung, sink: &dyn Sink) {
        if rung.tracked {
            self.enqueued(rung.chained, rung.needed);
        } else if rung.needed {
            self.urge();
        }
        if let Some((first, last)) = rung.sequences {
            for sequence in first..=last {
                let own = rung.own.is_some_and(|(first, last)| (first..=last).contains(&sequence));
                sink.enqueued(sequence, if own { Enqueuer::Caller } else { rung.others });
            }
        }
        rung.claimed.into_iter().for_each(|sequence| sink.claimed(sequence));
    }

    /// Whether an operation may be in flight whose completion the thread that waits for it is to relay.
    #[inline]
    pub fn relays(&self) -> bool {
        self.phase.relays()
    }

    /// The number of operations ever enqueued.
    pub fn enqueued_ever(&self) -> u64 {
        self.tracks().fold(0, |sum, track| sum.wrapping_add(track.pushed().0))
    }

    /// The number of those that had a signal of the application.
    pub fn chained_ever(&self) -> u64 {
        self.tracks().fold(0, |sum, track| sum.wrapping_add(track.pushed().1))
    }

    fn tracks(&self) -> impl Iterator<Item = &Track> {
        self.registry.objects().map(|queue| &queue.track).chain([&self.copies.track])
    }

    /// Something was enqueued, maybe with a signal of the application: sees to it that the worker
    /// looks in time, waking it only if it is needed before it would by itself.
    #[inline]
    pub fn enqueued(&self, chained: bool, needed: bool) {
        if needed || (chained && self.prompt.load(Ordering::Relaxed)) {
            self.urge();
        } else {
            self.wake_beyond(sleep::SLOW);
        }
    }

    /// Makes the worker look at once.
    pub fn urge(&self) {
        // Pairs with the worker's load before it looks: it finds what was written before.
        self.urgent.fetch_add(1, Ordering::AcqRel);
        self.wake_beyond(sleep::AWAKE);
    }

    /// Makes the worker look at everything anew, however soundly it sleeps.
    pub fn call_worker(&self) {
        // Pairs with the worker's load before it looks: it finds what was written before.
        self.calls.fetch_add(1, Ordering::AcqRel);
        self.wake_beyond(sleep::AWAKE);
    }

    /// Wakes the worker if it sleeps more soundly than `level`.
    ///
    /// The caller made something visible that the worker is to find. The fence pairs with the one
    /// in the worker between announcing its sleep and looking once more: one of both sees the other.
    #[inline]
    pub fn wake_beyond(&self, level: u32) {
        fence(Ordering::SeqCst);
        if self.sleep.load(Ordering::Relaxed) > level
            && self.sleep.swap(sleep::AWAKE, Ordering::AcqRel) != sleep::AWAKE
        {
            sys::futex_wake(&self.sleep, 1);
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}
