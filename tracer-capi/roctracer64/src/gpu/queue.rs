//! What is told of the work of GPUs: a queue, in which nobody waits.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crossbeam_queue::SegQueue;
use roctracer::pool::Pool;
use tracer_common::shim::Complete;

/// Which pools records of an operation go into.
#[derive(Clone, Copy, Default)]
pub struct Pools {
    /// `HIP_OPS`.
    pub hip: Option<&'static Pool>,
    /// `HSA_OPS`.
    pub hsa: Option<&'static Pool>,
}

/// Correlation ids of the innermost calls that a thread is in; 0 if it is in none that is traced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calls {
    pub hip: u64,
    pub hsa: u64,
}

/// What is enqueued.
pub enum Work {
    /// A kernel, by the address of its descriptor; and where HIP's go if it is one by which HIP copies or fills.
    Kernel(u64, Option<&'static Pool>),
    /// So many bytes, from agent to agent.
    Copy { bytes: u64, from: u64, to: u64 },
    /// A barrier with a signal.
    Barrier,
}

/// An operation that is enqueued.
pub struct Enqueued {
    pub sequence: u64,
    pub work: Work,
    /// That has the queue; 0 of copies.
    pub agent: u64,
    pub queue_id: u64,
    pub pools: Pools,
}

/// What was told.
pub enum Event {
    /// A recording begins: all kernels are told of again.
    Begins,
    /// GPU `index`, or a CPU, has this handle.
    Agent {
        handle: u64,
        gpu: Option<u32>,
    },
    /// The kernel at this address has this name, which ends in NUL.
    Symbol(u64, Box<[u8]>),
    Enqueued(Enqueued),
    /// The calls of HIP and of HSA that enqueued an operation, and their thread; `is_certain`, or another thread may say
    /// that it was it.
    Launcher {
        sequence: u64,
        calls: Calls,
        thread: u64,
        is_certain: bool,
    },
    Done(Complete),
    /// It is done, or lost: its times are not known.
    NoTimes(u64),
    /// Somebody waits for what was enqueued.
    Drain(Arc<Drain>),
}

/// What was told, and not taken yet.
pub static QUEUE: SegQueue<Event> = SegQueue::new();

/// Somebody waits for what is under way.
#[derive(Default)]
pub struct Drain {
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Drain {
    /// Waits until it is over, or until a time; whether it is.
    pub fn wait_until(&self, until: Instant) -> bool {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.over.wait_timeout_while(is_over, left, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// It is over.
    pub fn ends(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.over.notify_all();
    }
}
