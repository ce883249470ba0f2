//! `librocprofiler-sdk-roctx.so.0`: marks, ranges and names that a program puts into its trace, for programs that are linked
//! against AMD's library of that name of ROCprofiler-SDK 0.5.
//!
//! It records nothing. Its exported functions ([`exports`]) call others by [`tables`], which it hands over to
//! `librocprofiler-sdk` ([`register`]): that puts functions of its own into the tables, which record and call on. The
//! functions that were there ([`own`]) count the ranges of a thread and give out ids. Probes on the exported functions see
//! the same calls.
//!
//! The functions are declared in `tracer-capi/include/rocprofiler-sdk-roctx/roctx.h`. Nothing here allocates or panics, and no
//! call waits but while the tables are handed over.

#![deny(unsafe_code)]

mod exports;
mod own;
mod register;
mod tables;
