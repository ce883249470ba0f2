//! Where an export goes.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::ExportError;

/// Where lines are collected before they are written.
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

    /// Creates the files `names` in the directory `dir`, and this where it is missing. If one of
    /// them is there already and `force` is not given, none is created.
    pub fn files(dir: &Path, names: &[String], force: bool) -> Result<Vec<Self>, ExportError> {
        std::fs::create_dir_all(dir)
            .map_err(|cause| ExportError::Create { path: dir.to_path_buf(), cause })?;
        let paths = Vec::from_iter(names.iter().map(|name| dir.join(name)));
        if let Some(path) = paths.iter().find(|path| !force && path.symlink_metadata().is_ok()) {
            return Err(ExportError::Exists { path: path.clone() });
        }
        let create = |path: PathBuf| match create(&path, force) {
            Ok(file) => Ok(Self::new(path, Box::new(file))),
            // Somebody else was faster.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(ExportError::Exists { path }),
            Err(cause) => Err(ExportError::Create { path, cause }),
        };
        paths.into_iter().map(create).collect()
    }

    /// Writes formatted text: `output.write(format_args!(…))`.
    pub fn write(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), ExportError> {
        let result = self.out.write_fmt(text);
        result.map_err(|cause| ExportError::Write { path: self.path.clone(), cause })
    }

    /// Writes what is left. To drop an output without this would lose errors.
    pub fn finish(mut self) -> Result<(), ExportError> {
        let result = self.out.flush();
        result.map_err(|cause| ExportError::Write { path: self.path.clone(), cause })
    }
}

fn create(path: &Path, force: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true).open(path)
    } else {
        options.create_new(true).open(path)
    }
}
