//! The tables of the HSA runtime that is loaded, and work of GPUs as they tell of it.

use std::sync::Once;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use capi_common::hsa::LIBRARY;
use capi_common::loaded::Loaded;
use roctracer::thread;
use tracer_hooks::{InstallError, Tables, Timing, Unsupported, contained};

use super::client::Client;
use super::delivery::Gpu;

/// A runtime that is in use is held within this time, unless the machine is busy. One that takes longer is taken for one
/// that is being initialized, by the calling thread: this delays its begin.
const INITIALIZING: Duration = Duration::from_millis(20);

impl<C: Client> Gpu<C> {
    /// Records everything that is wanted from now on. Returns the runtime's tables, if they are patched. Where the
    /// runtime is not loaded, recording begins when this is called again, or when [the runtime
    /// begins](Self::runtime_begins).
    pub fn begin(&'static self) -> Option<Tables> {
        if !self.client.is_wanted() {
            return None;
        }
        let tables = tables()?
            .inspect_err(|&why| self.is_not_installed(InstallError::Unsupported(why)))
            .ok()?;
        (tracer_hooks::records(&tables) || self.install_live(tables)).then_some(tables)
    }

    /// The runtime initializes, and has these tables; whether they are patched. [`Timing::AtStart`] where it will tell that
    /// it ends, too.
    pub fn runtime_begins(&'static self, tables: Tables, timing: Timing) -> bool {
        self.client.is_wanted() && self.install(tables, timing)
    }

    /// Installs in a runtime that may be in use, and holds it meanwhile, on a thread of its own. The calling thread may
    /// be inside of `hsa_init`, in a tool that the runtime has loaded, and would wait for itself. In that case the
    /// tables are patched without holding the runtime, and the other thread finds it done.
    fn install_live(&'static self, tables: Tables) -> bool {
        let (done, installed) = mpsc::channel();
        let install = move || {
            let _ = done.send(self.install(tables, Timing::Live));
        };
        let started = self.client.creates_thread(|| thread::start_named(C::NAME, install));
        match started.map(|_| installed.recv_timeout(INITIALIZING)) {
            Ok(Ok(installed)) => installed,
            Ok(Err(RecvTimeoutError::Timeout)) => self.install(tables, Timing::Unheld),
            _ => false,
        }
    }

    /// Records everything that is wanted from now on. If this fails, the runtime works without us.
    fn install(&'static self, tables: Tables, timing: Timing) -> bool {
        let install = || tracer_hooks::install(tables, self, timing);
        match self.start().then(|| contained(install)).flatten() {
            Some(Err(why)) => {
                self.is_not_installed(why);
                false
            }
            installed => installed.is_some(),
        }
    }

    /// Tells once why nothing is recorded; where it could not be expected there is nothing to tell.
    fn is_not_installed(&self, why: InstallError) {
        static SAID: Once = Once::new();
        if !matches!(why, InstallError::Forked | InstallError::Ended) {
            SAID.call_once(|| self.client.is_not_installed(why));
        }
    }
}

/// The tables of the HSA runtime that is loaded.
#[expect(unsafe_code, reason = "addresses of the runtime's functions")]
fn tables() -> Option<Result<Tables, Unsupported>> {
    let runtime = Loaded::find(LIBRARY)?;
    let function = |name| runtime.function(name).map(|function| function as usize);
    let core = function(c"hsa_agent_get_info")?;
    let extension = function(c"hsa_amd_coherency_get_type")?;
    // SAFETY: these functions, of a library that stays loaded: it was opened.
    Some(unsafe { Tables::behind(core, extension) })
}

/// Runs when the process ends, after the destructors of everything else.
extern "C" fn at_end() {
    contained(tracer_hooks::finish);
}

#[used]
#[expect(unsafe_code, reason = "a place in the library")]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;
