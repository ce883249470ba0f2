//! The calls of HSA that a thread is in.

#![expect(unsafe_code, reason = "the thread's own memory")]

use core::cell::Cell;
use core::ptr;

use super::data::Data;

/// Whether the client's callback was called when a call began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Called {
    No,
    /// It has not returned: it is being called, or was left by an exception.
    Entered,
    Yes,
}

/// A call.
pub struct Open {
    /// In its stack frame: what lies below belongs to calls inside of it.
    at: usize,
    pub id: u64,
    pub called: Called,
    pub data: Data,
    /// The client's, from the begin to the end.
    pub phase_data: u64,
}

#[expect(clippy::vec_box, reason = "clients have pointers to calls, which stay where they are")]
#[derive(Default)]
struct Calls {
    /// Those from the depth on are for the next calls.
    calls: Vec<Box<Open>>,
    depth: usize,
}

thread_local! {
    /// The thread's. Without a destructor: a program calls HSA in destructors of its own, to a thread's very end.
    static CALLS: Cell<*mut Calls> = const { Cell::new(ptr::null_mut()) };
    /// Gives them back when the thread ends. What comes later stays.
    static AT_END: AtEnd = const { AtEnd };
}

struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        let calls = CALLS.get();
        // SAFETY: null, or the thread's own, which nobody else uses.
        let is_in_none = unsafe { calls.as_ref() }.is_some_and(|calls| calls.depth == 0);
        if is_in_none {
            CALLS.set(ptr::null_mut());
            // SAFETY: it was made from a box, and is no one's any more.
            drop(unsafe { Box::from_raw(calls) });
        }
    }
}

impl Calls {
    /// Forgets calls that were left by a jump: their frames are below this one.
    fn leave_below(&mut self, at: usize) {
        while self.depth.checked_sub(1).is_some_and(|last| self.calls[last].at < at) {
            self.depth -= 1;
        }
    }

    fn innermost(&mut self) -> Option<&mut Open> {
        self.calls.get_mut(self.depth.checked_sub(1)?).map(|call| &mut **call)
    }
}

/// The calling thread's. Nothing of others' is called while they are borrowed.
fn own<'a>() -> Option<&'a mut Calls> {
    // SAFETY: null, or the thread's own, which is not borrowed: nobody who has it comes here again.
    unsafe { CALLS.get().as_mut() }
}

/// A call begins, whose frame is there; false if there is no memory.
pub fn begin(at: usize, id: u64) -> bool {
    if CALLS.get().is_null() {
        CALLS.set(Box::into_raw(Box::default()));
        // A thread that is ending gives nothing back any more.
        let _ = AT_END.try_with(|_| ());
    }
    let Some(own) = own() else { return false };
    own.leave_below(at);
    if own.depth == own.calls.len() {
        if own.calls.try_reserve(1).is_err() {
            return false;
        }
        let (data, phase_data) = (Data::new(), 0);
        own.calls.push(Box::new(Open { at, id, called: Called::No, data, phase_data }));
    }
    own.depth += 1;
    if let Some(call) = own.innermost() {
        (call.at, call.id, call.called, call.phase_data) = (at, id, Called::No, 0);
    }
    true
}

/// The call whose frame is there.
pub fn find<'a>(at: usize) -> Option<&'a mut Open> {
    let own = own()?;
    own.leave_below(at);
    own.innermost().filter(|call| call.at == at)
}

/// It has ended.
pub fn end(at: usize) {
    if let Some(own) = own() {
        own.leave_below(at + 1);
    }
}

/// The correlation id of the innermost call that the thread is in; 0 if it is in none that is traced.
pub fn innermost_id() -> u64 {
    let here = 0u8;
    own().map_or(0, |own| {
        own.leave_below(ptr::from_ref(&here) as usize);
        own.innermost().map_or(0, |call| call.id)
    })
}
