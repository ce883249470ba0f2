//! The calls of HSA that a thread is in.

use core::cell::Cell;
use core::ptr;

use super::data::Data;
use capi_sources::open::{self, AtEnd, OfThreads};

/// Whether the client's callback was called when a call began.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub enum Called {
    #[default]
    No,
    /// It has not returned: it is being called, or was left by an exception.
    Entered,
    Yes,
}

/// What is kept of a call.
#[derive(Default)]
pub struct Kept {
    pub called: Called,
    pub data: Data,
    /// The client's, from the begin to the end.
    pub phase_data: u64,
}

thread_local! {
    static CALLS: Cell<*mut open::Calls<Kept>> = const { Cell::new(ptr::null_mut()) };
    static AT_END: AtEnd<Kept> = const { AtEnd(&CALLS) };
}

const THREADS: OfThreads<Kept> = OfThreads { place: &CALLS, at_end: &AT_END };

/// A call begins, whose frame is there; false if there is no memory.
pub fn begin(at: usize, id: u64) -> bool {
    let own = THREADS.own();
    own.leave_below(at);
    let call = own.begin(at, id);
    call.map(|call| (call.kept.called, call.kept.phase_data) = (Called::No, 0)).is_some()
}

/// The call whose frame is there.
pub fn find<'a>(at: usize) -> Option<&'a mut Kept> {
    let own = THREADS.known()?;
    own.leave_below(at);
    own.innermost().filter(|call| call.at == at).map(|call| &mut call.kept)
}

/// It has ended.
pub fn end(at: usize) {
    if let Some(own) = THREADS.known() {
        own.leave_below(at + 1);
    }
}

/// The correlation id of the innermost call that the thread is in; 0 if it is in none that is traced.
pub fn innermost_id() -> u64 {
    let here = 0u8;
    THREADS.known().map_or(0, |own| {
        own.leave_below(ptr::from_ref(&here) as usize);
        own.innermost_id()
    })
}
