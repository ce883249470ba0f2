//! The parts of a trace, independent of the way in which it is stored.
//!
//! The unit is the 64-byte roctracer [`ActivityRecord`]; data that does not fit in it stands beside it. Ids of strings,
//! processes and so on are resolved through the tables of the trace. All times are nanoseconds of CLOCK_BOOTTIME.

use serde::{Deserialize, Serialize};
use tracer_common::activity::ActivityRecord;

/// A string of the trace; 0 is the empty string, and means "unknown" for names.
pub type StringId = u32;

/// One joined event.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// A call of the HIP or HSA API, or of roctx.
    Api(ApiCall),
    /// A kernel that ran.
    Dispatch(Dispatch),
    /// A copy that ran.
    Copy(Copy),
    /// A barrier packet with a completion signal.
    Barrier(Barrier),
}

impl Event {
    /// The activity record of the event.
    pub fn record(&self) -> &ActivityRecord {
        match self {
            Self::Api(e) => &e.record,
            Self::Dispatch(e) => &e.record,
            Self::Copy(e) => &e.record,
            Self::Barrier(e) => &e.record,
        }
    }
}

/// A call. `record.op` indexes the operation table of its domain.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ApiCall {
    /// Domain `HIP_API`, `HSA_API` or `ROCTX`; process and thread are in it. An open call has `end_ns` 0,
    /// one that was open when tracing began has `begin_ns` 0. Of roctx, `bytes_or_name` is the [`StringId`] of
    /// the message.
    pub record: ActivityRecord,
    /// Correlation id of the call around this one, 0 at the outermost.
    pub parent_id: u64,
    /// Return register.
    pub ret: u64,
    /// `rdi, rsi, rdx, rcx, r8, r9` at entry.
    pub args: [u64; 6],
    /// Stack arguments or output value, as `flags` tells. Of roctx, the first is the call's number among those
    /// of its thread, from 1 on: 0 when it is not known.
    pub extra: [u64; 3],
    /// Bits of [`tracer_common::bpf::flag`].
    pub flags: u16,
}

/// A kernel dispatch. Domain `HIP_OPS` when a HIP call launched it, else `HSA_OPS`; `op` is
/// [`tracer_common::activity::op::DISPATCH`]; `record.bytes_or_name` is the [`StringId`] of the
/// kernel's raw (mangled) name, without a `.kd` suffix.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Dispatch {
    /// Times of execution on the GPU; `process_or_device` is the agent's node id; `queue_id` the
    /// HSA queue id; `thread_id` the enqueueing thread.
    pub record: ActivityRecord,
    /// Process that enqueued it.
    pub process_id: u32,
    /// [`StringId`] of the demangled name.
    pub demangled: StringId,
    /// The kernel's key in the table of kernels; 0 when unknown.
    pub kernel_id: u32,
    /// The operation's number in the trace, ascending in the order of enqueueing on each thread.
    pub dispatch_id: u64,
    /// The time when it was enqueued.
    pub enqueue_ns: u64,
    /// Grid size in work-items.
    pub grid: [u32; 3],
    /// Workgroup size in work-items.
    pub workgroup: [u16; 3],
    /// Bits of [`op_flag`].
    pub flags: u16,
    /// Bytes of LDS.
    pub group_bytes: u32,
    /// Bytes of scratch per work-item.
    pub private_bytes: u32,
    /// HIP stream handle of the launching call, 0 for the default stream or unknown.
    pub stream: u64,
}

/// A memory copy or fill by the copy engines. `record.kind` tells the direction,
/// `record.bytes_or_name` the bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Copy {
    /// Times of execution; `process_or_device` is the node id of the device that is involved.
    pub record: ActivityRecord,
    /// Process that requested it.
    pub process_id: u32,
    /// Node id of the source agent.
    pub src_node: u32,
    /// Node id of the destination agent.
    pub dst_node: u32,
    /// Bits of [`op_flag`].
    pub flags: u32,
    /// As [`Dispatch::dispatch_id`].
    pub dispatch_id: u64,
    /// The time when it was requested.
    pub enqueue_ns: u64,
    /// HIP stream handle of the requesting call, 0 for the default stream or unknown.
    pub stream: u64,
}

/// A barrier packet. `op` is [`tracer_common::activity::op::BARRIER`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Barrier {
    /// Times of execution, device, queue and thread as in [`Dispatch::record`].
    pub record: ActivityRecord,
    /// Process that enqueued it.
    pub process_id: u32,
    /// Bits of [`op_flag`].
    pub flags: u32,
    /// As [`Dispatch::dispatch_id`].
    pub dispatch_id: u64,
    /// As [`Dispatch::enqueue_ns`].
    pub enqueue_ns: u64,
}

/// Bits that qualify a GPU operation.
pub mod op_flag {
    /// The launching call was found by time on the same thread, not by the dispatch probe.
    pub const JOINED_BY_TIME: u16 = 1 << 0;
    /// The GPU start lay before the enqueue; times are kept as they came.
    pub const STARTS_BEFORE_ENQUEUE: u16 = 1 << 1;
    /// No completion was seen: begin and end are 0.
    pub const INCOMPLETE: u16 = 1 << 2;
    /// The times are ticks of the GPU, converted by an estimate of roctap's own and not by the runtime:
    /// they can be off by [`super::Process::clock_error_ns`].
    pub const ESTIMATED_TIMES: u16 = 1 << 3;
}

/// A traced process.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Process {
    /// Its command line, joined by spaces.
    pub command: String,
    /// The time from which on it was traced completely.
    pub attached_ns: u64,
    /// The end of that time; 0 while it goes on.
    pub detached_ns: u64,
    /// The source of its GPU times, and the reason for which there is no better one.
    pub gpu_tier: String,
    /// The bound of the error of its GPU times, ns; 0 when there are none, 2⁶⁴ - 1 when it is not known
    /// ([`UNKNOWN_CLOCK_ERROR_NS`](tracer_common::shim::UNKNOWN_CLOCK_ERROR_NS)).
    pub clock_error_ns: u64,
    /// The time that one thread of it was stopped when the shim was put into it, ns; 0 when none was.
    #[serde(default)]
    pub stopped_ns: u64,
    /// By how much CLOCK_BOOTTIME is ahead in its time namespace, ns. The times of the trace are the machine's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clock_ahead_ns: i64,
    /// Libraries that were probed: path, build id or version, functions probed.
    pub libraries: Vec<ProbedLibrary>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// A probed library.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ProbedLibrary {
    /// Path as the process sees it.
    pub path: String,
    /// Release, such as `5.2.3`, or empty.
    pub version: String,
    /// Functions probed.
    pub probed: u32,
    /// Of these, without a return probe.
    pub entry_only: u32,
}

/// An agent: a CPU or a GPU.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Agent {
    /// Name, such as `gfx90a`.
    pub name: String,
    /// Whether it is a GPU.
    pub gpu: bool,
    /// Index among the agents of its type.
    pub index: u32,
}

/// A kernel symbol.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Kernel {
    /// Raw name.
    pub name: StringId,
    /// Vector registers per work-item.
    pub vgpr_count: u32,
    /// Accumulation vector registers per work-item.
    pub accum_vgpr_count: u32,
    /// Scalar registers per wavefront.
    pub sgpr_count: u32,
}

/// The recording's own facts, in the file's header.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// Version of roctap that recorded.
    pub roctap_version: String,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// roctap's command line.
    pub command: String,
    /// Clock offsets when recording began.
    pub clock: ClockOffsets,
}

/// Offsets of other clocks to CLOCK_BOOTTIME at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClockOffsets {
    /// The moment, ns of CLOCK_BOOTTIME.
    pub boottime_ns: u64,
    /// CLOCK_MONOTONIC at that moment.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME at that moment.
    pub realtime_ns: u64,
}
