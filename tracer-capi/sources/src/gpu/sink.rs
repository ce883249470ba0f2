//! The sink that receives the work of GPUs, on whichever thread, and queues it without waiting for anybody.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

use tracer_common::loss::ShimLoss;
use tracer_common::shim::{Agent, Barrier, Complete, Copy, Dispatch, Queue, Symbol, state};
use tracer_hooks::sink::{AtFork, Enqueuer, Remains};
use tracer_hooks::{Demand, Sink};

use super::client::{Client, Work};
use super::delivery::Gpu;
use super::kernels::Descriptor;
use super::queue::{Claim, Enqueued, Event};

/// The number of an operation has the thread that gave it above these bits, and a count below.
const COUNT_BITS: u32 = 40;

thread_local! {
    /// The last number that the calling thread gave. Atomic for handlers of signals, which run on it.
    static LAST: AtomicU64 = const { AtomicU64::new(0) };
    /// The last numbers that it has reserved for operations whose events come later: the first and the last of a row of
    /// successive numbers.
    static RESERVED: [AtomicU64; 2] = const { [AtomicU64::new(0), AtomicU64::new(0)] };
}

/// The next number of the calling thread, whose numbers follow on each other.
fn next_number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    LAST.with(|last| {
        if last.load(Ordering::Relaxed) == 0 {
            let first = THREADS.fetch_add(1, Ordering::Relaxed) << COUNT_BITS;
            let _ = last.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed);
        }
        last.fetch_add(1, Ordering::Relaxed) + 1
    })
}

/// Takes a number for a record that has none yet.
fn number(sequence: &mut u64) -> u64 {
    if *sequence == 0 {
        *sequence = next_number();
    }
    *sequence
}

impl<C: Client> Gpu<C> {
    /// The calling thread, where it is known to have enqueued the operation.
    fn caller(&self, by: Enqueuer) -> Option<C::Caller> {
        (by == Enqueuer::Caller).then(|| self.client.caller())
    }
}

impl<C: Client> Sink for Gpu<C> {
    fn thread_name(&self) -> &'static CStr {
        C::THREAD_NAME
    }

    fn creates_worker(&self, create: &mut dyn FnMut() -> bool) -> bool {
        self.client.creates_thread(create)
    }

    fn wanted(&self, _now_ns: u64) -> Demand {
        if self.client.is_wanted() { Demand::Record } else { Demand::Nothing }
    }

    fn let_go(&self, _remains: Remains) -> bool {
        true
    }

    fn forked(&self, _runtime: AtFork) {
        tracer_hooks::calls::end();
    }

    fn reserve(&self, _now_ns: u64) -> Option<u64> {
        let number = next_number();
        RESERVED.with(|[first, last]| {
            if last.swap(number, Ordering::Relaxed) + 1 != number {
                first.store(number, Ordering::Relaxed);
            }
        });
        Some(number)
    }

    fn refused(&self, sequence: u64) {
        self.events.push(Event::Refused(sequence));
    }

    #[inline]
    fn dispatch(&self, record: &mut Dispatch, by: Enqueuer) -> bool {
        let Some(kept) = self.client.kernel(record) else { return false };
        self.events.enqueue(Enqueued {
            sequence: number(&mut record.sequence),
            caller: self.caller(by),
            work: Work::Kernel(record.kernel_object),
            agent: record.agent,
            queue_id: record.queue_id,
            kept,
        })
    }

    fn barrier(&self, record: &mut Barrier, by: Enqueuer) -> bool {
        let Some(kept) = self.client.barrier(record) else { return false };
        self.events.enqueue(Enqueued {
            sequence: number(&mut record.sequence),
            caller: self.caller(by),
            work: Work::Barrier,
            agent: record.agent,
            queue_id: record.queue_id,
            kept,
        })
    }

    fn copy(&self, record: &mut Copy) -> bool {
        let Some(kept) = self.client.copy(record) else { return false };
        self.events.enqueue(Enqueued {
            sequence: number(&mut record.sequence),
            caller: Some(self.client.caller()),
            work: Work::Copy((&*record).into()),
            agent: 0,
            queue_id: 0,
            kept,
        })
    }

    /// If `by` is the caller, the operation's event has named it.
    #[inline]
    fn enqueued(&self, sequence: u64, by: Enqueuer) {
        if by == Enqueuer::Unknown {
            self.events.push(Event::Launched {
                sequence,
                caller: self.client.caller(),
                claim: Claim::Found,
            });
        }
    }

    fn claimed(&self, sequence: u64) {
        let is_ahead = RESERVED.with(|[first, last]| {
            (first.load(Ordering::Relaxed)..=last.load(Ordering::Relaxed)).contains(&sequence)
        });
        let claim = if is_ahead { Claim::Ahead } else { Claim::Certain };
        self.events.push(Event::Launched { sequence, caller: self.client.caller(), claim });
    }

    fn has_enqueued(&self) {
        self.client.has_enqueued();
    }

    /// They need not: a thread that drains collects, and a process that ends by `_exit` keeps nothing that was queued.
    fn waiters_collect(&self) -> bool {
        false
    }

    fn can_complete(&self, _now_ns: u64) -> bool {
        true
    }

    fn complete(&self, record: Complete) {
        self.events.push(Event::Done(record));
    }

    fn collected(&self) {
        self.wake();
    }

    fn no_times(&self, sequence: u64, cause: ShimLoss) {
        if sequence != 0 {
            self.count(cause, 1);
            self.events.push(Event::NoTimes(sequence));
            self.wake();
        }
    }

    fn symbol(&self, record: Symbol, name: &[u8]) {
        let Symbol { kernel_object: address, since_ns, .. } = record;
        let Some(kernel) = self.kernels.number(address, name, since_ns) else { return };
        // Told of again, they are the same.
        let _ = kernel.descriptor.set(Descriptor {
            scalar_registers: record.sgpr_count,
            vector_registers: record.vgpr_count,
            accumulation_registers: record.accum_vgpr_count,
            entry_offset: record.entry_offset,
        });
        self.events.push(Event::Symbol { address, since_ns, kernel });
        // Else they stay in the queue where nothing is recorded but calls.
        self.wake();
    }

    fn agent(&self, record: Agent) {
        self.events.push(Event::Agent(record));
    }

    fn queue(&self, _record: Queue) {}

    /// A wanted operation that has a number is counted by that, and one that was under way before it was wanted is no
    /// loss.
    fn lost(&self, cause: ShimLoss, count: u64) {
        if let ShimLoss::LEFT_ALONE | ShimLoss::NO_MEMORY | ShimLoss::NO_RING = cause {
            self.count(cause, count);
        }
    }

    fn state(&self, state: u64) {
        if state == state::ACTIVE {
            self.events.push(Event::Begins);
        }
    }

    fn housekeeping(&self, _now_ns: u64) -> bool {
        false
    }
}
