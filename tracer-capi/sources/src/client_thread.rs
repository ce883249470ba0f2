//! What calls of HIP and of HSA share: their ids, and whether a thread is in a callback.

#![expect(unsafe_code, reason = "the thread's own memory")]

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

/// Correlation ids that a thread takes at once, for its next calls.
const IDS: u64 = 1024;

/// The first id that no thread has taken; 0 is none. On a cache line of its own: others are read at every call.
static NEXT_IDS: Alone = Alone(AtomicU64::new(IDS));

#[repr(align(128))]
struct Alone(AtomicU64);

thread_local! {
    /// The calling thread's next id. A multiple of [`IDS`]: it has none any more. Atomic for handlers of signals, which
    /// run on it.
    static NEXT_ID: AtomicU64 = const { AtomicU64::new(0) };
}

/// A correlation id that no call has had.
pub fn next_id() -> u64 {
    // Ids need to be different, not ordered with anything else.
    const ORDER: Ordering = Ordering::Relaxed;
    NEXT_ID.with(|next| {
        let mut known = next.load(ORDER);
        loop {
            let is_over = known.is_multiple_of(IDS);
            let id = if is_over { NEXT_IDS.0.fetch_add(IDS, ORDER) + 1 } else { known };
            match next.compare_exchange(known, id + 1, ORDER, ORDER) {
                Ok(_) => return id,
                // A handler has taken some meanwhile.
                Err(now) => known = now,
            }
        }
    })
}

thread_local! {
    /// Where the frame is from which the thread has called a callback of the client's; 0 if it is in none. What a
    /// callback calls has frames below. Calls that it makes call none.
    static CALLED_FROM: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread, of which a frame is at an address, is in a callback until this is dropped, also by an exception.
/// A callback that was left by a jump is seen by its frame, which is below.
pub struct InCallback {
    /// The thread's: it is looked up once, which takes longer than all else.
    called_from: *const Cell<usize>,
}

impl InCallback {
    /// Whether the calling thread is in one.
    pub fn is_current() -> bool {
        let here = 0_u8;
        CALLED_FROM.get() > ptr::from_ref(&here) as usize
    }

    /// None if it is in one already.
    pub fn enter(at: usize) -> Option<Self> {
        CALLED_FROM.with(|called_from| {
            if called_from.get() > at {
                return None;
            }
            called_from.set(at);
            Some(Self { called_from })
        })
    }
}

impl Drop for InCallback {
    fn drop(&mut self) {
        // SAFETY: the thread's own, which it has to its very end: it has no destructor.
        unsafe { &*self.called_from }.set(0);
    }
}
