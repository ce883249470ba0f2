//! Where a trace is written to: a file, claimed for one recorder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::TraceError;
use super::format::FILE_MAGIC;

/// What the writer needs of a file. A trait, so that tests can play a full disk.
pub trait Sink: Send {
    /// Appends all of `bytes`. After an error any part of them may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file back to its first `len` bytes and goes on from there.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Waits until the device has everything.
    fn sync(&mut self) -> io::Result<()>;
}

impl Sink for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        self.seek(SeekFrom::Start(len)).map(drop)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Creates the file of a new trace, or empties an old trace when `force` says so.
///
/// What is not a trace is never emptied: `--force` is typed in haste, and the program often runs
/// as root. The file stays locked while it is open, so that two recorders cannot share it.
pub fn claim(path: &Path, force: bool) -> Result<File, TraceError> {
    let path_buf = || path.to_path_buf();
    let open = |cause| TraceError::Open { path: path_buf(), cause };
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let mut file = match options.clone().create_new(true).open(path) {
        Ok(file) => {
            lock(&file, path)?;
            return Ok(file);
        }
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(open(e)),
        Err(_) if !force => return Err(TraceError::Exists { path: path_buf() }),
        // Asked of the path first: to open a FIFO would wait for its other end.
        Err(_) if !std::fs::metadata(path).map_err(open)?.is_file() => {
            return Err(TraceError::NotOurs { path: path_buf() });
        }
        Err(_) => options.open(path).map_err(open)?,
    };
    lock(&file, path)?;
    let mut magic = Vec::new();
    (&mut file).take(FILE_MAGIC.len() as u64).read_to_end(&mut magic).map_err(open)?;
    if !magic.is_empty() && magic != FILE_MAGIC {
        return Err(TraceError::NotOurs { path: path_buf() });
    }
    file.cut(0).map_err(open)?;
    Ok(file)
}

fn lock(file: &File, path: &Path) -> Result<(), TraceError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(TraceError::Busy { path: path.to_path_buf() }),
        // Some network file systems have no locks: recording there must still be possible.
        Err(TryLockError::Error(_)) => Ok(()),
    }
}
