//! Agents: CPUs and GPUs, as the driver's [`topology`] tells of them. Their ids are those in records.

#![expect(unsafe_code, reason = "an export, and a function of a tool's")]

mod topology;
mod visibility;

use core::ffi::{c_char, c_void};
use std::ffi::CString;
use std::fs;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::ptr;
use std::sync::LazyLock;

use rocprofiler::status::Status;
use tracer_hooks::contained;

use crate::answer;
use crate::layout::agent_id;
use topology::{NODES, Node, Properties};
use visibility::Variables;

/// `ROCPROFILER_AGENT_INFO_VERSION_0`.
const VERSION_0: u32 = 1;
/// `ROCPROFILER_AGENT_TYPE_CPU`.
const CPU: u32 = 1;
/// `ROCPROFILER_AGENT_TYPE_GPU`.
const GPU: u32 = 2;

/// Values of the HSA runtime for every GPU: work-items of a workgroup, and of a grid.
const MOST_IN_WORKGROUP: u32 = 1024;
const MOST_IN_GRID: u32 = u32::MAX;

/// `rocprofiler_agent_cache_t`.
#[repr(C)]
struct Cache {
    processor_id_low: u64,
    size: u64,
    level: u32,
    cache_line_size: u32,
    cache_lines_per_tag: u32,
    association: u32,
    latency: u32,
    kind: u32,
}

/// `rocprofiler_agent_io_link_t`.
#[repr(C)]
struct IoLink {
    kind: u32,
    version_major: u32,
    version_minor: u32,
    node_from: u32,
    node_to: u32,
    weight: u32,
    min_latency: u32,
    max_latency: u32,
    min_bandwidth: u32,
    max_bandwidth: u32,
    recommended_transfer_size: u32,
    flags: u32,
}

/// `rocprofiler_agent_mem_bank_t`.
#[repr(C)]
struct MemBank {
    heap_type: u32,
    flags: u32,
    width: u32,
    mem_clk_max: u32,
    size_in_bytes: u64,
}

/// `rocprofiler_agent_v0_t`.
#[repr(C)]
struct Agent {
    size: u64,
    id: u64,
    kind: u32,
    cpu_cores_count: u32,
    simd_count: u32,
    mem_banks_count: u32,
    caches_count: u32,
    io_links_count: u32,
    cpu_core_id_base: u32,
    simd_id_base: u32,
    max_waves_per_simd: u32,
    lds_size_in_kb: u32,
    gds_size_in_kb: u32,
    num_gws: u32,
    wave_front_size: u32,
    num_xcc: u32,
    cu_count: u32,
    array_count: u32,
    num_shader_banks: u32,
    simd_arrays_per_engine: u32,
    cu_per_simd_array: u32,
    simd_per_cu: u32,
    max_slots_scratch_cu: u32,
    gfx_target_version: u32,
    vendor_id: u16,
    device_id: u16,
    location_id: u32,
    domain: u32,
    drm_render_minor: u32,
    num_sdma_engines: u32,
    num_sdma_xgmi_engines: u32,
    num_sdma_queues_per_engine: u32,
    num_cp_queues: u32,
    max_engine_clk_ccompute: u32,
    max_engine_clk_fcompute: u32,
    sdma_fw_version: u32,
    fw_version: u32,
    capability: u32,
    cu_per_engine: u32,
    max_waves_per_cu: u32,
    family_id: u32,
    workgroup_max_size: u32,
    grid_max_size: u32,
    local_mem_size: u64,
    hive_id: u64,
    gpu_id: u64,
    workgroup_max_dim: [u32; 3],
    grid_max_dim: [u32; 3],
    mem_banks: *const MemBank,
    caches: *const Cache,
    io_links: *const IoLink,
    name: *const c_char,
    vendor_name: *const c_char,
    product_name: *const c_char,
    model_name: *const c_char,
    node_id: u32,
    logical_node_id: i32,
    logical_node_type_id: i32,
    /// From the 1.0 interface on: the runtimes that have it, [`TO_HSA`] and [`TO_HIP`]. Before, nothing.
    visibility: u32,
    /// A GPU's unique number, in its first bytes.
    #[cfg(feature = "v1")]
    uuid: [u8; 16],
}

/// The bit of the HSA runtime, and those of HIP and of what stands on HIP: RCCL and rocDecode.
const TO_HSA: u32 = 0b0001;
const TO_HIP: u32 = 0b1110;

const _: () = assert!(size_of::<Cache>() == 40 && size_of::<IoLink>() == 48);
const _: () = assert!(size_of::<MemBank>() == 24);
const _: () = assert!(size_of::<Agent>() == if cfg!(feature = "v1") { 312 } else { 296 });
const _: () =
    assert!(offset_of!(Agent, location_id) == 108 && offset_of!(Agent, capability) == 152);
const _: () = assert!(offset_of!(Agent, mem_banks) == 224 && offset_of!(Agent, node_id) == 280);

// SAFETY: what it points at is never written to.
unsafe impl Send for Agent {}
// SAFETY: as above.
unsafe impl Sync for Agent {}

/// All of them, read once.
static AGENTS: LazyLock<Vec<Agent>> =
    LazyLock::new(|| all(Path::new(NODES), &cpus(), &Variables::of_environment()));

/// The description of a CPU by this machine: the number of one of its cores, model and family.
struct Cpu {
    core: u32,
    model: String,
    family: u32,
}

fn cpus() -> Vec<Cpu> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let core = |lines: &str| {
        let word = |name: &str| {
            let mut fields = lines.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(field, _)| field.trim() == name).map(|(_, word)| word.trim().to_owned())
        };
        let core = word("apicid")?.parse().ok()?;
        let family = word("cpu family").and_then(|family| family.parse().ok()).unwrap_or(0);
        Some(Cpu { core, model: word("model name")?, family })
    };
    text.split("\n\n").filter_map(core).collect()
}

fn all(nodes: &Path, cpus: &[Cpu], variables: &Variables) -> Vec<Agent> {
    let mut counts = [0; 3];
    let nodes = topology::read(nodes);
    let mut agents: Vec<_> =
        nodes.iter().zip(0..).map(|(node, place)| agent(node, place, cpus, &mut counts)).collect();
    if cfg!(feature = "v1") {
        let is_gpu = |(_, agent): &(&Node, &Agent)| agent.kind == GPU;
        let gpus: Vec<_> = nodes.iter().zip(&agents).filter(is_gpu).map(|(node, _)| node).collect();
        let [hsa, hip] = variables.visible(&gpus);
        for agent in &mut agents {
            let is_in = |all: &[u32]| agent.kind == CPU || all.contains(&agent.node_id);
            let bit = |all: &[u32], bits| if is_in(all) { bits } else { 0 };
            agent.visibility = bit(&hsa, TO_HSA) | bit(&hip, TO_HIP);
        }
    }
    agents
}

/// An agent, which has the place `place` among all; `counts` are the numbers of agents of each type before it.
fn agent(node: &Node, place: i32, cpus: &[Cpu], counts: &mut [i32; 3]) -> Agent {
    let of = &node.properties;
    let number = |name| of.get::<u32>(name);
    let (cores, simds, simds_per_cu) =
        (number("cpu_cores_count"), number("simd_count"), number("simd_per_cu"));
    let kind = match (cores, simds) {
        (1.., _) => CPU,
        (0, 1..) => GPU,
        (0, 0) => 0,
    };
    let is_gpu = kind == GPU;
    let of_gpu = |n: u32| if is_gpu { n } else { 0 };
    let cu_count = if is_gpu { simds.checked_div(simds_per_cu).unwrap_or(0) } else { cores };
    let arrays_per_engine = number("simd_arrays_per_engine");
    let num_shader_banks = number("array_count").checked_div(arrays_per_engine).unwrap_or(0);
    let cpu = cpus.iter().find(|cpu| !is_gpu && cpu.core == number("cpu_core_id_base"));
    let name = match cpu {
        Some(cpu) => cpu.model.clone(),
        None => gfx_name(of_gpu(number("gfx_target_version"))),
    };
    let product = if is_gpu { product_name(number("drm_render_minor")) } else { None };
    let counted = &mut counts[kind as usize];
    let logical_node_type_id = *counted;
    *counted += 1;
    let [mem_banks, caches, io_links] = [&node.mem_banks, &node.caches, &node.io_links];
    Agent {
        size: size_of::<Agent>() as u64,
        id: agent_id(node.number),
        kind,
        cpu_cores_count: cores,
        simd_count: simds,
        mem_banks_count: mem_banks.len() as u32,
        caches_count: caches.len() as u32,
        io_links_count: io_links.len() as u32,
        cpu_core_id_base: number("cpu_core_id_base"),
        simd_id_base: number("simd_id_base"),
        max_waves_per_simd: number("max_waves_per_simd"),
        lds_size_in_kb: number("lds_size_in_kb"),
        gds_size_in_kb: number("gds_size_in_kb"),
        num_gws: number("num_gws"),
        wave_front_size: number("wave_front_size"),
        num_xcc: number("num_xcc").max(1),
        cu_count,
        array_count: number("array_count"),
        num_shader_banks,
        simd_arrays_per_engine: arrays_per_engine,
        cu_per_simd_array: number("cu_per_simd_array"),
        simd_per_cu: simds_per_cu,
        max_slots_scratch_cu: number("max_slots_scratch_cu"),
        gfx_target_version: number("gfx_target_version"),
        vendor_id: of.get("vendor_id"),
        device_id: of.get("device_id"),
        location_id: number("location_id"),
        domain: number("domain"),
        drm_render_minor: number("drm_render_minor"),
        num_sdma_engines: number("num_sdma_engines"),
        num_sdma_xgmi_engines: number("num_sdma_xgmi_engines"),
        num_sdma_queues_per_engine: number("num_sdma_queues_per_engine"),
        num_cp_queues: number("num_cp_queues"),
        max_engine_clk_ccompute: number("max_engine_clk_ccompute"),
        max_engine_clk_fcompute: of_gpu(number("max_engine_clk_fcompute")),
        // The version of the microcode alone.
        sdma_fw_version: of_gpu(number("sdma_fw_version") & 0x3ff),
        fw_version: of_gpu(number("fw_version") & 0x3ff),
        capability: of_gpu(number("capability")),
        cu_per_engine: cu_count.checked_div(num_shader_banks).unwrap_or(0),
        max_waves_per_cu: simds_per_cu.saturating_mul(number("max_waves_per_simd")),
        family_id: cpu.map_or_else(|| number("family_id"), |cpu| cpu.family),
        workgroup_max_size: of_gpu(MOST_IN_WORKGROUP),
        grid_max_size: of_gpu(MOST_IN_GRID),
        local_mem_size: if is_gpu { of.get("local_mem_size") } else { 0 },
        hive_id: of.get("hive_id"),
        gpu_id: node.gpu_id,
        workgroup_max_dim: [of_gpu(MOST_IN_WORKGROUP); 3],
        grid_max_dim: [of_gpu(MOST_IN_GRID); 3],
        mem_banks: kept(mem_banks.iter().map(mem_bank)),
        caches: kept(caches.iter().map(cache)),
        io_links: kept(io_links.iter().map(io_link)),
        product_name: text(product.as_deref().unwrap_or(&name)),
        name: text(&name),
        vendor_name: text(match kind {
            CPU => "CPU",
            GPU => "AMD",
            _ => "",
        }),
        model_name: text(&node.name),
        node_id: node.number,
        logical_node_id: place,
        logical_node_type_id,
        visibility: 0,
        #[cfg(feature = "v1")]
        uuid: u128::from(if is_gpu { node.unique_id() } else { 0 }).to_le_bytes(),
    }
}

fn mem_bank(of: &Properties) -> MemBank {
    MemBank {
        heap_type: of.get("heap_type"),
        flags: of.get("flags"),
        width: of.get("width"),
        mem_clk_max: of.get("mem_clk_max"),
        size_in_bytes: of.get("size_in_bytes"),
    }
}

fn cache(of: &Properties) -> Cache {
    Cache {
        processor_id_low: of.get("processor_id_low"),
        size: of.get("size"),
        level: of.get("level"),
        cache_line_size: of.get("cache_line_size"),
        cache_lines_per_tag: of.get("cache_lines_per_tag"),
        association: of.get("association"),
        latency: of.get("latency"),
        kind: of.get("type"),
    }
}

fn io_link(of: &Properties) -> IoLink {
    IoLink {
        kind: of.get("type"),
        version_major: of.get("version_major"),
        version_minor: of.get("version_minor"),
        node_from: of.get("node_from"),
        node_to: of.get("node_to"),
        weight: of.get("weight"),
        min_latency: of.get("min_latency"),
        max_latency: of.get("max_latency"),
        min_bandwidth: of.get("min_bandwidth"),
        max_bandwidth: of.get("max_bandwidth"),
        recommended_transfer_size: of.get("recommended_transfer_size"),
        flags: of.get("flags"),
    }
}

/// `gfx90a` of 90010; nothing of 0.
fn gfx_name(version: u32) -> String {
    let (major, minor, stepping) = (version / 10_000, version / 100 % 100, version % 100);
    if version == 0 { String::new() } else { format!("gfx{major}{minor:x}{stepping:x}") }
}

/// The product name that the GPU's driver reports.
fn product_name(render_minor: u32) -> Option<String> {
    let file = format!("/sys/class/drm/renderD{render_minor}/device/product_name");
    let name = fs::read_to_string(file).ok()?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Keeps the values to the end of the process; null if there are none.
fn kept<T>(all: impl Iterator<Item = T>) -> *const T {
    let all: Vec<T> = all.collect();
    if all.is_empty() { ptr::null() } else { all.leak().as_ptr() }
}

/// Keeps a text in the same way.
fn text(text: &str) -> *const c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

/// `rocprofiler_query_available_agents_cb_t`. It may throw.
type AgentsFunction =
    unsafe extern "C-unwind" fn(u32, *mut *const c_void, usize, *mut c_void) -> u32;

/// Calls a function with all agents.
///
/// # Safety
///
/// It takes `data`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rocprofiler_query_available_agents(
    version: u32,
    function: Option<AgentsFunction>,
    size: usize,
    data: *mut c_void,
) -> u32 {
    let Some(function) = function.filter(|_| version == VERSION_0) else {
        return answer::number(Status::InvalidArgument);
    };
    if size > size_of::<Agent>() {
        return answer::number(Status::IncompatibleAbi);
    }
    let Some(agents) = contained(|| AGENTS.as_slice()) else {
        return answer::number(Status::Error);
    };
    let mut pointers: Vec<*const c_void> =
        agents.iter().map(|agent| ptr::from_ref(agent).cast()).collect();
    let (first, count) = (pointers.as_mut_ptr(), pointers.len());
    // SAFETY: the tool's function, with what it is promised.
    unsafe { function(version, first, count, data) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    fn write(directory: &Path, file: &str, text: &str) {
        let path = directory.join(file);
        fs::create_dir_all(path.parent().expect("one")).expect("a directory");
        fs::write(path, text).expect("written");
    }

    fn shown(text: *const c_char) -> &'static str {
        // SAFETY: a text of an agent, which stays.
        unsafe { CStr::from_ptr(text) }.to_str().expect("UTF-8")
    }

    /// A CPU, a GPU that may not be used, and one that may, as the driver of Linux 6.1 tells of them.
    #[test]
    fn agents_are_what_the_topology_tells() {
        let directory = tempfile::tempdir().expect("a directory");
        let nodes = directory.path();
        write(
            nodes,
            "0/properties",
            "cpu_cores_count 16\nsimd_count 0\nmem_banks_count 1\ncpu_core_id_base 8\n",
        );
        write(nodes, "0/gpu_id", "0\n");
        write(nodes, "0/name", "\n");
        write(
            nodes,
            "0/mem_banks/0/properties",
            "heap_type 0\nsize_in_bytes 67108864000\nflags 0\nwidth 64\n",
        );
        write(nodes, "1/properties", "");
        write(nodes, "1/gpu_id", "");
        write(
            nodes,
            "2/properties",
            "cpu_cores_count 0\nsimd_count 416\nmax_waves_per_simd 8\nlds_size_in_kb 64\nwave_front_size 64\n\
             array_count 32\nsimd_arrays_per_engine 4\ncu_per_simd_array 4\nsimd_per_cu 4\n\
             gfx_target_version 90010\nvendor_id 4098\ndevice_id 29704\ndrm_render_minor 250\nhive_id 77\n\
             max_engine_clk_fcompute 1700\nlocal_mem_size 68702699520\nfw_version 1073741903\n\
             capability 729374336\nnum_xcc 2\ndomain 99999999999\nunique_id 18446744073709551615\n",
        );
        write(nodes, "2/gpu_id", "51930\n");
        write(nodes, "2/name", "aldebaran\n");
        write(nodes, "2/caches/10/properties", "level 2\nsize 8192\ntype 9\n");
        write(nodes, "2/caches/9/properties", "level 1\nsize 16\ntype 9\n");
        write(nodes, "2/io_links/0/properties", "type 2\nnode_from 2\nnode_to 0\nweight 20\n");
        let cpus = [Cpu { core: 8, model: "EPYC".to_owned(), family: 25 }];
        let agents = all(nodes, &cpus, &Variables::default());
        let [cpu, gpu] = &agents[..] else { panic!("{}", agents.len()) };
        assert_eq!((cpu.kind, gpu.kind), (CPU, GPU));
        assert_eq!((cpu.node_id, cpu.logical_node_id, cpu.logical_node_type_id), (0, 0, 0));
        assert_eq!((gpu.node_id, gpu.logical_node_id, gpu.logical_node_type_id), (2, 1, 0));
        assert_eq!((cpu.id, gpu.id), (agent_id(0), agent_id(2)));
        assert_eq!((shown(cpu.name), shown(cpu.vendor_name), cpu.family_id), ("EPYC", "CPU", 25));
        assert_eq!((cpu.cu_count, cpu.mem_banks_count, cpu.caches_count), (16, 1, 0));
        assert!(cpu.caches.is_null() && cpu.grid_max_size == 0);
        // SAFETY: it has one.
        assert_eq!(unsafe { (*cpu.mem_banks).size_in_bytes }, 67_108_864_000);
        assert_eq!(
            ["gfx90a", "gfx90a", "AMD", "aldebaran"],
            [gpu.name, gpu.product_name, gpu.vendor_name, gpu.model_name].map(shown)
        );
        assert_eq!((gpu.cu_count, gpu.num_shader_banks, gpu.cu_per_engine), (104, 8, 13));
        assert_eq!(
            (gpu.max_waves_per_cu, gpu.num_xcc, gpu.gpu_id, gpu.hive_id),
            (32, 2, 51930, 77)
        );
        assert_eq!((gpu.vendor_id, gpu.device_id, gpu.fw_version), (4098, 29704, 79));
        assert_eq!(
            (gpu.local_mem_size, gpu.domain),
            (68_702_699_520, 0),
            "too large for its field"
        );
        #[cfg(feature = "v1")]
        assert_eq!(
            [(cpu.visibility, cpu.uuid), (gpu.visibility, gpu.uuid)],
            [(0b1111, [0; 16]), (0b1111, u128::from(u64::MAX).to_le_bytes())]
        );
        // SAFETY: it has two, and one.
        let (caches, link) = unsafe { (std::slice::from_raw_parts(gpu.caches, 2), &*gpu.io_links) };
        assert_eq!([caches[0].level, caches[1].level], [1, 2]);
        assert_eq!((link.kind, link.node_from, link.node_to, link.weight), (2, 2, 0, 20));
    }

    #[test]
    fn a_machine_without_the_driver_has_no_agents() {
        assert!(all(Path::new("/nowhere"), &[], &Variables::default()).is_empty());
        assert_eq!(
            [gfx_name(100_302), gfx_name(90_402), gfx_name(120_001)],
            ["gfx1032", "gfx942", "gfx1201"]
        );
    }
}
