//! Reading a trace. The file is not trusted: it may be torn, damaged or made up.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, BufReader, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::TraceError;
use super::cursor::{Chunk, Cursor, Input, Stop};
use super::lookup::Tables;
use tracer_records::model::{ClockOffsets, Event, Metadata};

/// A trace that can be read, as often as needed.
pub struct Trace {
    path: PathBuf,
    source: Source,
    /// Length when it was opened: a trace that is still being recorded reads the same each time.
    len: u64,
    first_chunk: u64,
    metadata: Metadata,
}

enum Source {
    File(File),
    Bytes(Vec<u8>),
}

/// How whole a trace is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Status {
    /// The recording was ended properly and all of it was read.
    pub complete: bool,
    /// Where the last whole chunk ends, when the file goes on after it but stops inside a chunk.
    pub truncated_at: Option<u64>,
    /// Chunks that were read.
    pub chunks: u64,
    /// Events that were delivered.
    pub events: u64,
    /// Bytes of the file that were read.
    pub bytes: u64,
    /// The clocks when recording ended, of a complete trace.
    pub end_clock: Option<ClockOffsets>,
}

/// What reading a trace gave, its events aside.
#[derive(Debug, Default)]
pub struct Reading {
    /// The side tables, merged.
    pub tables: Tables,
    /// How whole the trace is.
    pub status: Status,
    /// Why reading ended early: the file is damaged. A file that only stops early is no error, see
    /// [`Status::truncated_at`].
    pub damage: Option<TraceError>,
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
        // Asked of the path first: to open a device can have effects. And once more of what was opened,
        // without waiting for the other end of a FIFO: it may have been put there since.
        check(&fs::metadata(path).map_err(open)?)?;
        let at_once = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::options().read(true).custom_flags(at_once).open(path).map_err(open)?;
        check(&file.metadata().map_err(open)?)?;
        Ok(file)
    }

    /// Reads the header of a trace; `path` is for messages.
    pub fn of(path: &Path, file: File) -> Result<Self, TraceError> {
        let open = |cause| TraceError::Open { path: path.to_path_buf(), cause };
        let len = file.metadata().map_err(open)?.len();
        Self::new(path, len, Source::File(file))
    }

    /// Reads a trace that is in memory; `name` is for messages.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, TraceError> {
        Self::new(Path::new(name), bytes.len() as u64, Source::Bytes(bytes))
    }

    fn new(path: &Path, len: u64, source: Source) -> Result<Self, TraceError> {
        let path = path.to_path_buf();
        let mut trace = Self { path, source, len, first_chunk: 0, metadata: Metadata::default() };
        let (metadata, first_chunk) = {
            let mut cursor = trace.cursor(0)?;
            let metadata = cursor.file_header()?;
            (metadata, cursor.offset)
        };
        (trace.metadata, trace.first_chunk) = (metadata, first_chunk);
        Ok(trace)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The recording's own facts.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Calls `on_event` for every event, in the order in which they were recorded.
    ///
    /// An error of `on_event` ends reading and is given back. Damage of the file is not an error
    /// here: all before it is delivered, and [`Reading::damage`] says what was found.
    pub fn for_each_event<E>(
        &self,
        on_event: impl FnMut(&Event) -> Result<(), E>,
    ) -> Result<Reading, E> {
        let mut reading = Reading::default();
        let result = match self.cursor(self.first_chunk) {
            Ok(mut cursor) => cursor.chunks(&mut reading, on_event),
            Err(error) => Err(Stop::Trace(error)),
        };
        match result {
            Ok(()) => Ok(reading),
            Err(Stop::Trace(error)) => Ok(Reading { damage: Some(error), ..reading }),
            Err(Stop::Caller(error)) => Err(error),
        }
    }

    /// Reads the tables alone.
    pub fn tables(&self) -> Reading {
        match self.for_each_event(|_| Ok::<(), Infallible>(())) {
            Ok(reading) => reading,
        }
    }

    fn cursor(&self, offset: u64) -> Result<Cursor<'_>, TraceError> {
        let mut input: Box<dyn Input + '_> = match &self.source {
            Source::File(file) => Box::new(BufReader::with_capacity(256 << 10, file)),
            Source::Bytes(bytes) => Box::new(io::Cursor::new(bytes.as_slice())),
        };
        let read = |cause| TraceError::Read { path: self.path.clone(), offset, cause };
        input.seek(SeekFrom::Start(offset)).map_err(read)?;
        Ok(Cursor::new(&self.path, input, offset, self.len))
    }
}

/// Reads `bytes` as a trace, then as the contents of a chunk, and drops what it finds: the body of a
/// fuzz target. Only the second gets past the checksums often.
pub fn fuzz_reader(bytes: &[u8]) {
    if let Ok(trace) = Trace::from_bytes("fuzz", bytes.to_vec()) {
        let reading = trace.tables();
        assert!(reading.damage.is_none() || !reading.status.complete);
    }
    let cursor = Cursor::new(Path::new("fuzz"), Box::new(io::empty()), 0, 0);
    let mut reading = Reading::default();
    let chunk = Chunk::new(&cursor, 0, bytes);
    let _ = chunk.sections(&mut reading, &mut 0, &mut |_| Ok::<(), Infallible>(()));
}
