//! Work of GPUs, as records of the domains `HIP_OPS` and `HSA_OPS`: kernels, copies, barriers.
//!
//! * [`sink`]: what the threads of the program are told by [`tracer_hooks`], which has patched the tables of the HSA
//!   runtime, and queue without waiting.
//! * [`delivery`]: the one thread that takes it out of the [`queue`], and writes records into pools, where it may have to
//!   wait.
//! * [`operations`]: what was told of one operation, and its record.
//! * [`wanted`]: what is wanted at all.
//!
//! Each packet and each asynchronous copy is one record, once it is done; its times are those of the GPU. It goes into
//! the pool that was enabled when it was enqueued. Where HIP is loaded all of them are HIP's.

mod delivery;
mod operations;
mod queue;
mod sink;
mod wanted;

use std::sync::atomic::Ordering;

use roctracer::tracer::{Source, Wanted};
use tracer_common::activity::Domain;
use tracer_hooks::{Tables, Timing, contained};

use crate::loaded::Loaded;
use wanted::{HAS_HIP, WANTED};

pub use wanted::{CALLS_OF_HSA, want};

/// What the file of the HSA runtime is called, but for its version.
const HSA: &[u8] = b"libhsa-runtime64.so";
/// The same of HIP's.
const HIP: &[u8] = b"libamdhip64.so";

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

    fn drain(&self) {
        delivery::drain(None);
    }
}

/// Has what is wanted recorded from now on; the runtime's tables, if it is loaded. Else it is recorded when it is asked for
/// again, or when the runtime loads this library as a tool.
pub fn begin() -> Option<Tables> {
    if Loaded::find(HIP).is_some() {
        HAS_HIP.store(true, Ordering::Relaxed);
    }
    let tables = tables()?;
    install(tables, Timing::Live);
    Some(tables)
}

/// The runtime initializes, and has these tables.
pub fn runtime_begins(tables: Tables) {
    if WANTED.load(Ordering::Relaxed) != 0 {
        install(tables, Timing::AtStart);
    }
}

/// Records from now on what is wanted. The runtime works also without us.
fn install(tables: Tables, timing: Timing) {
    if delivery::start() {
        contained(|| {
            let _ = tracer_hooks::install(tables, &sink::EVENTS, timing);
        });
    }
}

/// The tables of the HSA runtime that is loaded.
#[expect(unsafe_code, reason = "addresses of the runtime's functions")]
fn tables() -> Option<Tables> {
    let runtime = Loaded::find(HSA)?;
    let function = |name| runtime.function(name).map(|function| function as usize);
    let core = function(c"hsa_agent_get_info")?;
    let extension = function(c"hsa_amd_coherency_get_type")?;
    // SAFETY: these functions, of a library that stays loaded: it was opened.
    unsafe { Tables::behind(core, extension) }.ok()
}

/// Runs when the process ends, after the destructors of everything else.
extern "C" fn at_end() {
    contained(tracer_hooks::finish);
}

#[used]
#[expect(unsafe_code, reason = "a place in the library")]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;
