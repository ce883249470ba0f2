//! Which packets of a queue are the calling thread's own.
//!
//! A thread that rings for a packet goes through those below it too, and some of these may be packets of
//! another thread that has not rung yet. The queue does not tell whose they are. But a thread that writes
//! packets reserves them before, by functions of the runtime, and our hooks note that here.

use core::cell::Cell;
use core::ops::{Range, RangeInclusive};

use crate::sink::Enqueuer;

thread_local! {
    static LAST: Cell<Reserved> = const { Cell::new(Reserved::NONE) };
}

/// Adjacent packets of a queue that a thread has reserved and not rung for yet.
#[derive(Clone, Copy)]
struct Reserved {
    queue: usize,
    /// The recording. Between two recordings nobody notes what the thread rings for.
    epoch: u32,
    first: u64,
    end: u64,
}

impl Reserved {
    const NONE: Self = Self { queue: 0, epoch: 0, first: 0, end: 0 };
}

/// The calling thread has reserved packets of the queue at an address, in the recording `epoch`.
#[inline]
pub fn note(queue: usize, packets: Range<u64>, epoch: u32) {
    let last = LAST.get();
    let follows = (last.queue, last.epoch, last.end) == (queue, epoch, packets.start);
    let first = if follows { last.first } else { packets.start };
    LAST.set(Reserved { queue, epoch, first, end: packets.end });
}

/// The packets that a thread has enqueued, and for the last of which it rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Own {
    first: u64,
    last: u64,
    /// The enqueuer of the other packets that the thread finds.
    pub others: Enqueuer,
}

impl Own {
    /// The calling thread rings for packet `last` of the queue at address `queue`, which has room for `room`
    /// packets. It rings for all that it has reserved in this recording up to that one.
    pub fn of(queue: usize, last: u64, room: usize, epoch: u32) -> Self {
        let reserved = LAST.get();
        let Reserved { first, end, .. } = reserved;
        if (reserved.queue, reserved.epoch) == (queue, epoch) && (first..end).contains(&last) {
            LAST.set(Reserved { first: last + 1, ..reserved });
            // The queue never holds more, whatever the program adds to the write index.
            let first = first.max(last.saturating_sub((room as u64).saturating_sub(1)));
            Self { first, last, others: Enqueuer::Other }
        } else {
            // The thread has reserved it by its own means, or before the recording.
            Self { first: last, last, others: Enqueuer::Unknown }
        }
    }

    /// Their indices.
    pub fn indices(&self) -> RangeInclusive<u64> {
        self.first..=self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_has_reserved_last_is_its_own() {
        const QUEUE: usize = 0x1000;
        let own = |first, last, others| Own { first, last, others };
        assert_eq!(Own::of(QUEUE, 3, 64, 1), own(3, 3, Enqueuer::Unknown));
        note(QUEUE, 3..5, 1);
        assert_eq!(Own::of(QUEUE + 64, 4, 64, 1), own(4, 4, Enqueuer::Unknown));
        assert_eq!(Own::of(QUEUE, 4, 64, 1), own(3, 4, Enqueuer::Other));
        assert_eq!(Own::of(QUEUE, 4, 64, 1), own(4, 4, Enqueuer::Unknown), "it was rung for");
        note(QUEUE, 5..6, 1);
        note(QUEUE, 6..8, 1);
        assert_eq!(Own::of(QUEUE, 5, 64, 1), own(5, 5, Enqueuer::Other));
        assert_eq!(Own::of(QUEUE, 7, 64, 1), own(6, 7, Enqueuer::Other));
        assert_eq!(Own::of(QUEUE, 8, 64, 1), own(8, 8, Enqueuer::Unknown));
        note(QUEUE, 8..1 << 40, 1);
        assert_eq!(
            Own::of(QUEUE, (1 << 40) - 2, 64, 1),
            own((1 << 40) - 65, (1 << 40) - 2, Enqueuer::Other)
        );
        assert_eq!(Own::of(QUEUE, (1 << 40) - 1, 64, 1).indices().count(), 1);
        // Another thread's are between.
        note(QUEUE, 9..10, 1);
        note(QUEUE, 11..12, 1);
        assert_eq!(Own::of(QUEUE, 11, 64, 1).indices(), 11..=11);
        // It has rung for the first two between two recordings.
        note(QUEUE, 20..22, 1);
        note(QUEUE, 22..23, 2);
        assert_eq!(Own::of(QUEUE, 22, 64, 2).indices(), 22..=22);
        note(QUEUE, 23..25, 2);
        assert_eq!(Own::of(QUEUE, 24, 64, 3), own(24, 24, Enqueuer::Unknown));
    }
}
