//! `librocprofiler-sdk.so.0`: the C interface of ROCprofiler-SDK 0.5, for tools that are built against AMD's library of
//! that name; with the feature `v1` `librocprofiler-sdk.so.1`, that of 1.0. [`rocprofiler`] has the functions behind
//! it; this crate has the exported functions.
//!
//! * [`registration`], [`tools`]: tools are found, configured, initialized and finalized.
//! * [`contexts`], [`buffers`], [`callbacks`], [`kinds`]: the functions, by what they are about.
//! * [`runtime`]: how calls and work get in; [`threads`]: threads that the runtimes create.
//! * [`sources`]: the sources of records; the kinds that cannot be traced, and why.
//! * [`calls`], [`work`]: calls of the runtimes, work of GPUs; [`retirement`]: the end of both; [`records`]: records as this
//!   version has them; [`traced_operation`]: one of which tools are told at its begin and at its end.
//! * [`code_objects`], [`kernels`]: what is loaded; [`scratch`]: scratch memory of queues.
//! * [`agents`]: CPUs and GPUs; [`externals`]: external ids of the calling thread.
//! * [`absent`]: functions that are not implemented.
//! * [`layout`]: the numbers of this version of the interface.
//! * [`attach`]: a tool is put into a running process by roctap, to which [`late`] tells what becomes of it.
//! * [`process`]: a forked child is told apart.
//! * [`answer`], [`log`]: status codes; what is told to the user.
//!
//! A panic of ours never crosses the boundary. An exception that a tool's function throws passes through on the program's own
//! thread, ends on a callback thread ([`caught`]), and ends the process where a tool is told of threads.

#![deny(unsafe_code)]

mod absent;
mod agents;
mod answer;
mod attach;
mod buffers;
mod callbacks;
mod calls;
mod caught;
mod code_objects;
mod contexts;
mod externals;
mod intercept_tables;
mod kernels;
mod kinds;
mod late;
mod layout;
mod log;
mod process;
mod records;
mod registration;
mod retirement;
mod runtime;
mod runtimes;
mod scratch;
mod sources;
mod threads;
mod tools;
mod traced_operation;
mod work;

/// The configuration of the tools of this process.
static SDK: rocprofiler::sdk::Sdk = rocprofiler::sdk::Sdk::new();
