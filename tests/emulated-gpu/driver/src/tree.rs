//! The driver's topology in sysfs: a directory with the same files.
//!
//! Its name follows from what is in it, so that all processes with the same settings share one and none is
//! left behind by each process that is killed.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::OnceLock;

use emulated_gpu_core::platform::{Platform, platform};
use emulated_gpu_core::properties::NodeProperties;
use emulated_gpu_core::topology;

/// Where the driver has it.
const PLACES: [&str; 2] = ["/sys/devices/virtual/kfd/kfd/topology", "/sys/class/kfd/kfd/topology"];
/// Bits of `capability` that ROCm 5.2 does not look for: queues with a power of two of packets, shared
/// virtual memory, and firmware that can be debugged, without which the runtime does not say where its list
/// of code objects is.
const CAPABILITIES: u32 = 1 << 3 | 1 << 27 | 1 << 29;

/// The driver's name for the GPU of a node.
pub fn gpu_id(node: u32) -> u32 {
    0xe300 + node
}

/// The node of a GPU.
pub fn node_of(p: &Platform, id: u32) -> Option<u32> {
    p.gpu_nodes().find(|&node| gpu_id(node) == id)
}

/// Where a path of the driver's topology is to be found; none for any other path.
pub fn redirect(path: &str) -> Option<PathBuf> {
    let rest = PLACES.iter().find_map(|place| path.strip_prefix(place))?;
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| write(&files(platform()))).as_ref()?;
    Some(directory.join(rest.trim_start_matches('/')))
}

/// Writes the files, unless they are there already; the directory.
fn write(files: &[(String, String)]) -> Option<PathBuf> {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    let directory = std::env::temp_dir().join(format!("emulated-gpu-{:016x}", hasher.finish()));
    if directory.is_dir() {
        return Some(directory);
    }
    let partial = directory.with_extension(std::process::id().to_string());
    for (path, text) in files {
        let path = partial.join(path);
        let written = fs::create_dir_all(path.parent()?).and_then(|()| fs::write(&path, text));
        if let Err(error) = written {
            eprintln!("emulated-gpu: cannot write {}: {error}", path.display());
            return None;
        }
    }
    if fs::rename(&partial, &directory).is_err() {
        // Another process was faster.
        let _ = fs::remove_dir_all(&partial);
    }
    directory.is_dir().then_some(directory)
}

/// Path and text of each file.
fn files(p: &Platform) -> Vec<(String, String)> {
    let mut files = vec![
        ("generation_id".to_owned(), "1\n".to_owned()),
        (
            "system_properties".to_owned(),
            text(&[("platform_oem", 0), ("platform_id", 0), ("platform_rev", 0)]),
        ),
    ];
    for node in 0..p.node_count() {
        let mut add =
            |path: String, text: String| files.push((format!("nodes/{node}/{path}"), text));
        let gpu = p.gpu(node);
        add("gpu_id".to_owned(), format!("{}\n", gpu.map_or(0, |_| gpu_id(node))));
        add("name".to_owned(), "emulated\n".to_owned());
        let version =
            gpu.map_or(0, |gpu| gpu.arch.major * 10_000 + gpu.arch.minor * 100 + gpu.arch.stepping);
        // The runtime adds the heaps that are no memory.
        let banks: Vec<_> = topology::memory(p, node)
            .into_iter()
            .flatten()
            .filter(|bank| bank.heap_type < 3)
            .collect();
        if let Some(n) = topology::node(p, node) {
            add("properties".to_owned(), properties(&n, banks.len(), version));
        }
        for (i, bank) in banks.iter().enumerate() {
            add(
                format!("mem_banks/{i}/properties"),
                text(&[
                    ("heap_type", u64::from(bank.heap_type)),
                    ("size_in_bytes", bank.size_bytes),
                    ("flags", 0),
                    ("width", u64::from(bank.width)),
                    ("mem_clk_max", u64::from(bank.memory_clock_max)),
                ]),
            );
        }
        for (i, cache) in topology::caches(p, node).into_iter().flatten().enumerate() {
            let mut properties = text(&[
                ("processor_id_low", u64::from(cache.processor_id_low)),
                ("level", u64::from(cache.level)),
                ("size", u64::from(cache.size_kb)),
                ("cache_line_size", u64::from(cache.line_bytes)),
                ("cache_lines_per_tag", u64::from(cache.lines_per_tag)),
                ("association", u64::from(cache.associativity)),
                ("latency", u64::from(cache.latency)),
                ("type", u64::from(cache.cache_type)),
            ]);
            properties.push_str("sibling_map 1,0,0,0\n");
            add(format!("caches/{i}/properties"), properties);
        }
        for (i, link) in topology::links(p, node).into_iter().flatten().enumerate() {
            add(
                format!("io_links/{i}/properties"),
                text(&[
                    ("type", u64::from(link.link_type)),
                    ("version_major", 0),
                    ("version_minor", 0),
                    ("node_from", u64::from(link.node_from)),
                    ("node_to", u64::from(link.node_to)),
                    ("weight", u64::from(link.weight)),
                    ("min_latency", 0),
                    ("max_latency", 0),
                    ("min_bandwidth", 0),
                    ("max_bandwidth", 0),
                    ("recommended_transfer_size", 0),
                    ("flags", 1),
                ]),
            );
        }
    }
    files
}

fn properties(n: &NodeProperties, banks: usize, gfx_target_version: u32) -> String {
    let is_gpu = gfx_target_version != 0;
    let of_gpu = if is_gpu { CAPABILITIES } else { 0 };
    text(&[
        ("cpu_cores_count", u64::from(n.num_cpu_cores)),
        ("simd_count", u64::from(n.num_f_compute_cores)),
        ("mem_banks_count", banks as u64),
        ("caches_count", u64::from(n.num_caches)),
        ("io_links_count", u64::from(n.num_io_links)),
        ("p2p_links_count", 0),
        ("cpu_core_id_base", 0),
        ("simd_id_base", u64::from(n.f_compute_id_lo)),
        ("max_waves_per_simd", u64::from(n.max_waves_per_simd)),
        ("lds_size_in_kb", u64::from(n.lds_size_kb)),
        ("gds_size_in_kb", 0),
        ("num_gws", u64::from(n.num_gws)),
        ("wave_front_size", u64::from(n.wave_front_size)),
        ("array_count", u64::from(n.num_shader_banks * n.num_arrays)),
        ("simd_arrays_per_engine", u64::from(n.num_arrays)),
        ("cu_per_simd_array", u64::from(n.num_cu_per_array)),
        ("simd_per_cu", u64::from(n.num_simd_per_cu)),
        ("max_slots_scratch_cu", u64::from(n.max_slots_scratch_cu)),
        ("gfx_target_version", u64::from(gfx_target_version)),
        ("vendor_id", u64::from(n.vendor_id)),
        ("device_id", u64::from(n.device_id)),
        ("location_id", u64::from(n.location_id)),
        ("domain", 0),
        ("drm_render_minor", if is_gpu { n.drm_render_minor as u64 } else { 0 }),
        ("hive_id", 0),
        ("num_sdma_engines", u64::from(n.num_sdma_engines)),
        ("num_sdma_xgmi_engines", 0),
        ("num_sdma_queues_per_engine", u64::from(n.num_sdma_queues_per_engine)),
        ("num_cp_queues", u64::from(n.num_cp_queues)),
        ("max_engine_clk_fcompute", u64::from(n.max_engine_clock_mhz_f)),
        ("local_mem_size", n.local_mem_size),
        ("fw_version", u64::from(n.engine_id & 0x3ff)),
        ("capability", u64::from(n.capability | of_gpu)),
        ("debug_prop", 0),
        ("sdma_fw_version", u64::from(n.ucode_engine_versions & 0x3ff)),
        ("unique_id", n.unique_id),
        ("num_xcc", u64::from(is_gpu)),
        ("max_engine_clk_ccompute", u64::from(n.max_engine_clock_mhz_c)),
    ])
}

fn text(properties: &[(&str, u64)]) -> String {
    properties.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name} {value}");
        text
    })
}
