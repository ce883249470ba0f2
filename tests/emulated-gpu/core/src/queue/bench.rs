//! Surroundings for the tests of the queues: all of a `Context`, without a machine.

use std::time::{Duration, Instant};

use super::{Context, Step};
use crate::clock::GpuClock;
use crate::config::Config;
use crate::effects::{self, CompletionTimes, Effect};
use crate::events::Events;
use crate::kernels::Kernels;
use crate::log::Log;
use crate::memory::Memory;

/// Zeroed memory aligned like a page, at a fixed address.
#[repr(C, align(4096))]
pub struct Page(pub [u64; 1024]);

/// A page on the heap.
pub fn page() -> Box<Page> {
    Box::new(Page([0; 1024]))
}

/// Address of a word in a page.
pub fn word(page: &Page, index: usize) -> u64 {
    page.0.as_ptr() as u64 + 8 * index as u64
}

/// What a queue is stepped with.
pub struct Bench {
    pub config: Config,
    pub clock: GpuClock,
    memory: Memory,
    kernels: Kernels,
    log: Log,
    effects: Vec<Effect>,
    times: CompletionTimes,
    events: Events,
    /// All effects so far.
    pub seen: Vec<Effect>,
}

impl Bench {
    pub fn new() -> Self {
        let mut config = Config::from_env();
        config.log = None;
        config.barrier_ns = 0;
        Bench {
            clock: GpuClock { frequency_hz: 1_000_000_000, offset_ns: 0, drift_ppm: 0 },
            memory: Memory::default(),
            kernels: Kernels::default(),
            log: Log::open(&config),
            effects: Vec::new(),
            times: CompletionTimes::new(),
            events: Events::default(),
            seen: Vec::new(),
            config,
        }
    }

    /// One round of one queue.
    pub fn round(&mut self, step: impl FnOnce(&mut Context<'_>) -> Step) -> Step {
        let Bench { config, clock, memory, kernels, log, effects, times, events, seen } = self;
        let clock = *clock;
        let out = step(&mut Context { config, clock, memory, kernels, log, effects, times });
        seen.extend_from_slice(effects);
        effects::apply(effects, events, times);
        out
    }

    /// Rounds until the condition holds; panics after ten seconds.
    pub fn until(
        &mut self,
        mut step: impl FnMut(&mut Context<'_>) -> Step,
        done: impl Fn() -> bool,
    ) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done() {
            self.round(&mut step);
            assert!(Instant::now() < deadline, "the queue does not get on");
        }
    }
}
