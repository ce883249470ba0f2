//! The shared memory between the injected shim (producer) and `roctap` (consumer).
//!
//! `roctap` creates a sealed memfd of [`Layout::total_bytes`], writes the [`control`] words and
//! hands it to the shim. It holds two pages of control words, then [`Layout::rings`] rings, each a
//! [`ring_word`] block followed by its data. A thread of the target claims a ring by swapping its
//! thread id into [`ring_word::OWNER`]; `roctap` frees it when the thread is gone and the ring is
//! empty. Everything is accessed as 64-bit atomics; neither side trusts the other's numbers.
//!
//! A frame in a ring is one word, `len_words | kind << 32`, where `len_words` counts the whole
//! frame, and then the record.

use crate::{bpf::wire, calls, loss::ShimLoss, slots};

/// "roctapsh", little endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"roctapsh");
/// Version of this layout and of the records. A shim refuses another version.
pub const VERSION: u64 = 12;
/// The environment variable that names shared memories: paths such as `/proc/123/fd/5`, separated by
/// colons. A process takes the first that no other process has claimed, so that children of a traced
/// process, which inherit the variable, get memories of their own.
pub const MEMORY_ENV: &str = "ROCTAP_SHIM_MEMORY";
/// The exported function that is the dispatch probe site.
pub const DISPATCH_SITE: &str = "roctap_dispatch_site";
/// Its code: a 1-byte nop, which every kernel emulates when it is probed, a 5-byte nop, at which some
/// replace the trap by a call (and most single-step), and a return. One of the nops is probed.
pub const DISPATCH_CODE: [u8; 7] = [0x90, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3];
/// Offset of the 5-byte nop.
pub const DISPATCH_LONG_NOP: usize = 1;

/// The body of a naked function of [`DISPATCH_CODE`].
#[macro_export]
macro_rules! dispatch_code {
    () => {
        core::arch::naked_asm!(
            ".byte {}, {}, {}, {}, {}, {}, {}",
            const $crate::shim::DISPATCH_CODE[0],
            const $crate::shim::DISPATCH_CODE[1],
            const $crate::shim::DISPATCH_CODE[2],
            const $crate::shim::DISPATCH_CODE[3],
            const $crate::shim::DISPATCH_CODE[4],
            const $crate::shim::DISPATCH_CODE[5],
            const $crate::shim::DISPATCH_CODE[6],
        )
    };
}
/// In place of a sequence number, the dispatch site's first argument when the second and third are the begin and the
/// end of the shim's own code. Calls of the runtime from that code are not the program's.
pub const SITE_OWN_CODE: u64 = u64::MAX;
/// In place of a sequence number, the dispatch site's first argument when the shim begins to record
/// calls of the tables that the second says ([`crate::slots::tables`]): probes at their functions record nothing
/// from then on.
pub const SITE_CALLS: u64 = u64::MAX - 1;
/// The exported function that makes the shim of a running process record: `void *f(Attach *)`, called
/// once, on a detached thread of its own that returns to where threads begin.
pub const ATTACH_FUNCTION: &str = "roctap_attach";
/// The exported function for later recordings: `void f(Attach *)`. It hands the request to the shim's own thread and
/// calls nothing of libc, so any thread can call it, even one that libc does not know. It can be called when an earlier
/// recording has ended, or its reader is gone; the memory is another one then.
pub const ATTACH_AGAIN_FUNCTION: &str = "roctap_attach_again";
/// The name of the shim's own thread.
pub const THREAD_NAME: &core::ffi::CStr = c"roctap-shim";
/// The exported 64-bit word that holds one of [`shim_status`].
pub const LIFE_WORD: &str = "ROCTAP_SHIM_LIFE";
/// The exported 64-bit word that holds the id of the process, as that sees it, when [`shim_status::WORKING`] is told.
pub const PROCESS_WORD: &str = "ROCTAP_SHIM_PROCESS";
/// The exported 64-bit word that holds the [`VERSION`] of a shim's file.
pub const PROTOCOL_WORD: &str = "ROCTAP_SHIM_PROTOCOL";
/// Size of the control block in bytes.
pub const CONTROL_BYTES: usize = 8192;
/// Size of a ring's control words in bytes, before its data.
pub const RING_HEADER_BYTES: usize = 4096;

/// The number of times that the used part of a ring doubles: of 4 MiB, 16 KiB are the first.
pub const GROWTHS: usize = 8;

/// The life of a shim in its process: values of [`LIFE_WORD`].
pub mod shim_status {
    /// Nothing was asked of it yet.
    pub const NEW: u64 = 0;
    /// Its own thread is there, which [`super::ATTACH_AGAIN_FUNCTION`] needs.
    pub const WORKING: u64 = 1;
    /// The process is a forked child, where that thread does not exist; the runtime had not been opened,
    /// so the child may use the GPU. This shim does nothing any more.
    pub const FORKED: u64 = 2;
    /// The same, and the runtime was open: open objects are the parent's, and of no use to the child.
    pub const FORKED_OPEN: u64 = 3;
}

/// Indices of 64-bit words in the control block.
pub mod control {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 1;
    /// Number of rings.
    pub const RINGS: usize = 2;
    /// Data bytes of each ring, a power of two.
    pub const RING_BYTES: usize = 3;
    /// Written by `roctap` at each drain: CLOCK_BOOTTIME ns. Older than
    /// [`super::HEARTBEAT_TIMEOUT_NS`]: nobody reads.
    pub const HEARTBEAT_NS: usize = 8;
    /// Written by `roctap`: 1 record; anything else: end. The shim then writes the operations in flight, says
    /// [`super::state::DORMANT`], and gives the memory up: it never looks at it again.
    pub const RECORD: usize = 9;
    /// Written by the shim: its state, one of [`super::state`].
    pub const STATE: usize = 16;
    /// Written by the shim: its process id as it sees it.
    pub const PID: usize = 17;
    /// Written by the shim: the bound of the error of all GPU times that it told, ns; 0 before the first, and
    /// [`super::UNKNOWN_CLOCK_ERROR_NS`] when that is not known.
    pub const CLOCK_ERROR_NS: usize = 18;
    /// Written by the shim of a running process, once: the status that it wrote to [`super::Attach::status`], which may
    /// be gone by the time that roctap looks.
    pub const ATTACH_STATUS: usize = 19;
    /// Written by the shim: one more than the highest ring that was ever claimed, before anything is
    /// written to it. `roctap` looks at no others.
    pub const CLAIMED_RINGS: usize = 20;
    /// Written by the shim: the tables whose calls it records ([`crate::slots::tables`]), once it has said so
    /// through the dispatch site.
    pub const CALLS_TAKEN: usize = 24;
    /// Written by `roctap`: the first of the correlation ids of this process's calls.
    pub const FIRST_CALL_ID: usize = 25;
    /// Written by `roctap`: the only process that may claim the memory, as it sees itself; 0: the first that comes.
    pub const ONLY_PID: usize = 32;
    /// First of the shim's loss counters, indexed by [`crate::loss::ShimLoss`].
    pub const LOSSES: usize = 64;
    /// Written by `roctap`: the parts that the shim is to record of the calls of each of [`crate::slots`], see
    /// [`crate::calls::Wanted`].
    pub const CALLS: usize = 128;
}

/// Indices of 64-bit words in a ring's header. Producer's and consumer's words are on cache lines
/// of their own.
pub mod ring_word {
    /// Thread id of the owner; 0 when free.
    pub const OWNER: usize = 0;
    /// Producer: words written since the beginning.
    pub const HEAD: usize = 8;
    /// Producer: frames dropped because the ring was full.
    pub const DROPPED: usize = 9;
    /// Consumer: words read since the beginning.
    pub const TAIL: usize = 16;
    /// Producer: first of the [`super::GROWTHS`] words that tell the ring's growth, see [`crate::ring`]. `roctap`
    /// writes 0 where nobody owns the ring.
    pub const GROWN: usize = 24;
    /// Producer: its open calls, see [`crate::calls`].
    pub const OPEN_CALLS: usize = 64;
}

/// Values of [`control::STATE`].
pub mod state {
    /// The shim has not been loaded.
    pub const NONE: u64 = 0;
    /// Intercepting and recording.
    pub const ACTIVE: u64 = 1;
    /// Loaded, passing everything through.
    pub const DORMANT: u64 = 2;
    /// The runtime's tables are not what the shim knows; it touched nothing.
    pub const UNSUPPORTED: u64 = 3;
    /// The shim could not start its thread; it touched nothing.
    pub const NO_THREAD: u64 = 4;
}

/// Values of [`Attach::status`].
pub mod attach_status {
    /// The shim has not answered.
    pub const PENDING: u64 = 0;
    /// Recording as asked.
    pub const RECORDING: u64 = 1;
    /// The shim speaks another [`super::VERSION`].
    pub const VERSION: u64 = 2;
    /// The memory cannot be mapped, is not ours or is taken.
    pub const MEMORY: u64 = 3;
    /// The runtime's tables or functions are not what the shim knows; it touched nothing.
    pub const UNSUPPORTED: u64 = 4;
    /// The shim could not start its thread.
    pub const THREAD: u64 = 5;
    /// An earlier `roctap` still records with this shim.
    pub const BUSY: u64 = 7;
    /// The shim is broken, or the process was forked from the one that it was loaded into.
    pub const UNUSABLE: u64 = 8;
    /// The process has several HSA runtimes, and the shim records another one.
    pub const SECOND_RUNTIME: u64 = 9;
    /// The runtime was initialized anew, and another tool stands where the shim has been, which may lead
    /// to the shim already.
    pub const COVERED: u64 = 10;
}

/// A heartbeat older than this says that nobody reads.
pub const HEARTBEAT_TIMEOUT_NS: u64 = 3_000_000_000;
/// A heartbeat older than this never returns: the shim gives the memory up.
pub const HEARTBEAT_GONE_NS: u64 = 30_000_000_000;
/// A heartbeat that did not change for this long allows another `roctap` to attach.
pub const HEARTBEAT_SUSPECT_NS: u64 = 500_000_000;

/// Value of [`control::CLOCK_ERROR_NS`]: there are times, and by how much they are off is not known.
pub const UNKNOWN_CLOCK_ERROR_NS: u64 = u64::MAX;

/// Sizes of one shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Number of rings.
    pub rings: usize,
    /// Data bytes of each ring.
    pub ring_bytes: usize,
}

impl Layout {
    /// 2,048 rings of 4 MiB, which are touched as far as they are needed.
    pub const DEFAULT: Self = Self { rings: 2048, ring_bytes: 4 << 20 };

    /// Whether the sizes are within what either side accepts from the other.
    pub const fn is_sane(self) -> bool {
        self.rings >= 1
            && self.rings <= 4096
            && self.ring_bytes.is_power_of_two()
            && self.ring_bytes >= 4096
            && self.ring_bytes <= 1 << 28
    }

    /// Bytes from the beginning of one ring's header to the next.
    pub const fn stride(self) -> usize {
        self.ring_bytes + RING_HEADER_BYTES
    }

    /// Offset of ring `index`'s header. Its data follow after [`RING_HEADER_BYTES`].
    pub const fn ring_offset(self, index: usize) -> usize {
        CONTROL_BYTES + index * self.stride()
    }

    /// Bytes of the whole memory.
    pub const fn total_bytes(self) -> usize {
        self.ring_offset(self.rings)
    }
}

/// The kind of a frame, in the high half of its first word.
pub mod kind {
    /// A [`Dispatch`](super::Dispatch): written by the enqueueing thread.
    pub const DISPATCH: u32 = 1;
    /// A [`Barrier`](super::Barrier) with a completion signal: written by the enqueueing thread.
    pub const BARRIER: u32 = 2;
    /// A [`Copy`](super::Copy): written by the enqueueing thread.
    pub const COPY: u32 = 3;
    /// A [`Complete`](super::Complete): written by the thread that saw it.
    pub const COMPLETE: u32 = 4;
    /// A [`Symbol`](super::Symbol) followed by its name, or the end of that, NUL-padded to 8 bytes.
    pub const SYMBOL: u32 = 5;
    /// An [`Agent`](super::Agent).
    pub const AGENT: u32 = 6;
    /// A [`Queue`](super::Queue).
    pub const QUEUE: u32 = 7;
    /// A [`Call`](crate::calls::Call): written by the calling thread.
    pub const CALL: u32 = 8;
    /// A part of the name of the symbol that comes next in the same ring: the number of its bytes before, the number of
    /// these, and these, NUL-padded to 8 bytes. A name that was begun may begin anew, in another ring too.
    pub const NAME: u32 = 9;
    /// A [`Link`](super::Link): written by the enqueueing thread.
    pub const LINK: u32 = 10;
}

/// Bits of [`Dispatch::flags`] and [`Barrier::flags`].
pub mod packet_flag {
    /// The packet carried a completion signal of the application.
    pub const HAD_SIGNAL: u32 = 1 << 0;
}

wire! {
    /// A kernel was enqueued.
    pub struct Dispatch {
        /// Unique in the process: ring index << 40 | count. Ascends on each thread.
        pub sequence: u64,
        /// The time when the doorbell was about to ring, ns of CLOCK_BOOTTIME.
        pub enqueue_ns: u64,
        /// Address of the kernel's descriptor in device memory: joins with [`Symbol`].
        pub kernel_object: u64,
        /// HSA queue id.
        pub queue_id: u64,
        /// Packet index in the queue.
        pub packet_index: u64,
        /// Agent handle.
        pub agent: u64,
        /// Grid size in work-items: x, y, z.
        pub grid: [u32; 3],
        /// Workgroup size in work-items: x, y, z.
        pub workgroup: [u16; 3],
        /// Packet header.
        pub header: u16,
        /// Bytes of group segment (LDS).
        pub group_bytes: u32,
        /// Bytes of private segment (scratch) per work-item.
        pub private_bytes: u32,
        /// Bits of [`packet_flag`].
        pub flags: u32,
        /// The number of symbols that had been written by then: the kernel's is one of these. They come by another
        /// ring.
        pub symbols: u32,
        /// Zero.
        pub reserved: u32,
    }
}

wire! {
    /// A barrier packet with a completion signal was enqueued.
    pub struct Barrier {
        /// As in [`Dispatch::sequence`].
        pub sequence: u64,
        /// As in [`Dispatch::enqueue_ns`].
        pub enqueue_ns: u64,
        /// HSA queue id.
        pub queue_id: u64,
        /// Packet index in the queue.
        pub packet_index: u64,
        /// Agent handle.
        pub agent: u64,
        /// Bits of [`packet_flag`].
        pub flags: u32,
        /// Zero.
        pub reserved: u32,
    }
}

wire! {
    /// An asynchronous copy was requested.
    pub struct Copy {
        /// As in [`Dispatch::sequence`].
        pub sequence: u64,
        /// The time when it was requested, ns of CLOCK_BOOTTIME.
        pub enqueue_ns: u64,
        /// Destination address.
        pub dst: u64,
        /// Source address.
        pub src: u64,
        /// Destination agent handle.
        pub dst_agent: u64,
        /// Source agent handle.
        pub src_agent: u64,
        /// Bytes to copy.
        pub size_bytes: u64,
    }
}

wire! {
    /// The calling thread has enqueued an operation in a HIP call that the shim records. Other operations are reported
    /// by the dispatch site.
    pub struct Link {
        /// The operation's number.
        pub sequence: u64,
        /// The call's id.
        pub correlation_id: u64,
        /// Its domain and operation, as in [`crate::bpf::Header::operation`].
        pub operation: u32,
        /// 1 if no other thread can have enqueued the operation, else 0.
        pub owned: u32,
    }
}

wire! {
    /// An operation completed.
    pub struct Complete {
        /// The operation's number.
        pub sequence: u64,
        /// Start on the GPU, ns of CLOCK_BOOTTIME, converted by the runtime.
        pub start_ns: u64,
        /// End on the GPU, ns of CLOCK_BOOTTIME, converted by the runtime.
        pub end_ns: u64,
    }
}

wire! {
    /// A kernel symbol became known; its raw name follows.
    pub struct Symbol {
        /// Address of the kernel's descriptor in device memory.
        pub kernel_object: u64,
        /// The time from which on it is there, ns of CLOCK_BOOTTIME: an address can be used again after an unload.
        pub since_ns: u64,
        /// Bytes of group segment (LDS).
        pub group_bytes: u32,
        /// Bytes of private segment (scratch) per work-item.
        pub private_bytes: u32,
        /// Vector registers per work-item; 0 when unknown.
        pub vgpr_count: u32,
        /// Accumulation vector registers per work-item; 0 when unknown.
        pub accum_vgpr_count: u32,
        /// Scalar registers per wavefront; 0 when unknown.
        pub sgpr_count: u32,
        /// Bytes of the name that follow: the last ones of it.
        pub name_bytes: u32,
        /// Bytes of the name before these, in [`kind::NAME`] frames.
        pub name_before: u64,
        /// Bytes from the descriptor to the begin of the code; 0 when unknown.
        pub entry_offset: i64,
    }
}

wire! {
    /// An agent of the runtime.
    pub struct Agent {
        /// Agent handle.
        pub handle: u64,
        /// 0 CPU, 1 GPU.
        pub device_type: u32,
        /// KFD node id.
        pub node_id: u32,
        /// Index among the agents of its type, in the runtime's order.
        pub index: u32,
        /// Zero.
        pub reserved: u32,
        /// NUL-terminated name, such as `gfx90a`.
        pub name: [u8; 32],
    }
}

wire! {
    /// A queue was created or destroyed.
    pub struct Queue {
        /// HSA queue id.
        pub queue_id: u64,
        /// Agent handle.
        pub agent: u64,
        /// The time, ns of CLOCK_BOOTTIME.
        pub time_ns: u64,
        /// Packets that fit.
        pub size: u32,
        /// 1 created, 0 destroyed.
        pub created: u32,
    }
}

wire! {
    /// The argument of [`ATTACH_FUNCTION`]. `version` and `status` keep their places in all versions.
    pub struct Attach {
        /// [`VERSION`] of the caller.
        pub version: u64,
        /// One of [`attach_status`], written last; also [`control::ATTACH_STATUS`] of the memory, if
        /// that can be mapped. If not, the block stays for a second.
        pub status: u64,
        /// Descriptor of the shared memory; the shim closes it.
        pub memory_fd: u64,
        /// Address of the HSA runtime's live `CoreApiTable`.
        pub core_table: u64,
        /// Address of the HSA runtime's live `AmdExtTable`.
        pub amd_ext_table: u64,
        /// The mapping that holds this structure, which the shim removes at its end: address.
        pub block: u64,
        /// The mapping's size in bytes; 0: the mapping is not the shim's to remove.
        pub block_bytes: u64,
        /// Address of a 32-bit word that the kernel makes 0 when the thread that came in with the
        /// block is gone: nothing of the block may be removed before.
        pub thread_alive: u64,
        /// Not 0: no seccomp filter of the process keeps it from `process_vm_readv`.
        pub may_read: u64,
    }
}

/// Longest kernel name that is kept, in bytes; a longer one is cut.
pub const MAX_NAME_BYTES: usize = 1 << 20;
/// Bytes of a name in one frame.
pub const NAME_PART_BYTES: usize = 4096;

const _: () = {
    assert!(size_of::<Dispatch>() == 88);
    assert!(size_of::<Barrier>() == 48);
    assert!(size_of::<Copy>() == 56);
    assert!(size_of::<Complete>() == 24);
    assert!(size_of::<Link>() == 24);
    assert!(size_of::<Symbol>() == 56);
    assert!(size_of::<Agent>() == 56);
    assert!(size_of::<Queue>() == 32);
    assert!(size_of::<Attach>() == 72);
    assert!(control::LOSSES + ShimLoss::COUNT <= control::CALLS);
    assert!(control::CALLS + slots::SLOT_COUNT <= CONTROL_BYTES / 8);
    let open_words = calls::OPEN_CALLS * calls::OPEN_WORDS;
    assert!(ring_word::GROWN + GROWTHS <= ring_word::OPEN_CALLS);
    assert!(ring_word::OPEN_CALLS + open_words <= RING_HEADER_BYTES / 8);
    assert!(Layout::DEFAULT.is_sane());
};
