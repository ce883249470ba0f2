//! Access to the parts of the world that a traced process chose: its files, memory, and its own words in `/proc`.
//!
//! roctap usually has more rights than the process, so the process could make it wait, use up memory, or read data that
//! the process may not read. All such access therefore goes through this module:
//!
//! - [`File`] opens files: regular files alone, inside the process's root, never waiting for another process;
//! - [`Contents`] reads an object file piece by piece, and no more than is allowed in all. Nothing is mapped: reading a
//!   file that shrinks ends in an error;
//! - [`text`] reads a file of `/proc`, up to a length, and [`maps`] the mappings of a process;
//! - [`TargetMemory`] reads and writes a process's memory, by a process of roctap's that is given up if that takes too
//!   long; a target whose memory is slow again and again is given up, too.
//!
//! One thing cannot be prevented: a file system can make its readers wait. The kernel keeps root out of the file
//! systems that users serve (FUSE), unless `/etc/fuse.conf` says `user_allow_other`. A network file system whose
//! server is gone holds roctap as it holds the process.

mod budgets;
mod contents;
mod file;
mod maps;
mod memory;
mod reader_process;
mod schedule;
mod text;

pub use contents::{Contents, Source, View};
pub use file::{File, may_read};
pub use maps::{Map, Maps};
pub use memory::{Access, TargetMemory};
pub use schedule::{Silence, ThreadState};
pub use text::{beginning, field, lossy, program, read as text, real_user};
