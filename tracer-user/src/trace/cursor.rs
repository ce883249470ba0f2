//! Going through the file chunk by chunk.

use std::io::{self, Read, Seek};
use std::path::Path;

use zerocopy::FromBytes as _;

use super::TraceError;
pub use super::chunk::Chunk;
use super::compress::Unpacker;
use super::format::{
    CHUNK_MAGIC, ChunkHeader, FILE_MAGIC, FileHeader, VERSION, checked_part, chunk_kind,
};
use super::limits::{MAX_METADATA, MAX_PACKED, MAX_RAW};
use super::reader::Reading;
use tracer_records::model::{Event, Metadata};

/// Where the bytes come from.
pub trait Input: Read + Seek {}
impl<T: Read + Seek> Input for T {}

/// Why chunks are read no further.
pub enum Stop<E> {
    /// The file.
    Trace(TraceError),
    /// Whoever takes the events.
    Caller(E),
}

impl<E> From<TraceError> for Stop<E> {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

/// A place in the file.
pub struct Cursor<'a> {
    path: &'a Path,
    input: Box<dyn Input + 'a>,
    /// Where it is.
    pub offset: u64,
    len: u64,
}

impl<'a> Cursor<'a> {
    /// A place `offset` in `input`, which is there already and has `len` bytes.
    pub fn new(path: &'a Path, input: Box<dyn Input + 'a>, offset: u64, len: u64) -> Self {
        Self { path, input, offset, len }
    }

    fn left(&self) -> u64 {
        self.len.saturating_sub(self.offset)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<(), TraceError> {
        let (path, offset) = (self.path.to_path_buf(), self.offset);
        self.input.read_exact(buffer).map_err(|cause| TraceError::Read { path, offset, cause })?;
        self.offset += buffer.len() as u64;
        Ok(())
    }

    /// The error of damage.
    pub fn corrupt(&self, offset: u64, expected: &str, found: impl ToString) -> TraceError {
        TraceError::Corrupt {
            path: self.path.to_path_buf(),
            offset,
            expected: expected.to_owned(),
            found: found.to_string(),
        }
    }

    /// Reads the header of the file.
    pub fn file_header(&mut self) -> Result<Metadata, TraceError> {
        let not_a_trace = |path: &Path, found: &str| TraceError::NotATrace {
            path: path.into(),
            found: found.into(),
        };
        let mut bytes = [0; size_of::<FileHeader>()];
        if self.left() == 0 {
            return Err(not_a_trace(self.path, "it is empty"));
        }
        if self.left() < bytes.len() as u64 {
            return Err(not_a_trace(self.path, "it ends inside the header"));
        }
        self.read(&mut bytes)?;
        let header = FileHeader::read_from_bytes(&bytes)
            .map_err(|_| not_a_trace(self.path, "its header has another size"))?;
        if header.magic != FILE_MAGIC {
            return Err(not_a_trace(self.path, "it begins with other bytes"));
        }
        let (found, expected) = (header.version.get(), VERSION);
        if found != expected {
            return Err(TraceError::Version { path: self.path.to_path_buf(), found, expected });
        }
        if header.header_crc.get() != crc32fast::hash(checked_part(&bytes)) {
            return Err(self.corrupt(0, "a header that fits its checksum", "another checksum"));
        }
        let size = header.metadata_bytes.get();
        if size > MAX_METADATA || u64::from(size) > self.left() {
            let found = format!("{size} announced");
            return Err(self.corrupt(0, "metadata that are inside the file", found));
        }
        let mut json = vec![0; size as usize];
        self.read(&mut json)?;
        if crc32fast::hash(&json) != header.metadata_crc.get() {
            return Err(self.corrupt(0, "metadata that fit their checksum", "another checksum"));
        }
        serde_json::from_slice(&json).map_err(|e| self.corrupt(0, "metadata as JSON", e))
    }

    /// Reads all chunks.
    pub fn chunks<E>(
        &mut self,
        reading: &mut Reading,
        mut on_event: impl FnMut(&Event) -> Result<(), E>,
    ) -> Result<(), Stop<E>> {
        let read = |cause| TraceError::Read { path: self.path.into(), offset: 0, cause };
        let mut unpacker = Unpacker::new().map_err(read)?;
        let (mut packed, mut raw) = (Vec::new(), Vec::new());
        let mut table_bytes = 0;
        reading.status.bytes = self.offset;
        loop {
            let start = self.offset;
            let Some(header) = self.chunk_header(reading.status.chunks)? else {
                reading.status.truncated_at = (self.left() > 0).then_some(start);
                return Ok(());
            };
            let size = header.packed_bytes.get();
            if u64::from(size) > self.left() {
                reading.status.truncated_at = Some(start);
                return Ok(());
            }
            packed.resize(size as usize, 0);
            self.read(&mut packed)?;
            if crc32fast::hash(&packed) != header.packed_crc.get() {
                let found = "another checksum";
                return Err(self.corrupt(start, "a chunk that fits its checksum", found).into());
            }
            let raw_bytes = header.raw_bytes.get() as usize;
            let expanded = unpacker.unpack(&packed, raw_bytes, &mut raw);
            if expanded.is_err() || raw.len() != raw_bytes {
                let expected = format!("{raw_bytes} bytes compressed with zstd");
                let found = expanded.err().map_or("fewer".to_owned(), |e: io::Error| e.to_string());
                return Err(self.corrupt(start, &expected, found).into());
            }
            let chunk = Chunk::new(self, start, &raw);
            let events = chunk.sections(reading, &mut table_bytes, &mut on_event)?;
            if events != u64::from(header.events.get()) {
                let expected = format!("{} events in the chunk", header.events);
                return Err(self.corrupt(start, &expected, events).into());
            }
            reading.status.chunks += 1;
            reading.status.bytes = self.offset;
            if header.kind.get() == chunk_kind::END {
                if self.left() > 0 {
                    let found = format!("{} bytes more", self.left());
                    return Err(self.corrupt(self.offset, "the end of the file", found).into());
                }
                reading.status.complete = true;
                return Ok(());
            }
        }
    }

    /// The header of the next chunk; nothing where the file ends, be it inside the header.
    fn chunk_header(&mut self, sequence: u64) -> Result<Option<ChunkHeader>, TraceError> {
        let start = self.offset;
        let mut bytes = [0; size_of::<ChunkHeader>()];
        if self.left() < bytes.len() as u64 {
            return Ok(None);
        }
        self.read(&mut bytes)?;
        let expected = "a chunk header";
        let header = ChunkHeader::read_from_bytes(&bytes)
            .map_err(|_| self.corrupt(start, expected, "another size"))?;
        if header.magic != CHUNK_MAGIC {
            let found = format!("the bytes {:02x?}", header.magic);
            return Err(self.corrupt(start, "a chunk header (\"RTCK\")", found));
        }
        if header.header_crc.get() != crc32fast::hash(checked_part(&bytes)) {
            return Err(self.corrupt(start, "a chunk header that fits its checksum", "another"));
        }
        if u32::from(header.version.get()) != VERSION {
            let found = format!("version {}", header.version);
            return Err(self.corrupt(start, &format!("a chunk of version {VERSION}"), found));
        }
        if ![chunk_kind::DATA, chunk_kind::END].contains(&header.kind.get()) {
            let found = format!("kind {}", header.kind);
            return Err(self.corrupt(start, "a chunk of kind 1 or 2", found));
        }
        if header.sequence.get() != sequence {
            let found = format!("chunk {}", header.sequence);
            return Err(self.corrupt(start, &format!("chunk {sequence}"), found));
        }
        if header.packed_bytes.get() > MAX_PACKED || header.raw_bytes.get() > MAX_RAW {
            let found = format!("{} bytes, {} expanded", header.packed_bytes, header.raw_bytes);
            return Err(self.corrupt(start, "a chunk of at most 16 MiB", found));
        }
        Ok(Some(header))
    }
}
