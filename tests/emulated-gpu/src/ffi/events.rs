//! Events: the C side of `crate::events`.
#![allow(unsafe_code, reason = "exported C functions that follow the caller's pointers")]
#![allow(non_snake_case, reason = "names of the C interface")]

use super::found;
use super::types::{Event, EventDescriptor, Status};
use emulated_gpu_core::events::{Awaited, Waited, Want};
use emulated_gpu_core::platform::platform;

/// No wait takes longer. Two threads that sleep on one auto-reset event can take a wake-up from each
/// other: ROCr 5.2.3 shares one event among the internal signals of all queues, and loses a wake-up
/// when a thread is preempted between its last look at a signal and its sleep (later drivers count an
/// event's age for that reason). It looks at its signals after every wait, however that ended.
const LONGEST_WAIT_MS: u32 = 20;

impl From<Waited> for Status {
    fn from(w: Waited) -> Status {
        match w {
            Waited::Signalled => Status::SUCCESS,
            Waited::TimedOut => Status::WAIT_TIMEOUT,
            Waited::BadEvent => Status::INVALID_HANDLE,
        }
    }
}

/// # Safety
/// `descriptor` can be read, and `out` written.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtCreateEvent(
    descriptor: *const EventDescriptor,
    manual_reset: bool,
    signalled: bool,
    out: *mut *mut Event,
) -> Status {
    // SAFETY: the caller passes a descriptor to read.
    let EventDescriptor { event_type, sync_var: [a, b, c, d], .. } = unsafe { descriptor.read() };
    let Some((id, mailbox)) = platform().events.create(manual_reset, signalled) else {
        return Status::NO_MEMORY;
    };
    let data = [a, b, c, d, 0];
    let event = Event { id, event_type, data, hw_data1: u64::from(id), mailbox, hw_data3: 0 };
    // SAFETY: the caller passes a pointer to fill, and gives the event back to hsaKmtDestroyEvent.
    unsafe { out.write(Box::into_raw(Box::new(event))) };
    Status::SUCCESS
}

/// The id of an event of ours; 0, which is none, for a null pointer.
///
/// # Safety
/// `event` is null or came from `hsaKmtCreateEvent` and was not destroyed.
unsafe fn id_of(event: *const Event) -> u32 {
    // SAFETY: as this function requires.
    if event.is_null() { 0 } else { unsafe { (*event).id } }
}

/// # Safety
/// `event` is null or came from [`hsaKmtCreateEvent`] and was not destroyed; it is not used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtDestroyEvent(event: *mut Event) -> Status {
    // SAFETY: the caller passes an event of ours and does not use it again.
    let known = platform().events.destroy(unsafe { id_of(event) });
    if known {
        // SAFETY: as above; the table knew it, so it is not freed twice.
        drop(unsafe { Box::from_raw(event) });
    }
    found(known)
}

/// # Safety
/// `event` is null or came from [`hsaKmtCreateEvent`] and was not destroyed.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtSetEvent(event: *const Event) -> Status {
    // SAFETY: the caller passes an event of ours.
    platform().events.raise(unsafe { id_of(event) });
    Status::SUCCESS
}

/// # Safety
/// `event` is null or came from [`hsaKmtCreateEvent`] and was not destroyed.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtWaitOnEvent(event: *const Event, timeout_ms: u32) -> Status {
    // SAFETY: the caller passes an event of ours.
    let id = unsafe { id_of(event) };
    platform().events.wait(&mut [id.into()], Want::Any, timeout_ms.min(LONGEST_WAIT_MS)).into()
}

/// # Safety
/// `events` has `count` elements, each null or from [`hsaKmtCreateEvent`] and not destroyed.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtWaitOnMultipleEvents(
    events: *const *const Event,
    count: u32,
    all: bool,
    timeout_ms: u32,
) -> Status {
    // SAFETY: the caller passes that many events of ours.
    let id = |i| unsafe { id_of(*events.add(i)) };
    let mut awaited: Vec<Awaited> = (0..count as usize).map(|i| id(i).into()).collect();
    let want = if all { Want::All } else { Want::Any };
    platform().events.wait(&mut awaited, want, timeout_ms.min(LONGEST_WAIT_MS)).into()
}
