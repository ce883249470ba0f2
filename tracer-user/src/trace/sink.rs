//! Where a trace is written to: a file, claimed for one recorder.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use signal_hook::consts::SIGXFSZ;

use super::error::TraceError;
use super::format::FILE_MAGIC;
use crate::files::Place;
use crate::privileges;

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
    /// The file; the old one as long as that stands in its place.
    file: File,
    is_old: bool,
    header: Option<Vec<u8>>,
    /// Until there is a chunk.
    keeper: Option<Keeper>,
}

impl Claim {
    fn new(place: Place, file: File, is_old: bool) -> io::Result<Self> {
        Ok(Self { file, is_old, header: None, keeper: Some(Keeper::start(place)?) })
    }
}

impl Sink for Claim {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(header) = &self.header else {
            self.header = Some(bytes.to_owned());
            return if self.is_old { Ok(()) } else { self.file.append(bytes) };
        };
        if self.is_old
            && let Some(keeper) = &self.keeper
        {
            self.file = keeper.replace(&self.file)?;
            self.is_old = false;
            self.file.append(header)?;
        }
        self.file.append(bytes)?;
        self.keeper = None;
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
        if let Some(keeper) = self.keeper.take().filter(|_| !self.is_old) {
            // What cannot be removed is an empty trace.
            let _ = keeper.remove(&self.file);
        }
    }
}

/// What is done in the trace's directory, with the rights to it: a thread has those of its own, and the one
/// that records has given them up by then.
type Deed = Box<dyn FnOnce(&Place) + Send>;

/// The thread that keeps the rights to the trace's directory. It does nothing else.
struct Keeper {
    deeds: Option<Sender<Deed>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    fn start(place: Place) -> io::Result<Self> {
        let (deeds, asked) = mpsc::channel::<Deed>();
        let thread = thread::Builder::new().name("roctap-output".to_owned()).spawn(move || {
            privileges::keep_for_writing();
            asked.iter().for_each(|deed| deed(&place));
        })?;
        Ok(Self { deeds: Some(deeds), thread: Some(thread) })
    }

    fn ask<T: Send + 'static>(
        &self,
        deed: impl FnOnce(&Place) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (tell, done) = mpsc::channel();
        let gone = || io::Error::other("the thread that keeps the trace's file has ended");
        let deeds = self.deeds.as_ref().ok_or_else(gone)?;
        // It is heard, unless this one panics.
        let deed = Box::new(move |place: &Place| drop(tell.send(deed(place))));
        deeds.send(deed).map_err(|_| gone())?;
        done.recv().map_err(|_| gone())?
    }

    /// Removes the old trace, which is locked by us, and creates the new one's file.
    fn replace(&self, old: &File) -> io::Result<File> {
        let old = old.try_clone()?;
        self.ask(move |place| {
            let taken = || io::Error::other("another recorder has replaced it");
            if !place.remove(&old)? {
                return Err(taken());
            }
            let new = place.create()?;
            if is_locked(&new) { Err(taken()) } else { Ok(new) }
        })
    }

    fn remove(&self, file: &File) -> io::Result<bool> {
        let file = file.try_clone()?;
        self.ask(move |place| place.remove(&file))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.deeds = None;
        if let Some(thread) = self.thread.take() {
            // A panic of its was met as an error.
            let _ = thread.join();
        }
    }
}

/// Creates the file of a new trace, or finds the old one that it replaces when `force` says so.
///
/// What is not a trace is never replaced: `--force` is typed in haste, and the program often runs
/// as root. The file stays locked while it is open, so that two recorders cannot share it: whoever
/// replaces a trace holds the old one's lock until the new one's is had.
///
/// From here on, a write beyond the limit of file sizes (RLIMIT_FSIZE) fails like one to a full disk, and
/// does not end the program: its signal is taken, and not ignored, which programs that it starts would
/// inherit.
pub fn claim(path: &Path, force: bool) -> Result<Claim, TraceError> {
    let path_buf = || path.to_path_buf();
    let open = |cause| TraceError::Open { path: path_buf(), cause };
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(open)?;
    let place = Place::of(path).map_err(open)?;
    let old = match place.create() {
        Ok(file) => return Claim::new(place, lock(file, path)?, false).map_err(open),
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
    Claim::new(place, old, true).map_err(open)
}

fn lock(file: File, path: &Path) -> Result<File, TraceError> {
    if is_locked(&file) { Err(TraceError::Busy { path: path.to_path_buf() }) } else { Ok(file) }
}

/// Whether somebody else has locked a file; it is ours if not. Some network file systems have no locks:
/// recording there must still be possible.
fn is_locked(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}
