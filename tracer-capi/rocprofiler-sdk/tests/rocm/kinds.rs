//! The kinds of records and callbacks that the tool is told to ask for, as numbers of the headers.

use rocprofiler::kinds::Kind;

/// `ROCPROFILER_BUFFER_TRACING_MEMORY_COPY`.
pub const COPIES: &str = "10";
/// `ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH`.
pub const KERNELS: &str = "11";
/// `ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT`.
pub const RETIREMENTS: &str = if cfg!(feature = "v1") { "13" } else { "14" };
/// `ROCPROFILER_BUFFER_TRACING_SCRATCH_MEMORY`.
pub const SCRATCH: &str = if cfg!(feature = "v1") { "12" } else { "13" };
/// `ROCPROFILER_CALLBACK_TRACING_SCRATCH_MEMORY`.
pub const SCRATCH_TOLD: &str = "11";
/// `ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT`.
pub const CODE_OBJECTS: &str = "10";
/// `ROCPROFILER_CALLBACK_TRACING_KERNEL_DISPATCH`, and with that `ROCPROFILER_CALLBACK_TRACING_MEMORY_COPY`.
pub const KERNELS_TOLD: &str = "12";
pub const WORK_TOLD: &str = "12,13";
/// `ROCPROFILER_BUFFER_TRACING_MEMORY_ALLOCATION`, and the same of callbacks.
#[cfg(feature = "v1")]
pub const ALLOCATIONS: &str = "16";
/// `ROCPROFILER_BUFFER_TRACING_RUNTIME_INITIALIZATION`, and the same of callbacks.
#[cfg(feature = "v1")]
pub const RUNTIMES: &str = "17";
/// `ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT`, and that of the compiler's calls.
#[cfg(feature = "v1")]
pub const HIP_WITH_ARGUMENTS: &str = "21,22";
/// `ROCPROFILER_CALLBACK_TRACING_HIP_STREAM`.
#[cfg(feature = "v1")]
pub const STREAMS: &str = "20";
/// Kinds of functions of HIP, of HSA, and of roctx.
pub const HIP: &str = "5,6";
pub const HSA: &str = "1,2,3";
/// The second of those of HSA: `hsa_amd_…`.
pub const EXTENSIONS: &str = "2";
pub const ROCTX: &str = "7,8,9";

/// `ROCPROFILER_BUFFER_TRACING_MARKER_CORE_RANGE_API`, and the same of callbacks.
#[cfg(feature = "v1")]
pub const RANGES: [&str; 2] = ["32", "21"];

/// The name of an operation of one of these kinds.
pub fn function(kind: u64, number: u64) -> &'static str {
    let kind = match kind {
        21 | 32 => Kind::MarkerCoreRangeApi,
        1 => Kind::HsaCoreApi,
        2 => Kind::HsaAmdExtApi,
        3 => Kind::HsaImageExtApi,
        5 => Kind::HipRuntimeApi,
        6 => Kind::HipCompilerApi,
        7 => Kind::MarkerCoreApi,
        8 => Kind::MarkerControlApi,
        9 => Kind::MarkerNameApi,
        _ => panic!("kind {kind}"),
    };
    let name = &kind.operations().expect("functions")[number as usize];
    name.to_str().expect("UTF-8")
}

/// The number of a function of HIP's runtime API.
pub fn number(name: &str) -> String {
    let all = Kind::HipRuntimeApi.operations().expect("functions");
    all.iter().position(|one| one.to_str() == Ok(name)).expect(name).to_string()
}
