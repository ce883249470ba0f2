//! The HSA runtime's structures, as far as they are needed.
//!
//! Source: the headers of ROCm 5.2.3 (`hsa_api_trace.h`, `amd_hsa_signal.h`, `amd_hsa_queue.h`,
//! `hsa_ven_amd_loader.h`), compared with those of 5.7, 6.4 and 7.2, in which all of this is the same but
//! for the order of the AMD extension table: see [`tracer_common::hsa_layout`].
//!
//! Memory that the runtime or the GPU writes while we look is made of atomics here. Handles are
//! structures of one 64-bit word in C, which the ABI passes exactly like `u64`.

#![expect(unsafe_code, reason = "entries of the runtime's tables")]

use core::ffi::{c_char, c_int, c_void};
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

use tracer_common::hsa_functions::slot_of;
use tracer_common::hsa_layout::AmdExtLayout;

/// `hsa_status_t`; 0 is success.
pub type Status = u32;
/// `HSA_STATUS_SUCCESS`.
pub const SUCCESS: Status = 0;
/// `hsa_status_t HSA_STATUS_ERROR`.
pub const ERROR: Status = 0x1000;
/// `hsa_status_t HSA_STATUS_ERROR_NOT_INITIALIZED`.
pub const NOT_INITIALIZED: Status = 0x100B;

/// One function pointer of a table. Others may call through it at any time.
#[repr(transparent)]
pub struct Entry<F>(pub(crate) AtomicUsize, PhantomData<F>);

/// `ApiTableVersion`. `minor` is the table's size in bytes.
#[repr(C)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub step: u32,
    pub reserved: u32,
}

/// `HsaApiTable`, what `OnLoad` receives.
#[repr(C)]
pub struct ApiTable {
    pub version: Version,
    pub core: *const CoreTable,
    pub amd_ext: *const Version,
    _finalizer: *const Version,
    /// Only there if the table's size says so, as what follows.
    pub image: *const Version,
    /// Since ROCm 6.1.
    pub tools: *const ToolTable,
}

/// `ToolsApiTable`: functions that the runtime calls if a tool has set them.
#[repr(C)]
pub struct ToolTable {
    pub version: Version,
    /// At the begin and at the end of allocating, of freeing, and of reclaiming from an idle queue.
    pub scratch: [Entry<ToolEvent>; 6],
}

/// `hsa_amd_event_scratch_alloc_end_t`, and what others have of it: at the begin of an allocation all but how much, at
/// the others what is before the dispatch.
#[repr(C)]
pub struct ScratchEvent {
    /// `hsa_amd_tool_event_kind_t`: 1 to 6, in the order of the table.
    pub kind: u32,
    pub queue: *const AmdQueue,
    /// `hsa_amd_event_scratch_alloc_flag_t`.
    pub flags: u32,
    /// The packet that wants it, by its index in the queue.
    pub dispatch: u64,
    pub bytes: usize,
    /// Waves at most.
    pub slots: usize,
}

/// `hsa_amd_tool_event`.
pub type ToolEvent = unsafe extern "C-unwind" fn(*const ScratchEvent) -> Status;

pub type SignalStore = unsafe extern "C-unwind" fn(u64, i64);
pub type SignalLoad = unsafe extern "C-unwind" fn(u64) -> i64;
pub type AsyncHandler = unsafe extern "C-unwind" fn(
    signal: u64,
    condition: u32,
    compare: i64,
    handler: *const c_void,
    data: *mut c_void,
) -> Status;
pub type WaitAny = unsafe extern "C-unwind" fn(
    count: u32,
    signals: *const u64,
    conditions: *const u32,
    compare: *const i64,
    timeout: u64,
    wait_state: u32,
    satisfying: *mut i64,
) -> u32;
pub type SignalWait = unsafe extern "C-unwind" fn(
    signal: u64,
    condition: u32,
    compare: i64,
    timeout: u64,
    wait_state: u32,
) -> i64;
pub type ShutDown = unsafe extern "C-unwind" fn() -> Status;
pub type AgentCallback = unsafe extern "C-unwind" fn(u64, *mut c_void) -> Status;
pub type IterateAgents = unsafe extern "C-unwind" fn(AgentCallback, *mut c_void) -> Status;
pub type GetInfo = unsafe extern "C-unwind" fn(u64, u32, *mut c_void) -> Status;
pub type QueueCreate = unsafe extern "C-unwind" fn(
    agent: u64,
    size: u32,
    queue_type: u32,
    callback: *const c_void,
    data: *mut c_void,
    private_segment_size: u32,
    group_segment_size: u32,
    queue: *mut *const AmdQueue,
) -> Status;
pub type StoreWriteIndex = unsafe extern "C-unwind" fn(queue: *const AmdQueue, value: u64);
pub type CasWriteIndex =
    unsafe extern "C-unwind" fn(queue: *const AmdQueue, expected: u64, value: u64) -> u64;
pub type AddWriteIndex = unsafe extern "C-unwind" fn(queue: *const AmdQueue, value: u64) -> u64;
pub type QueueDestroy = unsafe extern "C-unwind" fn(*const AmdQueue) -> Status;
pub type SignalDestroy = unsafe extern "C-unwind" fn(u64) -> Status;
pub type ExecutableDestroy = unsafe extern "C-unwind" fn(u64) -> Status;
pub type ExecutableFreeze = unsafe extern "C-unwind" fn(u64, *const c_char) -> Status;
pub type MajorExtensionTable = unsafe extern "C-unwind" fn(u16, u16, usize, *mut c_void) -> Status;
pub type AgentSymbolCallback = unsafe extern "C-unwind" fn(u64, u64, u64, *mut c_void) -> Status;
pub type IterateAgentSymbols =
    unsafe extern "C-unwind" fn(u64, u64, AgentSymbolCallback, *mut c_void) -> Status;
pub type SetProfiler = unsafe extern "C-unwind" fn(*const AmdQueue, c_int) -> Status;
pub type CopyProfiling = unsafe extern "C-unwind" fn(bool) -> Status;
pub type CopyTime = unsafe extern "C-unwind" fn(u64, *mut Times) -> Status;
pub type ConvertTick = unsafe extern "C-unwind" fn(agent: u64, tick: u64, ns: *mut u64) -> Status;
pub type SignalCreate = unsafe extern "C-unwind" fn(i64, u32, *const u64, u64, *mut u64) -> Status;
pub type AsyncCopy = unsafe extern "C-unwind" fn(
    dst: *mut c_void,
    dst_agent: u64,
    src: *const c_void,
    src_agent: u64,
    size: usize,
    dependencies: u32,
    dependency: *const u64,
    completion: u64,
) -> Status;
pub type AsyncCopyOnEngine = unsafe extern "C-unwind" fn(
    dst: *mut c_void,
    dst_agent: u64,
    src: *const c_void,
    src_agent: u64,
    size: usize,
    dependencies: u32,
    dependency: *const u64,
    completion: u64,
    engine: u32,
    force: bool,
) -> Status;
pub type AsyncCopyRect = unsafe extern "C-unwind" fn(
    dst: *const PitchedPtr,
    dst_offset: *const Dim3,
    src: *const PitchedPtr,
    src_offset: *const Dim3,
    range: *const Dim3,
    copy_agent: u64,
    direction: u32,
    dependencies: u32,
    dependency: *const u64,
    completion: u64,
) -> Status;

/// `hsa_amd_profiling_async_copy_time_t`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Times {
    /// Ns of the HSA system clock, which is CLOCK_BOOTTIME; or a GPU's ticks, where that is said.
    pub start: u64,
    /// As `start`.
    pub end: u64,
}

/// `hsa_pitched_ptr_t`.
#[repr(C)]
pub struct PitchedPtr {
    pub base: u64,
    pub pitch: u64,
    pub slice: u64,
}

/// `hsa_dim3_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// `CoreApiTable`.
#[repr(C)]
pub struct CoreTable {
    pub version: Version,
    pub init: Entry<ShutDown>,
    pub shut_down: Entry<ShutDown>,
    _a: [usize; 3],
    pub iterate_agents: Entry<IterateAgents>,
    pub agent_get_info: Entry<GetInfo>,
    pub queue_create: Entry<QueueCreate>,
    _b: [usize; 1],
    pub queue_destroy: Entry<QueueDestroy>,
    _c: [usize; 5],
    pub queue_store_write_index_relaxed: Entry<StoreWriteIndex>,
    pub queue_store_write_index_screlease: Entry<StoreWriteIndex>,
    pub queue_cas_write_index_scacq_screl: Entry<CasWriteIndex>,
    pub queue_cas_write_index_scacquire: Entry<CasWriteIndex>,
    pub queue_cas_write_index_relaxed: Entry<CasWriteIndex>,
    pub queue_cas_write_index_screlease: Entry<CasWriteIndex>,
    pub queue_add_write_index_scacq_screl: Entry<AddWriteIndex>,
    pub queue_add_write_index_scacquire: Entry<AddWriteIndex>,
    pub queue_add_write_index_relaxed: Entry<AddWriteIndex>,
    pub queue_add_write_index_screlease: Entry<AddWriteIndex>,
    _d: [usize; 13],
    pub signal_destroy: Entry<SignalDestroy>,
    pub signal_load_relaxed: Entry<SignalLoad>,
    pub signal_load_scacquire: Entry<SignalLoad>,
    pub signal_store_relaxed: Entry<SignalStore>,
    pub signal_store_screlease: Entry<SignalStore>,
    pub signal_wait_relaxed: Entry<SignalWait>,
    pub signal_wait_scacquire: Entry<SignalWait>,
    _e: [usize; 22],
    pub signal_subtract_screlease: Entry<SignalStore>,
    _f: [usize; 16],
    pub executable_destroy: Entry<ExecutableDestroy>,
    _l: [usize; 1],
    pub executable_freeze: Entry<ExecutableFreeze>,
    pub executable_get_info: Entry<GetInfo>,
    _g: [usize; 5],
    pub executable_symbol_get_info: Entry<GetInfo>,
    _h: [usize; 4],
    pub system_get_major_extension_table: Entry<MajorExtensionTable>,
    _i: [usize; 3],
    pub signal_silent_store_relaxed: Entry<SignalStore>,
    pub signal_silent_store_screlease: Entry<SignalStore>,
    _j: [usize; 19],
    pub executable_iterate_agent_symbols: Entry<IterateAgentSymbols>,
    _k: [usize; 1],
}

/// The entries of an `AmdExtTable`, wherever its release has them.
#[derive(Clone, Copy)]
pub struct AmdExtTable {
    pub version: &'static Version,
    pub profiling_set_profiler_enabled: &'static Entry<SetProfiler>,
    pub profiling_async_copy_enable: &'static Entry<CopyProfiling>,
    pub profiling_get_async_copy_time: &'static Entry<CopyTime>,
    pub profiling_convert_tick_to_system_domain: &'static Entry<ConvertTick>,
    pub signal_async_handler: &'static Entry<AsyncHandler>,
    pub signal_wait_any: &'static Entry<WaitAny>,
    pub memory_async_copy: &'static Entry<AsyncCopy>,
    pub signal_create: &'static Entry<SignalCreate>,
    pub memory_async_copy_rect: &'static Entry<AsyncCopyRect>,
    /// From ROCm 5.6 on.
    pub memory_async_copy_on_engine: Option<&'static Entry<AsyncCopyOnEngine>>,
    /// In ROCm 6.4 and 7.2.
    pub signal_wait_all: Option<&'static Entry<WaitAny>>,
}

impl AmdExtTable {
    /// The table that begins with `version`; none if it lacks an entry that is needed.
    ///
    /// # Safety
    ///
    /// The table is as long as its version says, has the `layout`, and lives as long as the process.
    pub unsafe fn at(version: &'static Version, layout: AmdExtLayout) -> Option<Self> {
        // SAFETY: the caller's promise; `by_name` is called with the types of the functions.
        unsafe {
            let table = (version, layout);
            Some(Self {
                version,
                profiling_set_profiler_enabled: by_name(
                    table,
                    "hsa_amd_profiling_set_profiler_enabled",
                )?,
                profiling_async_copy_enable: by_name(table, "hsa_amd_profiling_async_copy_enable")?,
                profiling_get_async_copy_time: by_name(
                    table,
                    "hsa_amd_profiling_get_async_copy_time",
                )?,
                profiling_convert_tick_to_system_domain: by_name(
                    table,
                    "hsa_amd_profiling_convert_tick_to_system_domain",
                )?,
                signal_async_handler: by_name(table, "hsa_amd_signal_async_handler")?,
                signal_wait_any: by_name(table, "hsa_amd_signal_wait_any")?,
                memory_async_copy: by_name(table, "hsa_amd_memory_async_copy")?,
                signal_create: by_name(table, "hsa_amd_signal_create")?,
                memory_async_copy_rect: by_name(table, "hsa_amd_memory_async_copy_rect")?,
                memory_async_copy_on_engine: by_name(table, "hsa_amd_memory_async_copy_on_engine"),
                signal_wait_all: by_name(table, "hsa_amd_signal_wait_all"),
            })
        }
    }
}

/// The entry of the function `name`, if the table has it.
///
/// # Safety
///
/// As for [`AmdExtTable::at`]; `F` is the function's type.
unsafe fn by_name<F>(
    (version, layout): (&'static Version, AmdExtLayout),
    name: &str,
) -> Option<&'static Entry<F>> {
    let offset = layout.offset(slot_of(name)?)? as usize;
    let has = offset + size_of::<Entry<F>>() <= version.minor as usize;
    // SAFETY: the caller's promise: it is within the table, all of which are aligned words.
    has.then(|| unsafe { &*ptr::from_ref(version).byte_add(offset).cast() })
}

/// `amd_signal_t`, which a signal handle points at. The packet processors write it too.
#[repr(C, align(64))]
pub struct AmdSignal {
    pub kind: AtomicI64,
    /// Value; in a doorbell the address of the hardware register.
    pub value: AtomicI64,
    pub event_mailbox: AtomicU64,
    pub event_id: AtomicU32,
    pub reserved1: u32,
    /// GPU ticks.
    pub start_ts: AtomicU64,
    /// GPU ticks.
    pub end_ts: AtomicU64,
    /// Of a doorbell: address of its [`AmdQueue`].
    pub queue: AtomicUsize,
    pub reserved3: [u32; 2],
}

/// Values of [`AmdSignal::kind`].
pub mod signal_kind {
    /// `AMD_SIGNAL_KIND_USER`.
    pub const USER: i64 = 1;
    /// `AMD_SIGNAL_KIND_DOORBELL`.
    pub const DOORBELL: i64 = -1;
    /// `AMD_SIGNAL_KIND_LEGACY_DOORBELL`.
    pub const LEGACY_DOORBELL: i64 = -2;
}

/// `amd_queue_t`, which begins with `hsa_queue_t`.
#[repr(C, align(64))]
pub struct AmdQueue {
    pub queue_type: u32,
    pub features: u32,
    /// Address of the packets.
    pub base_address: AtomicUsize,
    pub doorbell_signal: AtomicU64,
    /// Packets, a power of two.
    pub size: AtomicU32,
    pub reserved0: u32,
    pub id: AtomicU64,
    pub reserved1: [u32; 4],
    pub write_dispatch_id: AtomicU64,
    _a: [u32; 16],
    pub read_dispatch_id: AtomicU64,
    _b: [u32; 11],
    pub queue_properties: AtomicU32,
    _c: [u32; 18],
}

/// Bit of [`AmdQueue::queue_properties`]: completion signals get their times.
pub const QUEUE_PROFILING: u32 = 1 << 3;

/// `hsa_wait_state_t`.
pub mod wait_state {
    /// `HSA_WAIT_STATE_BLOCKED`: may sleep.
    pub const BLOCKED: u32 = 0;
    /// `HSA_WAIT_STATE_ACTIVE`: spins.
    pub const ACTIVE: u32 = 1;
}

/// `HSA_SIGNAL_CONDITION_LT`.
pub const BELOW: u32 = 2;

/// Whether `value` satisfies `hsa_signal_condition_t` against `compare`.
pub fn is_satisfied(condition: u32, value: i64, compare: i64) -> bool {
    match condition {
        0 => value == compare,
        1 => value != compare,
        2 => value < compare,
        3 => value >= compare,
        // The runtime returns at once.
        _ => true,
    }
}

/// One AQL packet. The header is the low half of the first word's low half.
#[repr(C, align(64))]
pub struct Packet(pub [AtomicU64; 8]);

/// Packet types, the low 8 bits of a header.
pub mod packet_type {
    /// Vendor-specific.
    pub const VENDOR: u8 = 0;
    /// The slot is free, or not published yet.
    pub const INVALID: u8 = 1;
    /// Kernel dispatch.
    pub const DISPATCH: u8 = 2;
    /// Barrier-AND.
    pub const BARRIER_AND: u8 = 3;
    /// Barrier-OR.
    pub const BARRIER_OR: u8 = 5;
}

/// `HSA_AMD_PACKET_TYPE_BARRIER_VALUE`, the format of a vendor-specific packet, in its third byte.
pub const VENDOR_BARRIER_VALUE: u8 = 2;

/// Header bit: starts only when every packet before it has completed.
pub const HEADER_BARRIER: u16 = 1 << 8;

/// `hsa_ven_amd_loader_1_03_pfn_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LoaderTable {
    pub query_host_address:
        Option<unsafe extern "C-unwind" fn(*const c_void, *mut *const c_void) -> Status>,
    pub unused: [usize; 5],
    pub iterate_executables:
        Option<unsafe extern "C-unwind" fn(AgentCallback, *mut c_void) -> Status>,
}

/// Attributes that are asked for.
pub mod info {
    /// `HSA_AGENT_INFO_NAME`: 64 bytes.
    pub const AGENT_NAME: u32 = 0;
    /// `HSA_AGENT_INFO_DEVICE`: u32, 0 CPU, 1 GPU.
    pub const AGENT_DEVICE: u32 = 17;
    /// `HSA_AMD_AGENT_INFO_DRIVER_NODE_ID`: u32.
    pub const AGENT_NODE: u32 = 0xA004;
    /// `HSA_EXECUTABLE_INFO_STATE`: u32.
    pub const EXECUTABLE_STATE: u32 = 2;
    /// `HSA_EXECUTABLE_STATE_FROZEN`.
    pub const FROZEN: u32 = 1;
    /// `HSA_EXECUTABLE_SYMBOL_INFO_TYPE`: u32.
    pub const SYMBOL_TYPE: u32 = 0;
    /// `HSA_EXECUTABLE_SYMBOL_INFO_NAME_LENGTH`: u32.
    pub const SYMBOL_NAME_LENGTH: u32 = 1;
    /// `HSA_EXECUTABLE_SYMBOL_INFO_NAME`: bytes without NUL.
    pub const SYMBOL_NAME: u32 = 2;
    /// `HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT`: u64.
    pub const SYMBOL_KERNEL_OBJECT: u32 = 22;
    /// `HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE`: u32.
    pub const SYMBOL_GROUP_BYTES: u32 = 13;
    /// `HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE`: u32.
    pub const SYMBOL_PRIVATE_BYTES: u32 = 14;
    /// `HSA_SYMBOL_KIND_KERNEL`.
    pub const KIND_KERNEL: u32 = 1;
    /// `HSA_EXTENSION_AMD_LOADER`.
    pub const EXTENSION_LOADER: u16 = 0x201;
    /// `HSA_AMD_SIGNAL_AMD_GPU_ONLY`.
    pub const SIGNAL_GPU_ONLY: u64 = 1;
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(ApiTable, core) == 16 && offset_of!(ApiTable, amd_ext) == 24);
    assert!(offset_of!(ApiTable, image) == 40 && offset_of!(ApiTable, tools) == 48);
    assert!(offset_of!(ToolTable, scratch) == 16 && size_of::<ToolTable>() == 64);
    assert!(offset_of!(ScratchEvent, dispatch) == 24 && size_of::<ScratchEvent>() == 48);
    assert!(offset_of!(CoreTable, shut_down) == 24);
    assert!(offset_of!(CoreTable, iterate_agents) == 56);
    assert!(offset_of!(CoreTable, agent_get_info) == 64);
    assert!(offset_of!(CoreTable, queue_create) == 72);
    assert!(offset_of!(CoreTable, queue_destroy) == 88);
    assert!(offset_of!(CoreTable, queue_store_write_index_relaxed) == 136);
    assert!(offset_of!(CoreTable, queue_add_write_index_screlease) == 208);
    assert!(offset_of!(CoreTable, signal_destroy) == 320);
    assert!(offset_of!(CoreTable, signal_load_relaxed) == 328);
    assert!(offset_of!(CoreTable, signal_load_scacquire) == 336);
    assert!(offset_of!(CoreTable, signal_store_relaxed) == 344);
    assert!(offset_of!(CoreTable, signal_store_screlease) == 352);
    assert!(offset_of!(CoreTable, signal_wait_relaxed) == 360);
    assert!(offset_of!(CoreTable, signal_wait_scacquire) == 368);
    assert!(offset_of!(CoreTable, signal_subtract_screlease) == 552);
    assert!(offset_of!(CoreTable, executable_destroy) == 688);
    assert!(offset_of!(CoreTable, executable_freeze) == 704);
    assert!(offset_of!(CoreTable, executable_get_info) == 712);
    assert!(offset_of!(CoreTable, executable_symbol_get_info) == 760);
    assert!(offset_of!(CoreTable, system_get_major_extension_table) == 800);
    assert!(offset_of!(CoreTable, signal_silent_store_relaxed) == 832);
    assert!(offset_of!(CoreTable, signal_silent_store_screlease) == 840);
    assert!(offset_of!(CoreTable, executable_iterate_agent_symbols) == 1000);
    assert!(size_of::<CoreTable>() == 1016);
    assert!(size_of::<AmdSignal>() == 64);
    assert!(offset_of!(AmdSignal, value) == 8 && offset_of!(AmdSignal, event_mailbox) == 16);
    assert!(offset_of!(AmdSignal, start_ts) == 32 && offset_of!(AmdSignal, queue) == 48);
    assert!(size_of::<AmdQueue>() == 256);
    assert!(offset_of!(AmdQueue, doorbell_signal) == 16 && offset_of!(AmdQueue, id) == 32);
    assert!(offset_of!(AmdQueue, write_dispatch_id) == 56);
    assert!(offset_of!(AmdQueue, read_dispatch_id) == 128);
    assert!(offset_of!(AmdQueue, queue_properties) == 180);
    assert!(size_of::<Packet>() == 64);
    assert!(size_of::<LoaderTable>() == 56);
};
