//! The numbers of the interface: those that all versions have, and those of the version that this library has.

use rocprofiler::kinds::Kind;
use rocprofiler::status::{Result, Status};

#[cfg(not(feature = "v1"))]
mod v0;
#[cfg(feature = "v1")]
mod v1;

#[cfg(not(feature = "v1"))]
pub use v0::*;
#[cfg(feature = "v1")]
pub use v1::*;

/// The data of a call, for callbacks: its size, arguments, and a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallData {
    pub bytes: usize,
    /// Where the result is.
    pub result: usize,
}

/// `rocprofiler_callback_tracing_hip_api_data_t`: the largest arguments are those of `hipExtModuleLaunchKernel`, the largest
/// result a `hipChannelFormatDesc`.
pub const HIP_CALL: CallData = CallData { bytes: 120, result: 96 };
/// `rocprofiler_callback_tracing_hsa_api_data_t`: those of `hsa_ext_program_finalize`, and a word.
pub const HSA_CALL: CallData = CallData { bytes: 208, result: 200 };

/// `rocprofiler_callback_tracing_marker_api_data_t`: those of `roctxNameHsaAgent`, and a word.
pub const MARKER_CALL: CallData = CallData { bytes: 32, result: 24 };

/// The data of a call of a function of a kind.
pub fn call_data(kind: Kind) -> CallData {
    match kind {
        Kind::HipRuntimeApi | Kind::HipCompilerApi => HIP_CALL,
        Kind::MarkerCoreApi | Kind::MarkerControlApi => MARKER_CALL,
        Kind::MarkerNameApi | Kind::MarkerCoreRangeApi => MARKER_CALL,
        _ => HSA_CALL,
    }
}

/// `ROCPROFILER_KERNEL_DISPATCH_ENQUEUE`.
pub const ENQUEUE: usize = 1;
/// `ROCPROFILER_KERNEL_DISPATCH_COMPLETE`.
pub const COMPLETE: usize = 2;

/// `rocprofiler_memory_copy_operation_t`, by whether its ends are GPUs. From host to host is the first one.
pub fn copied(from: bool, to: bool) -> usize {
    1 + usize::from(to) + 2 * usize::from(from)
}

/// The id of the agent of a node of the driver's: a tool that takes an index for an id finds none.
pub fn agent_id(node: u32) -> u64 {
    0x4_0000 + u64::from(node)
}

/// The version of the interface, as tools are told it: 10000 * major + 100 * minor + patch.
pub const VERSION_NUMBER: u32 = 10_000 * VERSION[0] + 100 * VERSION[1] + VERSION[2];

/// The number of a kind of records.
pub fn number(kind: Kind) -> u32 {
    place(&BUFFER_KINDS, kind)
}

/// The number of a kind of callbacks.
pub fn callback_number(kind: Kind) -> u32 {
    place(&CALLBACK_KINDS, kind)
}

/// The number of a kind of requests.
pub fn request_number(kind: Kind) -> u32 {
    place(&REQUEST_KINDS, kind)
}

fn place(kinds: &[Kind], kind: Kind) -> u32 {
    kinds.iter().position(|&one| one == kind).map_or(0, |place| place as u32 + 1)
}

/// The kind of a number, in one of the lists above; none for 0.
///
/// # Errors
///
/// [`Status::KindNotFound`].
pub fn kind(kinds: &[Kind], number: u32) -> Result<Option<Kind>> {
    let Some(place) = (number as usize).checked_sub(1) else { return Ok(None) };
    kinds.get(place).map(|&kind| Some(kind)).ok_or(Status::KindNotFound)
}
