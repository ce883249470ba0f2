//! Who is told of the work of GPUs, on whichever thread, and queues it without waiting for anybody.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

use tracer_common::activity::{Domain, op};
use tracer_common::loss::ShimLoss;
use tracer_common::shim::{Agent, Barrier, Complete, Copy, Dispatch, Queue, Symbol, state};
use tracer_hooks::sink::{AtFork, Enqueuer, Remains};
use tracer_hooks::{Sink, Wish};

use super::delivery;
use super::queue::{Calls, Enqueued, Event, Launcher, Pools, QUEUE, Work};
use super::wanted::{HAS_HIP, WANTED};
use crate::enabled::TRACER;
use crate::{hip, hsa};

/// Queues what is told.
pub struct Events;

/// The one sink of the process.
pub static EVENTS: Events = Events;

/// The pools of an operation, if it is recorded at all.
fn pools(op: u32) -> Option<Pools> {
    let hip = HAS_HIP.load(Ordering::Relaxed);
    let pools = Pools {
        hip: hip.then(|| TRACER.activity(Domain::HIP_OPS, op)).flatten(),
        hsa: TRACER.activity(Domain::HSA_OPS, op),
    };
    (pools.hip.is_some() || pools.hsa.is_some()).then_some(pools)
}

/// In the number of an operation the thread that gave it is above, a count below.
const COUNT_BITS: u32 = 40;

thread_local! {
    /// The last number that the calling thread gave. Atomic for handlers of signals, which run on it.
    static LAST: AtomicU64 = const { AtomicU64::new(0) };
}

/// The number of the calling thread.
fn own_number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    LAST.with(|last| {
        if last.load(Ordering::Relaxed) == 0 {
            let first = THREADS.fetch_add(1, Ordering::Relaxed) << COUNT_BITS;
            let _ = last.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed);
        }
        last.load(Ordering::Relaxed) >> COUNT_BITS
    })
}

/// The next number of the calling thread, whose numbers follow on each other.
fn next_number() -> u64 {
    own_number();
    LAST.with(|last| last.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Takes a number for a record that has none yet.
fn number(sequence: &mut u64) -> u64 {
    if *sequence == 0 {
        *sequence = next_number();
    }
    *sequence
}

/// The calling thread, and the calls that it is in.
fn caller() -> Launcher {
    let calls = Calls { hip: hip::innermost_id(), hsa: hsa::open::innermost_id() };
    Launcher { calls, thread: own_number() }
}

/// Who enqueues an operation, where that is known.
fn launcher(by: Enqueuer) -> Option<Launcher> {
    (by == Enqueuer::Caller).then(caller)
}

impl Sink for Events {
    fn thread_name(&self) -> &'static CStr {
        c"roctracer-gpu"
    }

    fn wanted(&self, _now_ns: u64) -> Wish {
        if WANTED.load(Ordering::Relaxed) == 0 { Wish::Nothing } else { Wish::Record }
    }

    fn let_go(&self, _remains: Remains) -> bool {
        true
    }

    fn forked(&self, _runtime: AtFork) {
        tracer_hooks::calls::end();
    }

    fn reserve(&self, _now_ns: u64) -> Option<u64> {
        Some(next_number())
    }

    #[inline]
    fn dispatch(&self, record: &mut Dispatch, by: Enqueuer) -> bool {
        let of_hip = |op| TRACER.activity(Domain::HIP_OPS, op);
        let as_copy = HAS_HIP.load(Ordering::Relaxed).then(|| of_hip(op::COPY)).flatten();
        let pools = match (pools(op::DISPATCH), as_copy) {
            (Some(pools), _) => pools,
            (None, Some(_)) => Pools::default(),
            (None, None) => return false,
        };
        QUEUE.enqueue(Enqueued {
            sequence: number(&mut record.sequence),
            launcher: launcher(by),
            work: Work::Kernel(record.kernel_object, as_copy),
            agent: record.agent,
            queue_id: record.queue_id,
            pools,
        })
    }

    fn barrier(&self, record: &mut Barrier, by: Enqueuer) -> bool {
        let Some(pools) = pools(op::BARRIER) else { return false };
        QUEUE.enqueue(Enqueued {
            sequence: number(&mut record.sequence),
            launcher: launcher(by),
            work: Work::Barrier,
            agent: record.agent,
            queue_id: record.queue_id,
            pools,
        })
    }

    fn copy(&self, record: &mut Copy) -> bool {
        let Some(pools) = pools(op::COPY) else { return false };
        let Copy { size_bytes: bytes, src_agent: from, dst_agent: to, .. } = *record;
        QUEUE.enqueue(Enqueued {
            sequence: number(&mut record.sequence),
            launcher: Some(caller()),
            work: Work::Copy { bytes, from, to },
            agent: 0,
            queue_id: 0,
            pools,
        })
    }

    /// The caller was told of with the operation.
    #[inline]
    fn enqueued(&self, sequence: u64, by: Enqueuer) {
        if by == Enqueuer::Unknown {
            QUEUE.push(Event::Launched { sequence, launcher: caller(), is_certain: false });
        }
    }

    fn claimed(&self, sequence: u64) {
        QUEUE.push(Event::Launched { sequence, launcher: caller(), is_certain: true });
    }

    /// They need not: whoever flushes a pool collects, and a process that ends by `_exit` keeps nothing that was told.
    fn waiters_collect(&self) -> bool {
        false
    }

    fn can_complete(&self, _now_ns: u64) -> bool {
        true
    }

    fn complete(&self, record: Complete) {
        QUEUE.push(Event::Done(record));
    }

    fn collected(&self) {
        delivery::wake();
    }

    fn no_times(&self, sequence: u64) {
        if sequence != 0 {
            QUEUE.push(Event::NoTimes(sequence));
            delivery::wake();
        }
    }

    fn symbol(&self, record: Symbol, name: &[u8]) {
        let name = name.iter().copied().chain([0]).collect();
        QUEUE.push(Event::Symbol(record.kernel_object, name));
        // Else they stay in the queue where nothing is recorded but calls.
        delivery::wake();
    }

    fn agent(&self, record: Agent) {
        let gpu = (record.device_type == 1).then_some(record.index);
        QUEUE.push(Event::Agent { handle: record.handle, gpu });
    }

    fn queue(&self, _record: Queue) {}

    /// What was lost of an operation is told by its number.
    fn lost(&self, _cause: ShimLoss, _count: u64) {}

    fn state(&self, state: u64) {
        if state == state::ACTIVE {
            QUEUE.push(Event::Begins);
        }
    }

    fn housekeeping(&self, _now_ns: u64) -> bool {
        false
    }
}
