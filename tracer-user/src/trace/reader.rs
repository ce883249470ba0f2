//! Reading a trace. The file is not trusted: it may be torn, damaged or made up.

use std::convert::Infallible;
use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::contents::Contents;
use super::cursor::{Cursor, Head, ReadAt};
use super::damage::{Damage, Gap};
use super::error::TraceError;
use super::lookup::Tables;
use super::reading::Reading;
use tracer_records::model::{Event, Metadata};

/// A trace that can be read, as often as needed.
pub struct Trace {
    path: PathBuf,
    source: Box<dyn ReadAt + Send + Sync>,
    /// The file's length when it was opened: so a trace that is still being recorded reads the same each time.
    len: u64,
    head: Head,
}

impl Trace {
    /// Opens a trace and reads its header.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::of(path, Self::file(path)?)
    }

    /// Opens the file of a trace, and reads nothing of it.
    pub fn file(path: &Path) -> Result<File, TraceError> {
        let open = |cause| TraceError::Open { path: path.to_path_buf(), cause };
        let check = |attributes: &fs::Metadata| {
            let found = match (attributes.is_file(), attributes.is_dir()) {
                (true, _) => return Ok(()),
                (_, true) => "it is a directory",
                _ => "it is no file",
            };
            Err(TraceError::NotATrace { path: path.to_path_buf(), found: found.into() })
        };
        // The path is checked first: opening a device can have effects. Then the opened file is checked, without
        // waiting for the other end of a FIFO: one may have been put there since.
        check(&fs::metadata(path).map_err(open)?)?;
        let at_once = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::options().read(true).custom_flags(at_once).open(path).map_err(open)?;
        check(&file.metadata().map_err(open)?)?;
        Ok(file)
    }

    /// Reads the header of a trace; messages name it by `path`.
    pub fn of(path: &Path, file: File) -> Result<Self, TraceError> {
        let open = |cause| TraceError::Open { path: path.to_path_buf(), cause };
        let len = file.metadata().map_err(open)?.len();
        Self::new(path, len, Box::new(file))
    }

    /// Reads a trace that is in memory; messages name it by `name`.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, TraceError> {
        Self::new(Path::new(name), bytes.len() as u64, Box::new(bytes))
    }

    fn new(
        path: &Path,
        len: u64,
        source: Box<dyn ReadAt + Send + Sync>,
    ) -> Result<Self, TraceError> {
        let head = Cursor::new(path, &*source, len)?.head()?;
        Ok(Self { path: path.to_path_buf(), source, len, head })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The recording's own facts; none when the file's header is damaged.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.head.metadata.as_ref()
    }

    /// Calls `on_event` for every event, in the order in which they were recorded.
    ///
    /// An error of `on_event` ends reading and is returned. Damage of the file is not an error here: all whole chunks
    /// are delivered, and [`Reading::damage`] says which parts are missing.
    pub fn for_each_event<E>(
        &self,
        on_event: impl FnMut(&Event) -> Result<(), E>,
    ) -> Result<Reading, E> {
        let mut reading = Reading::default();
        match Cursor::new(&self.path, &*self.source, self.len) {
            Ok(mut cursor) => cursor.chunks(&self.head, &mut reading, on_event)?,
            Err(error) => {
                let (bytes, found) = (self.len, error.to_string());
                let damage = reading.damage.insert(Damage::default());
                damage.add(Gap { offset: 0, bytes, chunks: None, found });
            }
        }
        Ok(reading)
    }

    /// Reads the tables alone.
    pub fn tables(&self) -> Reading {
        match self.for_each_event(|_| Ok::<(), Infallible>(())) {
            Ok(reading) => reading,
        }
    }
}

/// Reads `bytes` as a trace, then as the contents of a chunk, and drops the result: the body of a fuzz target. Only the
/// second often gets past the checksums.
pub fn fuzz_reader(bytes: &[u8]) {
    if let Ok(trace) = Trace::from_bytes("fuzz", bytes.to_vec()) {
        let reading = trace.tables();
        assert!(reading.damage.is_none() || !reading.status.complete);
        assert_eq!(reading.check(Path::new("fuzz")).is_ok(), reading.status.complete);
    }
    if let Ok(contents) = Contents::of(bytes) {
        let (mut tables, mut events) = (Tables::default(), 0);
        let delivered = contents.deliver(&mut tables, |_| {
            events += 1;
            Ok::<(), Infallible>(())
        });
        assert!(delivered.is_ok_and(|delivered| delivered.events == events));
    }
}
