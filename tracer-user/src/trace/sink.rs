//! The destination of a trace: a file, claimed for one recorder.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use super::error::TraceError;
use super::format::FILE_MAGIC;
use super::random::random;
use crate::files::DirectoryEntry;
use crate::privileges;

/// The operations on a file that the writer needs. A trait, so that tests can play a full disk.
pub trait Sink: Send {
    /// Appends all of `bytes`. After an error any part of them may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file back to its first `len` bytes and goes on from there.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Waits until the device has written everything.
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

/// The file of a new trace. With its first chunk it takes the place of an old trace, and stays from then on: a
/// recording that does not begin leaves nothing behind and takes nothing away.
pub struct Claim {
    file: File,
    has_header: bool,
    /// Present until there is a chunk.
    directory_thread: Option<DirectoryThread>,
}

impl Claim {
    fn new(file: File, at: TraceFile) -> io::Result<Self> {
        let at = Arc::new(at);
        match DirectoryThread::start(Arc::clone(&at)) {
            Ok(directory_thread) => {
                Ok(Self { file, has_header: false, directory_thread: Some(directory_thread) })
            }
            Err(error) => {
                // If the file cannot be removed, an empty file stays.
                let _ = at.place.remove(&file);
                Err(error)
            }
        }
    }
}

impl Sink for Claim {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.append(bytes)?;
        if self.has_header
            && let Some(directory_thread) = &self.directory_thread
        {
            directory_thread.put_in_place()?;
            self.directory_thread = None;
        }
        self.has_header = true;
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.cut(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(directory_thread) = self.directory_thread.take() {
            // If the file cannot be removed, an empty trace stays.
            let _ = directory_thread.remove(&self.file);
        }
    }
}

/// The place of a new trace's file.
struct TraceFile {
    place: DirectoryEntry,
    /// The old trace that the new one replaces, locked by this process, and its place; until then the new one is
    /// beside it.
    old: Option<(DirectoryEntry, File)>,
}

/// An action in the trace's directory that needs the rights to it: each thread has rights of its own, and the recording
/// thread has given these up by then.
type DirectoryAction = Box<dyn FnOnce(&TraceFile) + Send>;

/// The thread that keeps the rights to the names in the trace's directory. It does nothing else, and ends with the
/// first chunk.
struct DirectoryThread {
    actions: Option<Sender<DirectoryAction>>,
    thread: Option<JoinHandle<()>>,
}

impl DirectoryThread {
    fn start(at: Arc<TraceFile>) -> io::Result<Self> {
        let (actions, asked) = mpsc::channel::<DirectoryAction>();
        let thread = thread::Builder::new().name("roctap-output".to_owned()).spawn(move || {
            privileges::keep_for_renaming();
            asked.iter().for_each(|action| action(&at));
        })?;
        Ok(Self { actions: Some(actions), thread: Some(thread) })
    }

    fn ask<T: Send + 'static>(
        &self,
        action: impl FnOnce(&TraceFile) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (tell, done) = mpsc::channel();
        let gone = || io::Error::other("the thread that keeps the trace's file has ended");
        let actions = self.actions.as_ref().ok_or_else(gone)?;
        // The receiver is there, unless this thread panics.
        let action = Box::new(move |at: &TraceFile| drop(tell.send(action(at))));
        actions.send(action).map_err(|_| gone())?;
        done.recv().map_err(|_| gone())?
    }

    /// Puts the new trace over the old one, if there is one.
    fn put_in_place(&self) -> io::Result<()> {
        self.ask(|at| match &at.old {
            Some((place, old)) if !place.replace(old, &at.place)? => {
                Err(io::Error::other("another recorder has replaced it"))
            }
            _ => Ok(()),
        })
    }

    fn remove(&self, file: &File) -> io::Result<bool> {
        let file = file.try_clone()?;
        self.ask(move |at| at.place.remove(&file))
    }
}

impl Drop for DirectoryThread {
    fn drop(&mut self) {
        self.actions = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported as an error.
            let _ = thread.join();
        }
    }
}

/// The treatment of a trace that exists already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// It stays: no trace is written.
    Refuse,
    /// The new one takes its place.
    Replace,
}

/// Creates the file of a new trace; beside the old trace that it replaces, if `existing` says so.
///
/// From here on it is known that the file can be written, and not only when a command has begun to run. A file that is
/// not a trace is never replaced: `--force` is typed in haste, and the program often runs as root. The file stays
/// locked while it is open, so that two recorders cannot share it: a recorder that replaces a trace holds the old
/// trace's lock until the new one, which is locked too, is in its place.
pub fn claim(path: &Path, existing: Existing) -> Result<Claim, TraceError> {
    let open = |cause| TraceError::Open { path: path.to_path_buf(), cause };
    let place = DirectoryEntry::of(path).map_err(open)?;
    let (file, at) = match place.create() {
        Ok(file) => (file, TraceFile { place, old: None }),
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(open(e)),
        Err(_) if existing == Existing::Refuse => {
            return Err(TraceError::Exists { path: path.to_path_buf() });
        }
        Err(_) => {
            let old = old_trace(&place, path)?;
            let number = random().map(u64::from_ne_bytes).map_err(open)?;
            let beside = place.beside(format!(".roctap-{number:016x}").into()).map_err(open)?;
            let file = beside.create().map_err(open)?;
            (file, TraceFile { place: beside, old: Some((place, old)) })
        }
    };
    Claim::new(lock(file, path)?, at).map_err(open)
}

/// The trace that is at `place`, or an empty file, locked; messages name it by `path`.
fn old_trace(place: &DirectoryEntry, path: &Path) -> Result<File, TraceError> {
    let open = |cause| TraceError::Open { path: path.to_path_buf(), cause };
    let not_ours = || TraceError::NotOurs { path: path.to_path_buf() };
    let old = place.open().map_err(open)?.ok_or_else(not_ours)?;
    let mut old = lock(old, path)?;
    let mut magic = Vec::new();
    (&mut old).take(FILE_MAGIC.len() as u64).read_to_end(&mut magic).map_err(open)?;
    if magic.is_empty() || magic == FILE_MAGIC { Ok(old) } else { Err(not_ours()) }
}

fn lock(file: File, path: &Path) -> Result<File, TraceError> {
    if is_locked(&file) { Err(TraceError::Busy { path: path.to_path_buf() }) } else { Ok(file) }
}

/// Whether another process has locked a file; else this process locks it. Some network file systems have no locks:
/// recording to them must still be possible.
fn is_locked(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}
