//! Errors of an export.

use std::io;
use std::path::PathBuf;

/// An export failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// An output file is already there.
    #[error("{} exists already: give another directory with -o, or --force to replace it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file that exists already is no regular file: it is never replaced.
    #[error(
        "{} exists and is no regular file (a symbolic link is not followed): it is left alone, \
         even with --force; give another directory with -o", path.display()
    )]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// An output file or directory could not be created.
    #[error("cannot create {}: {cause}", path.display())]
    Create {
        /// The file or directory.
        path: PathBuf,
        /// The system's error. Part of the message, hence no `source`.
        cause: io::Error,
    },
    /// An output file could not be written.
    #[error("cannot write to {}: {cause}; the export is not complete", path.display())]
    Write {
        /// The file, or "standard output".
        path: PathBuf,
        /// The system's error. Part of the message, hence no `source`.
        cause: io::Error,
    },
}

impl ExportError {
    /// Whether the reader of standard output has closed it: it has seen enough.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write { cause, .. } if cause.kind() == io::ErrorKind::BrokenPipe)
    }
}
