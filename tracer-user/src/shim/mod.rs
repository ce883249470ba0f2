//! The tracer's side of the shim: the shared memory that the shim writes to, and its records.

mod backup_reader;
mod library;
mod memory;
mod reader;

pub use backup_reader::BackupReader;
pub use library::{Shim, ShimError, dispatch_site_in, file_of_ours};
pub use memory::{MemoryError, SharedMemory};
pub use reader::{Extent, Frame, MOST_AT_ONCE, Reader, fuzz_ring};
