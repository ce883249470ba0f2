//! What may happen to a process and to a recording of it, over the fake runtime: all sequences of three steps, and
//! random walks.
//!
//! There is one state in a process and no way back from its end, so each walk has a process of its
//! own: this test starts itself.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::process::Command;
use std::sync::RwLock;
use std::time::{Duration, Instant};

use tracer_common::calls::{Call, Wanted};
use tracer_common::hsa_functions::{SLOT_COUNT, SLOTS};
use tracer_common::loss::ShimLoss;
use tracer_common::shim::{Agent, Barrier, Complete, Copy, Dispatch, Queue, Symbol, state};

use crate::abi::{AmdSignal, SUCCESS};
use crate::calls::{self, CallSink, Detail};
use crate::closing;
use crate::fake::{
    Fake, FakeQueue, Gates, OPEN, SIGNALS, USERS, WRONG, forever, handle, signal, the_dead_rest,
    tool,
};
use crate::lifecycle::{self, InstallError, Timing};
use crate::phase::Phase;
use crate::recording;
use crate::runtime::{Tables, Unsupported};
use crate::sink::{Demand, Enqueuer, Remains, Sink};
use crate::state::STATE;
use crate::testing::Random;

/// Tells a child process that this test has started which walk to take: 0 is every order, another number a seed.
const WALK: &str = "ROCTAP_TEST_WALK";
/// Steps of a walk at random.
const STEPS: usize = 120;

/// A thing that may happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Attach,
    Detach,
    /// The reader is killed: it may come back, as far as anybody knows.
    Kill,
    /// A kernel is launched that runs until [`Step::Run`].
    Launch,
    Run,
    Init,
    /// `hsa_shut_down`, the last one or not.
    ShutDown,
    /// The program destroys its queue.
    Destroy,
    /// Another tool puts itself into the tables.
    Cover,
    Fork,
}

const STEPS_OF_A_WALK: [Step; 10] = [
    Step::Attach,
    Step::Detach,
    Step::Kill,
    Step::Launch,
    Step::Run,
    Step::Init,
    Step::ShutDown,
    Step::Destroy,
    Step::Cover,
    Step::Fork,
];

const NOTHING: u32 = 0;
const LATER: u32 = 1;
const RECORD: u32 = 2;

/// A sink that numbers records and drops them: the test reads only the last state that was reported.
struct Recorder {
    wish: AtomicU32,
    state: AtomicU64,
    numbers: AtomicU64,
    lost: AtomicU64,
}

static RECORDER: Recorder = Recorder {
    wish: AtomicU32::new(LATER),
    state: AtomicU64::new(state::DORMANT),
    numbers: AtomicU64::new(0),
    lost: AtomicU64::new(0),
};

impl Recorder {
    fn number(&self, sequence: &mut u64) -> bool {
        if *sequence == 0 {
            *sequence = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        }
        true
    }
}

impl Sink for Recorder {
    fn wanted(&self, _: u64) -> Demand {
        match self.wish.load(Ordering::Acquire) {
            RECORD => Demand::Record,
            LATER => Demand::Later,
            _ => Demand::Nothing,
        }
    }
    fn let_go(&self, remains: Remains) -> bool {
        (remains == Remains::Nothing) && self.wish.load(Ordering::Acquire) == NOTHING
    }
    fn reserve(&self, _: u64) -> Option<u64> {
        let mut number = 0;
        self.number(&mut number).then_some(number)
    }
    fn dispatch(&self, record: &mut Dispatch, _: Enqueuer) -> bool {
        self.number(&mut record.sequence)
    }
    fn barrier(&self, record: &mut Barrier, _: Enqueuer) -> bool {
        self.number(&mut record.sequence)
    }
    fn copy(&self, record: &mut Copy) -> bool {
        self.number(&mut record.sequence)
    }
    fn enqueued(&self, _: u64, _: Enqueuer) {}
    fn claimed(&self, _: u64) {}
    fn can_complete(&self, _: u64) -> bool {
        true
    }
    fn complete(&self, _: Complete) {}
    fn symbol(&self, _: Symbol, _: &[u8]) {}
    fn agent(&self, _: Agent) {}
    fn queue(&self, _: Queue) {}
    fn lost(&self, _: ShimLoss, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }
    fn state(&self, state: u64) {
        self.state.store(state, Ordering::Release);
        if state == state::ACTIVE {
            calls::begin(0..SLOT_COUNT);
        } else {
            calls::end();
        }
    }
    fn housekeeping(&self, _: u64) -> bool {
        false
    }
}

impl CallSink for Recorder {
    fn begins(&self, _: &mut Call, _: usize) -> Detail {
        Detail::End
    }
    fn ends(&self, _: &Call, _: usize) {}
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        let phase = STATE.phase.get();
        assert!(
            Instant::now() < deadline,
            "{what}; {phase:?}, {} in flight",
            recording::in_flight()
        );
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// A process that uses the runtime, and may be recorded.
struct World {
    fake: &'static Fake,
    /// Its calls of `hsa_init` that are not undone.
    users: u64,
    queue: Option<FakeQueue>,
    gate: &'static AtomicBool,
    gates: Gates,
    /// Signals of kernels that run, or have run: each is 1, and 0 at the end.
    running: Vec<&'static AmdSignal>,
    /// Whether another tool is in these tables.
    covered: bool,
    was_covered: bool,
    /// Something was attached.
    prepared: bool,
    ended: bool,
    /// Held by another thread while it needs the runtime.
    in_use: &'static RwLock<()>,
}

impl World {
    fn new(in_use: &'static RwLock<()>) -> Self {
        let words = (0..SLOT_COUNT).map(|slot| {
            let args = SLOTS[slot].stack_words.min(6) as u8;
            Wanted { operation: slot as u16, args, ..Wanted::default() }.to_word()
        });
        assert!(calls::want(words, &RECORDER));
        Self {
            fake: Fake::the(),
            users: 1,
            queue: None,
            gate: forever(AtomicBool::new(false)),
            gates: Gates::default(),
            running: Vec::new(),
            covered: false,
            was_covered: false,
            prepared: false,
            ended: false,
            in_use,
        }
    }

    fn take(&mut self, step: Step) {
        // Shown when the walk fails.
        eprintln!("{step:?} in {:?}, {} users", STATE.phase.get(), self.users);
        match step {
            Step::Attach => self.attach(),
            Step::Detach => self.wish(NOTHING),
            Step::Kill => self.wish(LATER),
            Step::Launch => self.launch(),
            Step::Run => self.run(),
            Step::Init => self.init(),
            Step::ShutDown => self.shut_down(),
            Step::Destroy => self.destroy(),
            Step::Cover => self.cover(),
            Step::Fork => self.fork(),
        }
        self.check();
    }

    /// Checks what holds after every step.
    fn check(&self) {
        assert_eq!(WRONG.load(Ordering::Acquire), 0);
        assert!(the_dead_rest());
        if self.users > 0 {
            // A function of each kind of entry: hooked, only called by us, covered by another tool.
            let plain = signal(3, false);
            let store = self.fake.core.signal_store_relaxed.get().expect("there");
            let wait = self.fake.core.signal_wait_relaxed.get().expect("there");
            // SAFETY: a signal of ours.
            #[expect(unsafe_code, reason = "the runtime's functions")]
            unsafe {
                store(handle(plain), 5);
                assert_eq!(wait(handle(plain), 0, 5, 0, 0), 5);
            }
        }
    }

    fn wish(&self, wish: u32) {
        RECORDER.wish.store(wish, Ordering::Release);
        STATE.call_worker();
    }

    fn attach(&mut self) {
        self.prepared |= !self.ended;
        self.wish(RECORD);
        let Fake { core, amd, .. } = *self.fake;
        let (core, amd) =
            (core::ptr::from_ref(core) as u64, core::ptr::from_ref(amd.version) as u64);
        // SAFETY: tables of ours.
        #[expect(unsafe_code, reason = "tables of ours")]
        let tables = unsafe { Tables::at(core, amd) }.expect("known");
        match lifecycle::install(tables, &RECORDER, Timing::Live) {
            Ok(()) => {
                calls::patch(&tables);
                assert!(!self.ended);
                // By the worker, if it was just ending the last one.
                until("recording", || {
                    STATE.phase.is_active()
                        && RECORDER.state.load(Ordering::Acquire) == state::ACTIVE
                });
            }
            Err(InstallError::Ended) => assert!(self.ended),
            Err(error) => {
                // The tool stands in tables that were made anew, or stood there when we first came: that
                // the runtime's own functions are its own is not to be seen of fake tables.
                assert_eq!(error, InstallError::Unsupported(Unsupported::Covered));
                assert!(self.was_covered);
            }
        }
    }

    fn launch(&mut self) {
        if self.users == 0 {
            return;
        }
        let queue = self.queue.get_or_insert_with(|| {
            let mut queue = self.fake.queue(64);
            queue.start(7, &self.gates);
            queue
        });
        if self.running.len() > 40 {
            return;
        }
        let done = signal(1, self.running.len().is_multiple_of(2));
        let index = queue.amd.write_dispatch_id.load(Ordering::Acquire);
        self.gates.lock().expect("whole").insert(index, self.gate);
        assert_eq!(queue.dispatch(true, handle(done)), index);
        self.running.push(done);
    }

    /// Lets every kernel end, and checks that each completion signal was decremented exactly once.
    fn run(&mut self) {
        self.gate.store(true, Ordering::Release);
        let value = |signal: &AmdSignal| signal.value.load(Ordering::Acquire);
        until("every signal", || self.running.iter().all(|signal| value(signal) <= 0));
        assert!(self.running.drain(..).all(|signal| value(signal) == 0));
        self.gate = forever(AtomicBool::new(false));
        self.gates.lock().expect("whole").clear();
    }

    fn init(&mut self) {
        let init = self.fake.core.init.get().expect("there");
        // SAFETY: the fake's own.
        #[expect(unsafe_code, reason = "the runtime's function")]
        let status = unsafe { init() };
        assert_eq!(status, SUCCESS);
        self.users += 1;
    }

    fn shut_down(&mut self) {
        if self.users == 0 {
            return;
        }
        let last = self.users == 1;
        let _alone = last.then(|| self.in_use.write().expect("whole"));
        if last && let Some(mut queue) = self.queue.take() {
            // Running kernels go with the runtime, and nobody may wait for them.
            queue.halt();
            self.running.clear();
            self.gates.lock().expect("whole").clear();
        }
        self.users -= 1;
        let shut_down = self.fake.core.shut_down.get().expect("there");
        let before = STATE.phase.get();
        // SAFETY: the fake's own.
        #[expect(unsafe_code, reason = "the runtime's function")]
        let status = unsafe { shut_down() };
        assert_eq!(status, SUCCESS);
        assert_eq!(USERS.load(Ordering::Acquire), self.users as i64, "no use is kept");
        if last {
            self.covered = false;
            assert!(!OPEN.load(Ordering::Acquire));
            assert!(!STATE.phase.get().is_installed());
            let reported = RECORDER.state.load(Ordering::Acquire);
            assert!(self.ended || reported == state::DORMANT, "{reported}");
            assert_eq!(recording::in_flight(), 0);
        } else if before == Phase::Active && RECORDER.wish.load(Ordering::Acquire) == RECORD {
            assert_eq!(STATE.phase.get(), Phase::Active, "it goes on without a gap");
        }
    }

    fn destroy(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.run();
            queue.destroy();
        }
    }

    fn cover(&mut self) {
        if self.users > 0 && !self.covered {
            tool::cover(self.fake);
            (self.covered, self.was_covered) = (true, true);
        }
    }

    /// The child does nothing, and breaks nothing.
    #[expect(unsafe_code, reason = "a child of a process with threads may do little")]
    fn fork(&self) {
        let plain = signal(3, false);
        let store = self.fake.core.signal_store_relaxed.get().expect("there");
        // SAFETY: the child only loads and stores, and leaves at once.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // Before the first attach nobody is told of a fork, nor needs to be.
            let inert = STATE.phase.is_inert() && !STATE.is_usable();
            let inert = (inert || !self.prepared) && !STATE.is_installed();
            closing::close();
            lifecycle::finish();
            if self.users > 0 {
                // SAFETY: a signal of ours.
                unsafe { store(handle(plain), 9) };
            }
            let stored = self.users == 0 || plain.value.load(Ordering::Relaxed) == 9;
            let right = inert && stored && WRONG.load(Ordering::Relaxed) == 0;
            // SAFETY: nothing is left to do.
            unsafe { libc::_exit(if right { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0);
    }

    /// Detaches, lets every kernel end, waits until the hooks report dormant, and checks that none of our signals is
    /// left.
    fn settle(&mut self) {
        self.take(Step::Detach);
        if self.users > 0 {
            self.take(Step::Run);
        }
        let calm = |phase: Phase| !matches!(phase, Phase::Active) && !phase.is_ending();
        until("calm", || calm(STATE.phase.get()));
        until("the word", || RECORDER.state.load(Ordering::Acquire) == state::DORMANT);
        assert_eq!(SIGNALS.load(Ordering::Acquire), 0, "no signal is kept");
        assert!(!STATE.is_installed() || recording::in_flight() == 0);
    }

    /// Plays the end of the process: calls `finish`, ends the kernel as a destructor that waits would, then takes every
    /// step once more.
    fn end(&mut self) {
        self.take(Step::Launch);
        lifecycle::finish();
        self.ended = true;
        if self.users > 0 {
            self.take(Step::Run);
        }
        for step in STEPS_OF_A_WALK {
            self.take(step);
        }
    }
}

/// Every order of three steps, one after the other.
fn every_order(world: &mut World) {
    for first in STEPS_OF_A_WALK {
        for second in STEPS_OF_A_WALK {
            for third in STEPS_OF_A_WALK {
                for step in [first, second, third] {
                    world.take(step);
                }
            }
        }
        world.settle();
    }
}

/// Any steps, while another thread uses the runtime, too.
fn at_random(world: &mut World, seed: u64) {
    let stop = AtomicBool::new(false);
    let mut random = Random::new(seed);
    let (fake, in_use) = (world.fake, world.in_use);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let using = in_use.read().expect("whole");
                if OPEN.load(Ordering::Acquire) {
                    launch_and_wait(fake, seed);
                }
                drop(using);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        // Also when a check fails.
        let _stops = OnDrop(|| stop.store(true, Ordering::Release));
        for _ in 0..STEPS {
            let step = STEPS_OF_A_WALK[random.below(STEPS_OF_A_WALK.len() as u64) as usize];
            world.take(step);
            std::thread::sleep(Duration::from_micros(random.below(2000)));
        }
    });
    if seed.is_multiple_of(2) {
        world.settle();
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn launch_and_wait(fake: &'static Fake, seed: u64) {
    let mut queue = fake.queue(64);
    queue.start(seed, &Gates::default());
    for mailbox in [true, false, true] {
        let done = signal(1, mailbox);
        queue.dispatch(true, handle(done));
        fake.wait(done, 1);
        until("a kernel beside", || done.value.load(Ordering::Acquire) == 0);
    }
    queue.destroy();
}

#[test]
fn whatever_happens_in_whatever_order() {
    if let Ok(walk) = std::env::var(WALK) {
        let mut world = World::new(forever(RwLock::new(())));
        match walk.parse().expect("a number") {
            0 => every_order(&mut world),
            seed => at_random(&mut world, seed),
        }
        world.end();
        return;
    }
    for walk in 0..13 {
        let exe = std::env::current_exe().expect("own path");
        let test = "orders::whatever_happens_in_whatever_order";
        let output = Command::new(exe)
            .args(["--exact", test, "--nocapture"])
            .env(WALK, walk.to_string())
            .output()
            .expect("it starts");
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "walk {walk}: {}\n{text}", output.status);
        assert!(text.contains("1 passed"), "walk {walk}: {text}");
    }
}
