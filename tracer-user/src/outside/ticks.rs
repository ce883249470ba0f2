//! The clock of a GPU, as seen from outside: from ticks to nanoseconds of CLOCK_BOOTTIME.
//!
//! Only the process's own runtime reads both clocks together. What is seen from outside are bounds: a
//! packet starts after its doorbell rang, and has ended when its end can be read. As a line over ticks,
//! the true time lies above all points (start, doorbell), and touches them nearly where a packet found
//! its GPU idle. The line that is sought is that edge of their upper convex hull that spans the middle:
//! the estimate of clock skew from one-way delays (Zhang, Liu, Xia: Clock Synchronization Algorithms for
//! Network Measurements, INFOCOM 2002). The ends bound its error from the other side.

use std::collections::VecDeque;

/// The clocks drift against each other: older points count no more.
const WINDOW_NS: u64 = 30_000_000_000;
/// A line over less than this is not to be trusted while there is time to wait.
const READY_NS: u64 = 1_000_000_000;
/// A line over less than this is no line.
const LEAST_NS: u64 = 20_000_000;
/// No clock shows more; products of two times fit into 128 bits.
const LATEST: u64 = 1 << 62;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Point {
    ticks: u64,
    ns: u64,
}

/// What is known of a GPU's clock.
#[derive(Default)]
pub struct Ticks {
    /// Upper hull of (start, doorbell), by ticks.
    hull: VecDeque<Point>,
    /// How late a converted time can be too early by at most, as far as is known.
    error_ns: Option<u64>,
}

impl Ticks {
    /// A packet started at `ticks`, and not before `ns`.
    pub fn started(&mut self, ticks: u64, ns: u64) {
        if ticks.max(ns) > LATEST {
            return;
        }
        let point = Point { ticks, ns };
        let at = self.hull.partition_point(|p| p.ticks < ticks);
        match self.hull.get(at) {
            Some(same) if same.ticks == ticks && same.ns >= ns => return,
            Some(same) if same.ticks == ticks => self.hull[at] = point,
            _ => self.hull.insert(at, point),
        }
        if self.is_below(at) {
            self.hull.remove(at);
            return;
        }
        while self.is_below(at + 1) {
            self.hull.remove(at + 1);
        }
        let mut at = at;
        while at > 0 && self.is_below(at - 1) {
            self.hull.remove(at - 1);
            at -= 1;
        }
        while self.hull.len() > 2 && self.span_ns() > WINDOW_NS {
            self.hull.pop_front();
        }
    }

    /// A packet had ended at `ticks` when it was `ns`.
    pub fn ended(&mut self, ticks: u64, ns: u64) {
        if let Some(end_ns) = self.to_ns(ticks) {
            let late = ns.saturating_sub(end_ns);
            self.error_ns = Some(self.error_ns.map_or(late, |known| known.min(late)));
        }
    }

    /// Whether there is enough to convert by.
    pub fn is_ready(&self) -> bool {
        self.span_ns() >= READY_NS
    }

    /// By how much converted times can be too early; none while that is not known.
    pub fn error_ns(&self) -> Option<u64> {
        self.error_ns
    }

    /// The time of `ticks`; none when too little is known.
    pub fn to_ns(&self, ticks: u64) -> Option<u64> {
        if self.span_ns() < LEAST_NS || ticks > LATEST {
            return None;
        }
        let (first, last) = (self.hull.front()?, self.hull.back()?);
        let middle = first.ticks + (last.ticks - first.ticks) / 2;
        let right = self.hull.partition_point(|p| p.ticks <= middle).max(1);
        let (a, b) = (self.hull.get(right - 1)?, self.hull.get(right)?);
        let along = i128::from(ticks) - i128::from(a.ticks);
        let rise = i128::from(b.ns) - i128::from(a.ns);
        let ns = i128::from(a.ns) + along * rise / i128::from(b.ticks - a.ticks);
        u64::try_from(ns).ok()
    }

    fn span_ns(&self) -> u64 {
        match (self.hull.front(), self.hull.back()) {
            (Some(first), Some(last)) => last.ns.saturating_sub(first.ns),
            _ => 0,
        }
    }

    /// Whether a point lies on or below the line between those around it.
    fn is_below(&self, at: usize) -> bool {
        let around = at.checked_sub(1).and_then(|before| {
            Some((self.hull.get(before)?, self.hull.get(at)?, self.hull.get(at + 1)?))
        });
        let Some((a, b, c)) = around else { return false };
        let wide = |to: &Point| {
            (i128::from(to.ticks) - i128::from(a.ticks), i128::from(to.ns) - i128::from(a.ns))
        };
        let ((bx, by), (cx, cy)) = (wide(b), wide(c));
        cx * by <= cy * bx
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A GPU of 100 MHz whose clock began at some other time, and is 40 ppm fast.
    fn truth(ticks: u64) -> u64 {
        7_000_000_000_000 + (ticks - 500_000_000) * 10_000_400 / 1_000_000
    }

    proptest! {
        /// Whatever the delays, one packet in fifty finds the GPU idle.
        #[test]
        fn delayed_starts_give_the_clock(
            delays in prop::collection::vec(0u64..3_000_000, 200..400),
            shuffle in any::<u64>(),
        ) {
            let mut clock = Ticks::default();
            let mut samples: Vec<(u64, u64)> = Vec::new();
            for (nth, &delay) in delays.iter().enumerate() {
                let ticks = 500_000_000 + nth as u64 * 1_000_000;
                let delay = if nth % 50 == 0 { 2_000 } else { 2_000 + delay };
                samples.push((ticks, truth(ticks) - delay));
            }
            let count = samples.len();
            samples.swap(0, shuffle as usize % count);
            samples.iter().for_each(|&(ticks, ns)| clock.started(ticks, ns));
            prop_assert!(clock.is_ready());
            for &(ticks, _) in &samples {
                let ns = clock.to_ns(ticks).expect("ready");
                prop_assert!(truth(ticks).abs_diff(ns) < 4_000, "{} {}", truth(ticks), ns);
            }
            let end = 500_000_000 + count as u64 * 1_000_000;
            clock.ended(end, truth(end) + 5_000);
            prop_assert!(clock.error_ns().is_some_and(|error| (5_000..10_000).contains(&error)));
        }

        #[test]
        fn any_points_are_taken(points in prop::collection::vec(any::<(u64, u64)>(), 0..100), at in any::<u64>()) {
            let mut clock = Ticks::default();
            for (ticks, ns) in points {
                clock.started(ticks, ns);
                clock.ended(ns, ticks);
            }
            let _ = clock.to_ns(at);
        }
    }

    #[test]
    fn little_gives_nothing() {
        let mut clock = Ticks::default();
        assert_eq!(clock.to_ns(5), None);
        clock.started(5, 10);
        clock.started(5, 20);
        clock.started(7, 30);
        assert_eq!((clock.to_ns(5), clock.is_ready(), clock.error_ns()), (None, false, None));
    }
}
