//! Correlation ids for calls of HIP and of HSA, and whether a thread is in a callback.

#![expect(unsafe_code, reason = "the thread's own memory")]

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

/// Correlation ids that a thread takes at once, for its next calls.
const IDS: u64 = 1024;

/// The first id that no thread has taken; 0 is none. On a cache line of its own: others are read at every call.
static NEXT_IDS: CacheLine = CacheLine(AtomicU64::new(IDS));

#[repr(align(128))]
struct CacheLine(AtomicU64);

thread_local! {
    /// The calling thread's next id. A multiple of [`IDS`] means that the thread has none left. Atomic for handlers of
    /// signals, which run on the thread.
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
    /// The address of the frame from which the thread has called a callback of the client's; 0 if it is in none.
    /// Functions that the callback calls have frames below. Calls that the callback makes call no callback.
    static CALLED_FROM: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread, which has a frame at this address, is in a callback until this is dropped, also by an exception.
/// If a callback was left by a jump, the address of its frame shows that: it is below the frames in use.
pub struct InCallback {
    /// The thread's variable: it is looked up once, since the look-up takes longer than everything else.
    called_from: *const Cell<usize>,
}

impl InCallback {
    /// Whether the calling thread is in one.
    pub fn is_current() -> bool {
        let here = 0_u8;
        CALLED_FROM.get() > ptr::from_ref(&here) as usize
    }

    /// Enters a callback; none if the thread is in one already.
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
