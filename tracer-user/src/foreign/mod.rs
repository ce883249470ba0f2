//! What a traced process chose: its files, and what the kernel tells of it in its own words.
//!
//! roctap has more rights than the process as a rule, so the process could have it wait, grow, or read what
//! is not the process's to read. All of it therefore comes through here:
//!
//! - [`File`] opens: regular files alone, inside the process's root, never waiting for another process;
//! - [`Contents`] reads an object file piece by piece, and no more than is allowed in all. Nothing is
//!   mapped: a file that shrinks ends in an error;
//! - [`text`] reads a file of `/proc`, up to a length, and [`maps`] what a process has mapped;
//! - [`TargetMemory`] reads and writes its memory, by a process that is given up if that takes too long; so is a
//!   target whose memory is slow again and again.
//!
//! What cannot be kept off: a file system can make whoever reads from it wait. The kernel keeps root out of
//! those that users serve (FUSE), unless `/etc/fuse.conf` says `user_allow_other`. A network file system
//! whose server is gone holds roctap as it holds the process.

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
pub use schedule::{Look, Silence};
pub use text::{beginning, field, lossy, program, read as text, real_user};
