//! Work of GPUs: kernels, copies, barriers.
//!
//! * [`client`]: the library that receives the work, and the data that it receives.
//! * [`sink`]: the sink that threads of the program call by [`tracer_hooks`], which has patched the tables of the HSA
//!   runtime; it queues events without waiting.
//! * [`delivery`]: the one thread that takes events out of the [`queue`], and has records written, where it may have to
//!   wait: [`writing`] says for whom.
//! * [`kernels`]: kernels that are loaded, by number.
//! * [`operations`]: the events of one operation; [`backlog`]: operations whose records could not be written at once.
//! * [`install`]: the tables of the runtime that is loaded.
//!
//! Each packet and each asynchronous copy is reported once, when it is done; its times are those of the GPU. The
//! receiver of its record was chosen when it was enqueued.

mod backlog;
mod client;
mod delivery;
mod install;
mod kernels;
mod operations;
mod queue;
mod sink;
#[cfg(test)]
mod testing;
mod writing;

pub use client::{Agents, Client, CompletedWork, MemoryCopy, Work};
pub use delivery::Gpu;
pub use kernels::{Descriptor, Kernel, Kernels};
pub use writing::Writing;
