//! Calls that a thread is in, of those that pass through tables.

use capi_sources::calls_of_threads;
use capi_sources::open::OfThreads;

use super::operations::Operation;
use super::record::Begun;

/// None of one that is seen for something else that it tells of.
pub const THREADS: OfThreads<Option<Begun>> = calls_of_threads!(Option<Begun>);

/// Whether the thread is in a call of this function of HIP, of which the runtime tells now: once of each.
pub fn are_telling(operation: Operation) -> bool {
    let call = THREADS.innermost().and_then(|call| call.kept.as_mut());
    call.is_some_and(|begun| begun.is_told_by_the_runtime(operation))
}

/// Whether the thread is in a call of HSA's of which tools are told.
pub fn are_in_hsa() -> bool {
    let is_hsas = |begun: &Option<Begun>| begun.as_ref().is_some_and(Begun::is_of_hsa);
    THREADS.innermost_of(is_hsas).is_some()
}

/// The innermost call that the thread is in, if it is in one that is traced: its id, and what is kept of it.
pub fn innermost<'a>() -> Option<(u64, Option<&'a mut Begun>)> {
    let is_traced = |kept: &Option<Begun>| kept.as_ref().is_none_or(Begun::is_traced);
    THREADS.innermost_of(is_traced).map(|call| (call.id, call.kept.as_mut()))
}
