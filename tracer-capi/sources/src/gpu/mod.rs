//! Work of GPUs: kernels, copies, barriers.
//!
//! * [`client`]: whom it is told to, and what is told.
//! * [`sink`]: what the threads of the program are told by [`tracer_hooks`], which has patched the tables of the HSA
//!   runtime, and queue without waiting.
//! * [`delivery`]: the one thread that takes it out of the [`queue`], and has it written, where it may have to wait:
//!   [`writing`] says for whom.
//! * [`kernels`]: kernels that are loaded, by number.
//! * [`operations`]: what was told of one operation; [`backlog`]: those that could not be written at once.
//! * [`install`]: the tables of the runtime that is loaded.
//!
//! Each packet and each asynchronous copy is told of once, when it is done; its times are those of the GPU. Where its
//! record goes was decided when it was enqueued.

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

pub use client::{Agents, Client, Done, Work};
pub use delivery::Gpu;
pub use kernels::{Kernel, Kernels, Registers};
pub use writing::Writing;
