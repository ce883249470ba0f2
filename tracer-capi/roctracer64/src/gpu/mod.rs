//! Work of GPUs, as records of the domains `HIP_OPS` and `HSA_OPS`: kernels, copies, barriers.
//!
//! * [`events`]: what the threads of the program are told by [`tracer_hooks`], which has patched the tables of the HSA
//!   runtime, and queue without waiting.
//! * [`operations`]: which events belong to one operation, and its record.
//! * [`delivery`]: the one thread that takes the events, and writes records into pools, where it may have to wait.
//!
//! Each packet and each asynchronous copy is one record, once it is done; its times are those of the GPU. It goes into
//! the pool that was enabled when it was enqueued. Where HIP is loaded all of them are HIP's.

mod delivery;
mod events;
mod operations;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use roctracer::tracer::{Source, Wanted};
use tracer_common::activity::Domain;
use tracer_hooks::{Tables, Timing, contained};

use crate::loaded::Loaded;

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

/// A bit for each operation that is recorded: 8 of each domain.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// HIP is loaded.
static HAS_HIP: AtomicBool = AtomicBool::new(false);

impl Source for Operations {
    fn follow(&self, op: u32, wanted: Wanted) {
        let bit = 1 << (self.domain.0 * 8 + op);
        // Relaxed: `begin` comes after it on this thread; who ends a recording may be late.
        match wanted.activity {
            true => WANTED.fetch_or(bit, Ordering::Relaxed),
            false => WANTED.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    /// Where the runtime is not loaded nothing happens: what is wanted is found out when it is asked for again, or when
    /// the runtime loads this library as a tool.
    fn begin(&self) {
        if Loaded::find(HIP).is_some() {
            HAS_HIP.store(true, Ordering::Relaxed);
        }
        if let Some(tables) = tables() {
            install(tables, Timing::Live);
        }
    }

    fn drain(&self) {
        delivery::drain(None);
    }
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
            let _ = tracer_hooks::install(tables, &events::EVENTS, timing);
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
