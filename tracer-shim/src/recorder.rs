//! The policy: the events that are recorded, and their places.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use tracer_common::loss::ShimLoss;
use tracer_common::shim::{
    Agent, Barrier, Complete, Copy, Dispatch, HEARTBEAT_GONE_NS, HEARTBEAT_SUSPECT_NS,
    HEARTBEAT_TIMEOUT_NS, Link, NAME_PART_BYTES, Queue, SITE_CALLS, Symbol, control, kind,
    shim_status, state,
};
use tracer_common::slots::{self, tables};
use tracer_common::waited::LONGEST_LOOK_NS;
use tracer_hooks::sink::{AtFork, Enqueuer, Remains};
use tracer_hooks::{Demand, Sink, sys};
use zerocopy::{FromBytes as _, Immutable, IntoBytes};

use crate::backlog::Backlog;
use crate::current::{Current, Pinned};
use crate::memory::SharedMemory;
use crate::open_calls::Launcher;
use crate::{exports, open_calls, rings};

/// Writes into the shared memory.
pub struct Recorder {
    current: Current,
    backlog: Backlog,
    /// A reader lives, so records that wait for room are worth waiting for.
    read: AtomicBool,
    heartbeat: Heartbeat,
    /// The function that the worker calls when it is called, if any: see [`Recorder::when_called`]. Nobody waits for
    /// the thread that sets it.
    called: AtomicPtr<fn()>,
}

/// The last heartbeat that was seen, and the time for which it has been the last. A process that stood still looks less
/// often: see [`tracer_common::waited`].
struct Heartbeat {
    value_ns: AtomicU64,
    looked_ns: AtomicU64,
    unchanged_ns: AtomicU64,
}

impl Heartbeat {
    const fn new() -> Self {
        Self {
            value_ns: AtomicU64::new(0),
            looked_ns: AtomicU64::new(0),
            unchanged_ns: AtomicU64::new(0),
        }
    }

    /// Notes a heartbeat. Returns the time for which it has not changed. The first is as old as it says.
    fn unchanged_ns(&self, value_ns: u64, now_ns: u64) -> u64 {
        let looked_ns = self.looked_ns.swap(now_ns, Ordering::Relaxed);
        let passed_ns = now_ns.saturating_sub(looked_ns).min(LONGEST_LOOK_NS);
        let unchanged_ns = match self.value_ns.swap(value_ns, Ordering::Relaxed) {
            0 => now_ns.saturating_sub(value_ns),
            last_ns if last_ns != value_ns => 0,
            _ => self.unchanged_ns.load(Ordering::Relaxed) + passed_ns,
        };
        self.unchanged_ns.store(unchanged_ns, Ordering::Relaxed);
        unchanged_ns
    }

    /// The wish of a memory's owner, and the time for which its heartbeat has not changed.
    fn demand(&self, memory: &SharedMemory, now_ns: u64) -> (Demand, u64) {
        let heartbeat = memory.control(control::HEARTBEAT_NS);
        let unchanged_ns = self.unchanged_ns(heartbeat, now_ns);
        let demand = match unchanged_ns {
            _ if memory.control(control::RECORD) != 1 => Demand::Nothing,
            _ if heartbeat == 0 => Demand::Later,
            0..HEARTBEAT_TIMEOUT_NS => Demand::Record,
            HEARTBEAT_TIMEOUT_NS..HEARTBEAT_GONE_NS => Demand::Later,
            _ => Demand::Nothing,
        };
        (demand, unchanged_ns)
    }
}

/// The one recorder of the process.
pub static RECORDER: Recorder = Recorder::new();

/// A record as words. Every record's size is a multiple of 8.
fn words<const N: usize, T: IntoBytes + Immutable>(record: &T) -> [u64; N] {
    <[u64; N]>::read_from_bytes(record.as_bytes()).unwrap_or([0; N])
}

const DISPATCH_WORDS: usize = size_of::<Dispatch>() / 8;
const BARRIER_WORDS: usize = size_of::<Barrier>() / 8;
const COPY_WORDS: usize = size_of::<Copy>() / 8;
const COMPLETE_WORDS: usize = size_of::<Complete>() / 8;
const LINK_WORDS: usize = size_of::<Link>() / 8;
const SYMBOL_WORDS: usize = size_of::<Symbol>() / 8;
const AGENT_WORDS: usize = size_of::<Agent>() / 8;
const QUEUE_WORDS: usize = size_of::<Queue>() / 8;

impl Recorder {
    const fn new() -> Self {
        Self {
            current: Current::new(),
            backlog: Backlog::new(),
            read: AtomicBool::new(false),
            heartbeat: Heartbeat::new(),
            called: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Has the worker call `called` whenever it is called itself; the first function that is set stays.
    pub fn when_called(&self, called: &'static fn()) {
        let (nobody, called) = (core::ptr::null_mut(), core::ptr::from_ref(called).cast_mut());
        // Relaxed: the function was there before the process ran.
        let _ = self.called.compare_exchange(nobody, called, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Uses `memory` from now on, unless there is one already. Returns whether it does.
    pub fn connect(&self, memory: SharedMemory) -> bool {
        self.current.put(memory, rings::new_memory)
    }

    /// Gives the memory up; false when another thread is about to do so.
    pub fn disconnect(&self) -> bool {
        self.disconnect_if(|_| true)
    }

    fn disconnect_if(&self, condition: impl FnOnce(&SharedMemory) -> bool) -> bool {
        let gone = self.current.take(condition);
        if gone {
            self.backlog.clear();
        }
        gone
    }

    /// The memory, if there is one.
    #[inline]
    pub fn memory(&self) -> Option<Pinned<'_>> {
        self.current.get()
    }

    /// Whether a reader records and lives: a heartbeat that goes on. May take [`HEARTBEAT_SUSPECT_NS`].
    pub fn is_read(&self) -> bool {
        let beat = || {
            let memory = self.memory()?;
            let heartbeat = memory.control(control::HEARTBEAT_NS);
            let fresh = sys::now_ns().saturating_sub(heartbeat) < HEARTBEAT_TIMEOUT_NS;
            (fresh && memory.control(control::RECORD) == 1).then_some(heartbeat)
        };
        let Some(first) = beat() else { return false };
        let deadline = sys::awake_ns() + HEARTBEAT_SUSPECT_NS;
        while sys::awake_ns() < deadline {
            sys::sleep_ns(5_000_000);
            match beat() {
                Some(later) if later != first => return true,
                Some(_) => {}
                None => return false,
            }
        }
        false
    }

    /// Writes a record into the calling thread's ring, numbering it unless it has a number.
    #[inline]
    fn record<const N: usize, T: IntoBytes + Immutable>(
        &self,
        kind: u32,
        now_ns: u64,
        record: &mut T,
        number: impl FnOnce(&mut T) -> &mut u64,
    ) -> bool {
        let Some(memory) = self.memory() else { return false };
        let Some(ring) = rings::mine(&memory, now_ns) else {
            memory.lost(ShimLoss::NO_RING, 1);
            return false;
        };
        let Some(producer) = memory.producer(ring) else { return false };
        let number = number(record);
        let fresh = *number == 0;
        if fresh {
            *number = rings::next_number(ring);
        }
        let taken = producer.push(kind, [&words::<N, T>(record), &[]]);
        if !taken {
            memory.lost(ShimLoss::OPERATION_RING_FULL, 1);
        } else if fresh {
            rings::used_number(ring);
        }
        taken
    }

    /// Adds frames to the backlog, until the ring has room. Counts one loss if the heap has no room for them, or the
    /// backlog takes no more.
    fn put_off(&self, frames: Option<Vec<(u32, Vec<u64>)>>) {
        if !frames.is_some_and(|frames| self.backlog.push(frames)) {
            self.lost(ShimLoss::NO_MEMORY, 1);
        }
    }
}

/// A frame of a record and the bytes that follow it; none without memory for it.
fn frame(kind: u32, record: &[u64], bytes: &[u8]) -> Option<(u32, Vec<u64>)> {
    let mut words = Vec::new();
    words.try_reserve_exact(record.len() + bytes.len().div_ceil(8)).ok()?;
    words.extend_from_slice(record);
    words.extend(bytes.chunks(8).map(|part| {
        let mut word = [0; 8];
        word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    }));
    Some((kind, words))
}

/// Writes a record that names the call of HIP in which this thread has enqueued the operation. False if the thread has
/// no ring, or the ring is full.
fn link(memory: &SharedMemory, sequence: u64, by: Enqueuer, launcher: Launcher) -> bool {
    let Launcher { correlation_id, operation } = launcher;
    let owned = u32::from(by == Enqueuer::Caller);
    let record = Link { sequence, correlation_id, operation, owned };
    let ring = rings::mine(memory, sys::now_ns()).and_then(|ring| memory.producer(ring));
    ring.is_some_and(|ring| ring.push(kind::LINK, [&words::<LINK_WORDS, _>(&record), &[]]))
}

/// The frames of a symbol: parts of its name, and the symbol with the last of these.
fn symbol_frames(mut record: Symbol, name: &[u8]) -> Option<Vec<(u32, Vec<u64>)>> {
    let (before, last) =
        name.split_at(name.len().saturating_sub(1) / NAME_PART_BYTES * NAME_PART_BYTES);
    let mut frames = Vec::new();
    frames.try_reserve_exact(before.len() / NAME_PART_BYTES + 1).ok()?;
    for (nth, part) in before.chunks(NAME_PART_BYTES).enumerate() {
        let parts_before = (nth * NAME_PART_BYTES) as u64;
        frames.push(frame(kind::NAME, &[parts_before, part.len() as u64], part)?);
    }
    (record.name_before, record.name_bytes) = (before.len() as u64, last.len() as u32);
    frames.push(frame(kind::SYMBOL, &words::<SYMBOL_WORDS, _>(&record), last)?);
    Some(frames)
}

impl Sink for Recorder {
    fn wanted(&self, now_ns: u64) -> Demand {
        let Some(memory) = self.memory() else { return Demand::Nothing };
        let (demand, unchanged_ns) = self.heartbeat.demand(&memory, now_ns);
        let is_read = unchanged_ns < HEARTBEAT_TIMEOUT_NS;
        if self.read.swap(is_read, Ordering::Relaxed) && !is_read && demand == Demand::Later {
            memory.lost(ShimLoss::UNREAD, 1);
        }
        demand
    }

    fn let_go(&self, remains: Remains) -> bool {
        self.disconnect_if(|memory| {
            let (demand, unchanged_ns) = self.heartbeat.demand(memory, sys::now_ns());
            let unread = unchanged_ns >= HEARTBEAT_GONE_NS;
            let goes = (remains == Remains::Nothing || unread) && demand == Demand::Nothing;
            if goes && memory.control(control::STATE) == state::NONE {
                // Nobody wanted anything since it was connected: a thread that installs finds it gone and can say
                // nothing into it.
                memory.set_control(control::STATE, state::DORMANT);
            }
            goes
        })
    }

    fn called(&self) {
        exports::ROCTAP_SHIM_PROCESS.store(sys::getpid().into(), Ordering::Relaxed);
        // roctap reads it from outside, which pairs with nothing; the steps that it stands for were done before.
        exports::ROCTAP_SHIM_LIFE.store(shim_status::WORKING, Ordering::Release);
        // SAFETY: null, or what was a reference for ever in `when_called`.
        #[expect(unsafe_code, reason = "a pointer that can be exchanged")]
        let called = unsafe { self.called.load(Ordering::Relaxed).as_ref() };
        if let Some(called) = called {
            called();
        }
    }

    fn forked(&self, runtime: AtFork) {
        self.current.leave();
        // Thunks jump again: functions that they call, not jump to, would be taken for calls of the shim.
        tracer_hooks::calls::end();
        let status = match runtime {
            AtFork::Open => shim_status::FORKED_OPEN,
            AtFork::Closed => shim_status::FORKED,
        };
        exports::ROCTAP_SHIM_LIFE.store(status, Ordering::Release);
    }

    fn reserve(&self, now_ns: u64) -> Option<u64> {
        let memory = self.memory()?;
        let ring = rings::mine(&memory, now_ns)?;
        let number = rings::next_number(ring);
        rings::used_number(ring);
        Some(number)
    }

    #[inline]
    fn dispatch(&self, record: &mut Dispatch, _: Enqueuer) -> bool {
        let now = record.enqueue_ns;
        record.symbols = self.backlog.symbols();
        self.record::<DISPATCH_WORDS, _>(kind::DISPATCH, now, record, |r| &mut r.sequence)
    }

    fn barrier(&self, record: &mut Barrier, _: Enqueuer) -> bool {
        let now = record.enqueue_ns;
        self.record::<BARRIER_WORDS, _>(kind::BARRIER, now, record, |r| &mut r.sequence)
    }

    fn copy(&self, record: &mut Copy) -> bool {
        let now = record.enqueue_ns;
        self.record::<COPY_WORDS, _>(kind::COPY, now, record, |r| &mut r.sequence)
    }

    #[inline]
    fn enqueued(&self, sequence: u64, by: Enqueuer) {
        let mut launcher = Launcher::default();
        if let Some(memory) = self.memory() {
            launcher = open_calls::launcher(&memory);
            if launcher.is_hip() && link(&memory, sequence, by, launcher) {
                return;
            }
        }
        // The memory has been let go of: at the probe site the thread may be stopped.
        exports::fire(sequence, by, launcher);
    }

    fn claimed(&self, sequence: u64) {
        self.enqueued(sequence, Enqueuer::Caller);
    }

    fn can_complete(&self, now_ns: u64) -> bool {
        self.memory().is_some_and(|memory| rings::mine(&memory, now_ns).is_some())
    }

    fn complete(&self, record: Complete) {
        let Some(memory) = self.memory() else { return };
        if !rings::is_of_this_memory(record.sequence) {
            return;
        }
        match rings::mine(&memory, record.end_ns).and_then(|ring| memory.producer(ring)) {
            Some(producer) => {
                if !producer.push(kind::COMPLETE, [&words::<COMPLETE_WORDS, _>(&record), &[]]) {
                    memory.lost(ShimLoss::COMPLETION_RING_FULL, 1);
                }
            }
            None => memory.lost(ShimLoss::NO_RING, 1),
        }
    }

    fn clock_error(&self, error_ns: u64) {
        if let Some(memory) = self.memory()
            // Of an earlier recording into this memory.
            && memory.control(control::CLOCK_ERROR_NS) < error_ns
        {
            memory.set_control(control::CLOCK_ERROR_NS, error_ns);
        }
    }

    fn symbol(&self, record: Symbol, name: &[u8]) {
        self.put_off(symbol_frames(record, name));
    }

    fn agent(&self, record: Agent) {
        let agent = frame(kind::AGENT, &words::<AGENT_WORDS, _>(&record), &[]);
        self.put_off(agent.map(|frame| vec![frame]));
    }

    fn queue(&self, record: Queue) {
        let queue = frame(kind::QUEUE, &words::<QUEUE_WORDS, _>(&record), &[]);
        self.put_off(queue.map(|frame| vec![frame]));
    }

    fn lost(&self, cause: ShimLoss, count: u64) {
        if let Some(memory) = self.memory() {
            memory.lost(cause, count);
        }
    }

    fn begins(&self) {
        // All of it is told again.
        self.backlog.clear();
        if let Some(memory) = self.memory() {
            begin_calls(&memory);
        }
    }

    fn state(&self, state: u64) {
        if state != state::ACTIVE {
            tracer_hooks::calls::end();
        }
        if let Some(memory) = self.memory() {
            memory.set_control(control::STATE, state);
        }
    }

    fn housekeeping(&self, now_ns: u64) -> bool {
        let Some(memory) = self.memory() else { return false };
        let Some(ring) = rings::mine(&memory, now_ns) else { return false };
        let Some(producer) = memory.producer(ring) else { return false };
        let push = |kind, words: &[u64]| {
            producer.push(kind, [words, &[]]);
        };
        let more = self.backlog.drain(ring, || producer.room(), push);
        more && self.read.load(Ordering::Relaxed)
    }
}

/// Begins to record calls, if any are wanted, of all tables that have been patched.
///
/// Probes at functions of HSA are told before: a call of another thread in between is lost rather than recorded twice.
/// There is none inside of `hsa_init`. Probes at functions of HIP are not told: until they are gone, they leave out the
/// functions that our code calls, which are those that we record.
pub fn begin_calls(memory: &SharedMemory) {
    let taken = tracer_hooks::calls::in_place();
    if taken == 0 {
        return;
    }
    tracer_hooks::calls::begin(slots::HIP);
    let of_hsa = taken & (tables::CORE | tables::IMAGE);
    if of_hsa != 0 {
        exports::tell(SITE_CALLS, of_hsa.into(), 0);
        tracer_hooks::calls::begin(slots::HSA);
    }
    memory.set_control(control::CALLS_TAKEN, taken.into());
}

/// Uses the environment's memory; see [`crate::memory::connect`].
pub fn connect() -> bool {
    // There is a memory after `hsa_shut_down` and another `hsa_init`, and when the library was put in before the
    // runtime looked for tools. A forked child installs nothing.
    RECORDER.memory().is_some()
        || crate::memory::connect().is_ok_and(|memory| RECORDER.connect(memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::mapped;
    use tracer_common::ring::MAX_FRAME_WORDS;

    #[test]
    fn nobody_reading_means_not_wanted() {
        let recorder = Recorder::new();
        assert_eq!(recorder.wanted(5), Demand::Nothing);
        assert!(recorder.connect(mapped(1)));
        let set = |word, value| recorder.memory().expect("there").set_control(word, value);
        let now = 100 * HEARTBEAT_TIMEOUT_NS;
        assert_eq!(recorder.wanted(now), Demand::Nothing, "not asked for");
        set(control::RECORD, 1);
        assert_eq!(recorder.wanted(now), Demand::Later, "no heartbeat yet");
        set(control::HEARTBEAT_NS, now - HEARTBEAT_TIMEOUT_NS);
        assert_eq!(recorder.wanted(now), Demand::Later, "the first that is seen is old");
        set(control::HEARTBEAT_NS, now);
        assert_eq!(recorder.wanted(now), Demand::Record);
        assert_eq!(recorder.wanted(now - HEARTBEAT_TIMEOUT_NS), Demand::Record, "from the future");
        assert_eq!(recorder.wanted(2 * now), Demand::Record, "everything stood still");
        let unread = || {
            let memory = recorder.memory().expect("there");
            memory.control(control::LOSSES + ShimLoss::UNREAD.0 as usize)
        };
        assert_eq!(unread(), 0, "nothing was missed");
        let mut looks = (2..).map(|i| recorder.wanted(2 * now + i * LONGEST_LOOK_NS));
        let first = looks.position(|demand| demand != Demand::Record).expect("at some time");
        assert_eq!(first as u64, HEARTBEAT_TIMEOUT_NS / LONGEST_LOOK_NS - 2, "stale");
        assert!(!recorder.let_go(Remains::Nothing), "it may return");
        assert_eq!(
            looks.find(|&demand| demand != Demand::Later),
            Some(Demand::Nothing),
            "it will not"
        );
        assert_eq!(unread(), 1, "since once");
        set(control::HEARTBEAT_NS, now + 1);
        set(control::RECORD, 0);
        assert_eq!(recorder.wanted(now), Demand::Nothing);
        assert!(!recorder.let_go(Remains::InFlight), "what is in flight is still to be written");
        assert!(recorder.let_go(Remains::Nothing) && recorder.memory().is_none());
        assert!(recorder.let_go(Remains::Nothing), "nothing is left");
    }

    #[test]
    fn how_long_a_heartbeat_has_not_changed() {
        let heartbeat = Heartbeat::new();
        assert_eq!(heartbeat.unchanged_ns(5, 100), 95);
        assert_eq!(heartbeat.unchanged_ns(5, 130), 125);
        assert_eq!(heartbeat.unchanged_ns(6, 140), 0);
        assert_eq!(heartbeat.unchanged_ns(6, u64::MAX), LONGEST_LOOK_NS);
    }

    #[test]
    fn somebody_who_beats_is_told_from_somebody_who_was_killed() {
        let recorder = Recorder::new();
        assert!(!recorder.is_read(), "no memory");
        assert!(recorder.connect(mapped(1)));
        let beat = |more| {
            let memory = recorder.memory().expect("there");
            memory.set_control(control::HEARTBEAT_NS, sys::now_ns() + more);
        };
        beat(0);
        assert!(!recorder.is_read(), "it records nothing");
        recorder.memory().expect("there").set_control(control::RECORD, 1);
        assert!(!recorder.is_read(), "fresh, but it does not beat");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for more in 0..20 {
                    beat(more);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
            assert!(recorder.is_read());
        });
    }

    #[test]
    fn the_largest_clock_error_of_a_memory_is_told() {
        let recorder = Recorder::new();
        assert!(recorder.connect(mapped(1)));
        for (error_ns, stated_ns) in [(7, 7), (5, 7), (u64::MAX, u64::MAX)] {
            recorder.clock_error(error_ns);
            let memory = recorder.memory().expect("there");
            assert_eq!(memory.control(control::CLOCK_ERROR_NS), stated_ns);
        }
    }

    #[test]
    fn the_first_who_says_what_the_worker_does_decides() {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        static FIRST: fn() = || _ = CALLS.fetch_add(1, Ordering::Relaxed);
        static SECOND: fn() = || unreachable!("somebody was first");
        let recorder = Recorder::new();
        recorder.called();
        recorder.when_called(&FIRST);
        recorder.when_called(&SECOND);
        recorder.called();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    }

    /// An operation that was recorded into the memory before must not end in this one.
    #[test]
    fn completions_of_another_memory_are_left_out() {
        let recorder = Recorder::new();
        assert!(recorder.connect(mapped(1)));
        let mut old = Dispatch { enqueue_ns: 1, ..Dispatch::default() };
        assert!(recorder.dispatch(&mut old, Enqueuer::Caller));
        assert!(!recorder.connect(mapped(1)), "there is one");
        assert!(recorder.disconnect() && recorder.connect(mapped(1)));
        let memory = recorder.memory().expect("there");
        let written = memory.consumer(0).ready();
        let complete = |sequence| recorder.complete(Complete { sequence, start_ns: 1, end_ns: 2 });
        complete(old.sequence);
        assert_eq!(memory.consumer(0).ready(), written);
        let mut new = Dispatch { enqueue_ns: 1, ..Dispatch::default() };
        assert!(recorder.dispatch(&mut new, Enqueuer::Caller) && new.sequence > old.sequence);
        let written = memory.consumer(0).ready();
        complete(new.sequence);
        assert!(memory.consumer(0).ready() > written);
    }

    #[test]
    fn records_are_numbered_only_when_they_are_taken() {
        let recorder = Recorder::new();
        assert!(recorder.connect(mapped(1)));
        let mut numbers = Vec::new();
        let mut dropped = 0;
        for _ in 0..200 {
            let mut record = Dispatch { enqueue_ns: 1, ..Dispatch::default() };
            if recorder.dispatch(&mut record, Enqueuer::Caller) {
                numbers.push(record.sequence);
            } else {
                dropped += 1;
            }
        }
        assert!(dropped > 0, "4 KiB hold 46 dispatches");
        let first = numbers[0];
        let count = numbers.len() as u64;
        assert_eq!(numbers, (first..first + count).collect::<Vec<_>>());
        assert!(size_of::<Dispatch>() / 8 < MAX_FRAME_WORDS);
    }
}
