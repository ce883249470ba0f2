//! The thread that is the hardware: polls the doorbells and steps the queues.
//!
//! One round steps every queue, writes what finished to the log, then makes it visible. Between
//! rounds the thread sleeps: briefly while there is work, longer the longer there was none, and past the
//! end of a running kernel by no more than the shortest sleep.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::Config;
use crate::effects::{self, CompletionTimes, Effect};
use crate::kernels::Kernels;
use crate::log::Log;
use crate::platform::{Platform, platform, platform_of_this_process};
use crate::queue::aql::{AqlQueue, QueuePlace};
use crate::queue::sdma::SdmaQueue;
use crate::queue::{Context, Step};
use crate::renewed::Renewed;
use crate::sys;

/// Doorbells of one GPU: two pages of 64-bit words.
pub const DOORBELLS: u64 = 1024;
/// Size of one.
pub const DOORBELL_BYTES: u64 = 8;
/// Shortest sleep. Where programming a timer takes long (20 µs of CPU time were measured in a virtual machine),
/// one of 8 µs or less has ended before its thread leaves the CPU: at real-time priority, others would
/// never run there.
const MIN_SLEEP_NS: u64 = 15_000;
/// Sleep after rounds that did nothing, as a part of how long there was nothing to do.
const IDLE_FRACTION: u64 = 4;

#[derive(Debug)]
enum Ring {
    Aql(AqlQueue),
    Sdma(SdmaQueue),
}

#[derive(Debug)]
struct Queue {
    place: QueuePlace,
    // The page of an SDMA queue's read and write indices.
    indices: Option<u64>,
    active: bool,
    ring: Ring,
}

/// A new queue, as the driver reports it.
#[derive(Clone, Copy, Debug)]
pub struct Created {
    /// Driver's queue id.
    pub id: u64,
    /// Address of the doorbell.
    pub doorbell: u64,
    /// The same from the first doorbell of the node.
    pub doorbell_offset: u64,
    /// Address of the read index.
    pub read_index: u64,
    /// Address of the write index; none for AQL queues, where the runtime brings it.
    pub write_index: Option<u64>,
}

/// All queues, and what they share.
#[derive(Debug)]
pub struct Engine {
    queues: Vec<Queue>,
    doorbell_pages: Vec<u64>,
    next_id: u64,
    /// Kernels dispatched so far.
    pub kernels: Kernels,
    log: Log,
    effects: Vec<Effect>,
    times: CompletionTimes,
    running: bool,
}

/// The engine behind its lock. The engine's thread lets every caller of the driver go first.
#[derive(Debug)]
pub struct Shared {
    engine: Mutex<Engine>,
    waiting: AtomicU32,
}

impl Shared {
    /// No queues, no thread yet.
    pub fn new(config: &Config) -> Self {
        let page = || sys::map_anonymous(DOORBELLS * DOORBELL_BYTES, DOORBELLS * DOORBELL_BYTES);
        let engine = Engine {
            queues: Vec::new(),
            doorbell_pages: config.archs.iter().filter_map(|_| page()).collect(),
            next_id: 1,
            kernels: Kernels::default(),
            log: Log::open(config),
            effects: Vec::new(),
            times: CompletionTimes::new(),
            running: false,
        };
        Shared { engine: Mutex::new(engine), waiting: AtomicU32::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` on the engine between two rounds.
    pub fn with<R>(&self, f: impl FnOnce(&mut Engine) -> R) -> R {
        // Relaxed: a hint only; the lock does the ordering.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut engine = self.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        f(&mut engine)
    }
}

impl Engine {
    /// A compute queue; the runtime owns its indices. None when all doorbells are taken.
    pub fn create_aql(
        &mut self,
        node: u32,
        ring: u64,
        ring_bytes: u64,
        read_index: u64,
    ) -> Option<Created> {
        let place = self.place(node, ring, ring_bytes)?;
        self.queues.push(Queue {
            place,
            indices: None,
            active: true,
            ring: Ring::Aql(AqlQueue::new(place, read_index)),
        });
        Some(self.created(node, place, read_index, None))
    }

    /// A copy queue. Where the runtime brings no read index, both indices live here.
    pub fn create_sdma(
        &mut self,
        node: u32,
        ring: u64,
        ring_bytes: u64,
        count_bits: u32,
        brought: Option<u64>,
    ) -> Option<Created> {
        let place = self.place(node, ring, ring_bytes)?;
        let indices = match brought {
            Some(_) => None,
            None => Some(sys::map_anonymous(4096, 4096)?),
        };
        let read_index = brought.or(indices)?;
        self.queues.push(Queue {
            place,
            indices,
            active: true,
            ring: Ring::Sdma(SdmaQueue::new(place, read_index, count_bits)),
        });
        let write_index = indices.map(|at| at + 64);
        Some(self.created(node, place, read_index, write_index))
    }

    /// Puts the doorbells of a node, which has no queue yet, into memory that the front shares with the
    /// runtime in another way: [`DOORBELL_BYTES`] × [`DOORBELLS`] from `page` on.
    pub fn place_doorbells(&mut self, node: u32, page: u64) {
        if let Some(place) =
            (node as usize).checked_sub(1).and_then(|i| self.doorbell_pages.get_mut(i))
        {
            *place = page;
        }
    }

    fn created(
        &self,
        node: u32,
        place: QueuePlace,
        read_index: u64,
        write_index: Option<u64>,
    ) -> Created {
        let page = (node as usize).checked_sub(1).and_then(|i| self.doorbell_pages.get(i));
        let doorbell_offset = place.doorbell - page.copied().unwrap_or(place.doorbell);
        let QueuePlace { id, doorbell, .. } = place;
        Created { id, doorbell, doorbell_offset, read_index, write_index }
    }

    fn place(&mut self, node: u32, ring: u64, ring_bytes: u64) -> Option<QueuePlace> {
        let page = *self.doorbell_pages.get((node as usize).checked_sub(1)?)?;
        let doorbell = (0..DOORBELLS)
            .map(|i| page + i * DOORBELL_BYTES)
            .find(|&d| self.queues.iter().all(|q| q.place.doorbell != d))?;
        let id = self.next_id;
        self.next_id += 1;
        Some(QueuePlace { id, node, ring, ring_bytes, doorbell })
    }

    /// Forgets a queue; whether there was one. What is in flight on it is lost, as on hardware.
    pub fn destroy(&mut self, id: u64) -> bool {
        let Some(i) = self.queues.iter().position(|q| q.place.id == id) else { return false };
        if let Some(page) = self.queues.swap_remove(i).indices {
            sys::unmap(page, 4096);
        }
        true
    }

    /// Suspends or resumes a queue; whether there is one.
    pub fn set_active(&mut self, id: u64, active: bool) -> bool {
        let queue = self.queues.iter_mut().find(|q| q.place.id == id);
        queue.map(|q| q.active = active).is_some()
    }

    fn round(&mut self, platform: &Platform) -> Step {
        let Engine { queues, kernels, log, effects, times, .. } = self;
        let mut step = Step::default();
        for queue in queues.iter_mut().filter(|q| q.active) {
            let Some(gpu) = platform.gpu(queue.place.node) else { continue };
            let (config, memory) = (&platform.config, &platform.memory);
            let mut cx = Context { config, clock: gpu.clock, memory, kernels, log, effects, times };
            step = step.and(match &mut queue.ring {
                Ring::Aql(ring) => ring.step(&mut cx),
                Ring::Sdma(ring) => ring.step(&mut cx),
            });
        }
        log.flush();
        effects::apply(effects, &platform.events, times);
        step
    }
}

static SHARED: Renewed<Shared> = Renewed::new();

/// The engine of the machine.
pub fn shared() -> &'static Shared {
    SHARED.get(|| Shared::new(&platform().config))
}

/// The engine of this process's machine, which a fork's child has anew, as
/// [`platform_of_this_process`](crate::platform::platform_of_this_process).
pub fn shared_of_this_process() -> &'static Shared {
    SHARED.of_this_process(|| Shared::new(&platform_of_this_process().config))
}

/// Starts the thread, once.
pub fn start() {
    let first = shared().with(|e| !std::mem::replace(&mut e.running, true));
    if first {
        let thread = std::thread::Builder::new().name("emulated-gpu".into());
        if let Err(e) = thread.spawn(|| run(platform(), shared())) {
            crate::queue::unsupported(format_args!(
                "a system without room for one more thread: {e}"
            ));
        }
    }
}

/// Ends the process if the thread unwinds: without it, the program would wait for ever.
struct NoHang;

impl Drop for NoHang {
    fn drop(&mut self) {
        eprintln!("emulated-gpu: the emulator failed");
        std::process::abort();
    }
}

fn run(platform: &Platform, shared: &Shared) {
    let _no_hang = NoHang;
    sys::set_up_hardware_thread(platform.config.real_time);
    let mut last_progress_ns = sys::boot_ns();
    loop {
        // Relaxed: see `Shared::with`.
        while shared.waiting.load(Ordering::Relaxed) > 0 {
            sys::sleep_ns(MIN_SLEEP_NS);
        }
        let step = shared.lock().round(platform);
        let now = sys::boot_ns();
        let mut sleep_ns = if step.progressed {
            last_progress_ns = now;
            0
        } else {
            let idle_ns = now.saturating_sub(last_progress_ns);
            (idle_ns / IDLE_FRACTION).min(platform.config.idle_poll_ns)
        };
        if let Some(wake_ns) = step.wake_ns {
            let working_ns = sleep_ns.max(platform.config.working_poll_ns);
            sleep_ns = working_ns.min(wake_ns.saturating_sub(now));
        }
        sys::sleep_ns(sleep_ns.max(MIN_SLEEP_NS));
    }
}
