//! External correlation ids: numbers by which a program names regions of its own. The records of the calls that a
//! thread makes meanwhile come with the thread's innermost id.

use std::cell::RefCell;

use tracer_common::activity::{ActivityRecord, Domain, EXTERNAL_ID};

use crate::error::Error;

thread_local! {
    static IDS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Begins a region of the calling thread, inside of those that it has begun before.
///
/// # Errors
///
/// [`Error::NoMemory`], also for a thread that is ending, and in a handler of a signal that has interrupted this.
pub fn push(id: u64) -> Result<(), Error> {
    let pushed = IDS.try_with(|ids| {
        let mut ids = ids.try_borrow_mut().ok()?;
        ids.try_reserve(1).ok().map(|()| ids.push(id))
    });
    pushed.ok().flatten().ok_or(Error::NoMemory)
}

/// Ends the innermost region of the calling thread, and returns its id.
///
/// # Errors
///
/// [`Error::NoExternalId`] if there is none, and in a handler of a signal that has interrupted this.
pub fn pop() -> Result<u64, Error> {
    let popped = IDS.try_with(|ids| ids.try_borrow_mut().ok()?.pop());
    popped.ok().flatten().ok_or(Error::NoExternalId)
}

/// The record that comes right before the record of a call, if the calling thread has an external id.
pub fn record_before(call: &ActivityRecord) -> Option<ActivityRecord> {
    let id = IDS.try_with(|ids| ids.try_borrow().ok()?.last().copied()).ok().flatten()?;
    Some(ActivityRecord {
        domain: Domain::EXT_API,
        op: EXTERNAL_ID,
        correlation_id: call.correlation_id,
        // The id has 8 bytes, from where other records have process and thread.
        process_or_device: id as u32,
        thread_id: (id >> 32) as u32,
        ..ActivityRecord::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handler that has interrupted [`push`] finds the list borrowed.
    #[test]
    fn handlers_of_signals_have_no_ids() {
        push(7).expect("memory");
        IDS.with(|ids| {
            let _interrupted = ids.borrow_mut();
            assert_eq!(record_before(&ActivityRecord::default()), None);
            assert_eq!((push(8), pop()), (Err(Error::NoMemory), Err(Error::NoExternalId)));
        });
        assert_eq!(pop(), Ok(7));
    }

    #[test]
    fn ids_are_a_stack_of_the_threads_own() {
        assert_eq!(pop(), Err(Error::NoExternalId));
        push(7).expect("memory");
        push(0x1234_5678_9abc_def0).expect("memory");
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(pop(), Err(Error::NoExternalId)));
        });
        let call = ActivityRecord { correlation_id: 99, ..ActivityRecord::default() };
        let before = record_before(&call).expect("an id is there");
        assert_eq!((before.domain, before.op, before.correlation_id), (Domain::EXT_API, 1, 99));
        assert_eq!((before.process_or_device, before.thread_id), (0x9abc_def0, 0x1234_5678));
        assert_eq!(pop(), Ok(0x1234_5678_9abc_def0));
        assert_eq!(pop(), Ok(7));
        assert_eq!(pop(), Err(Error::NoExternalId));
        assert_eq!(record_before(&call), None);
    }
}
