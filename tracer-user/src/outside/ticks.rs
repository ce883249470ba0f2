//! The clock of a GPU, as seen from outside: converts ticks to nanoseconds of CLOCK_BOOTTIME.
//!
//! Only the process's own runtime reads both clocks together. From outside only bounds are seen: a packet starts after
//! its doorbell rang, and has ended when its end can be read. As a line over ticks, the true time lies above all points
//! (start, doorbell), and nearly touches them where a packet found its GPU idle. The chosen line is the edge of their
//! upper convex hull that spans the middle: the estimate of clock skew from one-way delays (Zhang, Liu, Xia: Clock
//! Synchronization Algorithms for Network Measurements, INFOCOM 2002). The true line also lies below all points (end,
//! read): the reported error is the largest distance of any line between both from the chosen one.

use std::collections::VecDeque;

/// The clocks drift against each other: older points do not count.
const WINDOW_NS: u64 = 30_000_000_000;
/// A line over a shorter time is not to be trusted while there is time to wait.
const READY_NS: u64 = 1_000_000_000;
/// A line over a shorter time is not used.
const LEAST_NS: u64 = 20_000_000;
/// The largest time of a clock that is accepted, so that products of two times fit into 128 bits.
const LATEST: u64 = 1 << 62;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Point {
    ticks: u64,
    ns: u64,
}

/// A convex hull of points, by ticks.
#[derive(Default)]
struct Hull(VecDeque<Point>);

/// The side of its points on which a hull is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

impl Hull {
    fn add(&mut self, point: Point, side: Side) {
        let points = &mut self.0;
        let mut at = points.partition_point(|p| p.ticks < point.ticks);
        match points.get_mut(at) {
            Some(same) if same.ticks == point.ticks => {
                same.ns = match side {
                    Side::Above => same.ns.max(point.ns),
                    Side::Below => same.ns.min(point.ns),
                };
            }
            _ => points.insert(at, point),
        }
        if self.is_inside(at, side) {
            self.0.remove(at);
            return;
        }
        while self.is_inside(at + 1, side) {
            self.0.remove(at + 1);
        }
        while at > 0 && self.is_inside(at - 1, side) {
            self.0.remove(at - 1);
            at -= 1;
        }
        while self.0.len() > 2 && self.span_ns() > WINDOW_NS {
            self.0.pop_front();
        }
    }

    fn span_ns(&self) -> u64 {
        match (self.0.front(), self.0.back()) {
            (Some(first), Some(last)) => last.ns.saturating_sub(first.ns),
            _ => 0,
        }
    }

    /// Whether a point is not beyond the line between its neighbours.
    fn is_inside(&self, at: usize, side: Side) -> bool {
        let around = at
            .checked_sub(1)
            .and_then(|before| Some((self.0.get(before)?, self.0.get(at)?, self.0.get(at + 1)?)));
        let Some((a, b, c)) = around else { return false };
        let (bx, by) = (wide(b.ticks, a.ticks), wide(b.ns, a.ns));
        let (cx, cy) = (wide(c.ticks, a.ticks), wide(c.ns, a.ns));
        match side {
            Side::Above => cx * by <= cy * bx,
            Side::Below => cx * by >= cy * bx,
        }
    }
}

/// The difference of two numbers below [`LATEST`].
fn wide(a: u64, b: u64) -> i128 {
    i128::from(a) - i128::from(b)
}

/// The time at `ticks` on the line through `a` and `b`, which have different ticks.
fn through(a: Point, b: Point, ticks: u64) -> i128 {
    let rise = wide(ticks, a.ticks) * wide(b.ns, a.ns) / wide(b.ticks, a.ticks);
    i128::from(a.ns) + rise
}

/// The points from which a GPU's clock is estimated.
#[derive(Default)]
pub struct Ticks {
    /// The hull above the points (start, doorbell).
    starts: Hull,
    /// The hull below the points (end, when it was read).
    ends: Hull,
}

impl Ticks {
    /// A packet started at `ticks`, and not before `ns`.
    pub fn started(&mut self, ticks: u64, ns: u64) {
        if ticks.max(ns) <= LATEST {
            self.starts.add(Point { ticks, ns }, Side::Above);
        }
    }

    /// A packet had ended at `ticks`, as was seen at the time `ns`.
    pub fn ended(&mut self, ticks: u64, ns: u64) {
        if ticks.max(ns) <= LATEST {
            self.ends.add(Point { ticks, ns }, Side::Below);
        }
    }

    /// Whether there are enough points to convert by.
    pub fn is_ready(&self) -> bool {
        self.starts.span_ns() >= READY_NS
    }

    /// The time of `ticks`; none when there are too few points.
    pub fn to_ns(&self, ticks: u64) -> Option<u64> {
        let points = &self.starts.0;
        if self.starts.span_ns() < LEAST_NS || ticks > LATEST {
            return None;
        }
        let (first, last) = (points.front()?, points.back()?);
        let middle = first.ticks + (last.ticks - first.ticks) / 2;
        let right = points.partition_point(|p| p.ticks <= middle).max(1);
        u64::try_from(through(*points.get(right - 1)?, *points.get(right)?, ticks)).ok()
    }

    /// The largest error of times from the first to the last packet; none while it is not known, and none when no line
    /// passes between the points: one of them is wrong.
    pub fn error_ns(&self) -> Option<u64> {
        // The difference of two lines is largest at an end.
        let all = || self.starts.0.iter().chain(&self.ends.0).map(|point| point.ticks);
        let errors = [all().min()?, all().max()?].map(|ticks| {
            let ours = i128::from(self.to_ns(ticks)?);
            let [earliest, latest] =
                self.bounds(ticks).filter(|[earliest, latest]| earliest <= latest)?;
            u64::try_from((latest - ours).max(ours - earliest).max(0)).ok()
        });
        let [first, last] = errors;
        Some(first?.max(last?))
    }

    /// The bounds of the true clock at `ticks`; a bound on one side needs both a start and an end. A line that passes
    /// above a start and below an end rises at most, or at least, as the line through both.
    fn bounds(&self, ticks: u64) -> Option<[i128; 2]> {
        let (mut earliest, mut latest) = (None::<i128>, None::<i128>);
        for &start in &self.starts.0 {
            for &end in &self.ends.0 {
                let near = |a: Point, b: Point| {
                    (ticks <= a.ticks && a.ticks < b.ticks)
                        || (b.ticks < a.ticks && a.ticks <= ticks)
                };
                if near(start, end) {
                    let at = through(start, end, ticks);
                    earliest = Some(earliest.map_or(at, |known| known.max(at)));
                } else if near(end, start) {
                    let at = through(end, start, ticks);
                    latest = Some(latest.map_or(at, |known| known.min(at)));
                }
            }
        }
        Some([earliest?, latest?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A GPU of 100 MHz whose clock began at another time, and is 40 ppm fast.
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
            prop_assert_eq!(clock.error_ns(), None, "no end is known");
            for &(ticks, _) in samples.iter().step_by(7) {
                clock.ended(ticks + 100, truth(ticks + 100) + 5_000 + ticks % 7 * 1_000);
            }
            let error = clock.error_ns().expect("bounds");
            prop_assert!(error < 60_000, "{}", error);
            for &(ticks, _) in &samples {
                let ns = clock.to_ns(ticks).expect("ready");
                prop_assert!(truth(ticks).abs_diff(ns) <= error);
            }
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

    /// A packet ran before its own doorbell rang, because another thread's doorbell announced it: no line passes above
    /// its doorbell and below the ends.
    #[test]
    fn what_contradicts_itself_has_no_known_error() {
        let mut clock = Ticks::default();
        for nth in 0..100 {
            let ticks = 500_000_000 + nth * 1_000_000;
            let late = if nth == 40 || nth == 60 { 3_000_000 } else { 0 };
            clock.started(ticks, truth(ticks) - 2_000 + late);
            clock.ended(ticks + 100, truth(ticks + 100) + 5_000);
        }
        let off = clock.to_ns(550_000_000).expect("ready").abs_diff(truth(550_000_000));
        assert!(off > 1_000_000, "{off}");
        assert_eq!(clock.error_ns(), None, "nor is it 0");
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
