//! When the calls began that a thread is in. HIP's data of a call has no place for it before ROCm 5.3.1.
//!
//! Without a destructor: programs call HIP and HSA to a thread's very end.

use std::cell::Cell;

/// Calls inside of calls, at most. Those that were left by an exception or a jump stay until the place is
/// needed.
const MOST: usize = 32;

thread_local! {
    static BEGINS: Begins = const { Begins { next: Cell::new(0), calls: [const { Cell::new((0, 0)) }; MOST] } };
}

struct Begins {
    next: Cell<usize>,
    /// Correlation id, and when it began.
    calls: [Cell<(u64, u64)>; MOST],
}

/// A call begins.
pub fn begin(correlation_id: u64, begin_ns: u64) {
    BEGINS.with(|begins| {
        let next = begins.next.get();
        if let Some(place) = begins.calls.get(next % MOST) {
            place.set((correlation_id, begin_ns));
        }
        begins.next.set(next + 1);
    });
}

/// When a call began that has ended; none if that is not known any more.
pub fn end(correlation_id: u64) -> Option<u64> {
    BEGINS.with(|begins| {
        let next = begins.next.get();
        let kept = (next.saturating_sub(MOST)..next).rev();
        for at in kept {
            if let Some((id, begin_ns)) = begins.calls.get(at % MOST).map(Cell::get)
                && id == correlation_id
            {
                begins.next.set(at);
                return Some(begin_ns);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_end_where_they_began() {
        begin(1, 10);
        begin(2, 20);
        assert_eq!((end(2), end(1), end(1)), (Some(20), Some(10), None));
        // One that was left.
        begin(3, 30);
        begin(4, 40);
        assert_eq!((end(3), end(4)), (Some(30), None));
        for left in 10..10 + 100 {
            begin(left, left);
        }
        begin(5, 50);
        assert_eq!((end(5), end(109), end(10)), (Some(50), Some(109), None));
    }
}
