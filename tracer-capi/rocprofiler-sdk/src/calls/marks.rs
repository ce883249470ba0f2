//! A call of roctx that is recorded.

use core::ffi::c_int;
use core::ptr;

use capi_sources::client_thread::{InCallback, next_id};
use roctracer::timestamp_ns;
use tracer_hooks::contained;

use super::callbacks::Callbacks;
use super::hip;
use super::operations::Operation;
use super::payload::Payload;
use super::record::Begun;

/// The number of libraries of this kind that are recorded in a process: each has ranges and ids of its own.
pub const LIBRARIES: usize = 4;

/// An argument or a result, as a word.
pub trait Word {
    fn word(&self) -> u64;
}

impl Word for () {
    fn word(&self) -> u64 {
        0
    }
}

impl Word for c_int {
    fn word(&self) -> u64 {
        self.cast_unsigned().into()
    }
}

impl Word for u64 {
    fn word(&self) -> u64 {
        *self
    }
}

impl<T> Word for *const T {
    fn word(&self) -> u64 {
        self.expose_provenance() as u64
    }
}

impl<T> Word for *mut T {
    fn word(&self) -> u64 {
        self.expose_provenance() as u64
    }
}

/// A call that somebody wants to have recorded, and its id. It ends when this is dropped, also by an exception.
pub struct Open {
    operation: Operation,
    begun: Option<(Begun, u64)>,
}

impl Open {
    /// It begins now.
    pub fn begin(operation: Operation) -> Self {
        let mut open = Self { operation, begun: None };
        contained(|| {
            let ancestor = hip::ancestor(ptr::from_ref(&open).addr());
            let begun = Begun::new(operation, ancestor, || None, timestamp_ns);
            open.begun = begun.map(|begun| (begun, next_id()));
        });
        open
    }

    /// Whether anybody wants it.
    pub fn is_recorded(&self) -> bool {
        self.begun.is_some()
    }

    /// Tools are told of its begin, with its arguments.
    pub fn enter(&self, words: &[u64]) {
        self.tell(|callbacks, id| {
            callbacks.enter(id, |payload| payload.set_words(self.operation, words, &[]));
        });
    }

    /// Tools are told of its end, with what `fill` adds.
    pub fn exit(&self, fill: impl FnOnce(&mut Payload, Operation)) {
        self.tell(|callbacks, id| {
            callbacks.exit(id, None, |payload| fill(payload, self.operation))
        });
    }

    /// Tools are told, unless the thread is in a callback.
    fn tell(&self, tell: impl FnOnce(&Callbacks, u64)) {
        if let Some((begun, id)) = &self.begun
            && let Some(callbacks) = &begun.callbacks
            && let Some(_inside) = InCallback::enter(ptr::from_ref(self).addr())
        {
            tell(callbacks, *id);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some((begun, id)) = &mut self.begun {
            let end_ns = timestamp_ns();
            contained(|| begun.end(*id, end_ns));
        }
    }
}

/// A call, which is recorded if somebody wants it.
pub fn record<R: Word>(operation: Operation, words: &[u64], call: impl FnOnce() -> R) -> R {
    let open = Open::begin(operation);
    open.enter(words);
    let result = call();
    open.exit(|payload, operation| payload.set_result(operation, result.word()));
    result
}
