//! In-process interception of the HSA runtime.
//!
//! It patches the runtime's API tables, so that every doorbell, copy, queue and code object passes by; gives packets
//! completion signals of its own; and tells a [`Sink`] what was enqueued and when it ran. It is mechanism only: its
//! embedders (`tracer-shim`, and the libraries that look like AMD's) decide what is recorded, when, and where.
//!
//! It lives in somebody else's process. One rule ranks above every feature: the process never crashes, never hangs and
//! never gets other results because of us. The modules say how:
//!
//! * [`queue`]: doorbells, held back until its packets carry our signal, never dropped;
//! * [`relay`]: the application's own signals get their completions from the threads that wait for them;
//! * [`harvest`]: the rest of a completion: its record, and the relaying that no thread waits for;
//! * [`worker`]: the one thread, and its cost;
//! * [`phase`]: the phase of the hooks, and its changes.
//!
//! # Layers
//!
//! Each imports from those below it only; within a line, the left from the right.
//!
//! ```text
//! lifecycle, worker               installed, at exit, forked; the one thread
//! patch, hooks                    what is put into the tables, and what stands there
//! closing, recording              the runtime goes; a recording begins and ends
//! calls                           functions that stand in front of the tables' entries
//! announce, symbols, scratch      what is told of queues, agents, kernels and scratch memory
//! harvest, relay                  completions
//! contained, state                the frame around all that we do; what everybody shares
//! registry, copies, queue, producer
//!                                 what is in flight
//! clock                           from the GPUs' ticks to times, and by how much these can be off
//! pool, bells, agents             signals of ours; GPUs, and which one a kernel is loaded on
//! runtime                         the runtime's own functions, saved
//! stubs                           where its code says that they are
//! attach_block, originals, track, marks, collecting, reserved, usual, packets, phase, lock, view, abi, sink,
//!     sys                         what all are made of
//! ```
//!
//! Facts about the runtime are those of ROCm 5.2.3, read in its source and tried on it; on 5.7, 6.4 and 7.2
//! they were tried.

#![deny(unsafe_code)]

#[expect(missing_docs, reason = "the runtime's names")]
pub mod abi;
mod agents;
mod announce;
pub mod attach_block;
mod bells;
#[cfg(test)]
mod bench;
pub mod calls;
mod clock;
mod closing;
mod collecting;
mod contained;
mod copies;
#[cfg(test)]
mod fake;
mod harvest;
mod hooks;
mod lifecycle;
pub mod lock;
mod marks;
#[cfg(test)]
mod orders;
mod originals;
mod packets;
mod patch;
pub mod phase;
mod pool;
mod producer;
mod queue;
mod recording;
mod registry;
mod relay;
#[cfg(test)]
mod relaying;
mod reserved;
mod runtime;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod schedules;
pub mod scratch;
pub mod sink;
pub mod state;
mod stubs;
mod symbols;
pub mod sys;
#[cfg(test)]
mod testing;
mod track;
mod usual;
mod view;
pub mod worker;

pub use agents::device;
pub use closing::close;
pub use contained::{contained, contained_without_points};
pub use lifecycle::{
    InstallError, Timing, call_worker, collect, finish, install, prepare_process, records, usable,
};
pub use recording::deactivate;
pub use runtime::{Tables, Unsupported};
pub use sink::{Demand, Sink};
pub use symbols::may_read;
