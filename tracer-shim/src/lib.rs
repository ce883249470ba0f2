//! `libroctap_shim.so`: what roctap puts into a ROCm process.
//!
//! The runtime loads it because `HSA_TOOLS_LIB` names it, or roctap injects it. It connects to the
//! shared memory that `roctap` made (`ROCTAP_SHIM_MEMORY` names it, see [`tracer_common::shim`]),
//! lets `tracer-hooks` patch the runtime's tables, and writes what it is told into rings: one per
//! thread of the target, and one of its own thread.
//!
//! * [`memory`]: the shared memory, validated once;
//! * [`current`]: which memory it is now, and how it changes under threads that write;
//! * [`rings`]: which thread writes where, and sequence numbers;
//! * [`backlog`]: records that must not be dropped, and wait for room instead;
//! * [`recorder`]: policy: the [`tracer_hooks::Sink`] that ties these together;
//! * [`attach`]: beginning in a process that runs already, again and again;
//! * [`calls`]: HSA calls;
//! * [`entry`]: the exported functions.
//!
//! It never writes to the target's stdout or stderr, installs no signal handler, is never unloaded,
//! and goes dormant by itself when nobody reads.

#![deny(unsafe_code)]

pub mod attach;
pub mod backlog;
pub mod calls;
pub mod current;
pub mod entry;
pub mod memory;
pub mod recorder;
pub mod rings;
