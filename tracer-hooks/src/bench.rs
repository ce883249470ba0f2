//! A harness for tests of the whole mechanism: a sink that keeps the calls that it receives, and a hooked fake runtime.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use tracer_common::loss::ShimLoss;
use tracer_common::shim::{Agent, Barrier, Complete, Copy, Dispatch, Queue, Symbol, state};

use crate::abi::{AmdSignal, SUCCESS};
use crate::fake::{EXECUTABLE, Fake, FakeQueue, Gates, forever};
use crate::harvest::WORK;
use crate::lifecycle::{self, InstallError, Timing};
use crate::recording;
use crate::runtime::Tables;
use crate::sink::{AtFork, Demand, Enqueuer, Remains, Sink};
use crate::state::STATE;

#[derive(Default)]
pub struct Recorded {
    /// Sequence number by queue and packet.
    pub packets: BTreeMap<(u64, u64), u64>,
    pub copies: BTreeMap<u64, Copy>,
    pub completed: BTreeMap<u64, Complete>,
    /// By sequence number: the enqueuer of the operation, or the caller that claimed it later.
    pub enqueuers: BTreeMap<u64, Enqueuer>,
    pub fired: u64,
    pub queues: Vec<Queue>,
    pub losses: [u64; ShimLoss::COUNT],
    pub state: u64,
    pub names: Vec<Vec<u8>>,
    /// The time since which the last of them has been loaded, ns.
    pub since_ns: u64,
}

/// Called for every dispatch that is recorded, under the queue's lock.
pub type OnDispatch = Box<dyn Fn(&Dispatch) + Send + Sync>;

pub struct Recorder {
    recorded: Mutex<Recorded>,
    pub on: AtomicBool,
    /// When it is not on, it will not be before something is installed again.
    pub attached: AtomicBool,
    count: AtomicU64,
    /// The bound of the error of times.
    error_ns: AtomicU64,
    /// The fake runtime that destroys its executable as soon as a recording has begun.
    pub unloads: Mutex<Option<&'static Fake>>,
    /// In a forked child: 1, and 2 more if the runtime was open.
    pub forked: AtomicU32,
    on_dispatch: OnceLock<OnDispatch>,
    /// A test that takes this lock keeps the worker from its work.
    worker: Mutex<()>,
    /// The worker waits for that lock.
    worker_waits: AtomicBool,
}

impl Recorder {
    /// One that records nothing.
    pub fn quiet() -> Self {
        Self {
            recorded: Mutex::default(),
            on: AtomicBool::new(false),
            attached: AtomicBool::new(false),
            count: AtomicU64::new(0),
            error_ns: AtomicU64::new(0),
            unloads: Mutex::default(),
            forked: AtomicU32::new(0),
            on_dispatch: OnceLock::new(),
            worker: Mutex::default(),
            worker_waits: AtomicBool::new(false),
        }
    }

    /// Keeps the worker, which holds no lock of ours then, until what is returned is dropped.
    pub fn keep_worker(&self) -> MutexGuard<'_, ()> {
        let kept = self.worker.lock().expect("whole");
        until("the worker", || self.worker_waits.load(Ordering::Acquire));
        kept
    }

    /// One that records.
    pub fn forever() -> &'static Self {
        let recorder = forever(Self::quiet());
        recorder.on.store(true, Ordering::Release);
        recorder
    }

    /// Calls `call` for every dispatch from now on. May be called once.
    pub fn on_dispatch(&self, call: impl Fn(&Dispatch) + Send + Sync + 'static) {
        assert!(self.on_dispatch.set(Box::new(call)).is_ok());
    }

    pub fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().expect("whole")
    }

    fn number(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn lost(&self, cause: ShimLoss) -> u64 {
        self.recorded().losses[cause.0 as usize]
    }
}

impl Sink for Recorder {
    fn wanted(&self, _: u64) -> Demand {
        match self.on.load(Ordering::Acquire) {
            true => Demand::Record,
            false if self.attached.load(Ordering::Acquire) => Demand::Nothing,
            false => Demand::Later,
        }
    }
    fn let_go(&self, remains: Remains) -> bool {
        assert!(self.attached.load(Ordering::Acquire), "it may always be wanted again");
        assert!(
            !(remains == Remains::Nothing) || self.recorded().state == state::DORMANT,
            "the state is told before"
        );
        remains == Remains::Nothing
    }
    fn forked(&self, runtime: AtFork) {
        self.forked.store(1 + 2 * u32::from(runtime == AtFork::Open), Ordering::Release);
    }
    fn reserve(&self, _: u64) -> Option<u64> {
        Some(self.number())
    }
    fn dispatch(&self, record: &mut Dispatch, _: Enqueuer) -> bool {
        assert_eq!(record.kernel_object, record.packet_index + 1);
        if record.sequence == 0 {
            record.sequence = self.number();
        }
        let place = (record.queue_id, record.packet_index);
        assert!(
            self.recorded().packets.insert(place, record.sequence).is_none(),
            "{record:?} twice"
        );
        if let Some(call) = self.on_dispatch.get() {
            call(record);
        }
        true
    }
    fn barrier(&self, record: &mut Barrier, _: Enqueuer) -> bool {
        if record.sequence == 0 {
            record.sequence = self.number();
        }
        let place = (record.queue_id, record.packet_index);
        assert!(
            self.recorded().packets.insert(place, record.sequence).is_none(),
            "{record:?} twice"
        );
        true
    }
    fn copy(&self, record: &mut Copy) -> bool {
        if record.sequence == 0 {
            record.sequence = self.number();
        }
        self.recorded().copies.insert(record.sequence, *record);
        true
    }
    fn enqueued(&self, sequence: u64, by: Enqueuer) {
        let mut log = self.recorded();
        log.fired += 1;
        // It may have been claimed before it was told of.
        log.enqueuers.entry(sequence).or_insert(by);
    }
    fn claimed(&self, sequence: u64) {
        let mut log = self.recorded();
        log.fired += 1;
        log.enqueuers.insert(sequence, Enqueuer::Caller);
    }
    fn can_complete(&self, _: u64) -> bool {
        true
    }
    fn clock_error(&self, error_ns: u64) {
        self.error_ns.store(error_ns, Ordering::Relaxed);
    }
    fn complete(&self, record: Complete) {
        assert_ne!(self.error_ns.load(Ordering::Relaxed), 0, "the error is told first");
        assert!(
            self.recorded().completed.insert(record.sequence, record).is_none(),
            "{record:?} twice"
        );
    }
    fn symbol(&self, symbol: Symbol, name: &[u8]) {
        let mut log = self.recorded();
        log.names.push(name.to_vec());
        log.since_ns = symbol.since_ns;
    }
    fn agent(&self, _: Agent) {}
    fn queue(&self, record: Queue) {
        self.recorded().queues.push(record);
    }
    fn lost(&self, cause: ShimLoss, count: u64) {
        self.recorded().losses[cause.0 as usize] += count;
    }
    fn state(&self, state: u64) {
        self.recorded().state = state;
        if state == state::ACTIVE
            && let Some(fake) = self.unloads.lock().expect("whole").take()
        {
            unload(fake);
        }
    }
    fn housekeeping(&self, _: u64) -> bool {
        // Threads that collect call this too.
        if !WORK.is_taken() {
            self.worker_waits.store(true, Ordering::Release);
            let _worker = self.worker.lock().expect("whole");
            self.worker_waits.store(false, Ordering::Release);
        }
        false
    }
}

pub fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        if Instant::now() > deadline {
            // The machine may have stood still for so long.
            std::thread::sleep(Duration::from_secs(2));
            let (phase, under_way) = (STATE.phase.get(), recording::in_flight());
            assert!(condition(), "{what}; phase {phase:?}, in flight {under_way}");
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

pub fn value(signal: &AmdSignal) -> i64 {
    signal.value.load(Ordering::Acquire)
}

#[derive(Clone, Copy)]
pub struct Bench {
    pub fake: &'static Fake,
    pub recorder: &'static Recorder,
}

impl Bench {
    /// One that records everything, over a fresh runtime.
    pub fn new() -> Self {
        let recorder = Recorder::forever();
        let fake = Fake::new();
        let installed = tables(fake).and_then(|t| lifecycle::install(t, recorder, Timing::AtStart));
        assert_eq!(installed, Ok(()));
        Self { fake, recorder }
    }

    pub fn queue(&self, size: u32, seed: u64) -> FakeQueue {
        let mut queue = self.fake.queue(size);
        queue.start(seed, &Gates::default());
        queue
    }

    pub fn switch(&self, on: bool) {
        self.recorder.on.store(on, Ordering::Release);
        let wanted = if on { state::ACTIVE } else { state::DORMANT };
        until("the state", || self.recorder.recorded().state == wanted);
    }

    /// Every packet of `queue` up to `count` was recorded and completed, with its own times.
    pub fn check(&self, queue: &FakeQueue, count: u64) {
        let id = queue.amd.id.load(Ordering::Relaxed);
        until("completions", || {
            let log = self.recorder.recorded();
            let of = |i| log.packets.get(&(id, i)).and_then(|s| log.completed.get(s));
            (0..count).all(|i| of(i).is_some())
        });
        let log = self.recorder.recorded();
        for index in 0..count {
            let complete = log.completed[&log.packets[&(id, index)]];
            assert_eq!((complete.start_ns, complete.end_ns), (2 * index + 1, 2 * index + 2));
        }
    }
}

/// The tables of a fake runtime.
pub fn tables(fake: &'static Fake) -> Result<Tables, InstallError> {
    // SAFETY: tables of ours.
    #[expect(unsafe_code, reason = "tables of ours")]
    unsafe { Tables::of(fake.root) }.map_err(InstallError::Unsupported)
}

pub fn unload(fake: &Fake) {
    let destroy = fake.core.executable_destroy.get().expect("there");
    // SAFETY: the fake's own.
    #[expect(unsafe_code, reason = "the runtime's function")]
    let status = unsafe { destroy(EXECUTABLE) };
    assert_eq!(status, SUCCESS);
}
