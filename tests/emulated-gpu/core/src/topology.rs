//! What the machine says about itself: node 0 is the host, nodes 1… are the GPUs.
//!
//! The runtime asserts a good deal of this: a data cache that belongs to the compute units, an LDS
//! and a scratch aperture with a base, a link to the host.

use crate::config::Arch;
use crate::platform::Platform;
use crate::properties::{CacheProperties, IoLinkProperties, MemoryProperties, NodeProperties};
use crate::sys;

/// `HSA_HEAPTYPE`.
mod heap {
    pub const SYSTEM: u32 = 0;
    pub const FRAME_BUFFER_PUBLIC: u32 = 1;
    pub const FRAME_BUFFER_PRIVATE: u32 = 2;
    pub const GPU_LDS: u32 = 4;
    pub const GPU_SCRATCH: u32 = 5;
    pub const MMIO_REMAP: u32 = 7;
}

/// `HsaCacheType` bits.
mod cache_type {
    pub const DATA: u32 = 1;
    pub const CPU: u32 = 4;
    pub const HSACU: u32 = 8;
}

/// Where GPUs see the memory of a workgroup, and scratch.
pub const LDS_BASE: u64 = 0x1_0000_0000_0000;
/// See [`LDS_BASE`].
pub const SCRATCH_BASE: u64 = 0x2_0000_0000_0000;
const PCI_EXPRESS: u32 = 2;
/// Numa distances as the driver reports them.
const WEIGHT_HOST: u32 = 20;
const WEIGHT_PEER: u32 = 40;
/// Counters of an AQL doorbell that takes the last packet index.
const CAPABILITY_DOORBELL_TYPE_2: u32 = 2 << 12;
const CAPABILITY_WATCH_POINTS_4: u32 = 1 << 7 | 2 << 8;
const CAPABILITY_SRAM_EDC: u32 = 1 << 26;

/// What differs between the targets.
struct Model {
    name: &'static str,
    device_id: u16,
    compute_units: u32,
    simds_per_cu: u32,
    waves_per_simd: u32,
    wave_front: u32,
    sram_edc: bool,
    gb_addr_config: u32,
}

fn model(arch: Arch) -> Model {
    let gfx9 = Model {
        name: "Emulated gfx9",
        device_id: 0x6860,
        compute_units: 64,
        simds_per_cu: 4,
        waves_per_simd: 10,
        wave_front: 64,
        sram_edc: false,
        gb_addr_config: 0x2a11_4042,
    };
    match (arch.major, arch.minor, arch.stepping) {
        (9, 0, 6) => Model { name: "Emulated MI50", device_id: 0x66a1, compute_units: 60, ..gfx9 },
        (9, 0, 8) => Model {
            name: "Emulated MI100",
            device_id: 0x738c,
            compute_units: 120,
            sram_edc: true,
            ..gfx9
        },
        (9, 0, 10) => Model {
            name: "Emulated MI250",
            device_id: 0x7408,
            compute_units: 104,
            waves_per_simd: 8,
            sram_edc: true,
            ..gfx9
        },
        (9, ..) => Model { name: "Emulated Vega 10", ..gfx9 },
        _ => Model {
            name: "Emulated RDNA",
            device_id: 0x73bf,
            compute_units: 72,
            simds_per_cu: 2,
            waves_per_simd: 16,
            wave_front: 32,
            gb_addr_config: 0x545,
            ..gfx9
        },
    }
}

/// Properties of a node; none if there is no such node.
pub fn node(p: &Platform, node: u32) -> Option<NodeProperties> {
    // All fields are integers: zero is a value of each.
    let mut n = NodeProperties {
        num_cpu_cores: 0,
        num_f_compute_cores: 0,
        num_memory_banks: memory(p, node)?.len() as u32,
        num_caches: caches(p, node)?.len() as u32,
        num_io_links: links(p, node)?.len() as u32,
        c_compute_id_lo: 0,
        f_compute_id_lo: 0,
        capability: 0,
        max_waves_per_simd: 0,
        lds_size_kb: 0,
        gds_size_kb: 0,
        wave_front_size: 0,
        num_shader_banks: 0,
        num_arrays: 0,
        num_cu_per_array: 0,
        num_simd_per_cu: 0,
        max_slots_scratch_cu: 0,
        engine_id: 0,
        vendor_id: 0,
        device_id: 0,
        location_id: 0,
        local_mem_size: 0,
        max_engine_clock_mhz_f: 0,
        max_engine_clock_mhz_c: 2_000,
        drm_render_minor: 0,
        marketing_name: [0; 64],
        amd_name: [0; 64],
        ucode_engine_versions: 0,
        debug_properties: 0,
        hive_id: 0,
        num_sdma_engines: 0,
        num_sdma_xgmi_engines: 0,
        num_sdma_queues_per_engine: 0,
        num_cp_queues: 0,
        num_gws: 0,
        reserved2: 0,
        domain: 0,
        unique_id: 0,
        vgpr_size_per_cu: 0,
        sgpr_size_per_cu: 0,
        reserved: [0; 12],
    };
    match p.gpu(node) {
        None => {
            n.num_cpu_cores = sys::cpu_count();
            set_name(&mut n, "Host CPU");
        }
        Some(gpu) => describe_gpu(&mut n, gpu.arch, node, p.config.vram_bytes),
    }
    Some(n)
}

fn describe_gpu(n: &mut NodeProperties, arch: Arch, node: u32, vram_bytes: u64) {
    let m = model(arch);
    n.num_f_compute_cores = m.compute_units * m.simds_per_cu;
    n.f_compute_id_lo = 0x8000_1000 + node * 0x1000;
    n.capability = CAPABILITY_DOORBELL_TYPE_2
        | CAPABILITY_WATCH_POINTS_4
        | if m.sram_edc { CAPABILITY_SRAM_EDC } else { 0 };
    n.max_waves_per_simd = m.waves_per_simd;
    n.lds_size_kb = 64;
    n.wave_front_size = m.wave_front;
    n.num_shader_banks = 4;
    n.num_arrays = 1;
    n.num_cu_per_array = m.compute_units / 4;
    n.num_simd_per_cu = m.simds_per_cu;
    n.max_slots_scratch_cu = 32;
    n.engine_id = 440 | arch.major << 10 | arch.minor << 16 | arch.stepping << 24;
    n.vendor_id = 0x1002;
    n.device_id = m.device_id;
    n.location_id = node << 8;
    n.local_mem_size = vram_bytes;
    n.max_engine_clock_mhz_f = 1_500;
    n.drm_render_minor = 127 + node as i32;
    n.ucode_engine_versions = 430;
    n.num_sdma_engines = 2;
    n.num_sdma_queues_per_engine = 8;
    n.num_cp_queues = 24;
    n.num_gws = 64;
    n.unique_id = 0xe300_0000_0000_0000 | u64::from(node);
    n.vgpr_size_per_cu = 256 << 10;
    n.sgpr_size_per_cu = 12_800;
    set_name(n, m.name);
}

fn set_name(n: &mut NodeProperties, name: &str) {
    let mut wide = [0_u16; 64];
    let mut narrow = [0_u8; 64];
    for (i, b) in name.bytes().take(63).enumerate() {
        (wide[i], narrow[i]) = (u16::from(b), b);
    }
    (n.marketing_name, n.amd_name) = (wide, narrow);
}

/// Register that the image library computes tilings from.
pub fn gb_addr_config(arch: Arch) -> u32 {
    model(arch).gb_addr_config
}

/// Memory banks of a node.
pub fn memory(p: &Platform, node: u32) -> Option<Vec<MemoryProperties>> {
    let bank = |heap_type, size_bytes, virtual_base_address| MemoryProperties {
        heap_type,
        size_bytes,
        flags: 0,
        width: 2_048,
        memory_clock_max: 945,
        virtual_base_address,
    };
    if node == 0 {
        return Some(vec![bank(heap::SYSTEM, sys::physical_memory_bytes(), 0)]);
    }
    p.gpu(node)?;
    let frame_buffer =
        if p.config.large_bar { heap::FRAME_BUFFER_PUBLIC } else { heap::FRAME_BUFFER_PRIVATE };
    Some(vec![
        bank(frame_buffer, p.config.vram_bytes, 0),
        bank(heap::GPU_LDS, 64 << 10, LDS_BASE),
        bank(heap::GPU_SCRATCH, 4 << 30, SCRATCH_BASE),
        bank(heap::MMIO_REMAP, 4096, p.mmio_page),
    ])
}

/// Caches of a node.
pub fn caches(p: &Platform, node: u32) -> Option<Vec<CacheProperties>> {
    let kind = if node == 0 { cache_type::CPU } else { cache_type::HSACU };
    let cache = |level, size_kb| CacheProperties {
        processor_id_low: 0,
        level,
        size_kb,
        line_bytes: 64,
        lines_per_tag: 1,
        associativity: 8,
        latency: 1,
        cache_type: kind | cache_type::DATA,
        sibling_map: [0; 256],
    };
    (node < p.node_count()).then(|| vec![cache(1, 16), cache(2, 4096)])
}

/// Links of a node. The host reaches a GPU's memory, and GPUs each other's, through a large BAR only.
pub fn links(p: &Platform, node: u32) -> Option<Vec<IoLinkProperties>> {
    let link = |to: u32, weight: u32| IoLinkProperties {
        link_type: PCI_EXPRESS,
        version_major: 0,
        version_minor: 0,
        node_from: node,
        node_to: to,
        weight,
        min_latency: 0,
        max_latency: 0,
        min_bandwidth: 0,
        max_bandwidth: 0,
        rec_transfer_size: 0,
        flags: 0,
    };
    let large_bar = p.config.large_bar;
    if node == 0 {
        let gpus = p.gpu_nodes().filter(|_| large_bar);
        return Some(gpus.map(|to| link(to, WEIGHT_HOST)).collect());
    }
    p.gpu(node)?;
    let peers = p.gpu_nodes().filter(|&to| large_bar && to != node);
    Some(
        std::iter::once(link(0, WEIGHT_HOST))
            .chain(peers.map(|to| link(to, WEIGHT_PEER)))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::{caches, links, memory, node};
    use crate::platform::platform;

    #[test]
    fn nodes_agree_with_their_lists() {
        let p = platform();
        for id in 0..p.node_count() {
            let n = node(p, id).unwrap();
            assert_eq!(n.num_memory_banks as usize, memory(p, id).unwrap().len());
            assert_eq!(n.num_caches as usize, caches(p, id).unwrap().len());
            assert_eq!(n.num_io_links as usize, links(p, id).unwrap().len());
        }
        assert!(node(p, p.node_count()).is_none());
    }
}
