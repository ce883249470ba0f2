//! The clocks. All times are of CLOCK_BOOTTIME; the trace has the offsets to other clocks.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tracer_common::waited::Waited;

use tracer_records::model::ClockOffsets;

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // These clocks are never negative.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Now, ns of CLOCK_BOOTTIME.
pub fn now_ns() -> u64 {
    read_ns(ClockId::Boottime)
}

/// The time for which this thread has been on a CPU, ns.
pub fn on_cpu_ns() -> u64 {
    read_ns(ClockId::ThreadCPUTime)
}

/// A wait with a longest time, during which the waiting thread looks again and again; see [`Waited`].
#[derive(Debug)]
pub struct Patience {
    waited: Waited,
    longest: Duration,
}

impl Patience {
    /// Begins to wait.
    pub fn of(longest: Duration) -> Self {
        Self { waited: Waited::since(now_ns()), longest }
    }

    /// Looks at the clock.
    pub fn has_ended(&mut self) -> bool {
        self.so_far() > self.longest
    }

    /// Looks at the clock, and returns the time of the wait so far.
    pub fn so_far(&mut self) -> Duration {
        Duration::from_nanos(self.waited.look(now_ns()))
    }
}

/// The clocks now. They are read one after the other, so they are off by up to a few hundred ns.
pub fn offsets() -> ClockOffsets {
    ClockOffsets {
        boottime_ns: now_ns(),
        monotonic_ns: read_ns(ClockId::Monotonic),
        realtime_ns: read_ns(ClockId::Realtime),
    }
}
