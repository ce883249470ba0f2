//! The sources of the libraries with C interfaces, in the process itself. The receivers, and the form of their records,
//! are each library's own.
//!
//! * [`gpu`]: work of GPUs.
//! * [`hip`], [`hsa`]: calls of the runtimes; [`code_objects`]: the code objects that the HSA runtime has loaded.
//! * [`open`]: the calls of a runtime that a thread is in.
//! * [`client_thread`]: ids of calls, and whether a thread is in a callback.

#![deny(unsafe_code)]

pub mod client_thread;
pub mod code_objects;
pub mod gpu;
pub mod hip;
pub mod hsa;
pub mod open;
