//! What cannot be traced here, and why.

use rocprofiler::kinds::Kind;

/// Why nothing is recorded of a kind; none if it is.
pub fn refused(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::KernelDispatch | Kind::MemoryCopy => None,
        Kind::PageMigration => Some("it needs events of the kernel's driver"),
        Kind::RcclApi => Some("RCCL is not intercepted"),
        _ => Some("nothing is intercepted yet"),
    }
}
