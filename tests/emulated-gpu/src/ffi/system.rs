//! Opening the driver, its version, the topology, the clocks.
#![allow(unsafe_code, reason = "exported C functions that write through the caller's pointers")]
#![allow(non_snake_case, reason = "names of the C interface")]

use std::ffi::c_void;

use super::refuse;
use super::types::{ClockCounters, Status, SystemProperties, TileConfig, VersionInfo};
use emulated_gpu_core::platform::platform;
use emulated_gpu_core::properties::{
    CacheProperties, IoLinkProperties, MemoryProperties, NodeProperties,
};
use emulated_gpu_core::{engine, sys, topology};

#[unsafe(no_mangle)]
extern "C" fn hsaKmtOpenKFD() -> Status {
    platform();
    Status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtCloseKFD() -> Status {
    Status::SUCCESS
}

/// 1.8 has everything that ROCm 5.2 looks for; at 1.0 the runtime would not use interrupts.
///
/// # Safety
/// `out` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtGetVersion(out: *mut VersionInfo) -> Status {
    // SAFETY: the caller passes a structure to fill.
    unsafe { out.write(VersionInfo { major: 1, minor: 8 }) };
    Status::SUCCESS
}

/// # Safety
/// `out` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtAcquireSystemProperties(out: *mut SystemProperties) -> Status {
    let num_nodes = platform().node_count();
    let properties =
        SystemProperties { num_nodes, platform_oem: 0, platform_id: 0, platform_rev: 0 };
    // SAFETY: the caller passes a structure to fill.
    unsafe { out.write(properties) };
    Status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtReleaseSystemProperties() -> Status {
    Status::SUCCESS
}

/// # Safety
/// `out` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtGetNodeProperties(node: u32, out: *mut NodeProperties) -> Status {
    let Some(properties) = topology::node(platform(), node) else { return Status::INVALID_NODE };
    // SAFETY: the caller passes a structure to fill.
    unsafe { out.write(properties) };
    Status::SUCCESS
}

/// Copies a list to the caller's array of `room` elements.
///
/// # Safety
/// `out` has room for that many.
unsafe fn give<T: Copy>(list: Option<Vec<T>>, room: u32, out: *mut T) -> Status {
    let Some(list) = list else { return Status::INVALID_NODE };
    let n = list.len().min(room as usize);
    // SAFETY: at most `room` elements; the list is ours.
    unsafe { std::ptr::copy_nonoverlapping(list.as_ptr(), out, n) };
    Status::SUCCESS
}

/// # Safety
/// `out` has room for `room` elements.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtGetNodeMemoryProperties(
    node: u32,
    room: u32,
    out: *mut MemoryProperties,
) -> Status {
    // SAFETY: the array and its length are the caller's.
    unsafe { give(topology::memory(platform(), node), room, out) }
}

/// # Safety
/// `out` has room for `room` elements.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtGetNodeCacheProperties(
    node: u32,
    _processor: u32,
    room: u32,
    out: *mut CacheProperties,
) -> Status {
    // SAFETY: the array and its length are the caller's.
    unsafe { give(topology::caches(platform(), node), room, out) }
}

/// # Safety
/// `out` has room for `room` elements.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtGetNodeIoLinkProperties(
    node: u32,
    room: u32,
    out: *mut IoLinkProperties,
) -> Status {
    // SAFETY: the array and its length are the caller's.
    unsafe { give(topology::links(platform(), node), room, out) }
}

/// # Safety
/// `config` can be read and written, and its arrays have the lengths that it tells.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtGetTileConfig(node: u32, config: *mut TileConfig) -> Status {
    let Some(gpu) = platform().gpu(node) else { return Status::INVALID_NODE };
    // SAFETY: the caller passes arrays with their lengths, and fields to fill.
    unsafe {
        let given = config.read();
        std::ptr::write_bytes(given.tiles, 0, given.num_tiles as usize);
        std::ptr::write_bytes(given.macro_tiles, 0, given.num_macro_tiles as usize);
        let gb_addr_config = topology::gb_addr_config(gpu.arch);
        config.write(TileConfig { gb_addr_config, num_banks: 2, num_ranks: 1, ..given });
    }
    Status::SUCCESS
}

/// A small deterministic generator for the noise of the clock pairs.
fn noise(ns: u64, limit: u64) -> i64 {
    let mixed = (ns ^ ns >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let span = 2 * limit + 1;
    ((mixed >> 33) % span) as i64 - limit as i64
}

/// Node 0 has no GPU counter; the runtime reads the system clock through it.
///
/// # Safety
/// `out` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtGetClockCounters(node: u32, out: *mut ClockCounters) -> Status {
    let p = platform();
    if node >= p.node_count() {
        return Status::INVALID_NODE;
    }
    let gpu = p.gpu(node);
    let mut system = sys::boot_ns();
    let read_at = system.saturating_add_signed(noise(system, p.config.clock_noise_ns));
    if gpu.is_some() && p.interrupts_clocks() {
        sys::sleep_ns(p.config.clock_interrupted_ns);
        system = sys::boot_ns();
    }
    let gpu = gpu.map_or(0, |gpu| gpu.clock.ticks(read_at));
    let counters =
        ClockCounters { gpu, cpu: sys::raw_ns(), system, system_frequency_hz: 1_000_000_000 };
    // SAFETY: the caller passes a structure to fill.
    unsafe { out.write(counters) };
    Status::SUCCESS
}

/// The runtime's `r_debug` leads to the loaded code objects. Success also turns on the queues' error
/// words, which stay 0.
#[unsafe(no_mangle)]
extern "C" fn hsaKmtRuntimeEnable(r_debug: *mut c_void, _setup_ttmp: bool) -> Status {
    engine::shared().with(|e| e.kernels.set_r_debug(r_debug as u64));
    engine::start();
    Status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtRuntimeDisable() -> Status {
    engine::shared().with(|e| e.kernels.set_r_debug(0));
    Status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtSetTrapHandler(
    _node: u32,
    _handler: *mut c_void,
    _handler_bytes: u64,
    _buffer: *mut c_void,
    _buffer_bytes: u64,
) -> Status {
    Status::SUCCESS
}

/// XNACK is off: the emulated GPUs do not fault.
///
/// # Safety
/// `out` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtGetXNACKMode(out: *mut i32) -> Status {
    // SAFETY: the caller passes an integer to fill.
    unsafe { out.write(0) };
    Status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtSetXNACKMode(enable: i32) -> Status {
    if enable == 0 { Status::SUCCESS } else { refuse("XNACK") }
}

#[cfg(test)]
mod tests {
    use super::noise;

    #[test]
    fn noise_stays_within_its_limit() {
        assert_eq!(noise(12_345, 0), 0);
        let some: Vec<i64> = (0..1000).map(|i| noise(i * 977, 300)).collect();
        assert!(some.iter().all(|n| n.abs() <= 300) && some.iter().any(|n| *n < -200));
    }
}
