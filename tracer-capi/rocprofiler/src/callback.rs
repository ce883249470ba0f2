//! Callbacks: a tool is told of something on the thread that does it.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::kinds::Kind;

/// When a callback is called. The numbers are those of the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// It has no begin and no end.
    None = 0,
    /// A call begins, or something was loaded.
    Enter = 1,
    /// It has ended, or is unloaded.
    Exit = 2,
}

/// Correlation ids; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CorrelationIds {
    /// Of a call, and of the work that it enqueues.
    pub internal: u64,
    /// Of the call that it is made in.
    pub ancestor: u64,
}

/// The event of which a callback is told.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The thread that does it.
    pub thread: u64,
    /// The ids of its call.
    pub ids: CorrelationIds,
    /// That of the callback's context.
    pub external_id: u64,
    /// The kind of the event.
    pub kind: Kind,
    /// The operation, of those of the kind.
    pub operation: u32,
    /// The phase of the event.
    pub phase: Phase,
    /// A structure of the kind's; it is there until the callback returns.
    pub payload: *mut c_void,
}

/// Calls a tool's function with the event, and with the place where the tool may keep a number from the begin to the
/// end. It may throw.
pub type Callback = Box<dyn Fn(&Event, *mut u64) + Send + Sync>;

/// The event for which a tool is asked for an external correlation id.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The thread that does it.
    pub thread: u64,
    /// The kind of the event.
    pub kind: Kind,
    /// The operation, of those of the kind.
    pub operation: u32,
    /// Its correlation id.
    pub correlation_id: u64,
}

/// Asks a tool. None: the pushed id counts. It may throw.
pub type ExternalIdRequest = Box<dyn Fn(&Request) -> Option<u64> + Send + Sync>;

/// The time between two looks of a thread that waits for callbacks.
const LOOK: Duration = Duration::from_millis(1);

/// Functions of a tool that others call: the number that have not returned, and whether they may be called.
#[derive(Default, Debug)]
pub struct Calls {
    under_way: AtomicUsize,
    is_silent: AtomicBool,
}

/// One is called, until this is dropped.
#[derive(Debug)]
pub struct Calling<'a>(&'a Calls);

thread_local! {
    /// The number of such functions that the calling thread is in.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

impl Calls {
    /// A function is about to be called; none if the tool is silent.
    #[inline]
    pub fn begin(&self) -> Option<Calling<'_>> {
        // Both are SeqCst, as those below: either the thread that waits sees this call, or this thread sees that the
        // tool is silent.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        INSIDE.set(INSIDE.get() + 1);
        let calling = Calling(self);
        (!self.is_silent.load(Ordering::SeqCst)).then_some(calling)
    }

    /// Whether the tool is called no more.
    pub fn are_over(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// The tool is called no more.
    pub fn silence(&self) {
        self.is_silent.store(true, Ordering::SeqCst);
    }

    /// Waits until all have returned, or until a time. Returns whether they have. A thread that is in such a function
    /// waits for none, and gets true.
    pub fn wait(&self, until: Instant) -> bool {
        let is_over = || INSIDE.get() > 0 || self.under_way.load(Ordering::SeqCst) == 0;
        while !is_over() && Instant::now() < until {
            sleep(LOOK);
        }
        is_over()
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        INSIDE.set(INSIDE.get() - 1);
        // The thread that waits sees what the function did.
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_silent_tool_is_called_no_more_and_its_callbacks_are_waited_for() {
        let calls = Calls::default();
        let calling = calls.begin().expect("a tool");
        // It does not wait for itself.
        assert!(calls.wait(Instant::now() + Duration::from_secs(600)));
        thread::scope(|scope| {
            let is_over = || calls.wait(Instant::now() + LOOK);
            assert!(!scope.spawn(is_over).join().expect("it ends"));
        });
        calls.silence();
        assert!(calls.are_over() && calls.begin().is_none());
        drop(calling);
        thread::scope(|scope| {
            let is_over = || calls.wait(Instant::now() + Duration::from_secs(600));
            assert!(scope.spawn(is_over).join().expect("it ends"));
        });
    }
}
