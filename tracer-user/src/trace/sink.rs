//! Where a trace is written to: a file, claimed for one recorder.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use signal_hook::consts::SIGXFSZ;

use super::error::TraceError;
use super::format::FILE_MAGIC;
use crate::files::Place;

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

/// Creates the file of a new trace, in the place of an old one when `force` says so.
///
/// What is not a trace is never replaced: `--force` is typed in haste, and the program often runs
/// as root. The file stays locked while it is open, so that two recorders cannot share it: whoever
/// replaces a trace holds the old one's lock until the new one's is had.
///
/// From here on, a write beyond the limit of file sizes (RLIMIT_FSIZE) fails like one to a full disk, and
/// does not end the program: its signal is taken, and not ignored, which programs that it starts would
/// inherit.
pub fn claim(path: &Path, force: bool) -> Result<File, TraceError> {
    let path_buf = || path.to_path_buf();
    let open = |cause| TraceError::Open { path: path_buf(), cause };
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(open)?;
    let place = Place::of(path).map_err(open)?;
    let old = match place.create() {
        Ok(file) => return lock(file, path),
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(open(e)),
        Err(_) if !force => return Err(TraceError::Exists { path: path_buf() }),
        Err(_) => place.open().map_err(open)?,
    };
    let not_ours = || TraceError::NotOurs { path: path_buf() };
    let mut old = lock(old.ok_or_else(not_ours)?, path)?;
    let mut magic = Vec::new();
    (&mut old).take(FILE_MAGIC.len() as u64).read_to_end(&mut magic).map_err(open)?;
    if !magic.is_empty() && magic != FILE_MAGIC {
        return Err(not_ours());
    }
    if !place.remove(&old).map_err(open)? {
        return Err(TraceError::Busy { path: path_buf() });
    }
    lock(place.create().map_err(open)?, path)
}

fn lock(file: File, path: &Path) -> Result<File, TraceError> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(TraceError::Busy { path: path.to_path_buf() }),
        // Some network file systems have no locks: recording there must still be possible.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}
