//! The thread that takes what was told of the work of GPUs, and writes records into pools.
//!
//! It looks every [`PAUSE`] while there is something, and sleeps until an operation is done when there is nothing. Where
//! a pool is full because its callback is slow, it waits, and what is told meanwhile waits in the queue.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{Thread, park, park_timeout};
use std::time::{Duration, Instant};

use roctracer::pool::{EXIT_WAIT, Pool};
use roctracer::thread::{self, Process};
use roctracer::timestamp_ns;
use tracer_common::activity::{ActivityRecord, Domain, op};
use tracer_hooks::sys;

use super::operations::{Finished, Operations, Recorded};
use super::queue::{Drain, Event, QUEUE};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a drain waits for work that a GPU does not end, where the environment says nothing else.
const DRAIN: Duration = Duration::from_secs(1);
/// The environment's word for it, ms.
const DRAIN_MS: &str = "ROCTRACER_DRAIN_MS";

/// The thread, if it could be started, and the process that has it.
static WORKER: OnceLock<Option<(Process, Thread)>> = OnceLock::new();
/// It sleeps until it is woken.
static SLEEPS: AtomicBool = AtomicBool::new(false);

/// Starts the thread, unless there is one; whether there is one.
pub fn start() -> bool {
    let worker = WORKER.get_or_init(|| {
        // Before the tables are patched: it is called after what was registered then, and before the pools'.
        sys::at_exit(at_exit);
        let started = thread::start(run).ok()?;
        Some((Process::this(), started.thread().clone()))
    });
    worker.is_some()
}

/// There is something to do.
pub fn wake() {
    // Pairs with the fence in `run`: either the thread finds what was queued, or it is found asleep.
    fence(Ordering::SeqCst);
    if SLEEPS.load(Ordering::Relaxed)
        && SLEEPS.swap(false, Ordering::Relaxed)
        && let Some(Some((_, worker))) = WORKER.get()
    {
        worker.unpark();
    }
}

/// Waits until what has been enqueued until now is recorded, or a GPU has taken too long, or until a time. What is
/// written waits for callbacks: not on a thread that calls one.
pub fn drain(until: Option<Instant>) {
    let Some(Some((process, worker))) = WORKER.get() else { return };
    if !process.is_this() {
        return;
    }
    let drain = Arc::<Drain>::default();
    QUEUE.push(Event::Drain(Arc::clone(&drain)));
    SLEEPS.store(false, Ordering::Relaxed);
    worker.unpark();
    drain.wait(until);
}

/// The process exits.
extern "C" fn at_exit() {
    if !Pool::is_any_of_their_threads() {
        drain(Some(Instant::now() + EXIT_WAIT));
    }
}

/// What a drain waits for, and until when.
struct Waiting {
    drain: Arc<Drain>,
    numbers: HashSet<u64>,
    until: Instant,
}

/// What the thread does.
fn run() {
    let longest = std::env::var(DRAIN_MS).ok().and_then(|ms| ms.parse().ok());
    let longest = longest.map_or(DRAIN, Duration::from_millis);
    let mut operations = Operations::default();
    let mut waiting: Vec<Waiting> = Vec::new();
    // A drain has waited for them in vain: no other one does.
    let mut given_up: HashSet<u64> = HashSet::new();
    loop {
        let mut any = false;
        let mut finished = |(sequence, recorded): Finished, waiting: &mut [Waiting]| {
            write(&recorded);
            given_up.remove(&sequence);
            for Waiting { numbers, .. } in waiting {
                numbers.remove(&sequence);
            }
        };
        let now_ns = timestamp_ns();
        while let Some(event) = QUEUE.pop() {
            any = true;
            if let Event::Drain(drain) = event {
                waiting.push(Waiting {
                    drain,
                    numbers: operations.numbers().collect(),
                    until: Instant::now() + longest,
                });
            } else if let Some(done) = operations.take(event, now_ns) {
                finished(done, &mut waiting);
            }
        }
        for done in operations.finish_late(timestamp_ns()) {
            finished(done, &mut waiting);
        }
        waiting.retain_mut(|Waiting { drain, numbers, until }| {
            numbers.retain(|number| !given_up.contains(number));
            if numbers.is_empty() || Instant::now() >= *until {
                given_up.extend(&*numbers);
                drain.ends();
                return false;
            }
            true
        });
        if any || !waiting.is_empty() || operations.any_done() {
            park_timeout(PAUSE);
            continue;
        }
        SLEEPS.store(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
        if QUEUE.is_empty() {
            park();
        }
        SLEEPS.store(false, Ordering::Relaxed);
    }
}

/// Writes the records of an operation. A closed pool takes none.
fn write(recorded: &Recorded) {
    let Recorded { record, hsa_correlation_id, name, pools } = recorded;
    if let Some(pool) = pools.hip {
        let _ = match name.as_deref().filter(|_| record.op == op::DISPATCH) {
            Some(name) => pool.write_with(record, name),
            None => pool.write(record),
        };
    }
    if let Some(pool) = pools.hsa {
        // HSA knows packets and copies; what HIP has a kernel for is a kernel.
        let op = if name.is_some() { op::DISPATCH } else { record.op };
        let (domain, correlation_id) = (Domain::HSA_OPS, *hsa_correlation_id);
        let record = ActivityRecord { domain, kind: 0, op, correlation_id, ..*record };
        let _ = match name.as_deref() {
            Some(name) => pool.write_with(&record, name),
            None => pool.write(&record),
        };
    }
}
