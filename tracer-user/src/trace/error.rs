//! Errors of trace files.

use std::io;
use std::path::PathBuf;

use tracer_records::sink::SinkError;

use super::damage::Damage;

/// A trace file could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The output file is already there.
    #[error("{} exists already: give another name, or --force to replace it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file that exists already was not written by roctap: it is never replaced.
    #[error(
        "{} exists and is not a roctap trace (a symbolic link is not followed): it is left alone, \
         even with --force; give another name", path.display()
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// Another roctap is recording into the file.
    #[error("{} is being recorded by another roctap: give another name", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be opened or created.
    #[error("cannot open {}: {cause}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error. Part of the message, hence no `source`.
        cause: io::Error,
    },
    /// A write failed; the file was cut back to its last whole chunk.
    #[error(
        "cannot write to {}: {cause}; the trace holds everything up to its last whole chunk \
         ({kept_bytes} bytes), {lost} events after it are lost", path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Bytes of the file that are whole.
        kept_bytes: u64,
        /// Events that were waiting to be written.
        lost: u64,
        /// The system's error. Part of the message, hence no `source`.
        cause: io::Error,
    },
    /// A write failed earlier, nothing more is written.
    #[error("{} is closed after a failed write", path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
    /// A read failed.
    #[error("cannot read {} at offset {offset}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The offset.
        offset: u64,
        /// The system's error. Part of the message, hence no `source`.
        cause: io::Error,
    },
    /// The file does not begin like a trace.
    #[error("{} is not a roctap trace: {found}", path.display())]
    NotATrace {
        /// The file.
        path: PathBuf,
        /// The bytes that stand there instead.
        found: String,
    },
    /// The file is of another version of the format.
    #[error(
        "{} is a roctap trace of format version {found}, this roctap reads versions {oldest} to \
         {newest}", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The oldest version that is read.
        oldest: u32,
        /// The newest version that is read.
        newest: u32,
    },
    /// The header is damaged and no chunk follows.
    #[error("{} is damaged: its header does not fit its checksum, and no whole chunk follows", path.display())]
    HeaderDamaged {
        /// The file.
        path: PathBuf,
    },
    /// The contents are damaged; all whole chunks were delivered.
    #[error("{} is damaged: {damage}; everything else was read", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parts that are missing.
        damage: Damage,
    },
    /// The file stops before the recording's end.
    #[error(
        "the end of the recording is missing in {}: it goes on, or was cut off (killed, disk full); \
         the file was read up to byte {bytes}, what was lost is not known", path.display()
    )]
    EndMissing {
        /// The file.
        path: PathBuf,
        /// Where the last chunk ends.
        bytes: u64,
    },
    /// Compression or encoding failed, which memory exhaustion alone can cause.
    #[error("cannot encode a chunk of {}: {cause}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// The error.
        cause: io::Error,
    },
}

impl From<TraceError> for SinkError {
    fn from(error: TraceError) -> Self {
        Box::<dyn std::error::Error + Send + Sync>::from(error).into()
    }
}
