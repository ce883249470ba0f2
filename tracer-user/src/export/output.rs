//! The destination of an export.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::ExportError;
use crate::files::{self, DirectoryEntry};
use crate::privileges;

/// The size of the buffer in which lines are collected before they are written.
const BUFFER: usize = 64 << 10;

/// One file of an export.
pub struct Output {
    path: PathBuf,
    out: BufWriter<Box<dyn Write>>,
}

impl Output {
    /// Standard output.
    pub fn stdout() -> Self {
        Self::new(PathBuf::from("standard output"), Box::new(io::stdout().lock()))
    }

    fn new(path: PathBuf, out: Box<dyn Write>) -> Self {
        Self { path, out: BufWriter::with_capacity(BUFFER, out) }
    }

    /// Creates the files `names` in the directory `dir`, and the directory if it is missing. If one of the files
    /// exists already and `force` is not given, none is created.
    ///
    /// Gives up the rights to create files: from here on, the calling thread only writes to open ones.
    pub fn files(dir: &Path, names: &[String], force: bool) -> Result<Vec<Self>, ExportError> {
        files::create_directory(dir)
            .map_err(|cause| ExportError::Create { path: dir.to_path_buf(), cause })?;
        let paths = Vec::from_iter(names.iter().map(|name| dir.join(name)));
        if let Some(path) = paths.iter().find(|path| !force && path.symlink_metadata().is_ok()) {
            return Err(ExportError::Exists { path: path.clone() });
        }
        let create = |path: PathBuf| match create(&path, force) {
            Ok(Some(file)) => Ok(Self::new(path, Box::new(file))),
            Ok(None) => Err(ExportError::NotAFile { path }),
            // Another process was faster.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(ExportError::Exists { path }),
            Err(cause) => Err(ExportError::Create { path, cause }),
        };
        let created = paths.into_iter().map(create).collect();
        privileges::drop_all();
        created
    }

    /// Writes formatted text: `output.write(format_args!(…))`.
    pub fn write(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), ExportError> {
        let result = self.out.write_fmt(text);
        result.map_err(|cause| ExportError::Write { path: self.path.clone(), cause })
    }

    /// Writes the rest. Dropping an output without this would lose errors.
    pub fn finish(mut self) -> Result<(), ExportError> {
        let result = self.out.flush();
        result.map_err(|cause| ExportError::Write { path: self.path.clone(), cause })
    }
}

/// Creates a file, in the place of another one if `force` says so; none if something else is there.
fn create(path: &Path, force: bool) -> io::Result<Option<File>> {
    let place = DirectoryEntry::of(path)?;
    match place.create() {
        Err(error) if force && error.kind() == ErrorKind::AlreadyExists => {
            let Some(old) = place.open()? else { return Ok(None) };
            place.remove(&old)?;
            place.create().map(Some)
        }
        result => result.map(Some),
    }
}
