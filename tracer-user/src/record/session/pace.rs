//! When processes are looked through: often, and never for long at a time.

use std::time::{Duration, Instant};

/// How often maps are looked through for libraries that came late.
pub const SCAN_INTERVAL: Duration = Duration::from_millis(100);

/// How far a scan came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// To everybody.
    Whole,
    /// The time for it was over before.
    Part,
}

/// When the next scan is due.
pub struct Pace {
    next: Instant,
}

impl Pace {
    /// The first is due now.
    pub fn new() -> Self {
        Self { next: Instant::now() }
    }

    /// Whether it is.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// A scan that began at `began` ended at `ended`. What it did not come to waits no longer than the scan
    /// took: as much time is for everything else.
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
