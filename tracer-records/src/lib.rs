//! What a recording consists of, for all who make, store or show one: the `roctap` program, and libraries
//! inside of traced programs.
//!
//! * [`model`]: the records: calls, GPU operations, processes, agents, kernels.
//! * [`api`]: the functions of HIP and HSA: names, ids, what is captured of a call, a call as text.
//! * [`commands`]: commands of HIP's queues.
//! * [`sink`]: where records go, whoever takes them.
//! * [`demangle`](mod@demangle): names of kernels as people write them.
//!
//! It is not the place for where records come from (`roctap`'s `join`) or are stored (`trace`). It knows
//! no file, no process, no BPF and no command line.

pub mod api;
pub mod commands;
pub mod demangle;
pub mod model;
pub mod sink;
