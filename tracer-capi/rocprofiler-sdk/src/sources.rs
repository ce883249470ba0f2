//! The sources of records: calls of the runtimes and of roctx, and work of GPUs; the kinds that cannot be traced, and
//! why.

use core::ffi::c_void;

use rocprofiler::kinds::Kind;
use rocprofiler::status::Status;
use tracer_hooks::abi::ApiTable;
use tracer_hooks::{InstallError, Tables, Timing, contained};

use crate::{calls, log, scratch, threads, work};

/// The answer to a tool that wants a kind of which nothing is recorded, and the reason; none if the kind is recorded.
pub fn refused(kind: Kind) -> Option<(Status, &'static str)> {
    let why = match kind {
        Kind::HipRuntimeApi | Kind::HipCompilerApi => None,
        Kind::HipRuntimeApiExt | Kind::HipCompilerApiExt => None,
        Kind::HsaCoreApi | Kind::HsaAmdExtApi | Kind::HsaImageExtApi => None,
        Kind::MarkerCoreApi | Kind::MarkerControlApi | Kind::MarkerNameApi => None,
        Kind::KernelDispatch | Kind::MemoryCopy | Kind::CorrelationIdRetirement => None,
        Kind::RuntimeInitialization | Kind::MemoryAllocation | Kind::MarkerCoreRangeApi => None,
        Kind::ScratchMemory => None,
        // The runtime has no finalizer: there are no calls of it. Tools ask for all of HSA's kinds.
        Kind::HsaFinalizeExtApi => None,
        Kind::PageMigration => Some("it needs events of the kernel's driver"),
        Kind::HipStream => Some("streams have callbacks, and no records"),
        Kind::RcclApi => Some("RCCL is not intercepted"),
        _ => Some("nothing is intercepted yet"),
    };
    // Where the kernel is said to be the reason, tools go on without the kind.
    let status = match kind {
        Kind::PageMigration => Status::IncompatibleKernel,
        _ => Status::NotImplemented,
    };
    why.map(|why| (status, why))
}

/// As [`refused`], for a tool that wants callbacks of a kind; none if callbacks are called.
pub fn refused_to_callbacks(kind: Kind) -> Option<(Status, &'static str)> {
    match kind {
        Kind::CodeObject | Kind::HipStream => None,
        _ => refused(kind),
    }
}

/// Records everything that is wanted from now on, in runtimes that may be in use. Where none is loaded, recording
/// begins when it does.
pub fn begin() {
    begin_with(calls::patch);
}

/// As [`begin`], for a tool that comes when runtimes may be in use already.
pub fn begin_late() {
    begin_with(calls::patch_late);
}

fn begin_with(patch: impl FnOnce(&Tables)) {
    threads::follow();
    if let Some(tables) = work::begin() {
        patch(&tables);
        scratch::follow(&tables);
    }
    calls::follow();
}

/// The HSA runtime has begun, and has this table. [`Timing::AtStart`] where it has loaded this library as a tool.
///
/// # Safety
///
/// It is null or the runtime's own.
#[expect(unsafe_code, reason = "the runtime's table")]
pub unsafe fn runtime_begins(table: *const c_void, timing: Timing) {
    contained(|| {
        threads::follow();
        // SAFETY: as the caller promises.
        match unsafe { Tables::of(table.cast::<ApiTable>()) } {
            Ok(tables) if work::runtime_begins(tables, timing) => {
                log::info(format_args!(
                    "calls and work are recorded through the HSA runtime's tables"
                ));
                calls::patch(&tables);
                scratch::follow(&tables);
            }
            Ok(_) => {}
            Err(why) => work::is_not_recorded(InstallError::Unsupported(why)),
        }
        calls::follow();
    });
}
