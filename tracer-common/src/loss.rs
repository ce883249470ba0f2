//! The causes for which something was not recorded: those that the shim counts ([`ShimLoss`]) and those that the BPF
//! programs count ([`BpfLoss`]), and their description for people.
//!
//! A new cause is a constant at the end, one more in `COUNT` and `ALL`, and its words in `describe`. Reports and traces
//! take it from there; docs/architecture.md ("Losses") names it, and docs/losses.md says what to do. The hooks count
//! one by `Sink::lost`, and by `Sink::no_times` as well if it takes the times of an operation that was recorded; the
//! rest of the shim by `Memory::lost`, the BPF programs by `maps::lost`. Where the hooks serve a client in the process,
//! `tracer-capi/sources/src/gpu/sink.rs` names the causes that no operation tells of. One of the shim's makes [`crate::shim::VERSION`] rise: its counter is a word of the shared memory, and a `roctap` that does not know
//! the cause would not read it. The BPF programs are part of `roctap`, so one of theirs needs no more.
//!
//! The losses of `roctap` itself have their words where they are counted, by those who implement `Losses`
//! (`tracer-user/src/losses.rs`).

/// Why the shim could not record something, or why something seen from outside, without a shim, has no
/// record of its own: index after [`crate::shim::control::LOSSES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct ShimLoss(pub u32);

impl ShimLoss {
    /// A thread found no free ring: records lost.
    pub const NO_RING: Self = Self(0);
    /// An operation went out without a signal of ours: no more were free, or as many are under way as are looked after.
    pub const SIGNAL_POOL: Self = Self(1);
    /// Work was still running when the shim had to stop looking.
    pub const UNFINISHED: Self = Self(2);
    /// A completed operation had no valid times.
    pub const NO_TIMES: Self = Self(3);
    /// Packets that were gone before they could be instrumented.
    pub const PACKET_PASSED: Self = Self(4);
    /// Packets of a kind that is not recorded (vendor-specific, agent dispatch).
    pub const PACKET_KIND: Self = Self(5);
    /// An operation was not recorded: the enqueueing thread's ring was full.
    pub const OPERATION_RING_FULL: Self = Self(6);
    /// An operation's times were not recorded: the ring of the thread that saw its end was full.
    pub const COMPLETION_RING_FULL: Self = Self(7);
    /// Packets that were in a queue, or reserved, before the first doorbell that was seen of it.
    pub const BEFORE_ATTACH: Self = Self(8);
    /// A call was not recorded: the calling thread's ring was full.
    pub const CALL_RING_FULL: Self = Self(9);
    /// A call was left by `longjmp`.
    pub const CALL_ABANDONED: Self = Self(10);
    /// A call was made by a signal handler that interrupted the recording of another.
    pub const CALL_IN_SIGNAL: Self = Self(11);
    /// Doorbells of queues, and copies, that are left alone: a thread never came back with the lock, or there are more
    /// queues than are looked after.
    pub const LEFT_ALONE: Self = Self(12);
    /// Kernel names, agents and queues that the process had no memory for.
    pub const NO_MEMORY: Self = Self(13);
    /// Packets that were reserved, and not published, when recording ended, below others that are recorded.
    pub const UNPUBLISHED: Self = Self(14);
    /// Nothing was recorded from some time on, since `roctap` did not run: the number of such times. If that was
    /// shorter than [`crate::shim::HEARTBEAT_GONE_NS`], recording goes on when `roctap` runs again.
    pub const UNREAD: Self = Self(15);
    /// A packet kept its own signal, which is of a kind that cannot be replaced.
    pub const SIGNAL_KIND: Self = Self(16);
    /// The number of causes.
    pub const COUNT: usize = 17;

    /// All causes, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::NO_RING,
        Self::SIGNAL_POOL,
        Self::UNFINISHED,
        Self::NO_TIMES,
        Self::PACKET_PASSED,
        Self::PACKET_KIND,
        Self::OPERATION_RING_FULL,
        Self::COMPLETION_RING_FULL,
        Self::BEFORE_ATTACH,
        Self::CALL_RING_FULL,
        Self::CALL_ABANDONED,
        Self::CALL_IN_SIGNAL,
        Self::LEFT_ALONE,
        Self::NO_MEMORY,
        Self::UNPUBLISHED,
        Self::UNREAD,
        Self::SIGNAL_KIND,
    ];

    /// The description of a loss and its cause, for people.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::NO_RING => "shim records: no ring left for one more thread",
            Self::SIGNAL_POOL => "GPU operations: signal pool empty",
            Self::SIGNAL_KIND => "GPU operations: without times, for the kind of their own signals",
            Self::UNFINISHED => "GPU operations: not finished when recording ended",
            Self::NO_TIMES => "GPU operations: completed without valid times",
            Self::PACKET_PASSED => "GPU operations: consumed before they could be instrumented",
            Self::PACKET_KIND => "GPU operations: packet kind not recorded",
            Self::OPERATION_RING_FULL => "GPU operations: the enqueueing thread's ring full",
            Self::COMPLETION_RING_FULL => {
                "GPU operations: times lost, the ring of the thread that saw the end full"
            }
            Self::BEFORE_ATTACH => "GPU operations: enqueued before recording began on their queue",
            Self::CALL_RING_FULL => "calls through tables: the calling thread's ring full",
            Self::CALL_ABANDONED => "calls through tables: left without a return",
            Self::CALL_IN_SIGNAL => {
                "calls through tables: by a signal handler while another was recorded"
            }
            Self::NO_MEMORY => {
                "shim records: the process had no memory for kernel names and the like"
            }
            Self::UNPUBLISHED => "GPU operations: not wholly enqueued when recording ended",
            Self::UNREAD => {
                "shim records: none once roctap had not run for 3 s (times that this happened)"
            }
            Self::LEFT_ALONE => {
                "GPU operations: left alone, as a thread never came back from a hook"
            }
            _ => "unknown cause",
        }
    }
}

/// Why the BPF programs could not record something: index into the per-CPU loss counters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct BpfLoss(pub u32);

impl BpfLoss {
    /// The CPU's ring buffer was full when a call returned.
    pub const API_RING_FULL: Self = Self(0);
    /// The CPU's ring buffer was full when the shim enqueued work.
    pub const LINK_RING_FULL: Self = Self(1);
    /// More calls nested in one thread than are kept.
    pub const NESTING: Self = Self(2);
    /// The state of one more thread could not be stored; its calls are recorded at their return.
    pub const THREAD_TABLE_FULL: Self = Self(3);
    /// An argument's memory could not be read; the call itself is recorded.
    pub const UNREADABLE: Self = Self(4);
    /// A call was left by `longjmp` or thread exit, without a return.
    pub const ABANDONED: Self = Self(5);
    /// The ring buffer, or the table of processes, was full when a process forked or executed.
    pub const LIFE_RING_FULL: Self = Self(6);
    /// The CPU's ring buffer was full when a doorbell announced a packet, or a signal was destroyed.
    pub const PACKET_RING_FULL: Self = Self(7);
    /// A probed function was called that the table of places does not have.
    pub const UNKNOWN_PLACE: Self = Self(8);
    /// The number of causes.
    pub const COUNT: usize = 9;

    /// All causes, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::API_RING_FULL,
        Self::LINK_RING_FULL,
        Self::NESTING,
        Self::THREAD_TABLE_FULL,
        Self::UNREADABLE,
        Self::ABANDONED,
        Self::LIFE_RING_FULL,
        Self::PACKET_RING_FULL,
        Self::UNKNOWN_PLACE,
    ];

    /// The description of a loss and its cause, for people.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::API_RING_FULL => "API calls: ring buffer full",
            Self::LINK_RING_FULL => "dispatch links: ring buffer full",
            Self::NESTING => "API calls: nested too deep",
            Self::THREAD_TABLE_FULL => "API calls: recorded without begin, thread table full",
            Self::UNREADABLE => "arguments: memory not readable (the calls are recorded)",
            Self::ABANDONED => "API calls: left without a return",
            Self::LIFE_RING_FULL => "process events: ring buffer or table full",
            Self::PACKET_RING_FULL => "GPU packets and signals, from outside: ring buffer full",
            Self::UNKNOWN_PLACE => "API calls: of which function could not be told",
            _ => "unknown cause",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_find_every_cause_explained() {
        let page = include_str!("../../docs/losses.md");
        let (shim, bpf) =
            (ShimLoss::ALL.map(ShimLoss::describe), BpfLoss::ALL.map(BpfLoss::describe));
        for words in shim.into_iter().chain(bpf) {
            assert!(page.contains(&format!("| {words} |")), "{words}");
        }
    }

    #[test]
    fn every_cause_has_its_place_and_words_of_its_own() {
        let unknown = ShimLoss(u32::MAX).describe();
        let shim = ShimLoss::ALL.map(|cause| (cause.0, cause.describe()));
        let bpf = BpfLoss::ALL.map(|cause| (cause.0, cause.describe()));
        for causes in [&shim[..], &bpf[..]] {
            for (index, &(number, words)) in causes.iter().enumerate() {
                assert_eq!(number as usize, index, "{words}");
                assert_ne!(words, unknown, "cause {number}");
                assert!(causes[..index].iter().all(|&(_, others)| others != words), "{words}");
            }
        }
    }
}
