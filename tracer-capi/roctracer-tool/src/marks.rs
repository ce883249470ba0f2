//! Marks and ranges of before the runtime's begin: there is no plugin yet that could take them.

#![expect(unsafe_code, reason = "a string of the program's")]

use core::ffi::{CStr, c_char};
use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::{mem, process, thread};

/// Marks that are kept. Programs make few before they use a GPU.
const MOST: usize = 1 << 16;

/// `roctx_api_data_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Data {
    message: *const c_char,
    id: u64,
}

/// A mark.
pub struct Mark {
    /// The function of roctx.
    pub op: u32,
    /// The time, ns of CLOCK_BOOTTIME.
    pub time_ns: u64,
    /// The thread.
    pub thread_id: u32,
    message: Option<CString>,
    id: u64,
}

impl Mark {
    /// Its data, as the program made it.
    pub fn data(&self) -> Data {
        let message = self.message.as_ref().map_or(core::ptr::null(), |text| text.as_ptr());
        Data { message, id: self.id }
    }
}

/// The marks that wait.
struct Waiting {
    /// The process of the marks: a forked child has those of its parent.
    process_id: u32,
    marks: Vec<Mark>,
}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting { process_id: 0, marks: Vec::new() });
/// The number of marks that are not kept: there are too many, or another thread had the lock, which a forked child may
/// not have.
static MISSING: AtomicU64 = AtomicU64::new(0);

/// The marks of this process, unless another thread has the lock.
fn waiting() -> Option<MutexGuard<'static, Waiting>> {
    let mut waiting = match WAITING.try_lock() {
        Ok(waiting) => waiting,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    if waiting.process_id != process::id() {
        *waiting = Waiting { process_id: process::id(), marks: Vec::new() };
    }
    Some(waiting)
}

/// As [`waiting`], but waits a little for the lock: many threads may want it.
fn waiting_soon() -> Option<MutexGuard<'static, Waiting>> {
    /// The number of tries.
    const TRIES: u32 = 1000;
    (0..TRIES).find_map(|_| {
        waiting().or_else(|| {
            thread::yield_now();
            None
        })
    })
}

/// Keeps a mark for later.
///
/// # Safety
///
/// The message is null or a string.
pub unsafe fn keep(op: u32, time_ns: u64, thread_id: u32, data: Data) {
    let Some(mut waiting) = waiting_soon().filter(|waiting| waiting.marks.len() < MOST) else {
        MISSING.fetch_add(1, Ordering::Relaxed);
        return;
    };
    // SAFETY: as the caller promises.
    let message = unsafe { (!data.message.is_null()).then(|| CStr::from_ptr(data.message)) };
    let message = message.map(CStr::to_owned);
    waiting.marks.push(Mark { op, time_ns, thread_id, message, id: data.id });
}

/// Takes the marks that wait, and the number of missing ones.
pub fn take() -> (Vec<Mark>, u64) {
    let marks = waiting_soon().map(|mut waiting| mem::take(&mut waiting.marks));
    (marks.unwrap_or_default(), MISSING.swap(0, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_wait_and_more_are_counted() {
        let text = c"begin";
        let data = Data { message: text.as_ptr(), id: 3 };
        for time_ns in 0..MOST as u64 + 5 {
            // SAFETY: a string.
            unsafe { keep(1, time_ns, 7, data) };
        }
        let (marks, too_many) = take();
        assert_eq!((marks.len(), too_many), (MOST, 5));
        let (last, data) = (&marks[MOST - 1], marks[MOST - 1].data());
        assert_eq!((last.op, last.time_ns, last.thread_id), (1, MOST as u64 - 1, 7));
        // SAFETY: the mark's string.
        assert_eq!((unsafe { CStr::from_ptr(data.message) }, data.id), (text, 3));
        assert!(take().0.is_empty());
    }
}
