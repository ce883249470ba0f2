//! The one state of the process: the tables are global, so is what patches them.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::OnceLock;

use crate::copies::Copies;
use crate::harvest::Work;
use crate::lock::Lock;
use crate::phase::{Machine, Phase};
use crate::pool::Pool;
use crate::queue::Context;
use crate::registry::Registry;
use crate::sink::Sink;
use crate::sys;

/// How soundly the worker sleeps; value of [`State::sleep`].
pub mod sleep {
    /// It looks by itself soon enough for everybody.
    pub const AWAKE: u32 = 0;
    /// It looks by itself soon enough for work that nobody waits for.
    pub const SLOW: u32 = 1;
    /// It has nothing to look at.
    pub const IDLE: u32 = 2;
}

/// Everything that the hooks and the worker share.
pub struct State {
    /// What the hooks do.
    pub phase: Machine,
    /// Counts recordings.
    pub epoch: AtomicU32,
    /// One of [`sleep`]; the worker's futex.
    pub sleep: AtomicU32,
    /// Counts the reasons for the worker to look at everything anew.
    pub calls: AtomicU32,
    /// The runtime has finished its initialization, its functions may be called.
    pub ready: AtomicBool,
    /// The tables were patched live: nobody tells us when the runtime shuts down.
    pub late: AtomicBool,
    /// Whoever embeds us.
    pub sink: OnceLock<&'static dyn Sink>,
    /// Signals.
    pub pool: Pool,
    /// Queues.
    pub registry: Registry,
    /// Copies.
    pub copies: Copies,
    /// The right to look at what is in flight and to call the runtime for it.
    pub work: Lock<Work>,
    /// Threads of the application that look for themselves while they wait.
    pub helpers: AtomicU32,
}

/// The state.
pub static STATE: State = State {
    phase: Machine::new(),
    epoch: AtomicU32::new(0),
    sleep: AtomicU32::new(sleep::AWAKE),
    calls: AtomicU32::new(0),
    ready: AtomicBool::new(false),
    late: AtomicBool::new(false),
    sink: OnceLock::new(),
    pool: Pool::new(),
    registry: Registry::new(),
    copies: Copies::new(),
    work: Lock::new(Work::new()),
    helpers: AtomicU32::new(0),
};

impl State {
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

    /// What instrumenting needs, once there is a sink.
    #[inline]
    pub fn context(&'static self) -> Option<Context<'static>> {
        let sink = *self.sink.get()?;
        Some(Context { sink, pool: &self.pool, phase: &self.phase, epoch: &self.epoch })
    }

    /// Something is in flight that the application may be waiting for.
    pub fn chained(&self) -> bool {
        let phase = self.phase.get();
        (phase == Phase::Active || phase.is_ending() || phase == Phase::Ended)
            && (self.copies.track.chained() || self.registry.objects().any(|q| q.track.chained()))
    }

    /// Makes the worker look at everything anew, however soundly it sleeps.
    pub fn call_worker(&self) {
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
