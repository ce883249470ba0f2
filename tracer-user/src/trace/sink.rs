//! Where a trace is written to: a file, claimed for one recorder.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::TraceError;
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

/// The file of a new trace. It stays, and takes the place of an old one, with its first chunk: a recording
/// that does not begin leaves nothing behind and takes nothing away.
pub struct Claim {
    place: Place,
    /// The file; the old one as long as that stands in its place.
    file: File,
    is_old: bool,
    header: Option<Vec<u8>>,
    has_chunks: bool,
}

impl Claim {
    /// Removes the old trace, and creates the file.
    fn replace(&mut self) -> io::Result<()> {
        let taken = || io::Error::other("another recorder has replaced it");
        if !self.place.remove(&self.file)? {
            return Err(taken());
        }
        let mut file = self.place.create()?;
        if is_locked(&file) {
            return Err(taken());
        }
        file.append(self.header.as_deref().unwrap_or_default())?;
        (self.file, self.is_old) = (file, false);
        Ok(())
    }
}

impl Sink for Claim {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.header.is_none() {
            self.header = Some(bytes.to_owned());
            return if self.is_old { Ok(()) } else { self.file.append(bytes) };
        }
        if self.is_old {
            self.replace()?;
        }
        self.file.append(bytes)?;
        self.has_chunks = true;
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        if self.is_old { Ok(()) } else { self.file.cut(len) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_old && !self.has_chunks {
            // What cannot be removed is an empty trace.
            let _ = self.place.remove(&self.file);
        }
    }
}

/// Creates the file of a new trace, or finds the old one that it replaces when `force` says so.
///
/// What is not a trace is never replaced: `--force` is typed in haste, and the program often runs
/// as root. The file stays locked while it is open, so that two recorders cannot share it: whoever
/// replaces a trace holds the old one's lock until the new one's is had.
pub fn claim(path: &Path, force: bool) -> Result<Claim, TraceError> {
    let path_buf = || path.to_path_buf();
    let open = |cause| TraceError::Open { path: path_buf(), cause };
    let place = Place::of(path).map_err(open)?;
    let claim =
        |place, file, is_old| Claim { place, file, is_old, header: None, has_chunks: false };
    let old = match place.create() {
        Ok(file) => return Ok(claim(place, lock(file, path)?, false)),
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
    Ok(claim(place, old, true))
}

fn lock(file: File, path: &Path) -> Result<File, TraceError> {
    if is_locked(&file) { Err(TraceError::Busy { path: path.to_path_buf() }) } else { Ok(file) }
}

/// Whether somebody else has locked a file; it is ours if not. Some network file systems have no locks:
/// recording there must still be possible.
fn is_locked(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}
