//! Calls of HSA.

use capi_sources::calls_of_threads;
use capi_sources::client_thread::next_id;
use capi_sources::hsa::Client;
use capi_sources::open::OfThreads;
use tracer_common::calls::{Call, Wanted};
use tracer_hooks::calls::CallSink;
use tracer_hooks::contained;

use super::operations::{OF_HSA, Operation};
use super::record::Begun;

/// Calls of HSA.
pub struct Calls;

const THREADS: OfThreads<Option<Begun>> = calls_of_threads!(Option<Begun>);

fn operation(slot: usize) -> Option<Operation> {
    OF_HSA.get(slot).copied().flatten()
}

impl Client for Calls {
    /// Of its arguments nothing. It is known by its place in the tables.
    fn wish(&self, slot: usize) -> Option<Wanted> {
        operation(slot).map(|_| Wanted { operation: slot as u16, ..Wanted::default() })
    }

    fn is_wanted(&self, slot: usize) -> bool {
        operation(slot).is_some_and(Operation::is_wanted)
    }
}

impl CallSink for Calls {
    fn begins(&self, call: &mut Call, at: usize) -> bool {
        let operation = operation(call.operation.into());
        let Some(begun) = operation.and_then(|of| Begun::new(of, || call.begin_ns)) else {
            return false;
        };
        call.correlation_id = next_id();
        THREADS.begin(at, call.correlation_id).map(|kept| *kept = Some(begun)).is_some()
    }

    fn ends(&self, _call: &Call, _at: usize) {}

    /// Here it may wait for room in a buffer.
    fn left(&self, call: &Call, at: usize) {
        contained(|| {
            let begun = THREADS.find(at).and_then(Option::take);
            THREADS.end(at);
            if let Some(begun) = begun {
                begun.end(call.correlation_id, call.end_ns);
            }
        });
    }
}

/// The innermost call that the thread is in, if it is in one: its id, and what is kept of it.
pub fn innermost<'a>() -> Option<(u64, Option<&'a mut Begun>)> {
    THREADS.innermost().map(|call| (call.id, call.kept.as_mut()))
}
