//! The types that roctap's BPF programs, its injected shim and its user space agree on.
//!
//! * [`activity`]: the 64-byte roctracer activity record, domains and operations: the output unit.
//! * [`bpf`]: the records that the BPF programs write into their ring buffers, and the cookie that
//!   user space hands to every probe.
//! * [`shim`]: the shared-memory layout and the records that the injected shim writes.
//! * [`calls`]: calls that the shim records, and [`slots`]: of which functions it can, by [`hsa_functions`] and
//!   [`hip_functions`].
//! * [`hip_wrappers`]: which functions of HIP go through its tables.
//! * [`loss`]: why something was not recorded.
//! * [`ring`]: the single-producer ring inside that shared memory.
//! * [`tool`]: the memory by which a tool of ROCprofiler-SDK is put into a running process.
//! * [`waited`]: how both sides wait for each other.
//!
//! It is not the place for behaviour that only one side has. Everything here is `no_std`, has no
//! dependency by default and no unsafe code; the `user` feature derives conversions from bytes.
//!
//! All times are nanoseconds of `CLOCK_BOOTTIME`, the clock of the HSA runtime, unless a field says
//! otherwise.

#![cfg_attr(not(any(test, loom)), no_std)]

pub mod activity;
pub mod bpf;
pub mod calls;
pub mod hip_functions;
pub mod hip_wrappers;
pub mod hsa_functions;
pub mod hsa_layout;
pub mod loss;
pub mod ring;
pub mod shim;
pub mod slots;
pub mod tool;
pub mod waited;
