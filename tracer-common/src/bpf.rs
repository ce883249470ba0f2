//! The records that the BPF programs write into their ring buffers, and the configuration that user space gives them.
//!
//! Every record begins with a [`Header`]. Process and thread ids are those of the initial PID
//! namespace, as `bpf_get_current_pid_tgid` gives them.

macro_rules! wire {
    ($(#[$m:meta])* pub struct $name:ident { $($(#[$fm:meta])* pub $f:ident : $t:ty),* $(,)? }) => {
        $(#[$m])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[cfg_attr(feature = "user", derive(zerocopy::FromBytes, zerocopy::IntoBytes))]
        #[cfg_attr(feature = "user", derive(zerocopy::Immutable, zerocopy::KnownLayout))]
        #[repr(C)]
        pub struct $name { $($(#[$fm])* pub $f: $t),* }
    };
}
pub(crate) use wire;

/// Values of [`Header::kind`].
pub mod kind {
    /// An [`ApiRecord`](super::ApiRecord).
    pub const API: u16 = 1;
    /// A [`LinkRecord`](super::LinkRecord).
    pub const LINK: u16 = 2;
    /// A [`ProcessRecord`](super::ProcessRecord): a traced process forked.
    pub const FORK: u16 = 3;
    /// A [`ProcessRecord`](super::ProcessRecord): a traced process executed another program.
    pub const EXEC: u16 = 4;
    /// A [`PacketRecord`](super::PacketRecord): a packet that a doorbell announced.
    pub const PACKET: u16 = 5;
    /// A [`SignalRecord`](super::SignalRecord): a signal is about to be destroyed.
    pub const SIGNAL: u16 = 6;
    /// A [`BatchRecord`](super::BatchRecord): packets that a doorbell announced with another one.
    pub const BATCH: u16 = 7;
    /// A [`ProcessRecord`](super::ProcessRecord): a thread made its first call.
    pub const CALLER: u16 = 8;
    /// A [`LoadRecord`](super::LoadRecord): the dynamic linker has mapped or unmapped libraries.
    pub const LOAD: u16 = 9;
    /// A [`ProcessRecord`](super::ProcessRecord): the first thread of a traced process ends.
    pub const FIRST_THREAD: u16 = 10;
    /// A [`MarkRecord`](super::MarkRecord): a call of roctx that has a message.
    pub const MARK: u16 = 11;
}

/// Bytes of a record of this kind; none of a kind that does not exist.
pub const fn record_bytes(kind: u16) -> Option<usize> {
    Some(match kind {
        kind::API => size_of::<ApiRecord>(),
        kind::LINK => size_of::<LinkRecord>(),
        kind::FORK | kind::EXEC | kind::CALLER | kind::FIRST_THREAD => size_of::<ProcessRecord>(),
        kind::PACKET => size_of::<PacketRecord>(),
        kind::SIGNAL => size_of::<SignalRecord>(),
        kind::BATCH => size_of::<BatchRecord>(),
        kind::LOAD => size_of::<LoadRecord>(),
        kind::MARK => size_of::<MarkRecord>(),
        _ => return None,
    })
}

/// Bits of [`Header::flags`] of an [`ApiRecord`].
pub mod flag {
    /// Only the entry is known, because only that was probed (see `calls_back` in the operation
    /// table) or because an exception left the call: `end_ns` and `ret` are 0.
    pub const ENTRY_ONLY: u16 = 1 << 0;
    /// The call was open when its function was probed: `begin_ns` is 0 and no argument is known.
    pub const OPEN_AT_START: u16 = 1 << 1;
    /// The call was open when tracing ended: `end_ns` and `ret` are 0.
    pub const OPEN_AT_END: u16 = 1 << 2;
    /// `extra[0]` holds what the output argument pointed at when the call returned.
    pub const OUT_VALUE: u16 = 1 << 3;
    /// `extra` holds stack arguments.
    pub const STACK_ARGS: u16 = 1 << 4;
    /// The memory that `extra` was to be read from could not be read. Of a call of roctx: its message is not
    /// known.
    pub const UNREADABLE: u16 = 1 << 5;
    /// Of a link: the thread surely enqueued the work. Without it, another thread may have, and
    /// sends a link with it.
    pub const OWN: u16 = 1 << 6;
    /// Of an open call: the shim made it, or something that the shim called. It is not recorded.
    pub const SHIM: u16 = 1 << 7;
    /// With [`ENTRY_ONLY`]: the call was made on another stack than its thread's own, a fibre's.
    pub const OTHER_STACK: u16 = 1 << 8;
    /// Of a call of roctx: its message is longer, the end is cut off.
    pub const CUT: u16 = 1 << 9;
    /// Of a packet: it is the first of its queue that was seen.
    pub const FIRST: u16 = 1 << 10;
}

wire! {
    /// The first 16 bytes of every record.
    pub struct Header {
        /// One of [`kind`].
        pub kind: u16,
        /// Bits of [`flag`].
        pub flags: u16,
        /// API and link records: domain (high 16 bits) and operation id (low 16 bits) of the call,
        /// see [`Capture`].
        pub operation: u32,
        /// Thread group id of the calling process.
        pub pid: u32,
        /// Thread id of the caller.
        pub tid: u32,
    }
}

wire! {
    /// One API call, written when it returns.
    pub struct ApiRecord {
        /// Kind [`kind::API`].
        pub header: Header,
        /// Unique in the whole recording, never 0.
        pub correlation_id: u64,
        /// Correlation id of the call that this one was made in, 0 at the outermost.
        pub parent_id: u64,
        /// Entry, ns of CLOCK_BOOTTIME.
        pub begin_ns: u64,
        /// Return, ns of CLOCK_BOOTTIME.
        pub end_ns: u64,
        /// The return register (`rax`).
        pub ret: u64,
        /// `rdi, rsi, rdx, rcx, r8, r9` at entry.
        pub args: [u64; 6],
        /// Stack arguments or an output value, as the flags tell. Of a call of roctx the first one is the call's number
        /// among those of its thread, from 1 on.
        pub extra: [u64; 3],
    }
}

/// Bytes of a message that are read, the zero at its end among them.
pub const MESSAGE_BYTES: usize = 256;

wire! {
    /// A call of roctx and its message.
    pub struct MarkRecord {
        /// The call. Its header's kind is [`kind::MARK`].
        pub call: ApiRecord,
        /// The message, [`MESSAGE_BYTES`], up to the first zero; the bytes behind mean nothing. Without a zero in all
        /// bytes but the last one the message may have been longer.
        pub message: [u64; MESSAGE_BYTES / 8],
    }
}

wire! {
    /// The shim enqueued GPU work: ties its sequence number to the innermost open HIP call of the
    /// thread, else to the innermost open HSA call.
    pub struct LinkRecord {
        /// Kind [`kind::LINK`], flag [`flag::OWN`] or none.
        pub header: Header,
        /// The shim's sequence number, unique in the process.
        pub sequence: u64,
        /// The call, 0 when none was open.
        pub correlation_id: u64,
        /// The time, ns of CLOCK_BOOTTIME.
        pub time_ns: u64,
    }
}

wire! {
    /// An AQL packet was in its queue when a doorbell rang: the record of work in processes without the shim.
    pub struct PacketRecord {
        /// Kind [`kind::PACKET`], flag [`flag::FIRST`] or none.
        pub header: Header,
        /// The call that launched it, as in [`LinkRecord::correlation_id`].
        pub correlation_id: u64,
        /// The time when the doorbell was about to ring, ns of CLOCK_BOOTTIME.
        pub time_ns: u64,
        /// Address of the queue (`amd_queue_t`).
        pub queue: u64,
        /// HSA queue id.
        pub queue_id: u64,
        /// The packet's index in its queue.
        pub index: u64,
        /// The number of packets before it that neither an earlier doorbell announced nor a [`BatchRecord`] has.
        pub unannounced: u64,
        /// Start and end that its completion signal held then, GPU ticks: those of the packet that used
        /// the signal before. 0 without a signal.
        pub earlier_ticks: [u64; 2],
        /// The packet, as it was in the queue; its type may be gone, when it has been consumed.
        pub packet: [u64; 8],
    }
}

wire! {
    /// Packets before the one of a [`PacketRecord`] that no earlier doorbell announced. The times that their completion
    /// signals held are not known.
    pub struct BatchRecord {
        /// Kind [`kind::BATCH`].
        pub header: Header,
        /// The time when the doorbell was about to ring, ns of CLOCK_BOOTTIME.
        pub time_ns: u64,
        /// As [`PacketRecord::queue`].
        pub queue: u64,
        /// As [`PacketRecord::queue_id`].
        pub queue_id: u64,
        /// Index of the first packet.
        pub index: u64,
        /// The number of packets.
        pub count: u64,
        /// The packets, and as much room again, which the kernel's verifier needs to see.
        pub packets: [[[u64; 8]; MAX_PACKETS as usize]; 2],
    }
}

wire! {
    /// A signal is about to be destroyed: the last moment at which its times can be read from outside.
    pub struct SignalRecord {
        /// Kind [`kind::SIGNAL`].
        pub header: Header,
        /// The signal.
        pub signal: u64,
        /// The time, ns of CLOCK_BOOTTIME.
        pub time_ns: u64,
        /// Start and end of the last packet that used it, GPU ticks.
        pub ticks: [u64; 2],
    }
}

wire! {
    /// A traced process changed.
    pub struct ProcessRecord {
        /// Kind [`kind::FORK`], [`kind::EXEC`], [`kind::CALLER`] or [`kind::FIRST_THREAD`].
        pub header: Header,
        /// The time, ns of CLOCK_BOOTTIME.
        pub time_ns: u64,
        /// Fork: the child's process id. Exec: the former id of the thread that executed the program.
        pub other_id: u32,
        /// Fork: 1 if the child shares its parent's memory until it executes a program, else 0.
        pub shares_memory: u32,
    }
}

wire! {
    /// A thread is in the dynamic linker, which tells debuggers that the mapped libraries have changed.
    pub struct LoadRecord {
        /// Kind [`kind::LOAD`].
        pub header: Header,
        /// The time, ns of CLOCK_BOOTTIME.
        pub time_ns: u64,
    }
}

/// Values of [`Config::phase`]: the calls that are recorded, and the meaning of a return without an entry.
pub mod phase {
    /// Probes are being attached: a call that was open at the start.
    pub const ATTACHING: u32 = 0;
    /// All probes are attached: a loss, unless the call is around all that the thread did since.
    pub const ATTACHED: u32 = 1;
    /// The recording ends: new calls are left out, and a return without an entry is one of them.
    pub const DETACHING: u32 = 2;
    /// The recording has ended: nothing is recorded any more.
    pub const ENDED: u32 = 3;
}

/// Values of [`Config::follow`]: the processes whose life is reported.
pub mod follow {
    /// Traced processes alone.
    pub const NOBODY: u32 = 0;
    /// Their children too.
    pub const CHILDREN: u32 = 1;
    /// Their children, and every process that executes a program.
    pub const EVERYONE: u32 = 2;
}

/// Calls of one thread that can be open at the same time.
pub const MAX_DEPTH: usize = 16;

wire! {
    /// An open call, in the BPF thread table.
    pub struct OpenCall {
        /// Stack pointer at entry: the place of the return address.
        pub sp: u64,
        /// As [`Capture::out_arg`].
        pub out_arg: u64,
        /// The record that is written when the call returns. `end_ns` and `ret` are those of an earlier call until
        /// then.
        pub record: ApiRecord,
    }
}

/// Threads whose state lies in an array, at their id modulo this; a power of two. Threads that find
/// their place taken are kept in a hash, which costs 100 ns a call more.
pub const NEAR_THREADS: usize = 4096;

/// Calls of one thread on other stacks than its own that are remembered; a power of two.
pub const MAX_ELSEWHERE: usize = 4;

wire! {
    /// A call that was entered on another stack than the thread's own, a fibre's: it was recorded at its entry.
    pub struct Elsewhere {
        /// Stack pointer at entry; 0 where there was no such call.
        pub sp: u64,
        /// The return address, which is there as long as the call is open.
        pub back: u64,
        /// As [`ApiRecord::correlation_id`].
        pub correlation_id: u64,
        /// As [`Header::operation`].
        pub operation: u32,
        /// Zero.
        pub reserved: u32,
    }
}

wire! {
    /// The open calls of one thread: a value of the BPF thread tables.
    pub struct ThreadState {
        /// The thread; 0 when the state is free.
        pub tid: u32,
        /// The number of calls on other stacks so far.
        pub elsewhere_count: u32,
        /// The number of entries of `open` that are in use.
        pub depth: u32,
        /// Open calls beyond `open`, which are not kept.
        pub skipped: u32,
        /// The number of calls of roctx so far.
        pub marks: u64,
        /// The begin and the end of the thread's own stack, once they are known.
        pub stack: [u64; 2],
        /// The last calls on other stacks, in turn.
        pub elsewhere: [Elsewhere; MAX_ELSEWHERE],
        /// The calls, outermost first.
        pub open: [OpenCall; MAX_DEPTH],
    }
}

wire! {
    /// The configuration that user space gives the BPF programs.
    pub struct Config {
        /// Number of possible CPUs.
        pub cpus: u64,
        /// Fill level of a ring that wakes the reader, bytes.
        pub wake_mark_bytes: u64,
        /// Offset of `tgid` in the kernel's `task_struct`.
        pub tgid_offset: u64,
        /// Offset of `signal` in it, which points at the `signal_struct` of the process.
        pub signal_offset: u64,
        /// Offset of `flags` in that.
        pub signal_flags_offset: u64,
        /// The offsets by which a thread's own stack is found.
        pub stack: StackOffsets,
        /// The offsets by which the place of a probe is found; zero where cookies tell the function.
        pub place: PlaceOffsets,
        /// One of [`phase`].
        pub phase: u32,
        /// One of [`follow`].
        pub follow: u32,
        /// 1 where cookies tell the file alone, and the function is found by the probe's [`ProbePlace`].
        pub by_place: u32,
        /// Zero.
        pub reserved: u32,
    }
}

wire! {
    /// The places in the kernel's structures from which a thread's own stack follows.
    pub struct StackOffsets {
        /// Of `mm` in `task_struct`, which points at an `mm_struct`.
        pub mm: u64,
        /// Of `start_stack` in that.
        pub start_stack: u64,
        /// Of `thread.fsbase` in `task_struct`.
        pub fsbase: u64,
        /// Of the limit for stacks in `signal_struct`.
        pub limit: u64,
    }
}

wire! {
    /// The places in the kernel's structures that lead to the probe that runs a program (`uprobe_dispatcher`,
    /// `kernel/trace/trace_uprobe.c`).
    pub struct PlaceOffsets {
        /// Of `utask` in `task_struct`.
        pub utask: u64,
        /// Of `vaddr` in `uprobe_task`, which points at an `uprobe_dispatch_data`.
        pub vaddr: u64,
        /// Of `tu` in that, which points at a `trace_uprobe`.
        pub probe: u64,
        /// Of `offset` in that: the probed instruction's in its file.
        pub offset: u64,
    }
}

/// Functions that can be probed at the same time, of all libraries together.
pub const MAX_CAPTURES: usize = 16384;

wire! {
    /// The place of a probe: a key of the table of places.
    pub struct ProbePlace {
        /// As [`Cookie::index`].
        pub file: u64,
        /// Offset in the file of the probed instruction.
        pub offset: u64,
    }
}

/// Packets that are looked at before that of one doorbell; the others are counted. A power of two.
pub const MAX_PACKETS: u64 = 32;

const _: () = {
    assert!(size_of::<Header>() == 16);
    assert!(size_of::<OpenCall>() == 144);
    assert!(size_of::<ThreadState>() == 40 + MAX_ELSEWHERE * 32 + MAX_DEPTH * 144);
    assert!(size_of::<Config>() == 120);
    assert!(size_of::<ProbePlace>() == 16);
    assert!(size_of::<ApiRecord>() == 128);
    assert!(size_of::<MarkRecord>() == 128 + MESSAGE_BYTES);
    assert!(size_of::<LinkRecord>() == 40);
    assert!(size_of::<ProcessRecord>() == 32);
    assert!(size_of::<LoadRecord>() == 24);
    assert!(size_of::<PacketRecord>() == 144);
    assert!(size_of::<SignalRecord>() == 48);
    assert!(size_of::<BatchRecord>() == 56 + 64 * 64);
};

/// The cookie of a link, by which the program that the link runs knows its process and its function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cookie {
    /// The process that the probe is for, [`Self::TRACED`] or [`Self::ANY`]. Kernels run programs in others too: the
    /// return programs of events run in every process in which any tracer's probe is at the place.
    pub pid: u32,
    /// API programs: the function's number in the table of captures, or where
    /// [`Config::by_place`] is set that of the probed file.
    pub index: u32,
}

impl Cookie {
    /// In place of a process: all that are traced.
    pub const TRACED: u32 = u32::MAX;
    /// In place of a process: any in which the kernel runs the program. For a roctap that knows processes by other
    /// numbers than the kernel.
    pub const ANY: u32 = 0;

    /// Packs the cookie.
    #[inline(always)]
    pub const fn to_u64(self) -> u64 {
        (self.pid as u64) << 32 | self.index as u64
    }

    /// Unpacks a cookie.
    #[inline(always)]
    pub const fn from_u64(v: u64) -> Self {
        Self { pid: (v >> 32) as u32, index: v as u32 }
    }
}

/// The parts of a probed function's calls that the API programs capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capture {
    /// [`crate::activity::Domain`] (its low 8 bits).
    pub domain: u8,
    /// Operation id inside the domain.
    pub operation: u16,
    /// The number of 8-byte stack arguments to capture (0 to 3).
    pub stack_args: u8,
    /// Index of the register argument that points at an 8-byte output value, plus 1; 0 for none.
    pub out_arg: u8,
    /// The function may be unwound through: it has no return probe, and its calls are recorded at their entry.
    pub entry_only: u8,
    /// 1 for the functions of roctx, whose calls are numbered on each thread.
    pub numbered: u8,
    /// The shim calls the function for itself: such calls are not recorded.
    pub shim_calls: u8,
    /// The shim records the function's calls when it records those of this table, one of [`crate::slots::tables`]; 0
    /// for none.
    pub by_shim: u8,
}

impl Capture {
    /// Packs it into a word.
    #[inline(always)]
    pub const fn to_u64(self) -> u64 {
        self.operation as u64
            | (self.domain as u64) << 16
            | (self.stack_args as u64) << 32
            | (self.out_arg as u64) << 40
            | (self.entry_only as u64) << 48
            | (self.numbered as u64) << 49
            | (self.shim_calls as u64) << 56
            | (self.by_shim as u64) << 57
    }

    /// Unpacks a word.
    #[inline(always)]
    pub const fn from_u64(v: u64) -> Self {
        Self {
            operation: v as u16,
            domain: (v >> 16) as u8,
            stack_args: (v >> 32) as u8,
            out_arg: (v >> 40) as u8,
            entry_only: (v >> 48) as u8 & 1,
            numbered: (v >> 49) as u8 & 1,
            shim_calls: (v >> 56) as u8 & 1,
            by_shim: (v >> 57) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        let capture = Capture {
            domain: 3,
            operation: 0xBEEF,
            stack_args: 3,
            out_arg: 6,
            entry_only: 1,
            numbered: 1,
            shim_calls: 1,
            by_shim: 1,
        };
        assert_eq!(Capture::from_u64(capture.to_u64()), capture);
        let cookie = Cookie { pid: u32::MAX - 1, index: 7 };
        assert_eq!(Cookie::from_u64(cookie.to_u64()), cookie);
        assert_eq!(capture.to_u64() as u32, 3 << 16 | 0xBEEF, "the low half is Header::operation");
    }
}
