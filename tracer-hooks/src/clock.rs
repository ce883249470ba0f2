//! The clocks of the GPUs: from their ticks to ns of CLOCK_BOOTTIME.
//!
//! The runtime converts by the line through two pairs of readings of both clocks, its first and its latest (ROCr's
//! `GpuAgent::TranslateTime`, the same in 5.2.3 and 6.2). The thread that takes a pair can be interrupted between the
//! two clocks, in the driver as well. The line is then wrong by the length of the interruption until the next pair is
//! taken, and nobody is told. So we take readings of our own, and convert by those.
//!
//! No function that all releases export reads a GPU's counter. But the runtime takes a new pair when it is
//! asked about a tick that is far ahead, between a look of ours at the clock and the next one. At that
//! time its line is off by no more than what passed between our looks, and by that line we read the
//! counter. An interruption makes such a reading wide, not wrong, and it is taken again.
//!
//! Between two readings times are interpolated. Beyond the last they are extrapolated by a quarter of what
//! all readings span, 62.5 ms at most; so there is a reading in 62.5 ms at most, and none while nothing
//! completes. Of each time it is known by how much it can be off.

use tracer_common::shim::UNKNOWN_CLOCK_ERROR_NS;

use crate::abi::Times;
use crate::runtime::RUNTIME;
use crate::sys;

/// Times this far ahead of the last pair make the runtime take another: more than 1/16 s. A pair that was interrupted is
/// off by as long, and hides that much of the way.
const AHEAD_NS: u64 = 1_000_000_000;
/// Before a tick is converted that is later than the last reading by more than this, another reading is taken.
const EXTRAPOLATED_NS: f64 = 62_500_000.0;
/// A reading of both clocks that is more than twice as wide as the tightest one is taken again, up to this many times.
const TRIES: u32 = 8;
/// A tick counts as a reading if its time, as the runtime converts it, is within this of the time when the runtime was
/// asked.
const NEAR_NS: u64 = 1_000;
/// The number of times that readings are taken anew until a time can be converted with them.
const ATTEMPTS: u32 = 4;
/// The number of steps that are taken to find such a tick. Each leaves a few hundredths of the distance.
const STEPS: u32 = 16;
/// A tick that no counter reaches: six years at 100 MHz. From 4 MHz on its time fits into 63 bits.
const FARTHEST: u64 = 1 << 55;
/// The second reading is taken at most this long after the first: then ticks of before the first can be converted.
const APART_NS: u64 = 500_000;
/// The first search comes from much later ticks. It ends at one whose time is less than this after now.
const SOON_NS: i64 = 1_000_000_000;
/// The number of readings that are kept; the older they are, the farther they are apart.
const KEPT: usize = 64;
/// The line for ticks beyond the last reading goes through that reading and the one this many before it.
const BASE: usize = 16;
/// Agents with a clock.
const CLOCKS: usize = 64;

/// A source of both clocks.
trait Source {
    /// The time to which the runtime converts `ticks`.
    fn runtime_ns(&self, ticks: u64) -> Option<u64>;
    /// Ns of CLOCK_BOOTTIME.
    fn now_ns(&self) -> u64;
    /// Lets `ns` pass.
    fn pass(&self, ns: u64);
}

/// The runtime, for one of its agents.
#[derive(Clone, Copy)]
struct Agent {
    handle: u64,
    /// By how much the runtime's clock is ahead of ours.
    ahead_ns: u64,
}

impl Source for Agent {
    fn runtime_ns(&self, ticks: u64) -> Option<u64> {
        Some(RUNTIME.tick_ns(self.handle, ticks)?.wrapping_sub(self.ahead_ns))
    }

    fn now_ns(&self) -> u64 {
        sys::now_ns()
    }

    fn pass(&self, ns: u64) {
        sys::sleep_ns(ns);
    }
}

/// The counter showed `ticks` at `ns`, or at most `within_ns` before or after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reading {
    ticks: u64,
    ns: u64,
    within_ns: u64,
}

/// A time, and by how much it can be off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Time {
    ns: u64,
    error_ns: u64,
}

/// The readings of one GPU's clock.
struct Clock {
    /// In the order of their ticks, and of their times.
    readings: Vec<Reading>,
    /// Ns of a tick, nearly.
    rate: f64,
    tightest_ns: u64,
}

/// `a - b`, where either may be the larger.
fn between(a: u64, b: u64) -> f64 {
    a.wrapping_sub(b) as i64 as f64
}

impl Clock {
    /// Looks for the counter and takes a first reading.
    ///
    /// It is looked for from above: about a tick from before its start the runtime decides, once and for
    /// all, how it converts such.
    fn begin(source: &impl Source) -> Option<Self> {
        let ahead_ns = |ticks| {
            let ns = source.runtime_ns(ticks)?;
            Some(ns.wrapping_sub(source.now_ns()) as i64)
        };
        let (mut far, mut near) = (FARTHEST, FARTHEST / 2);
        let mut far_ns = ahead_ns(far)?;
        for _ in 0..STEPS {
            let near_ns = ahead_ns(near)?;
            let rate = far_ns.wrapping_sub(near_ns) as f64 / between(far, near);
            if !rate.is_normal() || rate < 0.0 {
                return None;
            }
            let left = (near_ns as f64 / rate) as i64;
            if near_ns < SOON_NS {
                let mut clock = Self { readings: Vec::new(), rate, tightest_ns: 0 };
                clock.readings.try_reserve_exact(KEPT).ok()?;
                let now = near.wrapping_add_signed(left.wrapping_neg());
                clock.keep(clock.best(source, |_| now)?);
                return Some(clock);
            }
            (far, far_ns, near) = (near, near_ns, near.wrapping_sub((left / 10 * 9) as u64));
        }
        None
    }

    /// Takes another reading.
    fn read(&mut self, source: &impl Source) {
        let Some(&last) = self.readings.last() else { return };
        let rate = self.rate;
        let guess =
            |now: u64| last.ticks.wrapping_add_signed((between(now, last.ns) / rate) as i64);
        if let Some(reading) = self.best(source, guess) {
            self.keep(reading);
        }
    }

    /// As [`Clock::read`], before what happened at `ticks` is converted. If that was before the first reading,
    /// which comes when somebody is there to take it, the second is not taken right after the first: by how
    /// much a time before both can be off is as many times theirs as it is farther away than they are apart.
    fn read_for(&mut self, source: &impl Source, ticks: u64) {
        if let [only] = self.readings[..] {
            let before_ns = (between(only.ticks, ticks) * self.rate) as u64;
            let passed_ns = source.now_ns().saturating_sub(only.ns);
            let left_ns = before_ns.min(APART_NS).saturating_sub(passed_ns);
            if left_ns > 0 {
                source.pass(left_ns);
            }
        }
        self.read(source);
    }

    /// The tightest of some readings; `guess`: what the counter shows at a time.
    fn best(&self, source: &impl Source, guess: impl Fn(u64) -> u64) -> Option<Reading> {
        let mut best: Option<Reading> = None;
        for _ in 0..TRIES {
            let reading = self.once(source, &guess);
            best = best.into_iter().chain(reading).min_by_key(|reading| reading.within_ns);
            if best.is_some_and(|best| best.within_ns <= 2 * self.tightest_ns) {
                break;
            }
        }
        best
    }

    fn once(&self, source: &impl Source, guess: impl Fn(u64) -> u64) -> Option<Reading> {
        let before = source.now_ns();
        let mut ticks = guess(before);
        // The guess may be off by an eighth of the time since the last reading.
        let since =
            self.readings.last().map_or(SOON_NS as u64, |last| before.wrapping_sub(last.ns));
        let ahead = (AHEAD_NS.wrapping_add(since / 8) as f64 / self.rate) as u64;
        source.runtime_ns(ticks.wrapping_add(ahead))?;
        for _ in 0..STEPS {
            let ns = source.runtime_ns(ticks)?;
            // At each step, for another thread that converts may have made the runtime take a new pair meanwhile.
            let after = source.now_ns();
            let off_ns = between(ns, before);
            if off_ns.abs() <= NEAR_NS as f64 {
                let passed = after.wrapping_sub(before);
                // The eighth: the runtime's line may be as much too steep. The tick: that is how long
                // the counter shows the same.
                let within_ns = passed.saturating_add(passed / 8 + self.rate.ceil() as u64);
                return Some(Reading { ticks, ns, within_ns });
            }
            ticks = ticks.wrapping_add_signed(-(off_ns / self.rate) as i64);
        }
        None
    }

    fn keep(&mut self, reading: Reading) {
        if let Some(last) = self.readings.last() {
            if reading.ticks <= last.ticks || reading.ns <= last.ns {
                return;
            }
            let base = self.base();
            let span_ns = between(reading.ns, base.ns);
            // Over less, what was found at first is better.
            if span_ns > ((base.within_ns + reading.within_ns) * 16) as f64 {
                self.rate = span_ns / between(reading.ticks, base.ticks);
            }
        }
        if self.readings.len() == KEPT {
            // Every other one of the older half.
            let mut nth = 0;
            self.readings.retain(|_| {
                nth += 1;
                nth > KEPT / 2 || nth % 2 == 1
            });
        }
        self.tightest_ns = match self.tightest_ns {
            0 => reading.within_ns,
            tightest_ns => tightest_ns.min(reading.within_ns),
        };
        self.readings.push(reading);
    }

    fn base(&self) -> Reading {
        self.readings[self.readings.len().saturating_sub(BASE)]
    }

    /// Whether there is to be another reading before `ticks` is converted.
    fn is_too_old(&self, ticks: u64) -> bool {
        let [first, .., last] = self.readings[..] else { return true };
        self.beyond_ns(ticks) > (between(last.ns, first.ns) / 4.0).min(EXTRAPOLATED_NS)
    }

    /// The time from the last reading until the counter shows `ticks`, ns.
    fn beyond_ns(&self, ticks: u64) -> f64 {
        self.readings.last().map_or(0.0, |last| between(ticks, last.ticks) * self.rate)
    }

    /// The two readings by which the tick or time `at` is converted; `of` says which of the two `at` is.
    fn around(&self, at: u64, of: fn(&Reading) -> u64) -> Option<(Reading, Reading)> {
        let readings = &self.readings[..];
        let [first, .., last] = readings else { return None };
        Some(if at > of(last) {
            (self.base(), *last)
        } else if at < of(first) {
            (*first, readings[BASE.min(readings.len() - 1)])
        } else {
            let right = readings.partition_point(|reading| of(reading) < at).max(1);
            (readings[right - 1], readings[right])
        })
    }

    /// The time of `ticks`; none when too few readings have been taken, or the last one so long before that
    /// no counter has shown `ticks` yet.
    fn time(&self, ticks: u64) -> Option<Time> {
        let (a, b) = self.around(ticks, |reading| reading.ticks)?;
        if self.beyond_ns(ticks) > EXTRAPOLATED_NS {
            return None;
        }
        let span = between(b.ticks, a.ticks);
        let nearer = if ticks < a.ticks { a } else { b };
        let way = between(ticks, nearer.ticks);
        let error_ns = if (a.ticks..=b.ticks).contains(&ticks) {
            a.within_ns.max(b.within_ns) as f64
        } else {
            let turned = (a.within_ns as f64 + b.within_ns as f64) / span;
            nearer.within_ns as f64 + way.abs() * turned
        };
        let away_ns = (way * between(b.ns, a.ns) / span).round();
        let ns = nearer.ns.wrapping_add_signed(away_ns as i64);
        Some(Time { ns, error_ns: error_ns as u64 + 1 })
    }

    /// The begin and end of an operation whose ticks these are, by readings that are taken where they are needed. If
    /// the thread that takes them is interrupted, it tries again, [`ATTEMPTS`] times in all.
    fn times(&mut self, source: &impl Source, ticks: Times) -> Option<(Time, Time)> {
        (0..ATTEMPTS).find_map(|_| {
            if self.is_too_old(ticks.end) {
                self.read_for(source, ticks.start);
            }
            self.time(ticks.start).zip(self.time(ticks.end))
        })
    }

    /// The ticks that the counter showed at `ns`, nearly.
    fn ticks(&self, ns: u64) -> Option<u64> {
        let (a, b) = self.around(ns, |reading| reading.ns)?;
        let way = between(ns, b.ns) * between(b.ticks, a.ticks) / between(b.ns, a.ns);
        Some(b.ticks.wrapping_add_signed(way as i64))
    }

    /// By how much the runtime's line is off at `ns`, and by how much that can be off.
    fn runtime_off(&self, source: &impl Source, ns: u64) -> Option<Time> {
        let ticks = self.ticks(ns)?;
        let Time { ns, error_ns } = self.time(ticks)?;
        Some(Time { ns: source.runtime_ns(ticks)?.abs_diff(ns), error_ns })
    }
}

/// The clocks of all GPUs that anything was converted for, and the largest error of what was.
#[derive(Default)]
pub struct Clocks {
    /// By agent. None: it has no clock.
    clocks: Vec<(Agent, Option<Clock>)>,
    error_ns: u64,
    /// Of the recording that it is the error of.
    epoch: u32,
    /// By how much the runtime's clock is ahead of ours, where that is known.
    ahead_ns: Option<u64>,
}

/// Whether `ns` is nearer to a clock that is `ahead_ns` ahead of `now_ns` than to that.
fn is_nearer(ns: u64, ahead_ns: u64, now_ns: u64) -> bool {
    let from = |other: u64| ns.wrapping_sub(other).cast_signed().unsigned_abs();
    from(now_ns.wrapping_add(ahead_ns)) < from(now_ns)
}

impl Clocks {
    /// None.
    pub const fn new() -> Self {
        Self { clocks: Vec::new(), error_ns: 0, epoch: 0, ahead_ns: None }
    }

    /// By how much the runtime's clock is ahead of ours. In a time namespace the runtime's clock is the process's or
    /// the machine's, depending on the driver. `shown`, the time to which the runtime converts a moment not long ago,
    /// tells which of them it is.
    fn ahead_ns(&mut self, shown: impl FnOnce() -> Option<u64>) -> Option<u64> {
        if self.ahead_ns.is_none() {
            let process_ns = sys::ahead_ns();
            let is_process = process_ns != 0 && is_nearer(shown()?, process_ns, sys::now_ns());
            self.ahead_ns = Some(if is_process { process_ns } else { 0 });
        }
        self.ahead_ns
    }

    /// Times that are converted from now on belong to this recording.
    pub fn recording(&mut self, epoch: u32) {
        if core::mem::replace(&mut self.epoch, epoch) != epoch {
            self.error_ns = 0;
        }
    }

    /// Takes a first reading of `agent`'s clock, unless there is one: as early as can be, for the farther a
    /// time lies before it the less is known of it. In a time namespace not before something has completed.
    pub fn begin(&mut self, agent: u64) {
        let _ = self.of(agent, None);
    }

    /// The clock of `agent`, which has shown `tick` not long ago.
    fn of(&mut self, agent: u64, tick: Option<u64>) -> Option<(Agent, &mut Clock)> {
        let known = self.clocks.iter().position(|(known, _)| known.handle == agent);
        let at = known.unwrap_or(self.clocks.len());
        if known.is_none() {
            let room = agent != 0 && at < CLOCKS && self.clocks.try_reserve(1).is_ok();
            if !room {
                return None;
            }
            let ahead_ns = self.ahead_ns(|| RUNTIME.tick_ns(agent, tick?))?;
            let agent = Agent { handle: agent, ahead_ns };
            self.clocks.push((agent, Clock::begin(&agent)));
        }
        let (agent, clock) = self.clocks.get_mut(at)?;
        Some((*agent, clock.as_mut()?))
    }

    /// The times of what ran on `agent` from tick to tick.
    pub fn times(&mut self, agent: u64, ticks: Times) -> Option<Times> {
        let (agent, clock) = self.of(agent, Some(ticks.end))?;
        let (start, end) = clock.times(&agent, ticks)?;
        self.error_ns = self.error_ns.max(start.error_ns).max(end.error_ns);
        Some(Times { start: start.ns, end: end.ns })
    }

    /// The times of the copy that completed `signal`. Its ticks only the runtime knows, which converts them
    /// by pairs of its own. By how much it is off is seen by our clocks, any of which may be the copy's.
    pub fn copy_times(&mut self, signal: u64) -> Option<Times> {
        if self.clocks.is_empty() {
            self.ahead_ns(|| RUNTIME.copy_times(signal).map(|times| times.end));
            self.begin_all();
        }
        let now = sys::now_ns();
        // With each reading of ours the runtime takes a new pair.
        self.read(|clock| clock.ticks(now).is_none_or(|ticks| clock.is_too_old(ticks)));
        let (mut times, mut off) = self.converted(signal)?;
        if off.is_none_or(|off| off.ns > off.error_ns) {
            self.read(|_| true);
            (times, off) = self.converted(signal)?;
        }
        let error_ns =
            off.map_or(UNKNOWN_CLOCK_ERROR_NS, |off| off.ns.saturating_add(off.error_ns));
        self.error_ns = self.error_ns.max(error_ns);
        Some(times)
    }

    fn with_clock(&mut self) -> impl Iterator<Item = (Agent, &mut Clock)> {
        self.clocks.iter_mut().filter_map(|(agent, clock)| Some((*agent, clock.as_mut()?)))
    }

    fn read(&mut self, which: impl Fn(&Clock) -> bool) {
        for (agent, clock) in self.with_clock().filter(|(_, clock)| which(clock)) {
            clock.read(&agent);
        }
    }

    /// The times that the runtime has for a copy, and the most that it is off at either; none when that
    /// cannot be told, or somebody has had it take a new pair just then.
    fn converted(&mut self, signal: u64) -> Option<(Times, Option<Time>)> {
        let before = self.runtimes_lines();
        let theirs = RUNTIME.copy_times(signal)?;
        let ahead_ns = self.ahead_ns(|| Some(theirs.end))?;
        let ours = |ns: u64| ns.wrapping_sub(ahead_ns);
        let times = Times { start: ours(theirs.start), end: ours(theirs.end) };
        let mut most: Option<Time> = None;
        for (agent, clock) in self.with_clock() {
            for ns in [times.start, times.end] {
                let Some(off) = clock.runtime_off(&agent, ns) else { return Some((times, None)) };
                most = most.into_iter().chain([off]).max_by_key(|off| off.ns + off.error_ns);
            }
        }
        let same = before == self.runtimes_lines();
        Some((times, most.filter(|_| same)))
    }

    /// A number that changes whenever the runtime's line for any agent does.
    fn runtimes_lines(&mut self) -> u64 {
        self.with_clock().fold(0, |sum, (agent, clock)| {
            let last = clock.readings.last();
            let shown = last.and_then(|last| agent.runtime_ns(last.ticks));
            sum.wrapping_mul(31).wrapping_add(shown.unwrap_or_default())
        })
    }

    /// Takes first readings of all agents' clocks.
    pub fn begin_all(&mut self) {
        let mut agents = Vec::new();
        RUNTIME.agents(|agent| {
            sys::push(&mut agents, agent);
        });
        agents.into_iter().for_each(|agent| self.begin(agent));
    }

    /// By how much any time of the recording can be off, ns; [`UNKNOWN_CLOCK_ERROR_NS`] when that is not known, 0 when nothing
    /// was converted.
    pub fn error_ns(&self) -> u64 {
        self.error_ns
    }
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;

    use super::*;
    use crate::testing::Random;

    /// A GPU's clock, the machine's, and a runtime that converts as ROCr does.
    struct World {
        now_ns: u64,
        /// Ticks in 1024 ns.
        rate: u64,
        first: Option<(u64, u64)>,
        last: (u64, u64),
        random: Random,
        /// One of this many pairs is interrupted.
        interrupted: u64,
        /// The longest interruption, ns.
        longest_ns: u64,
        pairs: u64,
    }

    impl World {
        fn new(seed: u64, rate: u64, interrupted: u64) -> RefCell<Self> {
            Self::interrupted_for(seed, rate, interrupted, 400_000)
        }

        fn interrupted_for(
            seed: u64,
            rate: u64,
            interrupted: u64,
            longest_ns: u64,
        ) -> RefCell<Self> {
            let random = Random::new(seed);
            let now_ns = 1_000_000_000_000;
            let (first, last) = (None, (0, 0));
            let mut world =
                Self { now_ns, rate, first, last, random, interrupted, longest_ns, pairs: 0 };
            world.pair();
            world.first = Some(world.last);
            world.pass(75 * longest_ns);
            RefCell::new(world)
        }

        fn pass(&mut self, ns: u64) {
            self.now_ns += ns;
        }

        /// The ticks that the counter shows at `ns`.
        fn ticks(&self, ns: u64) -> u64 {
            777_000_000 + (u128::from(ns) * u128::from(self.rate) / 1024) as u64
        }

        fn pair(&mut self) {
            self.pairs += 1;
            let delay = 30 + self.random.below(40);
            self.pass(delay);
            let ticks = self.ticks(self.now_ns);
            if self.interrupted > 0 && self.random.below(self.interrupted) == 0 {
                let pause = self.random.below(self.longest_ns);
                self.pass(pause);
            }
            self.last = (ticks, self.now_ns);
            let delay = 30 + self.random.below(40);
            self.pass(delay);
        }

        fn convert(&mut self, ticks: u64) -> u64 {
            let (t0, s0) = self.first.expect("begun");
            assert!(ticks >= t0, "asked for what was before the runtime");
            if self.last.0 + (self.last.0 - t0) / 4 < ticks {
                self.pair();
            }
            let mut elapsed = 0;
            for _ in 0..2 {
                let ratio = (self.last.1 - s0) as f64 / (self.last.0 - t0) as f64;
                elapsed = (ratio * between(ticks, self.last.0)) as i64;
                if elapsed < 62_500_000 {
                    break;
                }
                self.pair();
            }
            self.pass(40);
            self.last.1.wrapping_add_signed(elapsed)
        }
    }

    impl Source for RefCell<World> {
        fn runtime_ns(&self, ticks: u64) -> Option<u64> {
            Some(self.borrow_mut().convert(ticks))
        }

        fn now_ns(&self) -> u64 {
            let mut world = self.borrow_mut();
            world.pass(25);
            world.now_ns
        }

        fn pass(&self, ns: u64) {
            self.borrow_mut().pass(ns);
        }
    }

    /// Kernels run, are converted, and time passes between: how far off the worst time is, of what is told
    /// of it, and how far off it would be by the runtime.
    fn worst(world: &RefCell<World>, kernels: u64) -> (u64, u64) {
        let mut clock = Clock::begin(world).expect("a counter");
        let (mut claimed, mut runtime) = (0, 0);
        for _ in 0..kernels {
            let start_ns = {
                let mut world = world.borrow_mut();
                let most = 1 << world.random.below(27);
                let (before, length) = (world.random.below(most), world.random.below(most));
                world.pass(before + length + 500);
                world.now_ns - length - 100
            };
            let end_ns = world.borrow().now_ns - 100;
            let ticks = |ns| world.borrow().ticks(ns);
            if clock.is_too_old(ticks(end_ns)) {
                clock.read(world);
            }
            for ns in [start_ns, end_ns] {
                let time = clock.time(ticks(ns)).expect("read");
                let off = time.ns.abs_diff(ns);
                assert!(off <= time.error_ns, "{off} ns off, {time:?}");
                claimed = claimed.max(time.error_ns);
                let theirs = world.runtime_ns(ticks(ns)).expect("converts");
                runtime = runtime.max(theirs.abs_diff(ns));
            }
        }
        (claimed, runtime)
    }

    /// 25 MHz, 100 MHz and 1 GHz, and what drifts from it.
    const RATES: [u64; 5] = [26, 102, 103, 1024, 1025];

    #[test]
    fn what_is_told_of_a_time_holds_however_often_readings_are_interrupted() {
        let mut bent_ns = 0;
        for (seed, rate) in (0..100).zip(RATES.into_iter().cycle()) {
            let (_, runtime) = worst(&World::new(seed, rate, 2), 300);
            bent_ns = bent_ns.max(runtime);
            let (claimed, _) = worst(&World::new(seed, rate, 20), 300);
            assert!(claimed < 3_000, "{claimed} ns are claimed");
        }
        assert!(bent_ns > 100_000, "nothing was bent: {bent_ns} ns");
    }

    #[test]
    fn without_interruptions_it_is_as_good_as_the_runtime() {
        for rate in RATES {
            let world = World::new(7, rate, 0);
            let (claimed, runtime) = worst(&world, 1000);
            assert!(claimed < 2_000 && runtime < 1_000, "{claimed} {runtime}");
        }
    }

    /// It costs a reading of two pairs in 62.5 ms, whatever completes.
    #[test]
    fn readings_are_as_rare_as_the_runtimes() {
        let world = World::new(3, 102, 0);
        let mut clock = Clock::begin(&world).expect("a counter");
        let begun = world.borrow().pairs;
        assert!(begun < 64, "{begun}");
        for _ in 0..10_000 {
            world.borrow_mut().pass(1_000_000);
            let ticks = world.borrow().ticks(world.borrow().now_ns);
            if clock.is_too_old(ticks) {
                clock.read(&world);
            }
        }
        let pairs = world.borrow().pairs - begun;
        assert!((320..800).contains(&pairs), "{pairs} in 10 s");
        assert!(clock.readings.len() <= KEPT);
        let oldest = clock.readings[0].ns;
        assert!(world.borrow().now_ns - oldest > 9_900_000_000, "long kernels began then");
    }

    /// A kernel that is over when the first reading is taken: the second does not come at once.
    #[test]
    fn what_happened_before_the_first_reading_has_a_time() {
        for (seed, rate) in (0..50).zip(RATES.into_iter().cycle()) {
            for (before_ns, at_most) in [(5_000, 3_000), (200_000, 3_000), (20_000_000, 100_000)] {
                let world = World::new(seed, rate, 20);
                let start_ns = world.borrow().now_ns;
                let ticks = world.borrow().ticks(start_ns);
                world.borrow_mut().pass(before_ns);
                let mut clock = Clock::begin(&world).expect("a counter");
                assert!(clock.is_too_old(ticks), "by one reading");
                clock.read_for(&world, ticks);
                let passed_ns = world.borrow().now_ns - start_ns - before_ns;
                assert!(passed_ns < APART_NS + 500_000 * 16, "{passed_ns}");
                let time = clock.time(ticks).expect("read");
                let off_ns = time.ns.abs_diff(start_ns);
                assert!(off_ns <= time.error_ns, "{off_ns} ns off, {time:?}");
                assert!(time.error_ns < at_most, "{time:?} of what was {before_ns} ns before");
            }
        }
    }

    /// As on a machine on which others have the CPU most of the time: the first kernel, too.
    #[test]
    fn who_is_interrupted_again_and_again_has_times_that_hold() {
        for (seed, rate) in (0..2000).zip(RATES.into_iter().cycle()) {
            let world = World::interrupted_for(seed, rate, 2, 50_000_000);
            let start_ns = world.borrow().now_ns;
            let start = world.borrow().ticks(start_ns);
            world.borrow_mut().pass(1_000);
            let mut clock = Clock::begin(&world).expect("a counter");
            let converted = clock.times(&world, Times { start, end: start + 10 });
            let (time, _) = converted.expect("times");
            let off_ns = time.ns.abs_diff(start_ns);
            assert!(off_ns <= time.error_ns, "{off_ns} ns off, {time:?}");
        }
    }

    #[test]
    fn an_error_is_that_of_one_recording() {
        let mut clocks = Clocks::new();
        clocks.recording(1);
        clocks.error_ns = 7;
        clocks.recording(1);
        assert_eq!(clocks.error_ns(), 7);
        clocks.recording(2);
        assert_eq!(clocks.error_ns(), 0);
    }

    #[test]
    fn nonsense_has_no_time() {
        let world = World::new(1, 102, 0);
        let mut clock = Clock::begin(&world).expect("a counter");
        assert_eq!(clock.time(5), None, "by one reading");
        world.borrow_mut().pass(1_000_000);
        clock.read(&world);
        let now = world.borrow().ticks(world.borrow().now_ns);
        assert_eq!(clock.time(now + 100_000_000), None, "in a second");
        for ticks in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let _ = clock.time(ticks);
            let _ = clock.is_too_old(ticks);
            let _ = clock.ticks(ticks);
        }
        struct Broken(u64);
        impl Source for Broken {
            fn runtime_ns(&self, ticks: u64) -> Option<u64> {
                (ticks != self.0).then_some(self.0)
            }
            fn now_ns(&self) -> u64 {
                7
            }
            fn pass(&self, _: u64) {}
        }
        for nonsense in [0, 7, 1 << 40, u64::MAX] {
            assert!(Clock::begin(&Broken(nonsense)).is_none(), "{nonsense}");
        }
    }

    /// In a time namespace the runtime tells the process's time, or the machine's, as drivers do; a little later.
    #[test]
    fn the_runtimes_clock_is_one_of_two() {
        const NOW: u64 = 1_000_000_000_000;
        for ahead in [1_000_000_000_i64, -500_000_000_000] {
            let ahead_ns = ahead.cast_unsigned();
            let process = NOW.wrapping_add_signed(ahead) + 1000;
            assert!(is_nearer(process, ahead_ns, NOW) && !is_nearer(NOW + 1000, ahead_ns, NOW));
        }
    }
}
