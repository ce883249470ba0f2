//! The times at which processes are looked through: often, and never for long at a time.

use std::time::{Duration, Instant};

/// The interval in which mappings are looked through for libraries that came late.
pub const SCAN_INTERVAL: Duration = Duration::from_millis(100);

/// The part of the processes that a scan got through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// All processes.
    Whole,
    /// Not all: the time for the scan was over before.
    Part,
}

/// The time at which the next scan is due.
pub struct Pace {
    next: Instant,
}

impl Pace {
    /// The first scan is due now.
    pub fn new() -> Self {
        Self { next: Instant::now() }
    }

    /// Whether a scan is due.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// A scan that began at `began` ended at `ended`. The processes that it did not get to wait no longer than the
    /// scan took: as much time is left for everything else.
    pub fn scanned(&mut self, began: Instant, ended: Instant, scan: Scan) {
        let next = match scan {
            Scan::Whole => began + SCAN_INTERVAL,
            Scan::Part => began,
        };
        self.next = next.max(ended + (ended - began));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scan_did_not_come_to_follows_soon() {
        let (began, took) = (Instant::now(), Duration::from_millis(20));
        let mut pace = Pace::new();
        pace.scanned(began, began + took, Scan::Whole);
        assert!(!pace.is_due(began + 2 * took) && pace.is_due(began + SCAN_INTERVAL));
        pace.scanned(began, began + took, Scan::Part);
        assert!(!pace.is_due(began + took) && pace.is_due(began + 2 * took));
        pace.scanned(began, began + 10 * took, Scan::Whole);
        assert!(!pace.is_due(began + 10 * took) && pace.is_due(began + 20 * took));
    }
}
