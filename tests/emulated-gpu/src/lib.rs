//! An emulated GPU in the place of `libhsakmt.so.1`, the lowest user-space layer of ROCm.
//!
//! Everything above it (`libhsa-runtime64.so.1`, `libamdhip64.so.5`, the program) stays as it was built;
//! select the library with `LD_LIBRARY_PATH`. The GPU itself is `emulated-gpu-core`.

pub mod child;
mod ffi;

pub use emulated_gpu_core::{clock, config, log, truth};
