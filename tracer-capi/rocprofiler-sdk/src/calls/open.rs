//! Calls that a thread is in, of those that pass through tables.

use capi_sources::calls_of_threads;
use capi_sources::open::OfThreads;
use rocprofiler::kinds::Kind;

use super::record::Begun;

/// Those that are recorded, or told of.
pub const THREADS: OfThreads<Option<Begun>> = calls_of_threads!(Option<Begun>);

/// Whether the thread is in a call of HIP's that is recorded.
pub fn is_in_hip() -> bool {
    is_in(&[Kind::HipRuntimeApi, Kind::HipCompilerApi])
}

/// Whether it is in one of HSA's.
pub fn is_in_hsa() -> bool {
    is_in(&[Kind::HsaCoreApi, Kind::HsaAmdExtApi, Kind::HsaImageExtApi])
}

fn is_in(kinds: &[Kind]) -> bool {
    let is_one =
        |begun: &Option<Begun>| begun.as_ref().is_some_and(|one| kinds.contains(&one.kind()));
    THREADS.innermost_of(is_one).is_some()
}

fn is_traced(kept: &Option<Begun>) -> bool {
    kept.as_ref().is_none_or(Begun::is_traced)
}

/// The innermost call that the thread is in, if it is in one that is traced: its id, and what is kept of it.
pub fn innermost<'a>() -> Option<(u64, Option<&'a mut Begun>)> {
    THREADS.innermost_of(is_traced).map(|call| (call.id, call.kept.as_mut()))
}

/// The id of the innermost around a frame of the thread's; 0 if there is none.
pub fn around(at: usize) -> u64 {
    THREADS.innermost_around(at, is_traced).map_or(0, |call| call.id)
}
