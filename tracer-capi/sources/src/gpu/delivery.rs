//! The thread that takes the events of the work of GPUs, and has records written.
//!
//! It looks every [`PAUSE`] while there is something, and sleeps until an operation is done when there is nothing. A
//! record that cannot be written because a callback of the client's is slow is tried again; where the thread has to
//! wait for a callback, events that come meanwhile wait in the queue.

use std::collections::HashSet;
use std::mem::replace;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{Thread, park, park_timeout};
use std::time::{Duration, Instant};

use roctracer::queue::TakenValues;
use roctracer::thread::{self, Process};
use roctracer::timestamp_ns;
use tracer_common::loss::ShimLoss;
use tracer_common::waited::Waited;
use tracer_hooks::lock::Lock;
use tracer_hooks::sys;

use super::backlog::Backlog;
use super::client::{Client, CompletedWork};
use super::kernels::Kernels;
use super::operations::Operations;
use super::queue::{Drain, Event, Events, MOST};
use super::writing::Progress;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// The time that a drain waits for work that a GPU does not end, where the environment says nothing else.
const DRAIN: Duration = Duration::from_secs(1);
/// The limit of the last drain's wait, at least and at most.
const LAST: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(10));
/// Between two looks while operations are under way and none has completed.
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// The time after which a thread that waits looks whether the delivering thread makes progress.
const PATIENCE: Duration = Duration::from_millis(50);
/// The number of events that are taken at once.
const AT_ONCE: usize = 1000;

/// Work of GPUs for a client: one in a process.
pub struct Gpu<C: Client> {
    pub(super) client: C,
    pub(super) events: Events<C>,
    pub(super) kernels: &'static Kernels,
    /// The thread, if it could be started, and the process that has it.
    worker: OnceLock<Option<(Process, Thread)>>,
    /// The lock of the thread that starts it.
    starts: Lock<()>,
    /// It sleeps until it is woken.
    sleeps: AtomicBool,
    progress: Progress,
    /// See [`Self::behind`].
    behind: AtomicUsize,
    /// The operations that the hooks could not record, by cause.
    lost: [AtomicU64; ShimLoss::COUNT],
    /// The time that a drain waits for work that a GPU does not end.
    longest: OnceLock<Duration>,
}

impl<C: Client> Gpu<C> {
    /// Work of GPUs of which nothing is recorded yet. Kernels that are loaded are added to `kernels`.
    pub const fn new(client: C, kernels: &'static Kernels) -> Self {
        Self {
            client,
            events: Events::new(MOST),
            kernels,
            worker: OnceLock::new(),
            starts: Lock::new(()),
            sleeps: AtomicBool::new(false),
            progress: Progress::new(),
            behind: AtomicUsize::new(0),
            lost: [const { AtomicU64::new(0) }; ShimLoss::COUNT],
            longest: OnceLock::new(),
        }
    }

    /// Starts the thread, unless there is one. Returns whether there is one. Where another thread is just starting it,
    /// waits for [`PATIENCE`] at most, and returns false then.
    pub(super) fn start(&'static self) -> bool {
        let worker = self.worker.get().or_else(|| {
            let _starts = self.starts.lock_for(PATIENCE.as_nanos() as u64)?;
            Some(self.worker.get_or_init(|| {
                self.client.begins();
                let start = || thread::start_named(C::NAME, || self.run());
                let started = self.client.creates_thread(start).ok()?;
                Some((Process::this(), started.thread().clone()))
            }))
        });
        worker.is_some_and(Option::is_some)
    }

    /// Whether this process has the thread.
    pub fn is_at_work(&self) -> bool {
        matches!(self.worker.get(), Some(Some((process, _))) if process.is_this())
    }

    /// Operations for which there was no room, because callbacks of the client's took too long.
    pub fn refused(&self) -> usize {
        self.events.refused()
    }

    /// Operations that are done and wait for callbacks of the client's.
    pub fn behind(&self) -> usize {
        self.behind.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, cause: ShimLoss, count: u64) {
        if let Some(lost) = self.lost.get(cause.0 as usize) {
            lost.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The operations that could not be recorded, or have no times, since the last call of this.
    pub fn losses(&self) -> impl Iterator<Item = (ShimLoss, u64)> {
        let counts = self.lost.iter().map(|count| count.swap(0, Ordering::Relaxed));
        ShimLoss::ALL.into_iter().zip(counts).filter(|&(_, count)| count > 0)
    }

    /// Wakes the thread if it sleeps.
    pub(super) fn wake(&self) {
        // Pairs with the fence in `run`: either the thread finds what was queued, or it is found asleep.
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed)
            && self.sleeps.swap(false, Ordering::Relaxed)
            && let Some(Some((_, worker))) = self.worker.get()
        {
            worker.unpark();
        }
    }

    fn longest(&self) -> Duration {
        *self.longest.get_or_init(|| {
            let longest = std::env::var(C::DRAIN_MS).ok().and_then(|ms| ms.parse().ok());
            longest.map_or(DRAIN, Duration::from_millis)
        })
    }

    /// Waits until everything that has been enqueued until now is recorded, or a GPU has taken too long. Writing may
    /// wait for callbacks, so a thread that calls callbacks must not call this. The drain waits for the callback of
    /// `whom` as long as it takes, for the callback of another one a second at least and no longer than for a GPU, and as
    /// long for the delivering thread while that does nothing.
    pub fn drain<W>(&self, whom: Option<&'static W>) {
        self.drain_until(whom, None);
    }

    /// As [`Self::drain`], at the end of the process, for some seconds at most. Returns the number of operations that
    /// drains have ever waited for in vain.
    pub fn drain_last(&self) -> usize {
        let longest = (self.longest() + 2 * PATIENCE).clamp(LAST.0, LAST.1);
        self.drain_until::<()>(None, Some(Instant::now() + longest))
    }

    fn drain_until<W>(&self, whom: Option<&'static W>, until: Option<Instant>) -> usize {
        let Some(Some((process, worker))) = self.worker.get() else { return 0 };
        if !process.is_this() {
            return 0;
        }
        tracer_hooks::collect();
        let whom = whom.map_or(ptr::null(), |whom| ptr::from_ref(whom).cast::<()>());
        let drain = Arc::new(Drain::new(until.is_some(), whom.addr()));
        if !self.events.push(Event::Drain(Arc::clone(&drain))) {
            return 0;
        }
        self.sleeps.store(false, Ordering::Relaxed);
        worker.unpark();
        let patience_ns = (self.longest().max(DRAIN) + PATIENCE).as_nanos() as u64;
        let waits = || Waited::<{ 2 * PATIENCE.as_nanos() as u64 }>::since(sys::awake_ns());
        let (mut waited, mut idle, mut steps) = (waits(), waits(), self.progress.steps());
        loop {
            if let Some(left) = drain.wait_until(Instant::now() + PATIENCE) {
                return left;
            }
            let now_ns = sys::awake_ns();
            let before = replace(&mut steps, self.progress.steps());
            if before != steps {
                idle = waits();
            }
            let waits_for = self.progress.waits_for();
            let is_over = if whom.is_null() || waits_for.is_null() {
                idle.look(now_ns) >= patience_ns
            } else {
                !ptr::eq(whom, waits_for) && waited.look(now_ns) >= patience_ns
            };
            if is_over || until.is_some_and(|until| Instant::now() >= until) {
                drain.abandon();
                return 0;
            }
        }
    }

    /// The loop of the thread.
    fn run(&self) {
        let mut operations = Operations::<C>::default();
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut backlog = Backlog::new(MOST);
        let mut rest = TakenValues::default();
        loop {
            let (mut taken, now_ns) = (0, timestamp_ns());
            // Not until the queue is empty: a program may fill it as fast.
            while taken < AT_ONCE
                && let Some(event) = self.events.next(&mut rest)
            {
                taken += 1;
                self.progress.step();
                if let Event::Drain(drain) = event {
                    let (awaited, longest) = (operations.awaited().collect(), self.longest());
                    waiting.push(Waiting::begin(drain, awaited, longest));
                } else if let Some(done) = operations.take(event, now_ns) {
                    self.write(done, &operations, &mut backlog);
                }
            }
            for done in operations.finish_late(timestamp_ns()) {
                self.write(done, &operations, &mut backlog);
            }
            backlog.try_again(|done| self.try_to_write(done, &operations));
            self.behind.store(backlog.len(), Ordering::Relaxed);
            waiting.retain_mut(|one| !self.is_over(one, &mut operations, &backlog));
            if taken == AT_ONCE {
                continue;
            }
            if taken > 0 || !waiting.is_empty() || operations.any_done() || backlog.len() > 0 {
                park_timeout(PAUSE);
                continue;
            }
            self.sleeps.store(true, Ordering::Relaxed);
            // Pairs with the fence in `wake`.
            fence(Ordering::SeqCst);
            if self.events.is_empty() {
                // Operations that are never enqueued are to be forgotten.
                if operations.any() { park_timeout(LONG_PAUSE) } else { park() }
            }
            self.sleeps.store(false, Ordering::Relaxed);
        }
    }

    /// Whether a drain is over: everything is written, or it has been waited for in vain.
    fn is_over(
        &self,
        waiting: &mut Waiting,
        operations: &mut Operations<C>,
        backlog: &Backlog<C::BufferKey, CompletedWork<C>>,
    ) -> bool {
        let Waiting { drain, numbers, longest, behind, until } = waiting;
        numbers.retain(|&number| operations.is_awaited(number));
        if numbers.is_empty() {
            // No GPU is waited for any more.
            let (end, before) = behind.get_or_insert((backlog.end(), usize::MAX));
            let left = backlog.before(*end);
            let is_for_whom = backlog.waits(*end, |key| self.client.waits_for(key, drain.whom()));
            if is_for_whom {
                // Who waits sees that this thread works.
                self.progress.step();
            }
            // Callbacks come back, or it is the one that is waited for as long as it takes.
            if left < replace(before, left) || is_for_whom {
                *until = Instant::now() + *longest;
            }
        }
        let is_written = matches!(behind, Some((_, 0)));
        let is_over = is_written || Instant::now() >= *until;
        if is_over {
            numbers.iter().for_each(|&number| operations.give_up(number));
            drain.ends(|| operations.unfinished());
        }
        is_over
    }

    fn try_to_write(
        &self,
        done: CompletedWork<C>,
        operations: &Operations<C>,
    ) -> Option<(C::BufferKey, CompletedWork<C>)> {
        self.client.write(done, operations.agents(), &self.progress.writing())
    }

    fn write(
        &self,
        done: CompletedWork<C>,
        operations: &Operations<C>,
        backlog: &mut Backlog<C::BufferKey, CompletedWork<C>>,
    ) {
        let rest = self.try_to_write(done, operations);
        if let Some(lost) = rest.and_then(|(whom, rest)| backlog.add(whom, rest)) {
            self.client.lost(lost);
        }
    }
}

/// A drain that waits.
struct Waiting {
    drain: Arc<Drain>,
    /// The operations that are waited for.
    numbers: HashSet<u64>,
    /// The time that a GPU, or a callback, may take.
    longest: Duration,
    /// Once its operations are done: the end of the backlog then, and the number of operations in the backlog before
    /// that.
    behind: Option<(u64, usize)>,
    until: Instant,
}

impl Waiting {
    /// The last drain of a process has its answer before whoever waits for it gives up.
    fn begin(drain: Arc<Drain>, numbers: HashSet<u64>, longest: Duration) -> Self {
        let most = if drain.is_last() { LAST.1 - 2 * PATIENCE } else { Duration::MAX };
        let longest = longest.min(most);
        Self { drain, numbers, longest, behind: None, until: Instant::now() + longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::testing::Nobody;

    /// A thread of ours can be stopped as every other one: by a debugger, for ever.
    #[test]
    fn who_waits_for_a_thread_that_does_nothing_gives_up() {
        static KERNELS: Kernels = Kernels::new();
        static GPU: Gpu<Nobody> = Gpu::new(Nobody, &KERNELS);
        let stopped = || loop {
            park();
        };
        let started = thread::start(stopped).expect("a thread");
        let worker = Some((Process::this(), started.thread().clone()));
        assert!(GPU.worker.set(worker).is_ok());
        GPU.drain::<()>(None);
        assert!(!GPU.events.is_empty());
    }
}
