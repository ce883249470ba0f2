//! Queues: the C side of `crate::engine`.
#![allow(unsafe_code, reason = "exported C functions that follow the caller's pointers")]
#![allow(non_snake_case, reason = "names of the C interface")]

use std::ffi::c_void;

use super::types::{Event, QueueResource, Status, queue_type};
use super::{found, refuse};
use emulated_gpu_core::engine;
use emulated_gpu_core::platform::platform;

/// The runtime brings the indices of AQL queues (they are fields of `amd_queue_t`); those of SDMA
/// queues are the driver's. The priority is a 64-bit enum in C.
///
/// # Safety
/// `resource` can be read and written. Until the queue is destroyed, `ring` has `ring_bytes` bytes,
/// and the indices that `resource` names for an AQL queue stay where they are.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtCreateQueue(
    node: u32,
    kind: u32,
    _percentage: u32,
    _priority: i64,
    ring: *mut c_void,
    ring_bytes: u64,
    _event: *const Event,
    resource: *mut QueueResource,
) -> Status {
    let p = platform();
    let Some(gpu) = p.gpu(node) else { return Status::INVALID_NODE };
    if ring_bytes < 256 || !ring_bytes.is_power_of_two() {
        return Status::INVALID_PARAMETER;
    }
    // SAFETY: the caller passes a resource, whose indices are set for AQL queues.
    let given = unsafe { resource.read() };
    let ring = ring as u64;
    let created = match kind {
        queue_type::COMPUTE_AQL => {
            engine::shared().with(|e| e.create_aql(node, ring, ring_bytes, given.read_index))
        }
        queue_type::SDMA | queue_type::SDMA_XGMI => engine::shared()
            .with(|e| e.create_sdma(node, ring, ring_bytes, gpu.arch.sdma_count_bits(), None)),
        other => return refuse(&format!("queue type {other}")),
    };
    let Some(created) = created else { return Status::OUT_OF_RESOURCES };
    let result = QueueResource {
        queue_id: created.id,
        doorbell: created.doorbell,
        write_index: created.write_index.unwrap_or(given.write_index),
        read_index: created.read_index,
        error_reason: given.error_reason,
    };
    // SAFETY: the caller passes a resource to fill.
    unsafe { resource.write(result) };
    Status::SUCCESS
}

/// A percentage of 0 suspends the queue.
#[unsafe(no_mangle)]
extern "C" fn hsaKmtUpdateQueue(
    id: u64,
    percentage: u32,
    _priority: i64,
    _ring: *mut c_void,
    _ring_bytes: u64,
    _event: *const Event,
) -> Status {
    found(engine::shared().with(|e| e.set_active(id, percentage > 0)))
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtDestroyQueue(id: u64) -> Status {
    found(engine::shared().with(|e| e.destroy(id)))
}

#[unsafe(no_mangle)]
extern "C" fn hsaKmtSetQueueCUMask(_id: u64, _count: u32, _mask: *const u32) -> Status {
    Status::SUCCESS
}

/// # Safety
/// `first` is null or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn hsaKmtAllocQueueGWS(_id: u64, _count: u32, first: *mut u32) -> Status {
    if !first.is_null() {
        // SAFETY: the caller passes an integer to fill.
        unsafe { first.write(0) };
    }
    Status::SUCCESS
}
