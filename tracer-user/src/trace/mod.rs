//! The trace file: writing and reading it. Its contents are those of [`tracer_records::model`].
//!
//! A recording goes through [`Writer`] into one append-only file; reports and exports of a recording are made from
//! [`Trace`]. The format is described in `docs/formats/trace-file.md`.
//!
//! Not for: other programs' formats (see `export`), and not an archive format: a reader reads
//! files of its own version and of those before it.

mod compress;
mod contents;
mod cursor;
mod damage;
mod error;
mod format;
pub mod limits;
pub mod lookup;
mod random;
mod reader;
mod reading;
mod seal;
mod sink;
mod tables;
#[cfg(test)]
mod tests;
mod wire;
mod writer;

pub use damage::{Damage, Gap};
pub use error::TraceError;
pub use format::VERSION;
pub use reader::{Trace, fuzz_reader};
pub use reading::{Reading, Status};
pub use sink::Existing;
pub use writer::Writer;
