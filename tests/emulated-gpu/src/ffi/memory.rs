//! Memory: the C side of `crate::memory`.
#![allow(unsafe_code, reason = "exported C functions that follow the caller's pointers")]
#![allow(non_snake_case, reason = "names of the C interface")]

use std::ffi::c_void;

use super::types::{PointerInfo, Status};
use super::{found, refuse};
use emulated_gpu_core::memory::{Origin, flags};
use emulated_gpu_core::platform::platform;

/// # Safety
/// `address` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtAllocMemory(
    node: u32,
    bytes: u64,
    mem_flags: u32,
    address: *mut *mut c_void,
) -> Status {
    let p = platform();
    if node >= p.node_count() {
        return Status::INVALID_NODE;
    }
    for (flag, what) in [
        (flags::FIXED_ADDRESS, "memory at a fixed address"),
        (flags::AQL_QUEUE, "rings that are mapped twice (targets before gfx9)"),
    ] {
        if mem_flags & flag != 0 {
            return refuse(what);
        }
    }
    let limit = p.gpu(node).map(|_| p.config.vram_bytes);
    let Some(base) = p.memory.allocate(node, bytes, mem_flags, limit) else {
        return Status::NO_MEMORY;
    };
    // SAFETY: the caller passes a pointer to fill.
    unsafe { address.write(base as *mut c_void) };
    Status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtFreeMemory(address: *mut c_void, _bytes: u64) -> Status {
    if platform().memory.free(address as u64) { Status::SUCCESS } else { Status::INVALID_PARAMETER }
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtRegisterMemoryWithFlags(
    address: *mut c_void,
    bytes: u64,
    mem_flags: u32,
) -> Status {
    if platform().memory.register(address as u64, bytes, mem_flags) {
        Status::SUCCESS
    } else {
        Status::NO_MEMORY
    }
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtDeregisterMemory(address: *mut c_void) -> Status {
    if platform().memory.deregister(address as u64) {
        Status::SUCCESS
    } else {
        Status::MEMORY_NOT_REGISTERED
    }
}

/// Maps for `nodes`; the address for the GPU.
fn map(address: *mut c_void, nodes: &[u32]) -> Option<u64> {
    platform().memory.with(address as u64, |range| {
        for node in nodes {
            if !range.mapped.contains(node) {
                range.mapped.push(*node);
            }
        }
        range.gpu_base() + (address as u64).saturating_sub(range.base).min(range.bytes)
    })
}

/// # Safety
/// `gpu_address` is null or can be written; 4-byte alignment suffices.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtMapMemoryToGPU(
    address: *mut c_void,
    _bytes: u64,
    gpu_address: *mut u64,
) -> Status {
    let all: Vec<u32> = platform().gpu_nodes().collect();
    let Some(mapped) = map(address, &all) else { return Status::INVALID_PARAMETER };
    if !gpu_address.is_null() {
        // SAFETY: the caller passes a word to fill.
        unsafe { gpu_address.write_unaligned(mapped) };
    }
    Status::SUCCESS
}

/// # Safety
/// `nodes` has `node_count` elements; `gpu_address` is null or can be written, 4-byte alignment
/// suffices.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtMapMemoryToGPUNodes(
    address: *mut c_void,
    _bytes: u64,
    gpu_address: *mut u64,
    _map_flags: u32,
    node_count: u64,
    nodes: *const u32,
) -> Status {
    // SAFETY: the caller passes that many nodes.
    let nodes = unsafe { std::slice::from_raw_parts(nodes, node_count as usize) };
    let Some(mapped) = map(address, nodes) else { return Status::INVALID_PARAMETER };
    if !gpu_address.is_null() {
        // SAFETY: the caller passes a word to fill.
        unsafe { gpu_address.write_unaligned(mapped) };
    }
    Status::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtUnmapMemoryToGPU(address: *mut c_void) -> Status {
    platform().memory.with(address as u64, |range| range.mapped.clear());
    // Unmapping what is not mapped is fine with the driver, too.
    Status::SUCCESS
}

/// # Safety
/// `out` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtQueryPointerInfo(
    pointer: *const c_void,
    out: *mut PointerInfo,
) -> Status {
    let mut info = PointerInfo {
        pointer_type: 0,
        node: 0,
        mem_flags: 0,
        cpu_address: 0,
        gpu_address: 0,
        size_bytes: 0,
        num_registered_nodes: 0,
        num_mapped_nodes: 0,
        registered_nodes: std::ptr::null(),
        mapped_nodes: std::ptr::null(),
        user_data: std::ptr::null_mut(),
    };
    let known = platform().memory.with(pointer as u64, |range| {
        info.pointer_type = match range.origin {
            Origin::Allocated => 1,
            Origin::Registered => 2,
        };
        info.node = range.node;
        info.mem_flags = range.flags;
        info.cpu_address = if range.flags & flags::HOST_ACCESS != 0 { range.base } else { 0 };
        info.gpu_address = range.gpu_base();
        info.size_bytes = range.bytes;
        // The runtime copies the list under the lock that it also maps and frees under.
        info.num_mapped_nodes = range.mapped.len() as u32;
        info.mapped_nodes = range.mapped.as_ptr();
        info.user_data = range.user_data as *mut c_void;
    });
    // SAFETY: the caller passes a structure to fill.
    unsafe { out.write(info) };
    if known.is_some() { Status::SUCCESS } else { Status::ERROR }
}

/// Not part of the driver's interface: where the host finds what a GPU's pointer points to. Host
/// functions that stand in for kernels need it for pointers to registered memory.
#[unsafe(no_mangle)]
extern "C" fn emugpu_host_address(pointer: *const c_void) -> *mut c_void {
    platform().memory.host_address(pointer as u64) as *mut c_void
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtSetMemoryUserData(pointer: *const c_void, data: *mut c_void) -> Status {
    found(platform().memory.with(pointer as u64, |range| range.user_data = data as u64).is_some())
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtSetMemoryPolicy(
    _node: u32,
    _default: u32,
    _alternate: u32,
    _address: *mut c_void,
    _bytes: u64,
) -> Status {
    Status::SUCCESS
}

macro_rules! refused {
    ($($name:ident: $what:literal),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> Status {
            refuse(concat!($what, " (", stringify!($name), ")"))
        }
    )*};
}

refused! {
    hsaKmtShareMemory: "memory shared between processes",
    hsaKmtRegisterSharedHandle: "memory shared between processes",
    hsaKmtRegisterSharedHandleToNodes: "memory shared between processes",
    hsaKmtRegisterGraphicsHandleToNodes: "memory shared with graphics",
    hsaKmtSVMSetAttr: "shared virtual memory",
    hsaKmtSVMGetAttr: "shared virtual memory",
}
