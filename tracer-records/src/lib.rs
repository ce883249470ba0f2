//! The parts of a recording, for all code that makes, stores or shows one: the `roctap` program, and libraries inside
//! of traced programs.
//!
//! * [`model`]: the records: calls, GPU operations, processes, agents, kernels.
//! * [`api`]: the functions of HIP and HSA: names, ids, the captured parts of a call, a call as text.
//! * [`commands`]: commands of HIP's queues.
//! * [`sink`]: the receivers of records.
//! * [`demangle`](mod@demangle): names of kernels as people write them.
//!
//! It is not the place for the sources of records (`roctap`'s `join`) or for their storage (`trace`). It knows no file,
//! no process, no BPF and no command line.

pub mod api;
pub mod commands;
pub mod demangle;
pub mod model;
pub mod sink;
