//! The 1.0 interface.

use core::ffi::CStr;
use std::ffi::CString;

use rocprofiler::kinds::Kind;
use rocprofiler::status::{Result, Status};

/// The version of the interface, and as text.
pub const VERSION: [u32; 3] = [1, 0, 0];
pub const VERSION_TEXT: &CStr = c"1.0.0";

/// `ROCPROFILER_CONTEXT_NONE`.
pub const NO_CONTEXT: u64 = 0;

/// Words of `rocprofiler_correlation_id_t`: an id of ours, one of the tool's, and that of the call around it, which is not
/// told yet.
pub const ID_WORDS: usize = 3;
/// Addresses in records of copies.
pub const COPY_ADDRESSES: usize = 2;

/// In records of scratch memory the ids come before where it is; and words of how much it is.
pub const SCRATCH_IDS_FIRST: bool = true;
pub const SCRATCH_SIZE: usize = 1;

/// The operations of a kind, by number.
///
/// # Errors
///
/// [`Status::NotImplemented`] of kinds that have none.
pub fn operations(kind: Kind) -> Result<&'static [CString]> {
    kind.operations()
}

/// Whether the interface has a status.
pub fn has(_: Status) -> bool {
    true
}

/// Kinds of `rocprofiler_buffer_tracing_kind_t`, by number, from 1 on: 0 is none.
pub const BUFFER_KINDS: [Kind; 32] = [
    Kind::HsaCoreApi,
    Kind::HsaAmdExtApi,
    Kind::HsaImageExtApi,
    Kind::HsaFinalizeExtApi,
    Kind::HipRuntimeApi,
    Kind::HipCompilerApi,
    Kind::MarkerCoreApi,
    Kind::MarkerControlApi,
    Kind::MarkerNameApi,
    Kind::MemoryCopy,
    Kind::KernelDispatch,
    Kind::ScratchMemory,
    Kind::CorrelationIdRetirement,
    Kind::RcclApi,
    Kind::Ompt,
    Kind::MemoryAllocation,
    Kind::RuntimeInitialization,
    Kind::RocdecodeApi,
    Kind::RocjpegApi,
    Kind::HipStream,
    Kind::HipRuntimeApiExt,
    Kind::HipCompilerApiExt,
    Kind::RocdecodeApiExt,
    Kind::KfdEventPageMigrate,
    Kind::KfdEventPageFault,
    Kind::KfdEventQueue,
    Kind::KfdEventUnmapFromGpu,
    Kind::KfdEventDroppedEvents,
    Kind::KfdPageMigrate,
    Kind::KfdPageFault,
    Kind::KfdQueue,
    Kind::MarkerCoreRangeApi,
];

/// The same of `rocprofiler_callback_tracing_kind_t`.
pub const CALLBACK_KINDS: [Kind; 21] = [
    Kind::HsaCoreApi,
    Kind::HsaAmdExtApi,
    Kind::HsaImageExtApi,
    Kind::HsaFinalizeExtApi,
    Kind::HipRuntimeApi,
    Kind::HipCompilerApi,
    Kind::MarkerCoreApi,
    Kind::MarkerControlApi,
    Kind::MarkerNameApi,
    Kind::CodeObject,
    Kind::ScratchMemory,
    Kind::KernelDispatch,
    Kind::MemoryCopy,
    Kind::RcclApi,
    Kind::Ompt,
    Kind::MemoryAllocation,
    Kind::RuntimeInitialization,
    Kind::RocdecodeApi,
    Kind::RocjpegApi,
    Kind::HipStream,
    Kind::MarkerCoreRangeApi,
];

/// The same of `rocprofiler_external_correlation_id_request_kind_t`.
pub const REQUEST_KINDS: [Kind; 18] = [
    Kind::HsaCoreApi,
    Kind::HsaAmdExtApi,
    Kind::HsaImageExtApi,
    Kind::HsaFinalizeExtApi,
    Kind::HipRuntimeApi,
    Kind::HipCompilerApi,
    Kind::MarkerCoreApi,
    Kind::MarkerControlApi,
    Kind::MarkerNameApi,
    Kind::MemoryCopy,
    Kind::KernelDispatch,
    Kind::ScratchMemory,
    Kind::RcclApi,
    Kind::Ompt,
    Kind::MemoryAllocation,
    Kind::RocdecodeApi,
    Kind::RocjpegApi,
    Kind::MarkerCoreRangeApi,
];
