//! The clocks. Everything is CLOCK_BOOTTIME; the offsets to other clocks are kept in the trace.

use rustix::time::{ClockId, clock_gettime};

use crate::trace::model::ClockOffsets;

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // These clocks are never negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Now, ns of CLOCK_BOOTTIME.
pub fn now_ns() -> u64 {
    read_ns(ClockId::Boottime)
}

/// The clocks now. Read one behind the other, so they are off by up to a few hundred ns.
pub fn offsets() -> ClockOffsets {
    ClockOffsets {
        boottime_ns: now_ns(),
        monotonic_ns: read_ns(ClockId::Monotonic),
        realtime_ns: read_ns(ClockId::Realtime),
    }
}
