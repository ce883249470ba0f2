//! The thread that takes what was told of the work of GPUs, and writes records into pools.
//!
//! It looks every [`PAUSE`] while there is something, and sleeps until an operation is done when there is nothing. Where
//! a pool is full because its callback is slow, it waits, and what is told meanwhile waits in the queue.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::mem::replace;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread::{Thread, park, park_timeout};
use std::time::{Duration, Instant};

use roctracer::pool::{self, EXIT_WAIT, Pool};
use roctracer::queue::Taken;
use roctracer::thread::{self, Process};
use roctracer::timestamp_ns;
use tracer_common::activity::{ActivityRecord, Domain, op};
use tracer_common::waited::Waited;
use tracer_hooks::sys;

use super::operations::{Operations, Recorded};
use super::queue::{Drain, Event, QUEUE};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a drain waits for work that a GPU does not end, where the environment says nothing else.
const DRAIN: Duration = Duration::from_secs(1);
/// The environment's word for it, ms.
const DRAIN_MS: &str = "ROCTRACER_DRAIN_MS";
/// Between two looks while nothing is done.
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// How long who waits does so before it looks what this thread does.
const PATIENCE: Duration = Duration::from_millis(50);
/// So much is taken at once.
const AT_ONCE: usize = 1000;

/// How long a drain waits for work that a GPU does not end.
static LONGEST: LazyLock<Duration> = LazyLock::new(|| {
    let longest = std::env::var(DRAIN_MS).ok().and_then(|ms| ms.parse().ok());
    longest.map_or(DRAIN, Duration::from_millis)
});
/// The pool that the thread writes into, and may be waiting for.
static WRITES_INTO: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

/// The thread, if it could be started, and the process that has it.
static WORKER: OnceLock<Option<(Process, Thread)>> = OnceLock::new();
/// What it has taken and begun to write, counted: whether it still does anything.
static STEPS: AtomicU64 = AtomicU64::new(0);
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

/// Waits until what has been enqueued until now is recorded, or a GPU has taken too long. What is written waits for the
/// pools' callbacks: not on a thread that calls one. The callback of `pool` is waited for, that of another one no longer
/// than a GPU, and so the thread itself while it does nothing.
pub fn drain(pool: &'static Pool) {
    drain_until(Some(pool), None);
}

fn drain_until(pool: Option<&'static Pool>, until: Option<Instant>) {
    let Some(Some((process, worker))) = WORKER.get() else { return };
    if !process.is_this() {
        return;
    }
    tracer_hooks::collect();
    let drain = Arc::<Drain>::default();
    if !QUEUE.push(Event::Drain(Arc::clone(&drain))) {
        return;
    }
    SLEEPS.store(false, Ordering::Relaxed);
    worker.unpark();
    let patience_ns = (LONGEST.max(DRAIN) + PATIENCE).as_nanos() as u64;
    let waits = || Waited::<{ 2 * PATIENCE.as_nanos() as u64 }>::since(sys::awake_ns());
    let (mut waited, mut idle, mut steps) = (waits(), waits(), STEPS.load(Ordering::Relaxed));
    while !drain.wait_until(Instant::now() + PATIENCE) {
        if until.is_some_and(|until| Instant::now() >= until) {
            return;
        }
        let now_ns = sys::awake_ns();
        let before = replace(&mut steps, STEPS.load(Ordering::Relaxed));
        if before != steps {
            idle = waits();
        }
        let writes_into = WRITES_INTO.load(Ordering::Relaxed);
        let is_over = match pool {
            Some(pool) if ptr::eq(pool, writes_into) => false,
            Some(_) if !writes_into.is_null() => waited.look(now_ns) >= patience_ns,
            _ => idle.look(now_ns) >= patience_ns,
        };
        if is_over {
            return;
        }
    }
}

/// The process exits.
extern "C" fn at_exit() {
    if !Pool::is_any_of_their_threads() {
        let until = Instant::now() + EXIT_WAIT;
        drain_until(None, Some(until));
        // The first pool may have been opened later than this was registered, and was looked at before.
        pool::flush_open(until);
    }
    let refused = QUEUE.refused();
    if refused > 0 && matches!(WORKER.get(), Some(Some((process, _))) if process.is_this()) {
        let _ = writeln!(
            io::stderr(),
            "roctracer: {refused} operations of GPUs were not recorded, since the callback of a pool took too long"
        );
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
    let mut operations = Operations::default();
    let mut waiting: Vec<Waiting> = Vec::new();
    let mut told = Taken::default();
    loop {
        let (mut taken, now_ns) = (0, timestamp_ns());
        // Not until the queue is empty: a program may fill it as fast.
        while taken < AT_ONCE
            && let Some(event) = QUEUE.next(&mut told)
        {
            taken += 1;
            STEPS.fetch_add(1, Ordering::Relaxed);
            if let Event::Drain(drain) = event {
                waiting.push(Waiting {
                    drain,
                    numbers: operations.awaited().collect(),
                    until: Instant::now() + *LONGEST,
                });
            } else if let Some(recorded) = operations.take(event, now_ns) {
                write(&recorded);
            }
        }
        operations.finish_late(timestamp_ns()).iter().for_each(write);
        waiting.retain_mut(|Waiting { drain, numbers, until }| {
            numbers.retain(|&number| operations.is_awaited(number));
            let is_over = numbers.is_empty() || Instant::now() >= *until;
            if is_over {
                numbers.iter().for_each(|&number| operations.give_up(number));
                drain.ends();
            }
            !is_over
        });
        if taken == AT_ONCE {
            continue;
        }
        if taken > 0 || !waiting.is_empty() || operations.any_done() {
            park_timeout(PAUSE);
            continue;
        }
        SLEEPS.store(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
        if QUEUE.is_empty() {
            // What is never enqueued is to be forgotten.
            if operations.any() { park_timeout(LONG_PAUSE) } else { park() }
        }
        SLEEPS.store(false, Ordering::Relaxed);
    }
}

/// Writes the records of an operation. A closed pool takes none.
fn write(recorded: &Recorded) {
    let Recorded { record, hsa_correlation_id, name, pools } = recorded;
    if let Some(pool) = pools.hip {
        write_into(pool, record, name.as_deref().filter(|_| record.op == op::DISPATCH));
    }
    if let Some(pool) = pools.hsa {
        // HSA knows packets and copies; what HIP has a kernel for is a kernel.
        let op = if name.is_some() { op::DISPATCH } else { record.op };
        let (domain, correlation_id) = (Domain::HSA_OPS, *hsa_correlation_id);
        let record = ActivityRecord { domain, kind: 0, op, correlation_id, ..*record };
        write_into(pool, &record, name.as_deref());
    }
}

fn write_into(pool: &'static Pool, record: &ActivityRecord, name: Option<&[u8]>) {
    WRITES_INTO.store(ptr::from_ref(pool).cast_mut(), Ordering::Relaxed);
    STEPS.fetch_add(1, Ordering::Relaxed);
    let _ = match name {
        Some(name) => pool.write_with(record, name),
        None => pool.write(record),
    };
    WRITES_INTO.store(ptr::null_mut(), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread of ours can be stopped as every other one: by a debugger, for ever.
    #[test]
    fn who_waits_for_a_thread_that_does_nothing_gives_up() {
        let stopped = || loop {
            park();
        };
        let started = thread::start(stopped).expect("a thread");
        let worker = Some((Process::this(), started.thread().clone()));
        assert!(WORKER.set(worker).is_ok());
        drain_until(None, None);
        assert!(!QUEUE.is_empty());
    }
}
