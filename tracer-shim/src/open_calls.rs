//! The open calls of each thread, and their frames in its ring.
//!
//! A call that is open stands in the header of its thread's ring, where `roctap` finds it if it never returns; a call
//! that is over is a frame in the ring. A thread keeps its own view of its open calls in thread-locals without
//! destructors, as in [`crate::rings`].
//!
//! A call can outlast the memory that it was begun in; then it is not recorded.
//!
//! Fibres have stacks of their own: a call that was taken for left, because another one began higher up, may
//! still return. It is recorded then, and is not lost.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use tracer_common::activity::Domain;
use tracer_common::calls::{Call, ID_BITS, MAX_CALL_WORDS, OPEN_CALLS};
use tracer_common::loss::ShimLoss;
use tracer_common::shim::{control, kind};

use crate::memory::SharedMemory;
use crate::rings;

/// Ids that a thread takes at once: the counter is the process's.
const BLOCK: u64 = 1024;
/// The longest distance of a call's frame from that of a call inside of it, bytes: others are on other stacks.
const REACH: usize = 1 << 20;

static BLOCKS: AtomicU64 = AtomicU64::new(0);

/// An open call of the thread.
#[derive(Clone, Copy)]
struct OpenCall {
    /// An address in its stack frame.
    at: usize,
    id: u64,
    /// Domain and operation, as in [`tracer_common::bpf::Header::operation`].
    operation: u32,
    /// Of the memory.
    generation: u32,
}

impl OpenCall {
    const NONE: Self = Self { at: 0, id: 0, operation: 0, generation: 0 };
}

struct Thread {
    /// In the middle of `begins` or `ends`: a signal handler may find this.
    busy: Cell<bool>,
    /// The next id and the end of its block, and the generation of the memory that they are for.
    ids: Cell<[u64; 3]>,
    depth: Cell<usize>,
    open: [Cell<OpenCall>; OPEN_CALLS],
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            busy: Cell::new(false),
            ids: Cell::new([0; 3]),
            depth: Cell::new(0),
            open: [const { Cell::new(OpenCall::NONE) }; OPEN_CALLS],
        }
    };
}

impl Thread {
    /// The innermost open call that `memory` records, whose frame lies above `at`, and that `is_it`. Those below
    /// were left by `longjmp`; those of an earlier memory may have returned when nobody recorded.
    fn innermost(
        &self,
        memory: &SharedMemory,
        at: usize,
        is_it: impl Fn(&OpenCall) -> bool,
    ) -> Option<OpenCall> {
        let open = self.open.get(..self.depth.get().min(OPEN_CALLS))?;
        let generation = memory.generation();
        let is_around = |call: &OpenCall| call.at > at && call.at - at < REACH;
        open.iter()
            .rev()
            .map(Cell::get)
            .find(|call| is_around(call) && call.generation == generation && is_it(call))
    }

    fn next_id(&self, memory: &SharedMemory) -> u64 {
        let generation = u64::from(memory.generation());
        let [mut next, mut end, of] = self.ids.get();
        if next == end || of != generation {
            let first = memory.control(control::FIRST_CALL_ID);
            next = first + BLOCKS.fetch_add(1, Ordering::Relaxed) * BLOCK;
            end = next + BLOCK;
        }
        self.ids.set([next + 1, end, generation]);
        next
    }

    /// Takes calls off that lie below `at`; they were left without a return.
    fn abandon_below(&self, at: usize, memory: &SharedMemory, ring: usize) {
        while let depth @ 1.. = self.depth.get()
            && let Some(call) = self.open.get(depth - 1).map(Cell::get)
            && call.at <= at
        {
            self.depth.set(depth - 1);
            if call.generation == memory.generation() {
                memory.close_call(ring, depth - 1);
                memory.lost(ShimLoss::CALL_ABANDONED, 1);
            }
        }
    }
}

/// A call begins, at an address in its stack frame. Fills in the ids; false: it is not recorded.
pub fn begins(memory: &SharedMemory, call: &mut Call, at: usize) -> bool {
    THREAD.with(|thread| {
        if thread.busy.replace(true) {
            memory.lost(ShimLoss::CALL_IN_SIGNAL, 1);
            return false;
        }
        let begun = begin(thread, memory, call, at);
        thread.busy.set(false);
        begun
    })
}

/// A call is over of which [`begins`] said true.
pub fn ends(memory: &SharedMemory, call: &Call, at: usize) {
    THREAD.with(|thread| {
        // Set already only where a signal handler that interrupted us was left by `longjmp`: a
        // frame may be half written then, for good.
        if thread.busy.replace(true) {
            memory.lost(ShimLoss::CALL_IN_SIGNAL, 1);
            return;
        }
        end(thread, memory, call, at);
        thread.busy.set(false);
    });
}

fn begin(thread: &Thread, memory: &SharedMemory, call: &mut Call, at: usize) -> bool {
    let Some(ring) = rings::mine(memory, call.begin_ns) else {
        memory.lost(ShimLoss::NO_RING, 1);
        return false;
    };
    thread.abandon_below(at, memory, ring);
    call.correlation_id = thread.next_id(memory);
    call.parent_id = thread.innermost(memory, at, |_| true).map_or(0, |outer| outer.id);
    let depth = thread.depth.get();
    // One that is nested deeper is recorded all the same; it is only not known to be open.
    if let Some(open) = thread.open.get(depth) {
        let (id, operation) = (call.correlation_id, call.header_operation());
        open.set(OpenCall { at, id, operation, generation: memory.generation() });
        thread.depth.set(depth + 1);
        memory.open_call(ring, depth, call);
    }
    true
}

fn end(thread: &Thread, memory: &SharedMemory, call: &Call, at: usize) {
    let Some(ring) = rings::mine(memory, call.begin_ns) else {
        return memory.lost(ShimLoss::NO_RING, 1);
    };
    let open = thread.depth.get();
    // Its own entry lies at `at`; what is below was left inside of it.
    thread.abandon_below(at.wrapping_sub(1), memory, ring);
    let depth = thread.depth.get().wrapping_sub(1);
    let own = thread.open.get(depth).map(Cell::get).filter(|open| open.at == at);
    if own.is_some() {
        thread.depth.set(depth);
    }
    let first = memory.control(control::FIRST_CALL_ID);
    if call.correlation_id.wrapping_sub(first) >= 1 << ID_BITS {
        return;
    }
    if own.is_none() && open < OPEN_CALLS {
        memory.found(ShimLoss::CALL_ABANDONED);
    }
    let mut words = [0; MAX_CALL_WORDS];
    let count = call.encode(&mut words);
    let frame = words.get(..count).unwrap_or_default();
    let taken = memory.producer(ring).is_some_and(|p| p.push(kind::CALL, [frame, &[]]));
    if !taken {
        memory.lost(ShimLoss::CALL_RING_FULL, 1);
    }
    if own.is_some() {
        // After the frame is there: a reader that finds neither has looked in the wrong order.
        memory.close_call(ring, depth);
    }
}

/// The call that launches what a thread enqueues; 0 where there is none.
#[derive(Clone, Copy, Default)]
pub struct Launcher {
    /// Its id.
    pub correlation_id: u64,
    /// Domain and operation, as in [`tracer_common::bpf::Header::operation`].
    pub operation: u32,
}

impl Launcher {
    /// Whether it is a call of HIP.
    pub fn is_hip(self) -> bool {
        self.correlation_id != 0 && self.operation >> 16 == Domain::HIP_API.0
    }
}

/// The innermost open call of HIP of the thread that `memory` records, else the innermost one.
pub fn launcher(memory: &SharedMemory) -> Launcher {
    let here = 0u8;
    let at = (&raw const here) as usize;
    let is_hip = |call: &OpenCall| call.operation >> 16 == Domain::HIP_API.0;
    let open = THREAD.with(|thread| {
        let of_hip = thread.innermost(memory, at, is_hip);
        of_hip.or_else(|| thread.innermost(memory, at, |_| true))
    });
    open.map_or_else(Launcher::default, |OpenCall { id, operation, .. }| Launcher {
        correlation_id: id,
        operation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::mapped;
    use tracer_common::calls::FIRST_ID;
    use tracer_common::ring::MAX_FRAME_WORDS;

    fn drain(memory: &SharedMemory, ring: usize) -> Vec<Call> {
        let consumer = memory.consumer(ring);
        let mut frame = [0; MAX_FRAME_WORDS];
        let mut calls = Vec::new();
        while let Some((kind, count)) = consumer.pop(&mut frame).expect("whole") {
            assert_eq!(kind, kind::CALL);
            calls.push(Call::decode(&frame[..count]).expect("a call"));
        }
        calls
    }

    /// One thread's calls in a memory of its own.
    struct Scene {
        thread: Thread,
        memory: SharedMemory,
        ring: usize,
    }

    impl Scene {
        fn run(test: impl FnOnce(&Self) + Send + 'static) {
            std::thread::spawn(|| {
                let memory = mapped(1);
                memory.set_control(control::FIRST_CALL_ID, FIRST_ID);
                let ring = rings::mine(&memory, 1).expect("free");
                let thread = Thread {
                    busy: Cell::new(false),
                    ids: Cell::new([0; 3]),
                    depth: Cell::new(0),
                    open: [const { Cell::new(OpenCall::NONE) }; OPEN_CALLS],
                };
                test(&Self { thread, memory, ring });
            })
            .join()
            .expect("no panic");
        }

        fn begin(&self, at: usize) -> Call {
            let mut call = Call { begin_ns: 1, ..Call::default() };
            assert!(begin(&self.thread, &self.memory, &mut call, at));
            call
        }

        fn end(&self, call: &Call, at: usize) {
            end(&self.thread, &self.memory, call, at);
        }

        fn open(&self) -> Vec<u64> {
            let words = self.memory.open_words(self.ring);
            words.into_iter().filter(|&id| id != 0).collect()
        }

        fn lost(&self, cause: ShimLoss) -> u64 {
            self.memory.control(control::LOSSES + cause.0 as usize)
        }
    }

    #[test]
    fn nested_calls_know_their_parents_and_are_open_meanwhile() {
        Scene::run(|scene| {
            let outer = scene.begin(1000);
            let inner = scene.begin(900);
            assert_eq!((outer.parent_id, inner.parent_id), (0, outer.correlation_id));
            assert_eq!(scene.open(), [outer.correlation_id, inner.correlation_id]);
            scene.end(&inner, 900);
            assert_eq!(scene.open(), [outer.correlation_id]);
            scene.end(&outer, 1000);
            assert_eq!(scene.open(), [0; 0]);
            assert_eq!(drain(&scene.memory, scene.ring), [inner, outer]);
            assert_eq!(scene.lost(ShimLoss::CALL_ABANDONED), 0);
        });
    }

    #[test]
    fn calls_that_longjmp_left_are_counted_and_are_nobodys_parents() {
        Scene::run(|scene| {
            let outer = scene.begin(1000);
            scene.begin(900);
            scene.begin(800);
            // Back in the outermost call's callback, which calls again, from higher up.
            let next = scene.begin(950);
            assert_eq!(next.parent_id, outer.correlation_id);
            assert_eq!(scene.lost(ShimLoss::CALL_ABANDONED), 2);
            assert_eq!(scene.open(), [outer.correlation_id, next.correlation_id]);
            // And the outermost returns without that one.
            scene.end(&outer, 1000);
            assert_eq!(scene.lost(ShimLoss::CALL_ABANDONED), 3);
            assert_eq!(drain(&scene.memory, scene.ring), [outer]);
            assert_eq!(scene.open(), [0; 0]);
        });
    }

    /// One thread on two stacks: the call that is lower has been taken for left, and returns.
    #[test]
    fn calls_on_other_stacks_return() {
        Scene::run(|scene| {
            let low = scene.begin(1000);
            let inside = scene.begin(900);
            let high = scene.begin(10 * REACH);
            assert_eq!((inside.parent_id, high.parent_id), (low.correlation_id, 0));
            assert_eq!(scene.lost(ShimLoss::CALL_ABANDONED), 2);
            let again = scene.begin(800);
            assert_eq!(again.parent_id, 0, "what is on another stack is not around it");
            scene.end(&again, 800);
            scene.end(&inside, 900);
            scene.end(&low, 1000);
            scene.end(&high, 10 * REACH);
            assert_eq!(drain(&scene.memory, scene.ring), [again, inside, low, high]);
            assert_eq!((scene.open().len(), scene.lost(ShimLoss::CALL_ABANDONED)), (0, 0));
        });
    }

    /// A call that was open when one recording ended has returned unseen when the next begins.
    #[test]
    fn calls_of_an_earlier_recording_launch_nothing() {
        Scene::run(|scene| {
            let waiting = scene.begin(1000);
            let launcher =
                |memory: &SharedMemory| scene.thread.innermost(memory, 800, |_| true).map(|c| c.id);
            assert_eq!(launcher(&scene.memory), Some(waiting.correlation_id));
            let next = mapped(1);
            next.set_control(control::FIRST_CALL_ID, FIRST_ID * 2);
            assert_eq!(launcher(&next), None);
            let mut call = Call { begin_ns: 1, ..Call::default() };
            assert!(begin(&scene.thread, &next, &mut call, 900));
            assert_eq!((call.parent_id, launcher(&next)), (0, Some(call.correlation_id)));
        });
    }

    #[test]
    fn deep_nesting_is_recorded_whole() {
        Scene::run(|scene| {
            let depth = OPEN_CALLS + 3;
            let calls: Vec<Call> = (0..depth).map(|i| scene.begin(10_000 - i * 10)).collect();
            assert_eq!(scene.open().len(), OPEN_CALLS);
            for (i, call) in calls.iter().enumerate().rev() {
                scene.end(call, 10_000 - i * 10);
            }
            assert_eq!(drain(&scene.memory, scene.ring).len(), depth);
            assert_eq!((scene.open().len(), scene.lost(ShimLoss::CALL_ABANDONED)), (0, 0));
        });
    }

    #[test]
    fn a_full_ring_counts_calls() {
        Scene::run(|scene| {
            for _ in 0..100 {
                let call = scene.begin(1000);
                scene.end(&call, 1000);
            }
            let seen = drain(&scene.memory, scene.ring).len() as u64;
            assert!(seen > 10 && scene.lost(ShimLoss::CALL_RING_FULL) == 100 - seen);
        });
    }

    #[test]
    fn ids_are_given_once() {
        Scene::run(|scene| {
            let mut ids: Vec<u64> =
                (0..3 * BLOCK).map(|_| scene.thread.next_id(&scene.memory)).collect();
            assert!(ids.iter().all(|&id| id >= FIRST_ID));
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len() as u64, 3 * BLOCK);
            // Another memory's ids are its own.
            let other = mapped(1);
            other.set_control(control::FIRST_CALL_ID, FIRST_ID * 2);
            assert!(scene.thread.next_id(&other) >= FIRST_ID * 2);
        });
    }
}
