//! roctap traces AMD ROCm programs: API calls from uprobes, GPU times from a shim inside the
//! process, joined by correlation id into roctracer-format activity records.
//!
//! Data flows one way: [`discover`] finds processes and libraries, [`plan`] where their functions are
//! probed, [`probe`] loads the BPF programs and attaches them; [`inject`] puts the shim into a process that
//! runs, [`shim`] owns the memory that it shares, and [`outside`] makes sense of GPU work where there is
//! none. [`record`] drains all of these, [`join`] makes events of them and [`trace`] stores these.
//! [`tool`] puts a tool of ROCprofiler-SDK into a process instead of the shim.
//! [`report`] and [`export`] read traces; `ranges` puts together the marks and ranges of roctx's calls for them.
//! [`foreign`] alone opens and reads the files and memory that a target chose.

#![deny(unsafe_code, clippy::print_stdout, clippy::print_stderr)]

mod alarm;
mod budget;
pub mod calibrate;
mod cgroups;
mod clock;
pub mod discover;
pub mod doctor;
pub mod export;
mod files;
mod foreign;
pub mod inject;
pub mod join;
mod losses;
pub mod outside;
mod placing;
pub mod plan;
mod priority;
pub mod privileges;
pub mod probe;
pub mod probes;
mod program;
mod ranges;
pub mod record;
pub mod report;
pub mod shim;
pub mod shown;
pub mod tool;
pub mod trace;
pub mod trial;
mod user;

pub use program::PROGRAM;
