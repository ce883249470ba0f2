//! The 0.5 interface.

use core::ffi::CStr;
use std::ffi::CString;

use rocprofiler::kinds::Kind;
use rocprofiler::status::{Result, Status};

/// The version of the interface, and as text.
pub const VERSION: [u32; 3] = [0, 5, 0];
pub const VERSION_TEXT: &CStr = c"0.5.0";

/// `ROCPROFILER_CONTEXT_NONE`.
pub const NO_CONTEXT: u64 = u64::MAX;

/// Words of `rocprofiler_correlation_id_t`: an id of ours, and one of the tool's.
pub const ID_WORDS: usize = 2;
/// Words of addresses in records of copies.
pub const COPY_ADDRESSES: usize = 0;

/// In records of scratch memory the ids come before where it is; and words of how much it is.
pub const SCRATCH_IDS_FIRST: bool = false;
pub const SCRATCH_SIZE: usize = 0;

/// The operations of a kind, by number.
///
/// # Errors
///
/// [`Status::NotImplemented`] of kinds that have none.
pub fn operations(kind: Kind) -> Result<&'static [CString]> {
    kind.operations_of_0_5()
}

/// Whether the interface has a status.
pub fn has(status: Status) -> bool {
    !matches!(status, Status::ContextIdNotZero | Status::PermissionDenied)
}

/// Kinds of `rocprofiler_buffer_tracing_kind_t`, by number, from 1 on: 0 is none.
pub const BUFFER_KINDS: [Kind; 15] = [
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
    Kind::PageMigration,
    Kind::ScratchMemory,
    Kind::CorrelationIdRetirement,
    Kind::RcclApi,
];

/// The same of `rocprofiler_callback_tracing_kind_t`.
pub const CALLBACK_KINDS: [Kind; 14] = [
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
];

/// The same of `rocprofiler_external_correlation_id_request_kind_t`.
pub const REQUEST_KINDS: [Kind; 13] = [
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
];
