//! What reading a trace gave, its events aside.

use std::path::Path;

use super::damage::Damage;
use super::error::TraceError;
use super::lookup::Tables;
use tracer_records::model::ClockOffsets;

/// How whole a trace is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Status {
    /// The recording was ended properly and all of it was read.
    pub complete: bool,
    /// Where the last whole chunk ends, when the file goes on after it but stops inside a chunk.
    pub truncated_at: Option<u64>,
    /// Chunks that were read.
    pub chunks: u64,
    /// Events that were delivered.
    pub events: u64,
    /// Where the last chunk ends that was read.
    pub bytes: u64,
    /// The clocks when recording ended, if the end was read.
    pub end_clock: Option<ClockOffsets>,
}

/// What reading a trace gave, its events aside.
#[derive(Debug, Default)]
pub struct Reading {
    /// The side tables, merged.
    pub tables: Tables,
    /// How whole the trace is.
    pub status: Status,
    /// What is damaged. A file that only stops early is not, see [`Status::truncated_at`].
    pub damage: Option<Damage>,
}

impl Reading {
    /// Whether all that was recorded was read.
    ///
    /// # Errors
    ///
    /// What is missing of the trace `path`.
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
