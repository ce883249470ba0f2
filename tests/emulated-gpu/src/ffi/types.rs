//! The structures of hsakmttypes.h (libhsakmt 1.0.6, ROCm 5.2.3), which packs to 4 bytes.
//!
//! Written by hand so that the crate builds without ROCm; sizes and offsets are checked against what
//! a C compiler says of the header.

use std::ffi::c_void;
use std::mem::offset_of;

/// `HSAKMT_STATUS`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    pub const SUCCESS: Status = Status(0);
    pub const ERROR: Status = Status(1);
    pub const INVALID_PARAMETER: Status = Status(3);
    pub const INVALID_HANDLE: Status = Status(4);
    pub const INVALID_NODE: Status = Status(5);
    pub const NO_MEMORY: Status = Status(6);
    pub const NOT_SUPPORTED: Status = Status(11);
    pub const OUT_OF_RESOURCES: Status = Status(13);
    pub const WAIT_TIMEOUT: Status = Status(31);
    pub const MEMORY_NOT_REGISTERED: Status = Status(36);
}

/// `HSA_QUEUE_TYPE`.
pub mod queue_type {
    pub const SDMA: u32 = 2;
    pub const SDMA_XGMI: u32 = 5;
    pub const COMPUTE_AQL: u32 = 21;
}

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct VersionInfo {
    pub major: u32,
    pub minor: u32,
}

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct SystemProperties {
    pub num_nodes: u32,
    pub platform_oem: u32,
    pub platform_id: u32,
    pub platform_rev: u32,
}

/// `HsaEvent` with the `HsaEventData` in it.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct Event {
    pub id: u32,
    pub event_type: u32,
    /// A union of at most 20 bytes: sync variable, node change, memory fault.
    pub data: [u32; 5],
    pub hw_data1: u64,
    pub mailbox: u64,
    pub hw_data3: u32,
}

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct EventDescriptor {
    pub event_type: u32,
    pub node_id: u32,
    pub sync_var: [u32; 4],
}

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct QueueResource {
    pub queue_id: u64,
    pub doorbell: u64,
    pub write_index: u64,
    pub read_index: u64,
    pub error_reason: u64,
}

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct ClockCounters {
    pub gpu: u64,
    pub cpu: u64,
    pub system: u64,
    pub system_frequency_hz: u64,
}

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct TileConfig {
    pub tiles: *mut u32,
    pub macro_tiles: *mut u32,
    pub num_tiles: u32,
    pub num_macro_tiles: u32,
    pub gb_addr_config: u32,
    pub num_banks: u32,
    pub num_ranks: u32,
    pub reserved: [u32; 7],
}

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct PointerInfo {
    pub pointer_type: u32,
    pub node: u32,
    pub mem_flags: u32,
    pub cpu_address: u64,
    pub gpu_address: u64,
    pub size_bytes: u64,
    pub num_registered_nodes: u32,
    pub num_mapped_nodes: u32,
    pub registered_nodes: *const u32,
    pub mapped_nodes: *const u32,
    pub user_data: *mut c_void,
}

const _: () = {
    assert!(size_of::<SystemProperties>() == 16);
    assert!(size_of::<Event>() == 48);
    assert!(offset_of!(Event, mailbox) == 36);
    assert!(size_of::<EventDescriptor>() == 24);
    assert!(size_of::<QueueResource>() == 40);
    assert!(size_of::<ClockCounters>() == 32);
    assert!(size_of::<TileConfig>() == 64);
    assert!(offset_of!(TileConfig, gb_addr_config) == 24);
    assert!(size_of::<PointerInfo>() == 68);
    assert!(offset_of!(PointerInfo, size_bytes) == 28);
    assert!(offset_of!(PointerInfo, registered_nodes) == 44);
    assert!(offset_of!(PointerInfo, user_data) == 60);
};
