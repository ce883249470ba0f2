//! The whole mechanism over a fake runtime: one test, because there is one state in a process.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tracer_common::loss::ShimLoss;
use tracer_common::shim::state;

use crate::abi::{self, AmdSignal, SUCCESS, packet_type};
use crate::bench::{Bench, Recorder, tables, unload, until, value};
use crate::closing;
use crate::fake::{
    COMPLETED, CONVERTED, DESCRIBED, Fake, FakeQueue, Gates, IS_FROZEN, KERNEL, LOADED,
    ON_DESCRIBE, OPEN, SIGNALS, Stop, StopPoint, USERS, WRONG, converted_here, forever, handle,
    signal, the_dead_rest,
};
use crate::harvest::WORK;
use crate::lifecycle::{self, InstallError, Timing};
use crate::phase::Phase;
use crate::recording;
use crate::relaying;
use crate::runtime::{Tables, Unsupported};
use crate::sink::Enqueuer;
use crate::state::STATE;
use crate::symbols::BEGAN_NS;
use crate::sys;
use crate::testing::Random;
use crate::track;

/// Threads on one queue, with every way to use signals.
fn storm(bench: &Bench, queue: &FakeQueue, threads: u64, each: u64) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = Random::new(thread + 1);
                let shared = signal(each as i64, thread % 2 == 0);
                let own = signal(0, thread % 2 == 1);
                let mut with_shared = 0;
                for _ in 0..each {
                    let barrier = random.below(2) == 0;
                    match random.below(4) {
                        0 => drop(queue.dispatch(barrier, 0)),
                        1 => {
                            own.value.store(1, Ordering::Release);
                            let index = queue.dispatch(barrier, handle(own));
                            let waited = random.below(2) == 0 && bench.fake.wait(own, 1) == 0;
                            until("the own signal", || waited || value(own) == 0);
                            let start = own.start_ts.load(Ordering::Relaxed);
                            assert_eq!(start - crate::fake::TICKS, 2 * index + 1, "its own times");
                        }
                        2 => {
                            // Several packets with one doorbell.
                            let first = queue.reserve();
                            let second = queue.reserve();
                            let kind = packet_type::DISPATCH;
                            queue.publish(second, kind, barrier, second + 1, 0);
                            queue.publish(first, kind, barrier, first + 1, 0);
                            queue.ring(first);
                            queue.ring(second);
                        }
                        _ => {
                            with_shared += 1;
                            queue.dispatch(barrier, handle(shared));
                        }
                    }
                }
                until("the shared signal", || value(shared) == each as i64 - with_shared);
            });
        }
    });
}

fn installing(recorder: &'static Recorder) -> &'static Fake {
    let fake = Fake::the();
    let strange = Fake::new();
    let of = |fake: &'static Fake, major, minor| {
        // SAFETY: not used by anybody yet.
        #[expect(unsafe_code, reason = "changes a table of ours")]
        unsafe {
            let version = core::ptr::from_ref(fake.amd.version).cast_mut();
            (*version).major = major;
            (*version).minor = minor;
        }
    };
    let install = |fake: &'static Fake| {
        tables(fake).and_then(|tables| lifecycle::install(tables, recorder, Timing::AtStart))
    };
    let unsupported = Err(InstallError::Unsupported(Unsupported::Tables));
    // ROCm 5.6, and what no release has: their stubs would have to tell.
    for (major, minor) in [(2, 400), (1, 456), (1, 100), (2, 616)] {
        of(strange, major, minor);
        let before = strange.core.signal_store_relaxed.get();
        assert_eq!(install(strange), unsupported);
        assert!(before.is_some());
    }
    assert_eq!(install(fake), Ok(()));
    assert_eq!(install(fake), Ok(()), "twice is once");
    let before = Fake::new();
    let second = Err(InstallError::Unsupported(Unsupported::Second));
    assert_eq!(install(before), second, "another runtime's helpers stay what they are");
    fake
}

#[test]
fn the_whole_mechanism_over_a_fake_runtime() {
    let recorder = Recorder::forever();
    let bench = Bench { fake: installing(recorder), recorder };
    the_first_reading(&bench);
    every_packet(&bench);
    a_packet_that_waits_for_a_later_one(&bench);
    a_doorbell_before_its_packet(&bench);
    packets_of_whom(&bench);
    begun_again_with_several(&bench);
    launched_while_the_worker_is_elsewhere(&bench);
    switched_under_load(&bench);
    begun_again_while_a_kernel_ends(&bench);
    destroyed_with_work(&bench);
    copies(&bench);
    relaying::scenarios(&bench);
    forking(&bench);
    nobody_needs_signals(&bench);
    closing(&bench);
    live(&bench);
    unloaded_while_we_come(&bench);
    loaded_while_we_come(&bench);
    consumed_before_its_doorbell(&bench);
    closed_while_somebody_is_inside(&bench);
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
    assert_eq!(recorder.lost(ShimLoss::PACKET_PASSED), 0);
    assert_eq!(recorder.lost(ShimLoss::SIGNAL_POOL), 0);
}

/// The clock of a GPU is read when a queue is created, and not by the thread that creates it: it could be
/// stopped in the runtime.
fn the_first_reading(bench: &Bench) {
    assert_eq!(CONVERTED.load(Ordering::Relaxed), 0, "the runtime is not ready");
    let queue = bench.queue(64, 1);
    assert_eq!(converted_here(), 0);
    until("the reading", || CONVERTED.load(Ordering::Relaxed) > 0);
    queue.dispatch(true, 0);
    bench.check(&queue, 1);
    queue.destroy();
    bench.recorder.recorded().queues.clear();
}

fn every_packet(bench: &Bench) {
    for (size, threads, seed) in [(64, 1, 1), (64, 4, 2), (1024, 4, 3)] {
        let queue = bench.queue(size, seed);
        storm(bench, &queue, threads, 2000);
        bench.check(&queue, queue.amd.write_dispatch_id.load(Ordering::Relaxed));
        queue.destroy();
    }
    let queues = bench.recorder.recorded().queues.clone();
    assert_eq!(queues.iter().filter(|q| q.created == 0).count(), 3);
}

/// A kernel that runs until the host has seen a later kernel end: nothing may be relayed in order
/// only.
fn a_packet_that_waits_for_a_later_one(bench: &Bench) {
    let mut queue = bench.fake.queue(64);
    let gates = Gates::default();
    let gate: &'static AtomicBool = forever(AtomicBool::new(false));
    gates.lock().expect("whole").insert(0, gate);
    queue.start(9, &gates);
    queue.dispatch(false, 0);
    let later = signal(1, true);
    queue.dispatch(false, handle(later));
    until("the later one", || value(later) == 0);
    gate.store(true, Ordering::Release);
    bench.check(&queue, 2);
    queue.destroy();
}

/// The hardware would wait for the packet; so must we, without another doorbell.
fn a_doorbell_before_its_packet(bench: &Bench) {
    let queue = bench.queue(64, 5);
    let done = signal(1, true);
    let index = queue.reserve();
    queue.ring(index);
    std::thread::sleep(Duration::from_millis(5));
    queue.publish(index, packet_type::DISPATCH, true, index + 1, handle(done));
    until("the packet", || value(done) == 0);
    bench.check(&queue, 1);
    // Rung for more than there is.
    queue.ring(index + 5);
    let again = signal(1, false);
    queue.dispatch(true, handle(again));
    until("the next packet", || value(again) == 0);
    queue.destroy();
}

/// Packets that a thread has reserved, in whichever way, are its own where it rings once for several; a packet that
/// another thread has reserved is found, and that thread claims it.
fn packets_of_whom(bench: &Bench) {
    let mut queue = bench.fake.queue(64);
    let (amd, core) = (queue.amd, queue.core());
    let publish = |index| queue.publish(index, packet_type::DISPATCH, true, index + 1, 0);
    let enqueuers = |packets: Range<u64>| {
        let log = bench.recorder.recorded();
        let id = amd.id.load(Ordering::Relaxed);
        let by = |index| log.enqueuers[&log.packets[&(id, index)]];
        packets.map(by).collect::<Vec<_>>()
    };
    use Enqueuer::{Caller, Other, Unknown};
    // SAFETY: the queue's own functions.
    #[expect(unsafe_code, reason = "the runtime's functions")]
    unsafe {
        let add = core.queue_add_write_index_relaxed.get().expect("there");
        assert_eq!(add(amd, 2), 0);
        (0..2).for_each(publish);
        queue.ring(1);
        assert_eq!(enqueuers(0..2), [Caller, Caller]);
        let cas = core.queue_cas_write_index_scacquire.get().expect("there");
        assert_eq!((cas(amd, 1, 9), cas(amd, 2, 4)), (2, 2));
        (2..4).for_each(publish);
        queue.ring(3);
        let store = core.queue_store_write_index_screlease.get().expect("there");
        store(amd, 6);
        (4..6).for_each(publish);
        queue.ring(5);
        assert_eq!(enqueuers(2..6), [Caller; 4]);
    }
    // Another thread's, which has not rung yet.
    let others = std::thread::scope(|scope| scope.spawn(|| queue.reserve()).join()).expect("it");
    publish(others);
    let own = queue.reserve();
    publish(own);
    queue.ring(own);
    assert_eq!(enqueuers(6..8), [Other, Caller]);
    queue.ring(others);
    assert_eq!(enqueuers(6..8), [Caller, Caller], "whoever rings for it claims it");
    // A program that writes the index by itself.
    amd.write_dispatch_id.store(10, Ordering::Release);
    (8..10).for_each(publish);
    queue.ring(9);
    assert_eq!(enqueuers(8..10), [Unknown, Caller]);
    // Two are found by another thread before they are rung for.
    let first = queue.reserve();
    assert_eq!([first, queue.reserve()], [10, 11]);
    (10..12).for_each(publish);
    std::thread::scope(|scope| scope.spawn(|| queue.dispatch(true, 0)).join()).expect("it");
    assert_eq!(enqueuers(10..13), [Other, Other, Caller]);
    queue.ring(11);
    assert_eq!(enqueuers(10..13), [Caller; 3]);
    // Two are held back behind another thread's.
    let others = std::thread::scope(|scope| scope.spawn(|| queue.reserve()).join()).expect("it");
    assert_eq!([others, queue.reserve(), queue.reserve()], [13, 14, 15]);
    (14..16).for_each(publish);
    queue.ring(15);
    publish(others);
    std::thread::scope(|scope| scope.spawn(|| queue.ring(others)).join()).expect("it");
    // A thread that rings for a packet counts as its producer, here another thread than the one that reserved it.
    assert_eq!(enqueuers(13..16), [Caller; 3]);
    queue.start(11, &Gates::default());
    bench.check(&queue, 16);
    queue.destroy();
}

/// The first doorbell of a recording, on a queue that was there before, is for several packets.
fn begun_again_with_several(bench: &Bench) {
    let queue = bench.queue(64, 12);
    queue.dispatch(true, 0);
    bench.check(&queue, 1);
    bench.switch(false);
    bench.switch(true);
    let indices = [(); 3].map(|()| queue.reserve());
    for index in indices {
        queue.publish(index, packet_type::DISPATCH, true, index + 1, 0);
    }
    queue.ring(indices[2]);
    bench.check(&queue, 4);
    queue.destroy();
}

/// Nobody gives signals back but the thread that launches: it does so before there are none.
fn launched_while_the_worker_is_elsewhere(bench: &Bench) {
    const LAUNCHES: u64 = track::CAPACITY as u64 * 3 / 2;
    let queue = bench.queue(1024, 13);
    let kept = bench.recorder.keep_worker();
    (0..LAUNCHES).for_each(|_| {
        queue.dispatch(true, 0);
    });
    assert_eq!(bench.recorder.lost(ShimLoss::SIGNAL_POOL), 0);
    drop(kept);
    bench.check(&queue, LAUNCHES);
    queue.destroy();
}

fn switched_under_load(bench: &Bench) {
    let queue = bench.queue(256, 6);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..20 {
                bench.recorder.on.store(i % 2 == 1, Ordering::Release);
                std::thread::sleep(Duration::from_millis(60));
            }
            stop.store(true, Ordering::Release);
        });
        while !stop.load(Ordering::Acquire) {
            storm(bench, &queue, 3, 200);
        }
    });
    bench.switch(false);
    assert_eq!(SIGNALS.load(Ordering::Relaxed), 0, "a dormant mechanism keeps no signals");
    let log = bench.recorder.recorded();
    let id = queue.amd.id.load(Ordering::Relaxed);
    let of_queue = log.packets.range((id, 0)..(id + 1, 0));
    let open = of_queue.filter(|(_, s)| !log.completed.contains_key(s)).count();
    assert_eq!(open, 0, "whatever was recorded completed");
    drop(log);
    bench.switch(true);
    queue.destroy();
}

/// A program with many kernels is recorded again while one runs: it ends before all have been told.
fn begun_again_while_a_kernel_ends(bench: &Bench) {
    const KERNELS: u64 = 1000;
    static GATE: AtomicBool = AtomicBool::new(false);
    static DONE: OnceLock<&'static AmdSignal> = OnceLock::new();
    static RELAYED: OnceLock<bool> = OnceLock::new();
    fn described(number: u64) {
        if number == 0 {
            let before = COMPLETED.load(Ordering::Acquire);
            GATE.store(true, Ordering::Release);
            until("the kernel", || COMPLETED.load(Ordering::Acquire) > before);
        }
        if number == KERNELS - 1 {
            assert_eq!(RELAYED.set(DONE.get().is_some_and(|done| value(done) == 0)), Ok(()));
        }
    }
    let mut queue = bench.fake.queue(64);
    let gates = Gates::default();
    gates.lock().expect("whole").insert(0, &GATE);
    queue.start(4, &gates);
    let done = DONE.get_or_init(|| signal(1, true));
    queue.dispatch(true, handle(done));
    bench.recorder.on.store(false, Ordering::Release);
    until("the end", || STATE.phase.get() == Phase::Settling);
    LOADED.store(KERNELS, Ordering::Release);
    DESCRIBED.store(0, Ordering::Release);
    *ON_DESCRIBE.lock().expect("whole") = Some(described);
    bench.recorder.on.store(true, Ordering::Release);
    until("all kernels", || RELAYED.get().is_some());
    *ON_DESCRIBE.lock().expect("whole") = None;
    LOADED.store(0, Ordering::Release);
    assert_eq!(RELAYED.get(), Some(&true));
    bench.recorder.recorded().names.clear();
    queue.destroy();
}

/// Operations that a runtime left, and that could not be put away at its end because a thread stood still in our code,
/// are never looked at again.
fn closed_while_somebody_is_inside(bench: &Bench) {
    let Bench { fake, recorder } = *bench;
    fake.renewed();
    recorder.on.store(true, Ordering::Release);
    assert_eq!(lifecycle::install(live_tables(fake), recorder, Timing::Live), Ok(()));
    let queue = fake.queue(64);
    let done = signal(1, true);
    queue.dispatch(true, handle(done));
    let inside = WORK.lock_for(30_000_000_000).expect("in time");
    closing::close();
    let again = || lifecycle::install(live_tables(fake), recorder, Timing::Live);
    fake.renewed();
    assert_eq!(again(), Err(InstallError::Stuck), "not on top of it");
    fake.gone();
    drop(inside);
    assert_eq!(again(), Ok(()));
    assert_eq!(recording::in_flight(), 0);
    let queue = bench.queue(64, 3);
    queue.dispatch(true, 0);
    bench.check(&queue, 1);
    bench.switch(false);
    queue.destroy();
    closing::close();
    assert!(the_dead_rest(), "nobody looked at what is gone");
    assert_eq!(value(done), 1);
}

fn destroyed_with_work(bench: &Bench) {
    let before = bench.recorder.lost(ShimLoss::UNFINISHED);
    let queue = bench.fake.queue(64);
    for _ in 0..5 {
        queue.dispatch(true, 0);
    }
    let began = Instant::now();
    queue.destroy();
    // Less than it would wait for another thread of ours: 10 s.
    assert!(began.elapsed() < Duration::from_secs(9), "no packet processor, no hang");
    until("giving up", || bench.recorder.lost(ShimLoss::UNFINISHED) == before + 5);
}

fn copies(bench: &Bench) {
    let copy = bench.fake.amd.memory_async_copy.get().expect("there");
    let time = bench.fake.amd.profiling_get_async_copy_time.get().expect("there");
    let none = core::ptr::null_mut();
    let request = |size: usize, done: &AmdSignal| {
        // SAFETY: the fake copies nothing.
        #[expect(unsafe_code, reason = "the runtime's function")]
        unsafe {
            copy(none, 1, none, 2, size, 0, core::ptr::null(), handle(done))
        }
    };
    let done = signal(1, true);
    assert_eq!(request(100, done), SUCCESS);
    until("the copy", || value(done) == 0);
    let mut times = crate::abi::Times::default();
    // SAFETY: `times` is valid for writes.
    #[expect(unsafe_code, reason = "the runtime's function")]
    let status = unsafe { time(handle(done), &raw mut times) };
    assert_eq!((status, times.start), (SUCCESS, 5));
    let refused = signal(1, true);
    assert_ne!(request(13, refused), SUCCESS);
    assert_eq!(value(refused), 1, "the application's signal is untouched");
    let on_engine = bench.fake.amd.memory_async_copy_on_engine.expect("in the table").get();
    let on_engine = on_engine.expect("there");
    let done = signal(1, true);
    // SAFETY: the fake copies nothing.
    #[expect(unsafe_code, reason = "the runtime's function")]
    let status =
        unsafe { on_engine(none, 1, none, 2, 200, 0, core::ptr::null(), handle(done), 1, false) };
    assert_eq!(status, SUCCESS);
    until("the copy on an engine", || value(done) == 0);
    let log = bench.recorder.recorded();
    assert_eq!(log.copies.values().map(|c| c.size_bytes).collect::<Vec<_>>(), [100, 200]);
}

/// A child knows whether its parent used the GPU, and its own children know no better.
fn forking(bench: &Bench) {
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
    for (open, expected) in [(true, 3), (false, 1)] {
        OPEN.store(open, Ordering::Relaxed);
        let child = fork(|| {
            OPEN.store(!open, Ordering::Relaxed);
            let grandchild = fork(|| bench.recorder.forked.load(Ordering::Acquire));
            let own = bench.recorder.forked.load(Ordering::Acquire);
            // As when the child opens and closes the runtime for itself.
            closing::close();
            lifecycle::finish();
            let inert = !STATE.is_usable() && !STATE.is_installed();
            if grandchild == own && inert { own } else { 0 }
        });
        assert_eq!(child, expected, "the runtime was open: {open}");
    }
    OPEN.store(true, Ordering::Relaxed);
    // It was open all the time for the worker.
    WRONG.store(0, Ordering::Relaxed);
    assert_eq!(bench.recorder.forked.load(Ordering::Acquire), 0);
    assert!(STATE.is_usable());
}

/// The exit status of a forked child.
#[expect(unsafe_code, reason = "a child of a process with threads may do little")]
fn fork(child: impl FnOnce() -> u32) -> u32 {
    // SAFETY: the child only loads and stores, forks likewise, and leaves at once.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(child() as i32),
            pid => {
                let mut status = 0;
                assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
                libc::WEXITSTATUS(status) as u32
            }
        }
    }
}

/// The last user leaves, and every signal of ours is destroyed before the runtime looks what is left.
fn nobody_needs_signals(bench: &Bench) {
    let Fake { core, .. } = bench.fake;
    let queue = bench.queue(64, 8);
    queue.dispatch(true, 0);
    bench.check(&queue, 1);
    queue.destroy();
    let (init, shut_down) = (core.init.get(), core.shut_down.get());
    // SAFETY: functions of the tables.
    #[expect(unsafe_code, reason = "the runtime's functions")]
    let called = |function: abi::ShutDown| unsafe { function() };
    // It stays for the scenarios that follow.
    assert_eq!(init.map(called), Some(SUCCESS));
    let stop = Stop::new(StopPoint::ShutDown);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stop.arm();
            shut_down.map(called)
        });
        until("the runtime is called", || stop.reached());
        // It makes signals before it comes there.
        for _ in 0..2 {
            STATE.call_worker();
            drop(bench.recorder.keep_worker());
        }
        assert_eq!(SIGNALS.load(Ordering::Relaxed), 0);
        stop.release();
    });
}

fn closing(bench: &Bench) {
    let queue = bench.queue(64, 8);
    let done = signal(1, true);
    queue.dispatch(true, handle(done));
    closing::close();
    assert_eq!(value(done), 0, "what was in flight completed");
    assert_eq!(SIGNALS.load(Ordering::Relaxed), 0);
    let after = signal(1, true);
    queue.dispatch(true, handle(after));
    until("passing through", || value(after) == 0);
    // As after another `hsa_init`.
    let again = tables(bench.fake)
        .and_then(|tables| lifecycle::install(tables, bench.recorder, Timing::AtStart));
    assert_eq!(again, Ok(()));
    let queue = bench.queue(64, 9);
    queue.dispatch(true, 0);
    bench.check(&queue, 1);
    queue.destroy();
    closing::close();
}

fn live_tables(fake: &'static Fake) -> Tables {
    // SAFETY: tables of ours.
    #[expect(unsafe_code, reason = "tables of ours")]
    let tables = unsafe {
        let address = |table: *const ()| table as u64;
        let (core, amd) = (core::ptr::from_ref(fake.core), core::ptr::from_ref(fake.amd.version));
        Tables::at(address(core.cast()), address(amd.cast()))
    };
    tables.expect("known")
}

/// A kernel that ran since recording began has its name, even if its executable goes before everything that is loaded
/// has been looked at. Kernels of an executable that goes later are known by then.
fn unloaded_while_we_come(bench: &Bench) {
    let Bench { fake, recorder } = *bench;
    fake.renewed();
    recorder.recorded().names.clear();
    recorder.on.store(true, Ordering::Release);
    *recorder.unloads.lock().expect("whole") = Some(fake);
    assert_eq!(lifecycle::install(live_tables(fake), recorder, Timing::Live), Ok(()));
    assert_eq!(recorder.recorded().names, [KERNEL]);
    unload(fake);
    assert_eq!(recorder.recorded().names, [KERNEL], "told once");
    bench.switch(false);
    closing::close();
}

/// An executable that is loaded while recording begins, and not frozen yet, has its address only from then on: one that
/// was unloaded there meanwhile may have run, too.
fn loaded_while_we_come(bench: &Bench) {
    let Bench { fake, recorder } = *bench;
    let since_ns = |is_frozen| {
        fake.renewed();
        IS_FROZEN.store(is_frozen, Ordering::Release);
        LOADED.store(1, Ordering::Release);
        recorder.recorded().names.clear();
        recorder.on.store(true, Ordering::Release);
        let before_ns = sys::now_ns();
        assert_eq!(lifecycle::install(live_tables(fake), recorder, Timing::Live), Ok(()));
        until("its kernel", || recorder.recorded().names == [KERNEL]);
        LOADED.store(0, Ordering::Release);
        bench.switch(false);
        closing::close();
        (before_ns, recorder.recorded().since_ns, BEGAN_NS.load(Ordering::Relaxed))
    };
    let (_, since, began) = since_ns(true);
    assert_eq!(since, began);
    let (before, since, began) = since_ns(false);
    assert!(before <= began && began < since, "{before} {began} {since}");
    IS_FROZEN.store(true, Ordering::Release);
}

/// A thread that did not meet us yet rang for another thread's packet: that thread's own doorbell tells that the packet
/// is not recorded.
fn consumed_before_its_doorbell(bench: &Bench) {
    let Bench { fake, recorder } = *bench;
    fake.renewed();
    let queue = bench.queue(64, 3);
    for index in [queue.reserve(), queue.reserve()] {
        queue.publish(index, packet_type::DISPATCH, false, index + 1, 0);
    }
    queue.ring(1);
    let read = || queue.amd.read_dispatch_id.load(Ordering::Acquire);
    until("both are taken", || read() == 2);
    let before = recorder.lost(ShimLoss::BEFORE_ATTACH);
    recorder.on.store(true, Ordering::Release);
    assert_eq!(lifecycle::install(live_tables(fake), recorder, Timing::Live), Ok(()));
    queue.dispatch(true, 0);
    assert_eq!(recorder.lost(ShimLoss::BEFORE_ATTACH), before);
    queue.ring(0);
    assert_eq!(recorder.lost(ShimLoss::BEFORE_ATTACH), before + 1);
    bench.switch(false);
    queue.destroy();
    closing::close();
}

/// The runtime is in use when we come, all producers of a queue meet us at once, and we come and go.
fn live(bench: &Bench) {
    let recorder = bench.recorder;
    recorder.on.store(false, Ordering::Release);
    recorder.attached.store(true, Ordering::Release);
    let mut random = Random::new(77);
    for round in 0..6 {
        bench.fake.renewed();
        // The GPU may still write the signal of a packet that it has passed.
        let passed_before = recorder.lost(ShimLoss::PACKET_PASSED);
        let tables = live_tables(bench.fake);
        let queues = [bench.queue(256, round), bench.queue(64, round + 1)];
        let stop = AtomicBool::new(false);
        let is_recorded = |queue: &FakeQueue| {
            let id = queue.amd.id.load(Ordering::Relaxed);
            recorder.recorded().packets.range((id, 0)..(id + 1, 0)).next().is_some()
        };
        std::thread::scope(|scope| {
            for queue in &queues {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Acquire) {
                        storm(bench, queue, 3, 100);
                    }
                });
            }
            for time in 0..8 {
                std::thread::sleep(Duration::from_micros(random.below(5000)));
                recorder.on.store(true, Ordering::Release);
                assert_eq!(lifecycle::install(tables, recorder, Timing::Live), Ok(()));
                assert_eq!(recorder.recorded().state, state::ACTIVE);
                std::thread::sleep(Duration::from_micros(random.below(10_000)));
                if time == 0 {
                    until("both are recorded", || queues.iter().all(is_recorded));
                }
                bench.switch(false);
                let kept = SIGNALS.load(Ordering::Relaxed);
                let passed = recorder.lost(ShimLoss::PACKET_PASSED) - passed_before;
                assert!(kept <= passed as i64, "{kept} signals are kept, {passed} packets passed");
            }
            stop.store(true, Ordering::Release);
        });
        let log = recorder.recorded();
        for queue in &queues {
            let id = queue.amd.id.load(Ordering::Relaxed);
            let recorded: Vec<_> = log.packets.range((id, 0)..(id + 1, 0)).collect();
            assert!(!recorded.is_empty());
            for (&(_, index), sequence) in recorded {
                let complete = log.completed[sequence];
                assert_eq!((complete.start_ns, complete.end_ns), (2 * index + 1, 2 * index + 2));
            }
        }
        drop(log);
        for queue in queues {
            queue.destroy();
        }
        assert_eq!(USERS.load(Ordering::Relaxed), 1, "no use of the runtime is kept");
        closing::close();
    }
}
