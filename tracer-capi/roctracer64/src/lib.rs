//! `libroctracer64.so.4`: the C interface of roctracer 4.1, for programs that are linked against AMD's library of that
//! name. [`roctracer`] has the functions behind it; this crate has the exported functions.
//!
//! * [`versions`]: the second version of functions.
//! * [`names`], [`callbacks`], [`pools`], [`activities`], [`time`]: the functions, by what they are about.
//! * [`deprecated`]: those of roctracer 4.0, in no header any more.
//! * [`hip`], [`roctx`]: calls of HIP for callbacks and records, marks and ranges for callbacks.
//! * [`hsa`], [`gpu`]: calls of HSA, and work of GPUs for records.
//! * [`table_calls`], [`call_record`]: calls that pass through the runtimes' tables, and the record of a call.
//! * [`operations`]: the operations of a domain of which anything is wanted.
//! * [`sources`], [`enabled`]: the tracer of this process, with the sources that follow it, and without.
//! * [`tool`]: the functions that the HSA runtime calls in a library that it loads as a tool.
//! * [`answer`]: status codes, and the text of a thread's last error.
//!
//! They are declared in `tracer-capi/include/roctracer`. An exception that a client's function throws on the
//! client's thread passes through; a panic of ours never does.
//!
//! Traced are calls of HIP, calls and events of HSA, marks and ranges, and work of GPUs.

#![deny(unsafe_code)]

mod activities;
mod answer;
mod call_record;
mod callbacks;
mod deprecated;
mod enabled;
mod gpu;
mod hip;
mod hsa;
mod names;
mod operations;
mod pools;
mod roctx;
mod sources;
mod table_calls;
mod time;
mod tool;
mod versions;
