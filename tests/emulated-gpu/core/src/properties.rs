//! What the driver says of a node, laid out as in hsakmttypes.h (libhsakmt 1.0.6, ROCm 5.2.3), which packs
//! to 4 bytes. One front hands the structures out, the other prints their fields.
#![expect(missing_docs, reason = "the fields are those of the header")]

use std::mem::offset_of;

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct NodeProperties {
    pub num_cpu_cores: u32,
    pub num_f_compute_cores: u32,
    pub num_memory_banks: u32,
    pub num_caches: u32,
    pub num_io_links: u32,
    pub c_compute_id_lo: u32,
    pub f_compute_id_lo: u32,
    pub capability: u32,
    pub max_waves_per_simd: u32,
    pub lds_size_kb: u32,
    pub gds_size_kb: u32,
    pub wave_front_size: u32,
    pub num_shader_banks: u32,
    pub num_arrays: u32,
    pub num_cu_per_array: u32,
    pub num_simd_per_cu: u32,
    pub max_slots_scratch_cu: u32,
    pub engine_id: u32,
    pub vendor_id: u16,
    pub device_id: u16,
    pub location_id: u32,
    pub local_mem_size: u64,
    pub max_engine_clock_mhz_f: u32,
    pub max_engine_clock_mhz_c: u32,
    pub drm_render_minor: i32,
    pub marketing_name: [u16; 64],
    pub amd_name: [u8; 64],
    pub ucode_engine_versions: u32,
    pub debug_properties: u64,
    pub hive_id: u64,
    pub num_sdma_engines: u32,
    pub num_sdma_xgmi_engines: u32,
    pub num_sdma_queues_per_engine: u8,
    pub num_cp_queues: u8,
    pub num_gws: u8,
    pub reserved2: u8,
    pub domain: u32,
    pub unique_id: u64,
    pub vgpr_size_per_cu: u32,
    pub sgpr_size_per_cu: u32,
    pub reserved: [u8; 12],
}

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct MemoryProperties {
    pub heap_type: u32,
    pub size_bytes: u64,
    pub flags: u32,
    pub width: u32,
    pub memory_clock_max: u32,
    pub virtual_base_address: u64,
}

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct CacheProperties {
    pub processor_id_low: u32,
    pub level: u32,
    pub size_kb: u32,
    pub line_bytes: u32,
    pub lines_per_tag: u32,
    pub associativity: u32,
    pub latency: u32,
    pub cache_type: u32,
    pub sibling_map: [u32; 256],
}

#[repr(C, packed(4))]
#[derive(Clone, Copy)]
pub struct IoLinkProperties {
    pub link_type: u32,
    pub version_major: u32,
    pub version_minor: u32,
    pub node_from: u32,
    pub node_to: u32,
    pub weight: u32,
    pub min_latency: u32,
    pub max_latency: u32,
    pub min_bandwidth: u32,
    pub max_bandwidth: u32,
    pub rec_transfer_size: u32,
    pub flags: u32,
}

const _: () = {
    assert!(size_of::<NodeProperties>() == 356);
    assert!(offset_of!(NodeProperties, capability) == 28);
    assert!(offset_of!(NodeProperties, engine_id) == 68);
    assert!(offset_of!(NodeProperties, local_mem_size) == 80);
    assert!(offset_of!(NodeProperties, marketing_name) == 100);
    assert!(offset_of!(NodeProperties, amd_name) == 228);
    assert!(offset_of!(NodeProperties, hive_id) == 304);
    assert!(offset_of!(NodeProperties, unique_id) == 328);
    assert!(size_of::<MemoryProperties>() == 32);
    assert!(offset_of!(MemoryProperties, virtual_base_address) == 24);
    assert!(size_of::<CacheProperties>() == 1056);
    assert!(offset_of!(CacheProperties, cache_type) == 28);
    assert!(size_of::<IoLinkProperties>() == 48);
};
