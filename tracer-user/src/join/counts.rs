//! How operations find the calls that launched them, and counts of what was joined.

/// The time for which an operation that ran waits for its missing parts, ns.
pub const PATIENCE_NS: u64 = 1_000_000_000;

/// How operations find the calls that launched them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Mode {
    /// By the dispatch probe; by time where a link was lost.
    #[default]
    Exact,
    /// By time alone.
    Time,
    /// By the dispatch probe, comparing each answer with that by time.
    Check,
}

/// The launches of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Launches {
    /// Kernels, by its HIP calls, while its GPU work was recorded.
    pub launches: u64,
    /// Kernels that HIP calls launched before that.
    pub early: u64,
    /// Dispatches that were recorded.
    pub dispatches: u64,
}

/// The counts of joined records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// API calls.
    pub calls: u64,
    /// Of these, calls of roctx.
    pub marks: u64,
    /// HIP calls that launch kernels.
    pub launches: u64,
    /// Kernel dispatches.
    pub dispatches: u64,
    /// Copies.
    pub copies: u64,
    /// Barriers.
    pub barriers: u64,
    /// Operations that were enqueued and never seen to complete.
    pub incomplete: u64,
    /// Dispatches that were seen from outside, where most completions are not seen.
    pub outside: u64,
    /// Of these, operations without a completion; not in `incomplete`.
    pub untimed: u64,
    /// Completions whose operation is not known: its record was lost.
    pub orphans: u64,
    /// Operations that were joined by time.
    pub by_time: u64,
    /// Operations without a call.
    pub without_call: u64,
    /// In mode [`Mode::Check`]: the answers that were compared, and those of them that differed.
    pub compared: u64,
    /// See `compared`.
    pub differing: u64,
    /// Operations that were given up because too many were not complete. They are in the trace, and in `incomplete`,
    /// as far as they were known.
    pub given_up: u64,
    /// Calls that were written before the call around them was known, because too many waited for that.
    pub unplaced: u64,
    /// Calls and streams of calls that were forgotten while an operation could still wait for them, because there were
    /// too many.
    pub forgotten: u64,
    /// Records that named calls of another process.
    pub misattributed: u64,
    /// Agents and kernels that were sent beyond the limits of their process.
    pub left_out: u64,
    /// Messages of marks and ranges that could not be read, or that found no room.
    pub unread: u64,
}

impl Counts {
    /// The losses, by cause.
    pub fn losses(&self) -> [(&'static str, u64); 8] {
        let &Self {
            calls: _,
            marks: _,
            launches: _,
            dispatches: _,
            copies: _,
            barriers: _,
            incomplete,
            outside: _,
            untimed: _,
            orphans,
            by_time: _,
            without_call: _,
            compared: _,
            differing: _,
            given_up,
            unplaced,
            forgotten,
            misattributed,
            left_out,
            unread,
        } = self;
        [
            ("GPU operations: no completion seen", incomplete),
            ("GPU operations: enqueue record lost", orphans),
            ("GPU operations: given up, too many without an end", given_up),
            (
                "calls through tables: the call around them not looked for, too many at once",
                unplaced,
            ),
            ("calls: forgotten while operations could wait for them, too many at once", forgotten),
            ("shim records: of another process's calls", misattributed),
            ("agents and kernels: beyond 64 MiB of names of one process, or its share", left_out),
            (
                "marks and ranges: message not readable, or no room for it (they are recorded)",
                unread,
            ),
        ]
    }
}
