//! Work of GPUs, as records of the domains `HIP_OPS` and `HSA_OPS`: kernels, copies, barriers.
//!
//! * [`records`]: the records of an operation.
//! * [`wanted`]: the operations that are wanted at all.
//!
//! Each packet and each asynchronous copy is one record, once it is done. The record goes into the pool that was
//! enabled when the operation was enqueued. Where HIP is loaded all of them are HIP's.

mod records;
mod wanted;

use std::ffi::CStr;
use std::io::{self, Write as _};
use std::sync::atomic::Ordering;
use std::time::Instant;

use capi_common::hip::LIBRARY;
use capi_common::loaded::Loaded;
use capi_sources::gpu::{Agents, Client, CompletedWork, Gpu, Kernels, Work, Writing};
use roctracer::pool::{self, EXIT_WAIT, Pool};
use roctracer::tracer::{Source, Wanted};
use tracer_common::activity::{ActivityRecord, Domain, op};
use tracer_common::loss::ShimLoss;
use tracer_common::shim::{Barrier, Copy, Dispatch};
use tracer_hooks::{InstallError, Tables, Timing, sys};

use crate::enabled::TRACER;
use crate::{hip, hsa};
use wanted::{HAS_HIP, WANTED};

pub use wanted::{CALLS_OF_HIP, CALLS_OF_HSA, want};

/// Work of GPUs for pools.
static GPU: Gpu<Pools> = Gpu::new(Pools, &KERNELS);
/// Kernels that are loaded.
static KERNELS: Kernels = Kernels::new();

/// The work of one domain.
pub struct Operations {
    domain: Domain,
}

/// HIP's.
pub static HIP_OPS: Operations = Operations { domain: Domain::HIP_OPS };
/// HSA's.
pub static HSA_OPS: Operations = Operations { domain: Domain::HSA_OPS };

impl Source for Operations {
    fn follow(&self, op: u32, wanted: Wanted) {
        want(1 << (self.domain.0 * 8 + op), wanted.activity);
    }

    fn begin(&self) {
        begin();
    }

    /// Drains both domains at once.
    fn drain(&self, pool: &'static Pool) {
        if self.domain == Domain::HIP_OPS {
            GPU.drain(Some(pool));
        }
    }
}

/// Records everything that is wanted from now on. Returns the runtime's tables, if they are patched.
pub fn begin() -> Option<Tables> {
    look_for_hip();
    GPU.begin()
}

/// The runtime initializes, and has these tables. Returns whether they are patched.
pub fn runtime_begins(tables: Tables) -> bool {
    look_for_hip();
    GPU.runtime_begins(tables, Timing::AtStart)
}

fn look_for_hip() {
    if WANTED.load(Ordering::Relaxed) != 0 && Loaded::find(LIBRARY).is_some() {
        HAS_HIP.store(true, Ordering::Relaxed);
    }
}

/// The process exits.
extern "C-unwind" fn at_exit() {
    let mut unfinished = 0;
    if !Pool::is_any_of_their_threads() {
        unfinished = GPU.drain_last();
        // The first pool may have been opened later than this handler was registered: its handler ran before this one.
        pool::flush_open(Instant::now() + EXIT_WAIT);
    }
    if !GPU.is_at_work() {
        return;
    }
    let refused = GPU.refused() + GPU.behind();
    if refused > 0 {
        let _ = writeln!(
            io::stderr(),
            "roctracer: {refused} operations of GPUs were not recorded, since the callback of a pool took too long"
        );
    }
    let unfinished = (unfinished > 0).then_some((ShimLoss::UNFINISHED, unfinished as u64));
    for (cause, count) in GPU.losses().chain(unfinished) {
        let _ = writeln!(io::stderr(), "roctracer: lost {count}: {}", cause.describe());
    }
}

/// The client that writes records into pools.
struct Pools;

/// The pools for the records of an operation.
#[derive(Clone, core::marker::Copy, Default)]
struct TargetPools {
    /// `HIP_OPS`.
    hip: Option<&'static Pool>,
    /// `HSA_OPS`.
    hsa: Option<&'static Pool>,
    /// The pool of HIP's record for a kernel by which HIP copies or fills.
    as_copy: Option<&'static Pool>,
}

/// Correlation ids of the innermost calls that a thread is in; 0 if it is in none that is traced.
#[derive(Clone, core::marker::Copy, Default)]
struct Calls {
    hip: u64,
    hsa: u64,
}

fn of_hip(op: u32) -> Option<&'static Pool> {
    HAS_HIP.load(Ordering::Relaxed).then(|| TRACER.activity(Domain::HIP_OPS, op)).flatten()
}

/// The pools of an operation, if it is recorded at all.
fn pools(op: u32) -> Option<TargetPools> {
    let (hip, hsa) = (of_hip(op), TRACER.activity(Domain::HSA_OPS, op));
    (hip.is_some() || hsa.is_some()).then_some(TargetPools { hip, hsa, as_copy: None })
}

impl Client for Pools {
    type OperationData = TargetPools;
    type Caller = Calls;
    type BufferKey = ();

    const NAME: &'static str = "roctracer";
    const THREAD_NAME: &'static CStr = c"roctracer-gpu";
    const DRAIN_MS: &'static str = "ROCTRACER_DRAIN_MS";

    /// The handler that is registered here runs at exit before those that were registered earlier, among them the
    /// pools', if a pool has been opened by now.
    fn begins(&self) {
        sys::at_exit(at_exit);
    }

    fn is_wanted(&self) -> bool {
        WANTED.load(Ordering::Relaxed) != 0
    }

    fn is_not_installed(&self, why: InstallError) {
        let text = "calls of HSA and work of GPUs are not recorded";
        let _ = writeln!(io::stderr(), "roctracer: {text}: {why}");
    }

    #[inline]
    fn kernel(&self, _: &Dispatch) -> Option<TargetPools> {
        let (pools, as_copy) = (pools(op::DISPATCH), of_hip(op::COPY));
        let is_recorded = pools.is_some() || as_copy.is_some();
        is_recorded.then(|| TargetPools { as_copy, ..pools.unwrap_or_default() })
    }

    fn copy(&self, _: &Copy) -> Option<TargetPools> {
        pools(op::COPY)
    }

    fn barrier(&self, _: &Barrier) -> Option<TargetPools> {
        pools(op::BARRIER)
    }

    fn caller(&self) -> Calls {
        Calls { hip: hip::open::innermost_id(), hsa: hsa::open::innermost_id() }
    }

    /// A closed pool takes none. A full pool holds up, as its interface promises.
    fn write(
        &self,
        done: CompletedWork<Self>,
        agents: &Agents,
        writing: &Writing<'_>,
    ) -> Option<((), CompletedWork<Self>)> {
        let name = done.kernel.as_ref().map(|kernel| &*kernel.name);
        let calls = done.caller.unwrap_or_default();
        let record = ActivityRecord {
            correlation_id: calls.hip,
            begin_ns: done.begin_ns,
            end_ns: done.end_ns,
            queue_id: done.queue_id,
            ..records::of_hip(done.work, name, done.agent, agents)
        };
        let is_dispatch = record.op == op::DISPATCH;
        let is_copying_kernel = matches!(done.work, Work::Kernel(_)) && !is_dispatch;
        let pool = if is_copying_kernel { done.kept.as_copy } else { done.kept.hip };
        if let Some(pool) = pool {
            write_into(pool, &record, name.filter(|_| is_dispatch), writing);
        }
        if let Some(pool) = done.kept.hsa {
            // Calls of HSA are made inside of HIP's.
            let correlation_id = if calls.hsa != 0 { calls.hsa } else { calls.hip };
            let record = records::of_hsa(done.work, &record);
            write_into(pool, &ActivityRecord { correlation_id, ..record }, name, writing);
        }
        None
    }
}

fn write_into(
    pool: &'static Pool,
    record: &ActivityRecord,
    name: Option<&[u8]>,
    writing: &Writing<'_>,
) {
    let _ = writing.to(pool, || match name {
        Some(name) => pool.write_with(record, name),
        None => pool.write(record),
    });
}
