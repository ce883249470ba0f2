//! Rare schedules: threads of the program that stop where they hold something of ours and never come
//! back, that are cancelled, or that do things in an order of their own. Each in a process of its own.

#![expect(unsafe_code, reason = "calls the runtime's functions, as a program does")]

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;

use tracer_common::loss::ShimLoss;

use crate::abi::{Entry, SUCCESS, ShutDown, packet_type};
use crate::bench::{Bench, Recorder, tables, until, value};
use crate::closing;
use crate::fake::{self, DRY, Fake, FakeQueue, Stop, StopPoint, handle, signal};
use crate::harvest::{self, COLLECT_WAIT_NS, WORK};
use crate::lifecycle::{self, InstallError, Timing};
use crate::phase::Phase;
use crate::relay::{self, TrackKind};
use crate::state::STATE;
use crate::sys;
use crate::testing::alone;

/// Runs `work` on a thread that may stop at `stop` and is not waited for.
fn apart(stop: &'static Stop, work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        stop.arm();
        work();
    });
}

/// Enqueues as many kernels one after the other as would take minutes if each waited for a lock.
fn many(bench: &Bench, queue: &FakeQueue) {
    for _ in 0..120 {
        let done = signal(1, true);
        queue.dispatch(true, handle(done));
        assert_eq!(bench.fake.wait(done, 1), 0);
    }
}

#[test]
fn a_queue_whose_lock_was_lost_is_left_alone() {
    alone("schedules::a_queue_whose_lock_was_lost_is_left_alone", || {
        let bench = Bench::new();
        let queue = fake::forever(bench.queue(64, 1));
        let stop = Stop::new(StopPoint::Ring);
        apart(stop, || _ = queue.dispatch(true, 0));
        until("a thread stops with the lock", || stop.reached());
        many(&bench, queue);
        assert_eq!(bench.recorder.lost(ShimLoss::LEFT_ALONE), 120);
        // The others are recorded as before, and the end of the recording waits for nobody.
        let other = bench.queue(64, 2);
        many(&bench, &other);
        bench.check(&other, 120);
        bench.switch(false);
        bench.switch(true);
        many(&bench, queue);
        assert_eq!(bench.recorder.lost(ShimLoss::LEFT_ALONE), 240);
    });
}

/// A thread stops while it puts our hooks into the tables: at its first write into the core table.
#[test]
fn nobody_installs_while_another_thread_does() {
    static AT_WRITE: OnceLock<(usize, &Stop)> = OnceLock::new();
    extern "C" fn stop_at_write(_signal: c_int) {
        let (page, stop) = AT_WRITE.get().expect("set");
        if !stop.reached() {
            stop.wait();
        }
        fake::protect(*page, libc::PROT_READ | libc::PROT_WRITE);
    }
    alone("schedules::nobody_installs_while_another_thread_does", || {
        let (fake, recorder, stop) =
            (Fake::new(), Recorder::forever(), Stop::new(StopPoint::Patch));
        let page = core::ptr::from_ref(fake.core) as usize;
        assert!(AT_WRITE.set((page, stop)).is_ok());
        // SAFETY: a handler that touches atomics and the protection of a page.
        unsafe { libc::signal(libc::SIGSEGV, stop_at_write as *const () as usize) };
        fake::protect(page, libc::PROT_READ);
        let install = move || lifecycle::install(tables(fake)?, recorder, Timing::AtStart);
        let first = std::thread::spawn(install);
        until("the first one stops", || stop.reached());
        // It would take what the first one records from then on for what a runtime has left.
        assert_eq!(install(), Err(InstallError::Stuck));
        stop.release();
        assert_eq!(first.join().expect("no panic"), Ok(()));
        assert_eq!(install(), Ok(()));
    });
}

/// A thread of ours holds the runtime when the process exits, or is about to: behind that the runtime's destructors run.
#[test]
fn who_exits_waits_for_who_holds_the_runtime() {
    static HOLDS: AtomicBool = AtomicBool::new(false);
    static HAS_ENDED: AtomicBool = AtomicBool::new(false);
    alone("schedules::who_exits_waits_for_who_holds_the_runtime", || {
        let _bench = Bench::new();
        let hold = || {
            HOLDS.store(true, Ordering::Release);
            sys::sleep_ns(50_000_000);
            None
        };
        let holds = move || closing::while_held(hold, |_| HAS_ENDED.store(true, Ordering::Release));
        let holder = std::thread::spawn(holds);
        until("it holds", || HOLDS.load(Ordering::Acquire));
        // A forked child has not that thread: its exit waits for nobody.
        // SAFETY: the child ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(closing::holders() as c_int) };
        }
        let mut status = -1;
        // SAFETY: the status is ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "it has such threads");
        closing::begin_exit();
        assert!(HAS_ENDED.load(Ordering::Acquire));
        assert_eq!(holder.join().expect("no panic"), Some(()));
        assert_eq!(closing::while_held(|| panic!("the process exits"), |_| ()), None);
    });
}

/// The hooks were put into tables by a thread that may have been inside of `hsa_init`: nobody but our hook learns that
/// the runtime goes.
#[test]
fn a_runtime_that_was_not_held_is_seen_to_go() {
    alone("schedules::a_runtime_that_was_not_held_is_seen_to_go", || {
        let (fake, recorder) = (Fake::the(), Recorder::forever());
        let install = || lifecycle::install(tables(fake)?, recorder, Timing::Unheld);
        let records = || tables(fake).is_ok_and(|tables| lifecycle::records(&tables));
        for round in 0..2 {
            assert!(!records());
            assert_eq!(install(), Ok(()));
            assert!(records());
            let bench = Bench { fake, recorder };
            let queue = bench.queue(64, round);
            let done = signal(1, true);
            queue.dispatch(true, handle(done));
            bench.check(&queue, 1);
            queue.destroy();
            let call = |function: &Entry<ShutDown>| {
                // SAFETY: the fake's own, or our hook.
                let status = unsafe { function.get().expect("there")() };
                assert_eq!(status, SUCCESS);
            };
            call(&fake.core.shut_down);
            assert_eq!(STATE.phase.get(), Phase::Closed);
            assert!(!records());
            call(&fake.core.init);
        }
    });
}

/// A doorbell was held back for a packet whose producer then stops inside of our hook: nobody rings
/// any more.
#[test]
fn what_was_held_back_is_rung_when_the_lock_is_lost() {
    alone("schedules::what_was_held_back_is_rung_when_the_lock_is_lost", || {
        let bench = Bench::new();
        let queue: &'static FakeQueue = fake::forever(bench.queue(64, 1));
        let (first, second) = (queue.reserve(), queue.reserve());
        let (one, two) = (signal(1, true), signal(1, true));
        queue.publish(second, packet_type::DISPATCH, true, second + 1, handle(two));
        queue.ring(second);
        let stop = Stop::new(StopPoint::Create);
        bench.recorder.on_dispatch(move |record| {
            if record.packet_index == first {
                stop.wait();
            }
        });
        std::thread::spawn(move || {
            queue.publish(first, packet_type::DISPATCH, true, first + 1, handle(one));
            queue.ring(first);
        });
        until("a thread stops with the lock", || stop.reached());
        until("both ran", || value(one) == 0 && value(two) == 0);
    });
}

/// The recording ends while a doorbell is held back for a packet whose producer is not scheduled: what was
/// rung for is recorded, and runs when that one comes, which is counted.
#[test]
fn what_was_held_back_at_the_end_is_recorded() {
    alone("schedules::what_was_held_back_at_the_end_is_recorded", || {
        let bench = Bench::new();
        let queue = bench.queue(64, 1);
        let (late, dones) = (queue.reserve(), [(); 3].map(|()| signal(1, true)));
        let held = dones.map(|done| queue.dispatch(true, handle(done)));
        bench.recorder.on.store(false, Ordering::Release);
        until("the end", || STATE.phase.get() == Phase::Settling);
        let done = signal(1, true);
        queue.publish(late, packet_type::DISPATCH, true, late + 1, handle(done));
        queue.ring(late);
        until("all ran", || dones.into_iter().chain([done]).all(|done| value(done) == 0));
        bench.switch(false);
        let log = bench.recorder.recorded();
        let of = |index: u64| log.packets.get(&(queue.amd.id.load(Ordering::Relaxed), index));
        assert_eq!(of(late), None);
        let recorded = held.map(|index| *of(index).expect("recorded"));
        assert!(recorded.iter().all(|sequence| log.completed.contains_key(sequence)));
        let lost = log.losses[ShimLoss::UNPUBLISHED.0 as usize];
        assert_eq!((log.fired, lost, log.losses.iter().sum()), (3, 1, 1));
    });
}

/// A thread is late in returning from its doorbell: its kernel has run, and another thread destroys
/// the queue.
#[test]
fn a_queue_is_not_touched_after_its_doorbell() {
    alone("schedules::a_queue_is_not_touched_after_its_doorbell", || {
        let bench = Bench::new();
        let mut queue = bench.queue(64, 1);
        let (core, amd) = (bench.fake.core, queue.amd);
        let late = Stop::new(StopPoint::Ring);
        let done = signal(1, true);
        let returned = fake::forever(AtomicU64::new(0));
        let index = queue.reserve();
        queue.publish(index, packet_type::DISPATCH, true, index + 1, handle(done));
        apart(late, move || {
            let ring = core.signal_store_screlease.get().expect("there");
            // SAFETY: the queue's own doorbell.
            unsafe { ring(amd.doorbell_signal.load(Ordering::Relaxed), index as i64) };
            returned.store(1, Ordering::Release);
        });
        until("it ran", || value(done) == 0);
        queue.halt();
        let place = core::ptr::from_ref(amd) as usize;
        queue.destroy();
        late.release();
        until("it returns", || returned.load(Ordering::Acquire) == 1);
        // And a queue that is made at the same place is another one.
        let late = Stop::new(StopPoint::Ring);
        fake::PLACE.store(place, Ordering::Relaxed);
        let again: &'static FakeQueue = fake::forever(bench.queue(64, 2));
        apart(late, || _ = again.dispatch(true, 0));
        until("a thread stops with the lock", || late.reached());
        let destroy = core.queue_destroy.get().expect("there");
        // SAFETY: its own queue.
        assert_eq!(unsafe { destroy(again.amd) }, SUCCESS);
        fake::PLACE.store(place, Ordering::Relaxed);
        let third = bench.queue(64, 3);
        many(&bench, &third);
        late.release();
        many(&bench, &third);
        bench.check(&third, 240);
    });
}

/// The packet processor takes a packet, and a producer fills its slot again, while we are at it.
#[test]
fn a_packet_that_was_replaced_meanwhile_is_not_changed() {
    alone("schedules::a_packet_that_was_replaced_meanwhile_is_not_changed", || {
        let bench = Bench::new();
        let queue: &'static FakeQueue = fake::forever(bench.fake.queue(4));
        let (mine, theirs) = (signal(1, true), signal(1, true));
        bench.recorder.on_dispatch(move |record| {
            if record.packet_index == 0 {
                // A doorbell that we did not see let it run.
                mine.value.fetch_sub(1, Ordering::AcqRel);
                queue.publish(4, packet_type::DISPATCH, true, 5, handle(theirs));
            }
        });
        queue.dispatch(true, handle(mine));
        let slot = &crate::view::packets(queue.amd).expect("valid")[0];
        assert_eq!(slot.0[7].load(Ordering::Acquire), handle(theirs));
        assert_eq!(bench.recorder.lost(ShimLoss::PACKET_PASSED), 1);
        bench.switch(false);
    });
}

/// A program whose only producer advances the write index after it has rung.
#[test]
fn a_doorbell_that_rings_before_the_write_index_moves() {
    alone("schedules::a_doorbell_that_rings_before_the_write_index_moves", || {
        let bench = Bench::new();
        let queue = bench.queue(64, 1);
        for index in 0..200 {
            let done = signal(1, true);
            while index >= queue.amd.read_dispatch_id.load(Ordering::Acquire) + 64 {
                std::thread::yield_now();
            }
            queue.publish(index, packet_type::DISPATCH, true, index + 1, handle(done));
            queue.ring(index);
            queue.amd.write_dispatch_id.store(index + 1, Ordering::Release);
            until("it runs", || value(done) == 0);
        }
        bench.check(&queue, 200);
        assert_eq!(bench.recorder.recorded().losses, [0; ShimLoss::COUNT]);
        queue.destroy();
    });
}

/// A doorbell rings for packets that nobody writes: what was asked is done in the end.
#[test]
fn no_doorbell_is_held_back_for_ever() {
    alone("schedules::no_doorbell_is_held_back_for_ever", || {
        let bench = Bench::new();
        let queue = bench.queue(64, 1);
        let doorbell = crate::view::signal(queue.amd.doorbell_signal.load(Ordering::Relaxed));
        queue.dispatch(true, 0);
        queue.reserve();
        queue.ring(5);
        until("the doorbell", || value(doorbell.expect("there")) == 5);
        // It is recorded as before.
        let done = signal(1, true);
        queue.publish(1, packet_type::DISPATCH, true, 2, handle(done));
        queue.ring(1);
        until("it runs", || value(done) == 0);
        queue.dispatch(true, 0);
        queue.destroy();
    });
}

/// A packet that ran unrecorded, after its doorbell was held back for the longest time, is counted when the recording
/// ends, though nobody rings in that queue any more.
#[test]
fn what_was_let_pass_is_counted_at_the_end() {
    alone("schedules::what_was_let_pass_is_counted_at_the_end", || {
        let bench = Bench::new();
        let queue = bench.queue(64, 1);
        let doorbell = crate::view::signal(queue.amd.doorbell_signal.load(Ordering::Relaxed));
        let late = queue.reserve();
        let dones = [(); 3].map(|()| signal(1, true));
        let last = dones.map(|done| queue.dispatch(true, handle(done)))[2];
        until("the doorbell", || value(doorbell.expect("there")) == last as i64);
        queue.publish(late, packet_type::DISPATCH, true, late + 1, 0);
        until("all ran", || dones.iter().all(|done| value(done) == 0));
        bench.switch(false);
        let log = bench.recorder.recorded();
        let passed = log.losses[ShimLoss::PACKET_PASSED.0 as usize];
        let recorded = log.packets.len() as u64;
        assert_eq!((recorded + passed, log.losses.iter().sum()), (4, passed));
    });
}

/// A thread that has waited for a kernel.
struct Waited {
    place: (u64, u64),
    /// Whether the kernel was recorded when the wait was over.
    was_recorded: bool,
    within_ns: u64,
}

impl Waited {
    fn for_a_kernel(bench: &Bench, queue: &FakeQueue) -> Self {
        let (began_ns, done) = (sys::now_ns(), signal(1, true));
        let index = queue.dispatch(true, handle(done));
        assert_eq!(bench.fake.wait(done, 1), 0);
        let within_ns = sys::now_ns() - began_ns;
        let place = (queue.amd.id.load(Ordering::Relaxed), index);
        let mut waited = Self { place, was_recorded: false, within_ns };
        waited.was_recorded = waited.is_recorded(bench);
        waited
    }

    fn is_recorded(&self, bench: &Bench) -> bool {
        let log = bench.recorder.recorded();
        log.completed.contains_key(&log.packets[&self.place])
    }
}

/// A thread has waited for a kernel while another one holds the lock, which has just begun to collect.
#[test]
fn the_holder_of_the_lock_looks_again_for_others() {
    alone("schedules::the_holder_of_the_lock_looks_again_for_others", || {
        let bench = Bench::new();
        let queue: &'static FakeQueue = fake::forever(bench.queue(64, 1));
        let work = WORK.lock_for(u64::MAX).expect("free one day");
        STATE.collecting.begins(u64::MAX);
        let waiter = std::thread::spawn(move || Waited::for_a_kernel(&bench, queue));
        let waited = waiter.join().expect("it waits for nobody");
        assert!(!waited.was_recorded);
        harvest::unlock(work, &STATE);
        assert!(waited.is_recorded(&bench));
    });
}

/// The same, and the holder has been at it for long: the program may leave by `_exit` when its wait is over.
#[test]
fn a_holder_that_takes_long_is_waited_for() {
    alone("schedules::a_holder_that_takes_long_is_waited_for", || {
        let bench = Bench::new();
        let queue: &'static FakeQueue = fake::forever(bench.queue(64, 1));
        for _ in 0..20 {
            let work = WORK.lock_for(u64::MAX).expect("free one day");
            STATE.collecting.begins(0);
            let waiter = std::thread::spawn(move || Waited::for_a_kernel(&bench, queue));
            until("it asks", || STATE.collecting.is_asked());
            harvest::unlock(work, &STATE);
            let Waited { was_recorded, within_ns, .. } = waiter.join().expect("it ends well");
            assert!(was_recorded || within_ns >= COLLECT_WAIT_NS, "{within_ns}");
        }
    });
}

/// The same, and the holder never comes back.
#[test]
fn a_holder_that_is_lost_is_waited_for_once() {
    alone("schedules::a_holder_that_is_lost_is_waited_for_once", || {
        let bench = Bench::new();
        let queue = bench.queue(64, 1);
        let lose = || until("the lock", || WORK.try_lock().map(core::mem::forget).is_some());
        std::thread::spawn(lose).join().expect("it got it");
        STATE.collecting.begins(0);
        assert!(Waited::for_a_kernel(&bench, &queue).within_ns >= COLLECT_WAIT_NS);
        assert!(!STATE.collecting.takes_long(sys::now_ns()));
        many(&bench, &queue);
    });
}

fn copy(bench: &Bench, done: u64) -> u32 {
    let copy = bench.fake.amd.memory_async_copy.get().expect("there");
    let none = core::ptr::null_mut();
    // SAFETY: the fake copies nothing.
    unsafe { copy(none, 1, none, 2, 100, 0, core::ptr::null(), done) }
}

/// A thread stops for ever between a copy and our note of it: others wait for the copy.
#[test]
fn a_copy_is_relayed_though_its_thread_never_comes_back() {
    alone("schedules::a_copy_is_relayed_though_its_thread_never_comes_back", || {
        let bench = Bench::new();
        let done = signal(1, true);
        let stop = Stop::new(StopPoint::Copy);
        apart(stop, move || assert_eq!(copy(&bench, handle(done)), SUCCESS));
        until("it stops", || stop.reached());
        until("the copy", || value(done) == 0);
        bench.switch(false);
    });
}

/// A thread stops where it asks for the times of a copy, and another one relays that: the signal is not used again
/// while its times may be read.
#[test]
fn a_signal_whose_times_are_asked_for_is_watched() {
    alone("schedules::a_signal_whose_times_are_asked_for_is_watched", || {
        let _bench = Bench::new();
        let state = crate::relaying::active();
        let ours = signal(1, true);
        crate::relaying::complete(handle(ours));
        let entry = crate::relaying::entry(ours, signal(1, true));
        assert!(state.copies.track.push(entry));
        let seen = state.copies.track.find(entry.original).expect("in flight");
        let stop = Stop::new(StopPoint::CopyTime);
        apart(stop, move || assert!(!relay::relay(state, TrackKind::Copies, &seen), "another"));
        until("it stops", || stop.reached());
        // Not when it stops for long.
        assert!(state.watched.is_watched(handle(ours), 0));
        assert!(seen.claim());
        stop.release();
        until("its end", || !state.watched.is_watched(handle(ours), 0));
        // Nobody asks for those of one that was relayed.
        assert!(!relay::relay(state, TrackKind::Copies, &seen));
    });
}

/// A thread of the program that has waited collects completions, and never comes back: those that nobody waits for in a
/// hook are relayed all the same.
#[test]
fn completions_are_relayed_when_whoever_collected_is_lost() {
    alone("schedules::completions_are_relayed_when_whoever_collected_is_lost", || {
        let bench = Bench::new();
        let queue = bench.queue(64, 1);
        many(&bench, &queue);
        until("the lock", || WORK.try_lock().map(core::mem::forget).is_some());
        for _ in 0..3 {
            let done = signal(1, true);
            queue.dispatch(true, handle(done));
            until("nobody waits in a hook", || value(done) == 0);
        }
    });
}

/// A thread stops for ever where it has the copies' lock, while another one has its copy under way.
#[test]
fn copies_go_on_when_their_lock_is_lost() {
    alone("schedules::copies_go_on_when_their_lock_is_lost", || {
        let bench = Bench::new();
        DRY.store(true, Ordering::Release);
        // Under way, not done: a signal that is done with would be the other one's.
        let (under_way, lost) = (Stop::new(StopPoint::CopyAsked), Stop::new(StopPoint::Create));
        let done = signal(1, true);
        let returned = fake::forever(AtomicU64::new(0));
        // The one has its signal, the only one, before the other stops.
        apart(Stop::after(StopPoint::Create, under_way), move || {
            assert_eq!(copy(&bench, handle(done)), SUCCESS);
            returned.store(1, Ordering::Release);
        });
        until("one is under way", || under_way.reached());
        apart(lost, move || _ = copy(&bench, handle(signal(1, true))));
        until("one stops with the lock", || lost.reached());
        under_way.release();
        until("it returns", || returned.load(Ordering::Acquire) == 1);
        until("the copy", || value(done) == 0);
        for _ in 0..120 {
            let done = signal(1, true);
            assert_eq!(copy(&bench, handle(done)), SUCCESS);
            until("the copy", || value(done) == 0);
        }
        assert_eq!(bench.recorder.lost(ShimLoss::LEFT_ALONE), 120);
        bench.switch(false);
    });
}

/// A thread stops for ever where it has the lock of the pool of signals.
#[test]
fn other_queues_go_on_when_the_pools_lock_is_lost() {
    alone("schedules::other_queues_go_on_when_the_pools_lock_is_lost", || {
        let bench = Bench::new();
        DRY.store(true, Ordering::Release);
        let queue: &'static FakeQueue = fake::forever(bench.fake.queue(64));
        let lost = Stop::new(StopPoint::Create);
        apart(lost, || _ = queue.dispatch(true, 0));
        until("one stops with the lock", || lost.reached());
        let other = bench.queue(64, 2);
        many(&bench, &other);
        assert_eq!(bench.recorder.lost(ShimLoss::SIGNAL_POOL), 120);
    });
}

/// Threads that are cancelled.
mod cancelled {
    use super::*;
    use crate::testing::cancelled::{
        ASYNCHRONOUS, CANCELED, Start, cancel, join, pthread_setcanceltype, pthread_testcancel,
    };
    use core::ffi::c_void;
    use core::sync::atomic::AtomicBool;

    struct Scene {
        queue: FakeQueue,
        begins: AtomicBool,
        done: AtomicBool,
    }

    fn start(run: Start, scene: &'static Scene) -> u64 {
        crate::testing::cancelled::start(run, core::ptr::from_ref(scene).cast_mut().cast())
    }

    fn scene(argument: *mut c_void) -> &'static Scene {
        // SAFETY: what `start` was given.
        unsafe { &*argument.cast() }
    }

    /// Destroying a queue is no cancellation point of the runtime's, and we wait there.
    unsafe extern "C-unwind" fn destroys(argument: *mut c_void) -> *mut c_void {
        let Scene { queue, begins, done } = scene(argument);
        while !begins.load(Ordering::Acquire) {
            core::hint::spin_loop();
        }
        let destroy = queue.core().queue_destroy.get().expect("there");
        // SAFETY: its own queue.
        assert_eq!(unsafe { destroy(queue.amd) }, SUCCESS);
        done.store(true, Ordering::Release);
        // SAFETY: nothing of this thread needs an end.
        unsafe { pthread_testcancel() };
        core::ptr::null_mut()
    }

    #[test]
    fn a_cancelled_thread_does_what_it_was_at() {
        alone("schedules::cancelled::a_cancelled_thread_does_what_it_was_at", || {
            let bench = Bench::new();
            let (begins, done) = (AtomicBool::new(false), AtomicBool::new(false));
            // No packet processor: there is something to wait for.
            let scene = fake::forever(Scene { queue: bench.fake.queue(64), begins, done });
            scene.queue.dispatch(true, 0);
            let thread = start(destroys, scene);
            cancel(thread);
            scene.begins.store(true, Ordering::Release);
            assert_eq!(join(thread), CANCELED);
            assert!(scene.done.load(Ordering::Acquire), "the queue is destroyed");
        });
    }

    unsafe extern "C-unwind" fn rings(argument: *mut c_void) -> *mut c_void {
        let Scene { queue, done, .. } = scene(argument);
        // SAFETY: nothing of this thread needs an end.
        unsafe { pthread_setcanceltype(ASYNCHRONOUS, core::ptr::null_mut()) };
        queue.dispatch(true, 0);
        done.store(true, Ordering::Release);
        core::ptr::null_mut()
    }

    /// One that may be cancelled at any instruction, while it has a queue's lock.
    #[test]
    fn a_cancelled_thread_gives_its_lock_back() {
        alone("schedules::cancelled::a_cancelled_thread_gives_its_lock_back", || {
            let bench = Bench::new();
            let (begins, done) = (AtomicBool::new(false), AtomicBool::new(false));
            let scene = fake::forever(Scene { queue: bench.queue(64, 1), begins, done });
            let stop = Stop::new(StopPoint::Ring);
            bench.recorder.on_dispatch(move |record| {
                if record.packet_index == 0 {
                    stop.wait();
                }
            });
            let thread = start(rings, scene);
            until("it has the lock", || stop.reached());
            cancel(thread);
            stop.release();
            assert_eq!(join(thread), CANCELED);
            assert!(!scene.done.load(Ordering::Acquire), "as soon as it is out of our code");
            many(&bench, &scene.queue);
            bench.check(&scene.queue, 121);
            assert_eq!(bench.recorder.recorded().losses, [0; ShimLoss::COUNT]);
        });
    }
}
