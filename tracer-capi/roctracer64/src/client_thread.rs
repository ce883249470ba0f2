//! What calls of HIP and of HSA share: their ids, and whether a thread is in a callback.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

/// The correlation id of the next call; 0 is none.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A correlation id that no call has had.
pub fn next_id() -> u64 {
    // Ids need to be different, not ordered with anything else.
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

thread_local! {
    /// Where the frame is from which the thread has called a callback of the client's; 0 if it is in none. What a
    /// callback calls has frames below. Calls that it makes call none.
    static CALLED_FROM: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread, of which a frame is at an address, is in a callback until this is dropped, also by an exception.
/// A callback that was left by a jump is seen by its frame, which is below.
pub struct InCallback(());

impl InCallback {
    /// None if it is in one already.
    pub fn enter(at: usize) -> Option<Self> {
        if CALLED_FROM.get() > at {
            return None;
        }
        CALLED_FROM.set(at);
        Some(Self(()))
    }
}

impl Drop for InCallback {
    fn drop(&mut self) {
        CALLED_FROM.set(0);
    }
}
