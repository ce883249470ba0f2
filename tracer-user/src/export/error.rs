//! What can go wrong with an export.

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
    /// What is already there is no regular file: never replaced.
    #[error(
        "{} exists and is no regular file (a symbolic link is not followed): it is left alone, \
         even with --force; give another directory with -o", path.display()
    )]
    NotAFile {
        /// What it is.
        path: PathBuf,
    },
    /// An output file or directory could not be created.
    #[error("cannot create {}: {cause}", path.display())]
    Create {
        /// The file or directory.
        path: PathBuf,
        /// What the system said. Part of the message, hence no `source`.
        cause: io::Error,
    },
    /// An output file could not be written.
    #[error("cannot write to {}: {cause}; the export is not complete", path.display())]
    Write {
        /// The file, or "standard output".
        path: PathBuf,
        /// What the system said. Part of the message, hence no `source`.
        cause: io::Error,
    },
}

impl ExportError {
    /// Whoever read our standard output has seen enough.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write { cause, .. } if cause.kind() == io::ErrorKind::BrokenPipe)
    }
}
