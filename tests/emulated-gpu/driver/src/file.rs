//! The sparse file that all devices are: what lies where in it, and how it is mapped.
#![expect(unsafe_code, reason = "system calls")]

use emulated_gpu_core::engine::{DOORBELL_BYTES, DOORBELLS};

/// Size of the file: buffers below 2^47, doorbells, and buffers without an address above.
pub const FILE_BYTES: i64 = 1 << 50;
/// Where the doorbells of node 0 would be in the file, and from one node to the next.
const DOORBELLS_AT: u64 = 1 << 48;
const DOORBELLS_STEP: u64 = 1 << 24;
/// Where buffers without an address begin in the file.
pub const NO_ADDRESS_AT: u64 = 1 << 49;
/// Size of a node's doorbells.
pub const DOORBELLS_BYTES: u64 = DOORBELLS * DOORBELL_BYTES;

/// Where the doorbells of a node are in the file.
pub fn doorbells_at(node: u32) -> u64 {
    DOORBELLS_AT + u64::from(node) * DOORBELLS_STEP
}

/// Maps a part of the file, at `at` if the runtime has reserved that.
pub fn map(at: Option<u64>, bytes: u64, file: i32, offset: u64) -> Option<u64> {
    let fixed = if at.is_some() { libc::MAP_FIXED } else { 0 };
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | fixed);
    let wanted = at.unwrap_or(0) as *mut libc::c_void;
    // SAFETY: a new mapping where the kernel picks, or one over addresses that the runtime reserved for
    // this buffer.
    let p = unsafe { libc::mmap(wanted, bytes as usize, prot, flags, file, offset as i64) };
    (p != libc::MAP_FAILED).then_some(p as u64)
}

/// Gives the pages of a part of the file back.
pub fn drop_pages(file: i32, offset: u64, bytes: u64) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a descriptor of ours; what is there belonged to a buffer that is gone.
    unsafe { libc::fallocate(file, mode, offset as i64, bytes as i64) };
}
