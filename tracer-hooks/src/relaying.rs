//! Tests of relaying: the thread that waits relays, each entry once, and a thread that is lost takes no other entry
//! with it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tracer_common::loss::ShimLoss;

use crate::abi::{AmdSignal, is_satisfied, wait_state};
use crate::bench::{Bench, until, value};
use crate::fake::{self, FakeQueue, Gates, forever, handle, signal};
use crate::harvest::{WORK, Work};
use crate::phase::Event;
use crate::pool::Batch;
use crate::relay::{Step, Wait};
use crate::state::{STATE, State};
use crate::testing::Random;
use crate::track::{Entry, HarvestExtent};

/// For ever, as far as a test is concerned.
const LONG_NS: u64 = 120_000_000_000;
const BELOW: u32 = 2;
const EQUAL: u32 = 0;

fn begin(state: &'static State, original: &AmdSignal, compare: i64) -> crate::relay::Waiter {
    let wait = Wait {
        signal: handle(original),
        condition: BELOW,
        compare,
        timeout: LONG_NS,
        state: wait_state::ACTIVE,
    };
    wait.begin(state).expect("it relays")
}

/// A state of the test's own, without a worker: only waiting threads relay.
pub fn active() -> &'static State {
    let state = forever(State::new());
    for event in [Event::Install, Event::Begin] {
        state.phase.apply(event).expect("a new one");
    }
    state
}

/// The GPU completes a signal of ours.
pub fn complete(ours: u64) {
    let ours = crate::view::signal(ours).expect("a signal");
    ours.start_ts.store(fake::TICKS + 5, Ordering::Relaxed);
    ours.end_ts.store(fake::TICKS + 6, Ordering::Relaxed);
    ours.value.fetch_sub(1, Ordering::AcqRel);
}

pub fn entry(ours: &AmdSignal, original: &AmdSignal) -> Entry {
    Entry { signal: handle(ours), original: handle(original), ..Entry::default() }
}

/// Threads that wait, one that collects and sometimes relays, and a GPU that completes in any order: the
/// application's signals are decremented once for each entry.
#[test]
fn each_entry_is_relayed_once_whoever_does_it() {
    for seed in 0..4 {
        let state = active();
        let track = &state.copies.track;
        let done = AtomicBool::new(false);
        let shared = signal(i64::from(i32::MAX), false);
        let pushed_shared = AtomicU64::new(0);
        let in_flight = std::sync::Mutex::new(Vec::<u64>::new());
        let lock = std::sync::Mutex::new(());
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..3)
                .map(|thread| {
                    let (in_flight, lock, pushed_shared) = (&in_flight, &lock, &pushed_shared);
                    scope.spawn(move || {
                        let mut random = Random::new(seed * 16 + thread);
                        let own = signal(0, false);
                        for _ in 0..100 {
                            let count = 1 + random.below(3) as i64;
                            own.value.store(count, Ordering::Release);
                            for _ in 0..count {
                                let ours = signal(1, false);
                                let original = match random.below(4) {
                                    0 => {
                                        pushed_shared.fetch_add(1, Ordering::Relaxed);
                                        own.value.fetch_sub(1, Ordering::AcqRel);
                                        shared
                                    }
                                    _ => own,
                                };
                                {
                                    let _producer = lock.lock().expect("whole");
                                    assert!(track.push(entry(ours, original)));
                                }
                                in_flight.lock().expect("whole").push(handle(ours));
                            }
                            let step = begin(state, own, 1).step();
                            assert!(matches!(step, Step::Over(_)), "{step:?}");
                            assert_eq!(value(own), 0, "each once");
                            assert!(own.end_ts.load(Ordering::Relaxed) <= fake::TICKS + 6);
                        }
                    })
                })
                .collect();
            // The GPU.
            scope.spawn(|| {
                let mut random = Random::new(seed + 1000);
                while !done.load(Ordering::Acquire) || !in_flight.lock().expect("whole").is_empty()
                {
                    let mut flying = in_flight.lock().expect("whole");
                    if let Some(last) = flying.len().checked_sub(1) {
                        let at = random.below(last as u64 + 1) as usize;
                        complete(flying.swap_remove(at));
                    }
                    drop(flying);
                    std::thread::yield_now();
                }
            });
            // The worker, which now and then stands still.
            scope.spawn(|| {
                let mut random = Random::new(seed + 2000);
                while !done.load(Ordering::Acquire) || !track.is_empty() {
                    track.harvest(
                        if random.below(4) == 0 {
                            HarvestExtent::Full
                        } else {
                            HarvestExtent::Near
                        },
                        |seen| match crate::relay::completed(seen) {
                            None => crate::track::EntryFate::Pending,
                            Some(ours) => {
                                if random.below(2) == 0 {
                                    crate::relay::relay(
                                        state,
                                        crate::relay::TrackKind::Queue,
                                        seen,
                                    );
                                }
                                if seen.is_open() {
                                    return crate::track::EntryFate::Pending;
                                }
                                // As good as new, for a thread that still looks at it.
                                ours.value.store(1, Ordering::Release);
                                crate::track::EntryFate::Done
                            }
                        },
                        |_| panic!("nothing is overtaken"),
                    );
                    std::thread::yield_now();
                }
            });
            for waiter in waiters {
                waiter.join().expect("it ends well");
            }
            done.store(true, Ordering::Release);
        });
        let relayed = i64::from(i32::MAX) - value(shared);
        assert_eq!(relayed as u64, pushed_shared.load(Ordering::Relaxed), "seed {seed}");
    }
}

/// A thread that is lost between claim and decrement takes that entry with it and no other, and a thread that is
/// stopped there for long does no harm to the entry that comes into its slot.
#[test]
fn who_is_lost_while_relaying_takes_one_entry_with_him() {
    let state = active();
    let track = &state.copies.track;
    let originals = [signal(1, false), signal(1, false)];
    let ours = [signal(1, false), signal(1, false)];
    assert!(track.push(entry(ours[0], originals[0])));
    let stopped = track.find(handle(originals[0])).expect("in flight");
    let lost = track.find(handle(originals[0])).expect("in flight");
    complete(handle(ours[0]));
    assert!(lost.claim(), "and never comes to the decrement");
    assert!(track.push(entry(ours[1], originals[1])));
    complete(handle(ours[1]));
    assert!(matches!(begin(state, originals[1], 1).step(), Step::Over(_)));
    assert_eq!((value(originals[0]), value(originals[1])), (1, 0));
    let collect = |_: &_| crate::track::EntryFate::Done;
    assert_eq!(track.harvest(HarvestExtent::Near, collect, collect).left, 0, "the list goes on");
    // The slot is used again.
    for _ in 0..crate::track::CAPACITY {
        assert!(track.push(entry(ours[1], originals[1])));
        assert!(!stopped.claim(), "another entry's");
        track.harvest(HarvestExtent::Near, collect, collect);
    }
    assert_eq!(value(originals[1]), 0);
}

/// Signals that the GPU may still write are neither used again nor destroyed when the runtime goes, or
/// only seems to.
#[test]
fn what_is_given_up_is_not_destroyed() {
    let state = active();
    let sink: &'static dyn crate::Sink = forever(crate::bench::Recorder::quiet());
    assert!(state.sink.set(sink).is_ok());
    let mut cache = Batch::new();
    state.pool.take(&mut cache, || Some(handle(signal(1, false))));
    let ours = cache.pop().expect("one");
    state.pool.give(&mut cache);
    let original = signal(1, false);
    assert!(state.copies.track.push(Entry {
        signal: ours,
        original: handle(original),
        ..Entry::default()
    }));
    Work::new().forget(state);
    let mut again = Vec::new();
    while let Some(signal) = {
        state.pool.take(&mut cache, || None);
        cache.pop()
    } {
        again.push(signal);
    }
    assert!(!again.is_empty() && !again.contains(&ours), "used again");
    for signal in again {
        state.pool.take_back(&mut cache, signal);
    }
    state.pool.give(&mut cache);
    state.pool.destroy_idle(|signal| assert_ne!(signal, ours, "destroyed"));
}

/// Over the whole mechanism; called by the test of that, because there is one state in a process.
pub fn scenarios(bench: &Bench) {
    nobody_but_the_waiter(bench);
    a_count_of_three(bench);
    in_time(bench);
    what_cannot_look(bench);
    overtaken(bench);
}

fn gated(bench: &Bench, size: u32) -> (FakeQueue, &'static AtomicBool) {
    let mut queue = bench.fake.queue(size);
    let gates = Gates::default();
    let gate: &'static AtomicBool = forever(AtomicBool::new(false));
    gates.lock().expect("whole").insert(0, gate);
    queue.start(7, &gates);
    (queue, gate)
}

fn wait_through(bench: &Bench, original: &AmdSignal, wait: Wait) -> i64 {
    let function = bench.fake.core.signal_wait_scacquire.get().expect("there");
    let Wait { condition, compare, timeout, state, .. } = wait;
    // SAFETY: a signal of the test's.
    #[expect(unsafe_code, reason = "the runtime's function")]
    unsafe {
        function(handle(original), condition, compare, timeout, state)
    }
}

fn load_through(bench: &Bench, original: &AmdSignal) -> i64 {
    let function = bench.fake.core.signal_load_relaxed.get().expect("there");
    // SAFETY: a signal of the test's.
    #[expect(unsafe_code, reason = "the runtime's function")]
    unsafe {
        function(handle(original))
    }
}

/// With the lock of the worker lost, so that the worker never collects or relays anything again.
fn nobody_but_the_waiter(bench: &Bench) {
    // Until the worker has made signals that ring.
    until("bells", || {
        let queue = bench.queue(64, 1);
        let done = signal(1, true);
        queue.dispatch(true, handle(done));
        until("the packet", || value(done) == 0);
        queue.destroy();
        let bell = STATE.pool.bells.take();
        bell.is_some_and(|bell| STATE.pool.bells.give(bell))
    });
    let lost = WORK.lock_for(30_000_000_000).expect("in time");
    for mailbox in [false, true] {
        for state in [wait_state::ACTIVE, wait_state::BLOCKED] {
            let (queue, gate) = gated(bench, 64);
            let original = signal(1, mailbox);
            queue.dispatch(true, handle(original));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let wait =
                        Wait { signal: 0, condition: BELOW, compare: 1, timeout: LONG_NS, state };
                    assert_eq!(wait_through(bench, original, wait), 0, "{mailbox} {state}");
                });
                // Longer than anybody spins.
                std::thread::sleep(Duration::from_millis(2));
                gate.store(true, Ordering::Release);
            });
            assert_eq!(original.end_ts.load(Ordering::Relaxed) - fake::TICKS, 2, "its times");
            // A thread that asks again and again relays too.
            let again = signal(1, mailbox);
            queue.dispatch(true, handle(again));
            until("a query", || load_through(bench, again) == 0);
            // Nobody waits for this one: its queue's end relays it.
            let last = signal(1, mailbox);
            queue.dispatch(true, handle(last));
            let consumed = || queue.amd.read_dispatch_id.load(Ordering::Acquire) == 3;
            until("the last packet", consumed);
            queue.destroy();
            assert_eq!(value(last), 0, "{mailbox} {state}");
        }
    }
    drop(lost);
}

/// Three packets with one signal, with and without a thread that waits for less than all.
fn a_count_of_three(bench: &Bench) {
    for state in [wait_state::ACTIVE, wait_state::BLOCKED] {
        let (queue, gate) = gated(bench, 64);
        let original = signal(3, state == wait_state::BLOCKED);
        for _ in 0..3 {
            queue.dispatch(false, handle(original));
        }
        let wait = |condition, compare| {
            let wait = Wait { signal: 0, condition, compare, timeout: LONG_NS, state };
            let got = wait_through(bench, original, wait);
            assert!(is_satisfied(condition, got, compare), "{got}");
        };
        // The first is held back.
        wait(BELOW, 2);
        assert_eq!(value(original), 1);
        gate.store(true, Ordering::Release);
        wait(EQUAL, 0);
        queue.destroy();
    }
}

/// A wait that is not fulfilled ends when its time is over, not before, and says what is there.
fn in_time(bench: &Bench) {
    for state in [wait_state::ACTIVE, wait_state::BLOCKED] {
        for timeout in [0, 1000, 3_000_000] {
            let (queue, gate) = gated(bench, 64);
            let original = signal(1, true);
            queue.dispatch(true, handle(original));
            let began = crate::sys::now_ns();
            let wait = Wait { signal: 0, condition: BELOW, compare: 1, timeout, state };
            assert_eq!(wait_through(bench, original, wait), 1);
            assert!(crate::sys::now_ns() - began >= timeout);
            gate.store(true, Ordering::Release);
            let wait = Wait { timeout: LONG_NS, ..wait };
            assert_eq!(wait_through(bench, original, wait), 0);
            queue.destroy();
        }
    }
}

/// A handler, a thread that waits for any of several, one that waited before there was a packet: the
/// worker relays for them.
fn what_cannot_look(bench: &Bench) {
    let queue = bench.queue(64, 3);
    let original = signal(1, true);
    let set = bench.fake.amd.signal_async_handler.get().expect("there");
    // SAFETY: the fake calls nothing.
    #[expect(unsafe_code, reason = "the runtime's function")]
    unsafe {
        set(handle(original), BELOW, 1, core::ptr::null(), core::ptr::null_mut());
    }
    assert!(STATE.needed.is_marked(handle(original)));
    queue.dispatch(true, handle(original));
    until("the handler's", || value(original) == 0);
    until("the mark's end", || !STATE.needed.is_marked(handle(original)));

    let early = signal(1, true);
    std::thread::scope(|scope| {
        for state in [wait_state::ACTIVE, wait_state::BLOCKED] {
            scope.spawn(move || {
                let wait =
                    Wait { signal: 0, condition: BELOW, compare: 1, timeout: LONG_NS, state };
                assert_eq!(wait_through(bench, early, wait), 0);
            });
        }
        scope.spawn(|| {
            let any = bench.fake.amd.signal_wait_any.get().expect("there");
            let (signals, mut got) = ([handle(early)], 7);
            // SAFETY: one element each.
            #[expect(unsafe_code, reason = "the runtime's function")]
            let which =
                unsafe { any(1, &raw const signals[0], &BELOW, &1, LONG_NS, 0, &raw mut got) };
            assert_eq!((which, got), (0, 0));
        });
        until("who waits first", || STATE.needed.is_marked(handle(early)));
        queue.dispatch(true, handle(early));
    });

    // The packet processor waits for the signal of another queue's packet.
    let (other, gate) = gated(bench, 64);
    let dependency = signal(1, true);
    other.dispatch(true, handle(dependency));
    let index = queue.reserve();
    let packets = crate::view::packets(queue.amd).expect("valid");
    let packet = &packets[index as usize % packets.len()];
    packet.0[1].store(handle(dependency), Ordering::Relaxed);
    (2..6).for_each(|word| packet.0[word].store(0, Ordering::Relaxed));
    queue.publish(index, crate::abi::packet_type::BARRIER_AND, true, 0, 0);
    queue.ring(index);
    assert!(STATE.needed.is_marked(handle(dependency)));
    gate.store(true, Ordering::Release);
    until("the dependency", || value(dependency) == 0);
    queue.destroy();
    other.destroy();
}

/// A packet that seemed to be gone completes after all, while we record and after.
fn overtaken(bench: &Bench) {
    for detached in [false, true] {
        let before = bench.recorder.lost(ShimLoss::PACKET_PASSED);
        let queue = bench.fake.queue(64);
        let originals = [signal(1, true), signal(1, true)];
        for original in originals {
            queue.dispatch(true, handle(original));
        }
        // No packet processor: the test completes the second, and the first not yet.
        let packets = crate::view::packets(queue.amd).expect("valid");
        let ours = [0, 1].map(|i| packets[i].0[7].load(Ordering::Acquire));
        assert_ne!(ours[0], handle(originals[0]));
        complete(ours[1]);
        until("the second", || value(originals[1]) == 0);
        let passed = || bench.recorder.lost(ShimLoss::PACKET_PASSED) - before;
        until("it is overtaken", || passed() == 1);
        assert_eq!(value(originals[0]), 1);
        if detached {
            bench.switch(false);
        }
        complete(ours[0]);
        until("the first", || value(originals[0]) == 0);
        assert_eq!(originals[0].end_ts.load(Ordering::Relaxed) - fake::TICKS, 6, "its times");
        assert_eq!(passed(), 1, "counted once");
        if detached {
            bench.switch(true);
        }
        queue.destroy();
        bench.recorder.recorded().losses[ShimLoss::PACKET_PASSED.0 as usize] = before;
    }
}
