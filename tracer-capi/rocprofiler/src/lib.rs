//! What ROCprofiler-SDK does, as a Rust library: contexts, services, buffers and callback threads. The facts are those of
//! its specification and of AMD's library.
//!
//! * [`sdk`]: what tools configure, and when; who wants what.
//! * [`callback`]: callbacks of tools, and what they are told; [`arguments`]: the arguments of functions, as these get them.
//! * [`buffer`]: buffers of records, which are delivered to a callback.
//! * [`completions`]: callbacks that are told of work that is done.
//! * [`threads`]: threads that call callbacks, and who is told of threads.
//! * [`external`]: correlation ids that the program gives.
//! * [`kinds`]: what can be traced, by kind and operation.
//! * [`status`]: what functions return.
//!
//! Its C interface is `librocprofiler-sdk.so.0` (`tracer-capi/rocprofiler-sdk`).

#![deny(unsafe_code)]

pub mod arguments;
pub mod buffer;
pub mod callback;
pub mod completions;
pub mod external;
mod half;
pub mod kinds;
pub mod sdk;
pub mod status;
pub mod threads;
