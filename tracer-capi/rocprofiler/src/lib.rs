//! The functions of ROCprofiler-SDK, as a Rust library: contexts, services, buffers and callback threads. The facts are
//! those of its specification and of AMD's library.
//!
//! * [`sdk`]: the configuration of tools, and its stages; the services that want an event.
//! * [`callback`]: callbacks of tools, and their events; [`arguments`]: the arguments of functions, as these get them.
//! * [`buffer`]: buffers of records, which are delivered to a callback.
//! * [`completions`]: callbacks for work that is done.
//! * [`threads`]: threads that call callbacks, and the watchers that are told of threads.
//! * [`external`]: correlation ids that the program gives.
//! * [`kinds`]: the events that can be traced, by kind and operation.
//! * [`status`]: the results of functions.
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
