//! The tracer's side of the injected shim: the shared memory it writes to, and what comes out.

mod library;
mod memory;
mod reader;
mod relief;

pub use library::{Shim, ShimError, dispatch_site_in, file_of_ours};
pub use memory::{Memory, MemoryError};
pub use reader::{Extent, Frame, MOST_AT_ONCE, Reader, fuzz_ring};
pub use relief::Relief;
