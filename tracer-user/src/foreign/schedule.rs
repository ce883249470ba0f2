//! Distinguishes a memory that makes its reader wait from a machine that does: a thread that could run and waits for a
//! CPU does not wait for a memory.

use std::{fs, os::fd::AsFd, sync::LazyLock, time::Duration};

use tracer_common::waited::Waited;

/// The longest text of a `schedstat`: three numbers.
const MOST_BYTES: usize = 64;

/// Whether this kernel counts (`CONFIG_SCHED_INFO`, and `delayacct` if nothing else needs it). If not, the file is
/// missing or its numbers are zero, even for this process, which has run.
static IS_COUNTED: LazyLock<bool> = LazyLock::new(|| {
    let own = fs::File::open("/proc/self/schedstat");
    own.ok().and_then(Schedule::of).is_some_and(|own| own.on_cpu_ns > 0)
});

/// The times that the kernel has counted for a thread, from its `schedstat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// The time on a CPU, ns.
    on_cpu_ns: u64,
    /// The time for which the thread waited for a CPU, ns. It is counted when the thread gets one.
    queued_ns: u64,
}

impl Schedule {
    /// Reads an open `schedstat`. May be called behind a `fork`.
    pub fn of(file: impl AsFd) -> Option<Self> {
        let mut text = [0; MOST_BYTES];
        let length = rustix::io::pread(file, &mut text, 0).ok()?;
        Self::parse(text.get(..length)?)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut numbers = str::from_utf8(text).ok()?.split_ascii_whitespace();
        let mut next = || numbers.next()?.parse().ok();
        Some(Self { on_cpu_ns: next()?, queued_ns: next()? })
    }

    /// The time for which the thread waited for a CPU since `before`, ns; 0 if that is not counted.
    pub fn queued_since(self, before: Self) -> u64 {
        self.queued_ns.saturating_sub(before.queued_ns)
    }
}

/// The state of a thread at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadState {
    schedule: Schedule,
    /// Whether the thread is on a CPU, or waits for one.
    can_run: bool,
}

impl ThreadState {
    /// The state of a thread that waits for a CPU and never gets one.
    #[cfg(test)]
    pub const WAITS_FOR_A_CPU: Self =
        Self { schedule: Schedule { on_cpu_ns: 0, queued_ns: 0 }, can_run: true };

    /// Looks at thread `tid` of process `pid`; none if the kernel does not count.
    pub fn at(pid: u32, tid: u32) -> Option<Self> {
        let stat = super::text(format!("/proc/{pid}/task/{tid}/stat").as_ref()).ok()?;
        let can_run = super::lossy(&stat).rsplit_once(") ")?.1.starts_with('R');
        let schedule = fs::File::open(format!("/proc/{pid}/task/{tid}/schedstat")).ok();
        let schedule = Schedule::of(schedule?)?;
        IS_COUNTED.then_some(Self { schedule, can_run })
    }
}

/// The time for which roctap has waited for a thread.
#[derive(Debug)]
pub struct Silence {
    waited: Waited,
    last: Option<ThreadState>,
    blocked_ns: u64,
    /// Time for which it is not known yet whether the thread waited for a CPU.
    unknown_ns: u64,
}

impl Silence {
    /// The wait begins at `now_ns`.
    pub fn since(now_ns: u64) -> Self {
        Self { waited: Waited::since(now_ns), last: None, blocked_ns: 0, unknown_ns: 0 }
    }

    /// The whole time of the wait at `now_ns`.
    pub fn so_far(&mut self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.waited.look(now_ns))
    }

    /// At `now_ns` the thread has this state, and has not answered.
    pub fn goes_on(&mut self, now_ns: u64, look: Option<ThreadState>) {
        let before_ns = self.waited.at_last_look();
        let passed_ns = self.waited.look(now_ns) - before_ns;
        let last = std::mem::replace(&mut self.last, look).map(|last| last.schedule);
        let Some(ThreadState { schedule, can_run }) = look else {
            self.blocked_ns += passed_ns;
            return;
        };
        let queued_ns = last.map_or(0, |last| schedule.queued_since(last));
        let used_ns = last.map_or(0, |last| schedule.on_cpu_ns.saturating_sub(last.on_cpu_ns));
        let earlier_ns = self.unknown_ns.saturating_sub(queued_ns);
        let all_ns = (self.unknown_ns + passed_ns).saturating_sub(queued_ns);
        let blocked_ns = match (can_run, used_ns) {
            (false, _) => all_ns,
            // A wait for a CPU that still lasts is counted only when the thread gets the CPU.
            (true, 0) => 0,
            (true, used_ns) => all_ns.min(earlier_ns + used_ns),
        };
        self.blocked_ns += blocked_ns;
        self.unknown_ns = all_ns - blocked_ns;
    }

    /// The time of the wait without the time for which the thread waited for a CPU.
    pub fn blocked(&self) -> Duration {
        Duration::from_nanos(self.blocked_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn look(can_run: bool, on_cpu_ms: u64, queued_ms: u64) -> Option<ThreadState> {
        let schedule = Schedule { on_cpu_ns: on_cpu_ms * MS, queued_ns: queued_ms * MS };
        Some(ThreadState { schedule, can_run })
    }

    /// The time that is charged, ms, after looks every 20 ms.
    fn charged<const LOOKS: usize>(looks: [Option<ThreadState>; LOOKS]) -> [u128; LOOKS] {
        let (mut silence, mut now_ns) = (Silence::since(0), 0);
        looks.map(|look| {
            now_ns += 20 * MS;
            silence.goes_on(now_ns, look);
            silence.blocked().as_millis()
        })
    }

    #[test]
    fn who_sleeps_is_waited_for() {
        assert_eq!(
            charged([look(false, 5, 7), look(false, 5, 7), look(false, 5, 7)]),
            [20, 40, 60]
        );
    }

    #[test]
    fn who_waits_for_a_cpu_is_not() {
        assert_eq!(charged([look(true, 5, 7), look(true, 5, 7), look(true, 5, 7)]), [0, 0, 0]);
        // The thread got a CPU at last, after 55 ms, and sleeps again.
        let looks = [look(true, 5, 7), look(true, 5, 7), look(false, 6, 62), look(false, 6, 62)];
        assert_eq!(charged(looks), [0, 0, 5, 25]);
        let looks = [look(false, 5, 7), look(false, 6, 22), look(false, 6, 22)];
        assert_eq!(charged(looks), [20, 25, 45]);
    }

    /// As if one page fault followed another.
    #[test]
    fn who_keeps_a_cpu_busy_is_waited_for() {
        assert_eq!(charged([look(true, 5, 7), look(true, 25, 7), look(true, 29, 7)]), [0, 40, 44]);
    }

    /// As if page faults were answered in step with the looks.
    #[test]
    fn who_runs_at_each_look_and_sleeps_in_between_is_waited_for() {
        let looks = [look(true, 5, 7), look(true, 6, 7), look(true, 7, 8), look(true, 8, 8)];
        assert_eq!(charged(looks), [0, 21, 40, 60]);
    }

    #[test]
    fn without_counting_all_time_counts() {
        assert_eq!(charged([None, None]), [20, 40]);
        assert_eq!(ThreadState::at(u32::MAX, 1), None);
    }

    #[test]
    fn time_that_nobody_looked_at_hardly_counts() {
        let mut silence = Silence::since(0);
        silence.goes_on(3_600_000 * MS, look(false, 0, 0));
        assert!(silence.blocked() < Duration::from_secs(1));
        assert_eq!(silence.so_far(3_600_000 * MS), silence.blocked());
    }

    #[test]
    fn the_numbers_are_the_kernels() {
        let schedule = Schedule::parse(b"351449 3723983 3\n").unwrap();
        assert_eq!(schedule, Schedule { on_cpu_ns: 351_449, queued_ns: 3_723_983 });
        assert_eq!(schedule.queued_since(Schedule { on_cpu_ns: 0, queued_ns: 3_723_980 }), 3);
        for wrong in [&b""[..], b"7\n", b"a b c", b"\xff 1"] {
            assert_eq!(Schedule::parse(wrong), None);
        }
        let own = fs::File::open("/proc/thread-self/schedstat").unwrap();
        let (first, second) = (Schedule::of(&own).unwrap(), Schedule::of(&own).unwrap());
        assert!(first.on_cpu_ns <= second.on_cpu_ns);
        let own = std::process::id();
        assert_eq!(ThreadState::at(own, own).is_some(), *IS_COUNTED);
    }
}
