//! Kernels that are loaded, by number: those of records, and of code objects.

use capi_sources::gpu::Kernels;

/// Those of this process.
pub static KERNELS: Kernels = Kernels::new();
