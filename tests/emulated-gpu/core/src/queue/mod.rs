//! Queues: what the command processor and the copy engines do with the packets in their rings.
//!
//! A queue is stepped from time to time and catches up with the clock: an operation starts when it
//! could have started (its packet was there, its predecessors were done), not when the emulator's
//! thread came round to it, and it ends a duration later. It is finished once the clock has passed
//! its end, so that no time ever lies in a reader's future.

use std::collections::VecDeque;

use crate::clock::GpuClock;
use crate::config::Config;
use crate::effects::{CompletionTimes, Effect};
use crate::kernels::Kernels;
use crate::log::Log;
use crate::memory::Memory;

pub mod aql;
pub mod aql_packet;
pub mod sdma;
pub mod sdma_packet;

#[cfg(test)]
mod bench;

/// What stepping a queue needs from its surroundings.
#[derive(Debug)]
pub struct Context<'a> {
    /// The settings.
    pub config: &'a Config,
    /// The queue's GPU's clock.
    pub clock: GpuClock,
    /// Known memory, for the direction of a copy.
    pub memory: &'a Memory,
    /// Known kernels.
    pub kernels: &'a mut Kernels,
    /// The ground truth.
    pub log: &'a mut Log,
    /// What will become visible after this round.
    pub effects: &'a mut Vec<Effect>,
    /// When signals were completed.
    pub times: &'a CompletionTimes,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Whether anything was launched or finished.
    pub progressed: bool,
    /// When there will be something to do without further doing of the program.
    pub wake_ns: Option<u64>,
}

impl Step {
    /// Joins the steps of two queues.
    pub fn and(self, other: Step) -> Step {
        let wake_ns = match (self.wake_ns, other.wake_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Step { progressed: self.progressed || other.progressed, wake_ns }
    }
}

/// When the work up to an index was first seen. The work at an index cannot have started before.
#[derive(Debug, Default)]
pub struct Arrivals(VecDeque<(u64, u64)>);

impl Arrivals {
    /// Notes that everything before `limit` was there at `now`.
    pub fn note(&mut self, limit: u64, now: u64) {
        self.0.push_back((limit, now));
    }

    /// When the work at `index` was first seen. Indices are asked for in order.
    pub fn at(&mut self, index: u64) -> u64 {
        while self.0.len() > 1 && self.0.front().is_some_and(|&(limit, _)| limit <= index) {
            self.0.pop_front();
        }
        self.0.front().map_or(0, |&(_, ns)| ns)
    }
}

/// A request that the emulator does not know. Saying so and ending the process beats a hang.
pub fn unsupported(what: std::fmt::Arguments<'_>) -> ! {
    eprintln!("emulated-gpu: unsupported: {what}");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::{Arrivals, Step};

    #[test]
    fn arrivals_are_those_of_the_first_sighting() {
        let mut a = Arrivals::default();
        a.note(3, 100);
        a.note(5, 200);
        assert_eq!([a.at(0), a.at(2), a.at(3), a.at(4)], [100, 100, 200, 200]);
    }

    #[test]
    fn the_earliest_wake_up_counts() {
        let at = |ns| Step { progressed: false, wake_ns: ns };
        assert_eq!(at(Some(5)).and(at(None)).and(at(Some(3))), at(Some(3)));
    }
}
