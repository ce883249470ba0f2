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
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use roctracer::pool::Pool;
use roctracer::thread;
use roctracer::tracer::{Source, Wanted};
use tracer_common::activity::Domain;
use tracer_hooks::{Tables, Timing, contained};

use capi_common::loaded::Loaded;
use wanted::{HAS_HIP, WANTED};

pub use wanted::{CALLS_OF_HSA, want};

/// What the file of the HSA runtime is called, but for its version.
const HSA: &[u8] = b"libhsa-runtime64.so";
/// The same of HIP's.
const HIP: &[u8] = b"libamdhip64.so";

/// How long a runtime that is in use takes to be held, at most; else it is being initialized.
const INITIALIZING: Duration = Duration::from_millis(100);

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

    /// Of both domains at once.
    fn drain(&self, pool: &'static Pool) {
        if self.domain == Domain::HIP_OPS {
            delivery::drain(pool);
        }
    }
}

/// Has what is wanted recorded from now on; the runtime's tables, if they are patched. Where the runtime is not loaded, it
/// is recorded when it is asked for again, or when the runtime loads this library as a tool.
pub fn begin() -> Option<Tables> {
    if WANTED.load(Ordering::Relaxed) == 0 {
        return None;
    }
    look_for_hip();
    let tables = tables()?;
    (tracer_hooks::records(&tables) || install_live(tables)).then_some(tables)
}

/// The runtime initializes, and has these tables; whether they are patched.
pub fn runtime_begins(tables: Tables) -> bool {
    look_for_hip();
    WANTED.load(Ordering::Relaxed) != 0 && install(tables, Timing::AtStart)
}

fn look_for_hip() {
    if Loaded::find(HIP).is_some() {
        HAS_HIP.store(true, Ordering::Relaxed);
    }
}

/// Installs in a runtime that may be in use, which is held meanwhile: by a thread of its own. The calling one may be
/// inside of `hsa_init`, in a tool that the runtime has loaded, and would wait for itself. The tables are patched then
/// without that, and the other thread finds it done.
fn install_live(tables: Tables) -> bool {
    let (done, installed) = mpsc::channel();
    let started = thread::start(move || {
        let _ = done.send(install(tables, Timing::Live));
    });
    match started.map(|_| installed.recv_timeout(INITIALIZING)) {
        Ok(Ok(installed)) => installed,
        Ok(Err(RecvTimeoutError::Timeout)) => install(tables, Timing::Unheld),
        _ => false,
    }
}

/// Records from now on what is wanted. The runtime works also without us.
fn install(tables: Tables, timing: Timing) -> bool {
    let install = || tracer_hooks::install(tables, &sink::EVENTS, timing).is_ok();
    delivery::start() && contained(install).unwrap_or(false)
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
