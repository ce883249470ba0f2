//! Waiting on machines that may stand still.

/// The most that counts of the time between two looks, for a thread that looks a few times a second or more, ns.
pub const LONGEST_LOOK_NS: u64 = 200_000_000;

/// The time that a thread has waited, counting only time in which the wait could have ended: from one look to the next
/// `LONGEST_NS` at most. A virtual machine that is paused, or processes that are frozen, hold up both the waiting
/// thread and the one that it waits for.
#[derive(Clone, Copy, Debug)]
pub struct Waited<const LONGEST_NS: u64 = LONGEST_LOOK_NS> {
    waited_ns: u64,
    looked_ns: u64,
}

impl<const LONGEST_NS: u64> Waited<LONGEST_NS> {
    /// A wait from `now_ns` on.
    #[must_use]
    pub const fn since(now_ns: u64) -> Self {
        Self { waited_ns: 0, looked_ns: now_ns }
    }

    /// A look: returns the time waited by now, ns.
    pub fn look(&mut self, now_ns: u64) -> u64 {
        self.waited_ns += now_ns.saturating_sub(self.looked_ns).min(LONGEST_NS);
        self.looked_ns = now_ns;
        self.waited_ns
    }

    /// The time waited at the last look, ns.
    #[must_use]
    pub const fn at_last_look(&self) -> u64 {
        self.waited_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_nobody_looked_at_is_hardly_counted() {
        let mut waited: Waited = Waited::since(1000);
        assert_eq!((waited.look(1010), waited.look(1030)), (10, 30));
        assert_eq!(waited.look(1_000_000_000_000), 30 + LONGEST_LOOK_NS);
        assert_eq!(waited.look(5), 30 + LONGEST_LOOK_NS, "never back");
        assert_eq!(waited.look(15), 40 + LONGEST_LOOK_NS);
        assert_eq!(waited.at_last_look(), 40 + LONGEST_LOOK_NS);
    }
}
