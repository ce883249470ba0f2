//! The HIP runtime of the process, and the way in which it reports calls.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use roctracer::error::Error;
use roctracer::tracer::Wanted;
use tracer_hooks::lock::Lock;

use super::by_operation::ByOperation;
use super::client::Client;
use super::one_function::OneFunction;
use super::protocol::Protocol;
use capi_common::hip::{Functions, LIBRARY, MOST_FUNCTIONS};
use capi_common::loaded::Loaded;

/// The runtime that was found, or the error for one of a release that is not known.
static RUNTIME: OnceLock<Result<Box<dyn Protocol>, Error>> = OnceLock::new();
/// The lock of the thread that changes which calls the runtime reports.
static TELLING: Lock<()> = Lock::new(());
/// The time that one thread waits for another one that does so. A thread that never comes back is waited for once.
const WAIT_NS: u64 = 1_000_000_000;
/// The runtime reports nothing any more.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// Looks for the runtime that is loaded, unless one was found; whether there is one. It stays loaded from then on.
///
/// # Errors
///
/// If it is of a release that is not known.
pub fn look<C: Client>() -> Result<bool, Error> {
    if RUNTIME.get().is_none()
        && let Some(library) = Loaded::find(LIBRARY)
    {
        Functions::find();
        let found = protocol::<C>(&library).ok_or_else(|| Error::UnknownRuntime {
            library: library.path().to_string_lossy().into_owned(),
            latest: "ROCm 7.2",
        });
        let _ = RUNTIME.set(found);
    }
    RUNTIME.get().map_or(Ok(false), |found| found.as_ref().map(|_| true).map_err(Clone::clone))
}

/// The wanted parts of an operation have changed, or were asked for again. One thread at a time. Does nothing before a
/// runtime was found, nor after [`silence`].
pub fn follow(op: u32, wanted: Wanted) {
    let _telling = TELLING.lock_or_lose(WAIT_NS);
    if let Some(Ok(runtime)) = RUNTIME.get()
        && !is_silent()
    {
        runtime.follow(op, wanted);
    }
}

/// The runtime, which has tables, reports no calls any more when this returns: they pass through the tables.
pub fn silence() {
    const NOTHING: Wanted = Wanted { callback: false, activity: false };
    let _telling = TELLING.lock_or_lose(WAIT_NS);
    if let Some(Ok(runtime)) = RUNTIME.get() {
        (0..MOST_FUNCTIONS).for_each(|op| runtime.follow(op, NOTHING));
    }
    IS_SILENT.store(true, Ordering::Relaxed);
}

/// Whether [`silence`] was called.
#[inline]
pub fn is_silent() -> bool {
    IS_SILENT.load(Ordering::Relaxed)
}

/// Whether [`follow`] may wait for calls to end.
pub fn waits() -> bool {
    matches!(RUNTIME.get(), Some(Ok(runtime)) if runtime.waits())
}

/// Whether it has dispatch tables, through which its calls pass.
pub fn has_tables() -> bool {
    matches!(RUNTIME.get(), Some(Ok(runtime)) if runtime.has_tables())
}

fn protocol<C: Client>(library: &Loaded) -> Option<Box<dyn Protocol>> {
    Some(match ByOperation::of::<C>(library) {
        Some(found) => Box::new(found),
        None => Box::new(OneFunction::of::<C>(library)?),
    })
}
