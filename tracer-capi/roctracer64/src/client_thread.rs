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
    /// The thread is in a callback of the client's: calls that this makes call none.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is in a callback of the client's.
pub fn is_in_callback() -> bool {
    IN_CALLBACK.get()
}

/// The calling thread is in a callback until this is dropped, also by an exception.
pub struct InCallback(());

impl InCallback {
    /// None if it is in one already.
    pub fn enter() -> Option<Self> {
        (!IN_CALLBACK.replace(true)).then_some(Self(()))
    }
}

impl Drop for InCallback {
    fn drop(&mut self) {
        IN_CALLBACK.set(false);
    }
}
