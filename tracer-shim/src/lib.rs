//! `libroctap_shim.so`: what roctap puts into a ROCm process.
//!
//! The runtime loads it because `HSA_TOOLS_LIB` names it, or roctap injects it. It connects to the shared memory that
//! `roctap` made (`ROCTAP_SHIM_MEMORY` names it, see [`tracer_common::shim`]), lets `tracer-hooks` patch the runtime's
//! tables, and writes the work that these report into rings: one per thread of the target, and one of its own thread.
//!
//! Imports go downwards only:
//!
//! ```text
//! entry                     the functions that others call
//! attach                    beginning in a process that runs already, again and again
//! calls                     HSA calls: the hooks' sink for them
//! recorder                  policy: the hooks' sink, which ties what is below together
//! exports                   what roctap reads and probes: three words, the dispatch site
//! open_calls                the open calls of each thread
//! rings, current, backlog   which thread writes where; which memory it is now; what waits for room
//! memory                    the shared memory, validated once
//! ```
//!
//! It never writes to the target's stdout or stderr, installs no signal handler, is never unloaded,
//! and goes dormant by itself when nobody reads.

#![deny(unsafe_code)]

pub mod attach;
pub mod backlog;
pub mod calls;
pub mod current;
pub mod entry;
pub mod exports;
pub mod memory;
pub mod open_calls;
pub mod recorder;
pub mod rings;
