//! Ranges of roctx, from their begin to their end (`MARKER_CORE_RANGE_API`, since 1.0): a push and its pop are one operation
//! with one id, and so are a start and its stop, whichever threads these are on.

#![expect(unsafe_code, reason = "a range goes to another thread")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::mem;

use capi_common::memory;
use rocprofiler::kinds::Kind;
use tracer_hooks::lock::Lock;

use super::marks::{LIBRARIES, Open, Word, record};
use super::operations::Operation;
use crate::{SDK, process};

const KIND: Kind = Kind::MarkerCoreRangeApi;
/// The time that a thread waits for another one that starts a range or stops one.
const WAIT_NS: u64 = 1_000_000_000;

/// Operations of the kind.
mod operation {
    pub const MARK: u32 = 0;
    pub const OF_THREAD: u32 = 1;
    pub const OF_PROCESS: u32 = 2;
    pub const THREAD_ID: u32 = 3;
}

/// Functions of roctx, by their places in its first table.
mod place {
    pub const MARK: u32 = 0;
    pub const PUSH: u32 = 1;
    pub const POP: u32 = 2;
    pub const START: u32 = 3;
    pub const STOP: u32 = 4;
    pub const THREAD_ID: u32 = 5;
}

/// A range that has begun.
struct Range {
    open: Open,
    /// A copy: the message that it was begun with may be gone at its end.
    message: Option<CString>,
}

// SAFETY: nobody else has any part of it.
unsafe impl Send for Range {}

impl Range {
    /// Tools are told, which may throw. None if no service wants it.
    fn begin(number: u32, message: u64) -> Option<Self> {
        let open = Open::begin(Operation { kind: KIND, number });
        if !open.is_recorded() {
            return None;
        }
        open.enter(&[message]);
        let message = memory::string(message).and_then(|text| CString::new(text).ok());
        Some(Self { open, message })
    }

    fn end(self) {
        let message = self.message.as_ref();
        let message = message.map_or(0, |text| text.as_ptr().expose_provenance() as u64);
        self.open.exit(|payload, operation| payload.set_words(operation, &[message], &[]));
    }
}

/// The ranges that a thread has pushed, of each library; none for a range that no service wants.
#[derive(Default)]
struct PushedRanges([Vec<Option<Range>>; LIBRARIES]);

impl Drop for PushedRanges {
    /// Ranges that are open when their thread ends have no end.
    fn drop(&mut self) {
        self.0.iter_mut().flat_map(|ranges| ranges.drain(..)).for_each(mem::forget);
    }
}

thread_local! {
    static PUSHED: RefCell<PushedRanges> = RefCell::default();
}

/// The ranges that were started, by their library and the id that the library has given them.
static STARTED: Lock<BTreeMap<(usize, u64), Range>> = Lock::new(BTreeMap::new());

/// Calls `change` with the calling thread's ranges; none at the thread's end.
fn of_thread<R>(library: usize, change: impl FnOnce(&mut Vec<Option<Range>>) -> R) -> Option<R> {
    let changed = PUSHED.try_with(|pushed| {
        pushed.try_borrow_mut().ok().and_then(|mut pushed| pushed.0.get_mut(library).map(change))
    });
    changed.ok().flatten()
}

/// Calls a function of a library's first table, which may begin a range or end one.
pub fn around<R: Word>(library: usize, place: u32, words: &[u64], call: impl FnOnce() -> R) -> R {
    // A forked child has none of the threads, and may find locks taken for ever.
    if !SDK.has_services(KIND) || process::is_forked() {
        return call();
    }
    let first = words.first().copied().unwrap_or(0);
    let whole = |number, call| record(Operation { kind: KIND, number }, words, call);
    match place {
        place::MARK => whole(operation::MARK, call),
        place::THREAD_ID => whole(operation::THREAD_ID, call),
        place::PUSH => {
            let range = Range::begin(operation::OF_THREAD, first);
            let depth = call();
            of_thread(library, |pushed| pushed.push(range));
            depth
        }
        place::START => {
            let range = Range::begin(operation::OF_PROCESS, first);
            let id = call();
            if let Some(range) = range
                && let Some(mut started) = STARTED.lock_for(WAIT_NS)
            {
                started.insert((library, id.word()), range);
            }
            id
        }
        place::POP => {
            let depth = call();
            if let Some(range) = of_thread(library, Vec::pop).flatten().flatten() {
                range.end();
            }
            depth
        }
        place::STOP => {
            let stopped = call();
            let range = STARTED.lock_for(WAIT_NS).and_then(|mut all| all.remove(&(library, first)));
            if let Some(range) = range {
                range.end();
            }
            stopped
        }
        _ => call(),
    }
}
