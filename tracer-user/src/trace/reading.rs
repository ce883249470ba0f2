//! The result of reading a trace, without its events.

use std::path::Path;

use super::damage::Damage;
use super::error::TraceError;
use super::lookup::Tables;
use tracer_records::model::ClockOffsets;

/// How whole a trace is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Status {
    /// Whether the recording was ended properly and all of it was read.
    pub complete: bool,
    /// Where the last whole chunk ends, when the file goes on after it but stops inside a chunk.
    pub truncated_at: Option<u64>,
    /// Chunks that were read.
    pub chunks: u64,
    /// Events that were delivered.
    pub events: u64,
    /// Where the last chunk that was read ends.
    pub bytes: u64,
    /// The clocks when recording ended, if the end was read.
    pub end_clock: Option<ClockOffsets>,
}

/// The result of reading a trace, without its events.
#[derive(Debug, Default)]
pub struct Reading {
    /// The side tables, merged.
    pub tables: Tables,
    /// How whole the trace is.
    pub status: Status,
    /// The damaged parts. A file that only stops early is not damaged, see [`Status::truncated_at`].
    pub damage: Option<Damage>,
}

impl Reading {
    /// Checks that everything that was recorded was read.
    ///
    /// # Errors
    ///
    /// The parts that are missing of the trace `path`.
    pub fn check(&self, path: &Path) -> Result<(), TraceError> {
        if let Some(damage) = self.damage.clone() {
            return Err(TraceError::Damaged { path: path.to_path_buf(), damage });
        }
        if !self.status.complete {
            let bytes = self.status.bytes;
            return Err(TraceError::EndMissing { path: path.to_path_buf(), bytes });
        }
        Ok(())
    }
}
