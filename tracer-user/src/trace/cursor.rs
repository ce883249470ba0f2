//! Going through the file chunk by chunk, over damaged parts.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use zerocopy::FromBytes as _;

use super::compress::Unpacker;
use super::contents::Contents;
use super::damage::{Damage, Gap};
use super::error::TraceError;
use super::format::{
    CHUNK_MAGIC, ChunkHeader, FILE_MAGIC, FileHeader, OLDEST_VERSION, VERSION, checked_part,
    chunk_kind,
};
use super::limits::{MAX_METADATA, MAX_PACKED, MAX_RAW, MAX_TABLES};
use super::reading::Reading;
use super::seal::{SEALED, Seal, Sealed};
use tracer_records::model::{Event, Metadata};

/// Bytes of a chunk's header.
const HEADER: u64 = size_of::<ChunkHeader>() as u64;
/// Bytes that are searched at once for the beginning of a chunk.
const WINDOW: usize = 64 << 10;
/// Bytes of a file with a damaged header that are searched to learn the mark of its chunks; more only until one chunk
/// is found.
const SAMPLE: u64 = 64 << 20;

/// A source of bytes.
pub trait ReadAt {
    /// Fills `buffer` from `offset` on.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// A file, which may change while it is read.
impl ReadAt for File {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok().and_then(|from| self.get(from..));
        let found = from.and_then(|from| from.get(..buffer.len()));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The values that tell the chunks of a file from other bytes. Those that the header of the file does not give are
/// taken from most of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Mark {
    version: Option<u32>,
    trace: Option<u32>,
    seal: Option<Seal>,
}

/// The contents of a file's header.
pub struct Head {
    /// The recording's own facts; none when they are damaged.
    pub metadata: Option<Metadata>,
    /// Where chunks begin, or where the search for them does.
    pub first_chunk: u64,
    /// The mark of the chunks.
    pub mark: Mark,
}

/// Why there is no chunk at a place.
struct Fault {
    found: String,
    /// Whether the file ends before the chunk that begins here does.
    ends: bool,
    /// Where the chunk that was announced here ends.
    past: u64,
    /// Bytes that were read for it.
    cost: u64,
}

impl Fault {
    /// Where to look for a chunk after this fault at `start`: inside of the announced chunk, as long as bytes may
    /// still be read in vain.
    fn next(&self, start: u64, to_try: &mut u64) -> u64 {
        match to_try.checked_sub(self.cost) {
            Some(left) => {
                *to_try = left;
                start + 1
            }
            None => self.past.max(start + 1),
        }
    }
}

impl Mark {
    /// The mark of a whole chunk; `packed` is its compressed part.
    fn of(header: &ChunkHeader, packed: &[u8]) -> Self {
        let (version, trace) = (header.version.get().into(), header.trace.get());
        let first = Unpacker::first::<SEALED>(packed);
        let seal = first.ok().and_then(|raw| Seal::of_chunk(&raw));
        Self { version: Some(version), trace: Some(trace), seal }
    }
}

/// A place in the file.
pub struct Cursor<'a> {
    path: &'a Path,
    source: &'a dyn ReadAt,
    offset: u64,
    len: u64,
    mark: Mark,
    /// The number of the next chunk.
    sequence: u64,
    /// In a gap, the highest number that a chunk can have there: no more chunks are missing than its bytes can hold.
    /// So a chunk that was made up does not invalidate the chunks that follow.
    highest: Option<u64>,
    table_bytes: u64,
    /// The bytes that are searched, and where they begin.
    window: Vec<u8>,
    window_at: u64,
    unpacker: Unpacker,
    packed: Vec<u8>,
    raw: Vec<u8>,
}

impl<'a> Cursor<'a> {
    /// A place in `source`, of which `len` bytes are read.
    pub fn new(path: &'a Path, source: &'a dyn ReadAt, len: u64) -> Result<Self, TraceError> {
        let read = |cause| TraceError::Read { path: path.to_path_buf(), offset: 0, cause };
        Ok(Self {
            path,
            source,
            offset: 0,
            len,
            mark: Mark::default(),
            sequence: 0,
            highest: None,
            table_bytes: 0,
            window: Vec::new(),
            window_at: 0,
            unpacker: Unpacker::new().map_err(read)?,
            packed: Vec::new(),
            raw: Vec::new(),
        })
    }

    /// Reads the header of the file. A damaged header is no error if a chunk of the trace is found.
    pub fn head(&mut self) -> Result<Head, TraceError> {
        let not_a_trace =
            |found: &str| TraceError::NotATrace { path: self.path.into(), found: found.into() };
        let mut bytes = [0; size_of::<FileHeader>()];
        if self.len == 0 {
            return Err(not_a_trace("it is empty"));
        }
        if self.len < bytes.len() as u64 {
            return Err(not_a_trace("it ends inside the header"));
        }
        let read = |cause| TraceError::Read { path: self.path.into(), offset: 0, cause };
        self.source.read_at(0, &mut bytes).map_err(read)?;
        let header = FileHeader::read_from_bytes(&bytes)
            .map_err(|_| not_a_trace("its header has another size"))?;
        if header.magic != FILE_MAGIC {
            return Err(not_a_trace("it begins with other bytes"));
        }
        let whole = header.header_crc.get() == crc32fast::hash(checked_part(&bytes));
        let known = (OLDEST_VERSION..=VERSION).contains(&header.version.get());
        let metadata = if whole && known { self.metadata(&header) } else { None };
        let said = (whole && known).then(|| (header.version.get(), header.trace()));
        let (version, trace) = said.unzip();
        if let Some(sealed) = metadata {
            let first_chunk = bytes.len() as u64 + u64::from(header.metadata_bytes.get());
            let mark = Mark { version, trace, seal: sealed.seal() };
            return Ok(Head { metadata: Some(sealed.metadata), first_chunk, mark });
        }
        // Nothing is taken from a damaged header, not even its version.
        self.offset = bytes.len() as u64;
        self.mark = Mark { version, trace, seal: None };
        // The header of a later version may have another form: the checksum by this form then says nothing.
        let mark = if whole && !known { None } else { self.prevailing_mark() };
        let Some(mark) = mark else {
            return Err(match known {
                true => TraceError::HeaderDamaged { path: self.path.into() },
                false => {
                    let (path, found) = (self.path.into(), header.version.get());
                    TraceError::Version { path, found, oldest: OLDEST_VERSION, newest: VERSION }
                }
            });
        };
        Ok(Head { metadata: None, first_chunk: bytes.len() as u64, mark })
    }

    /// The metadata after a header; none when they are damaged.
    fn metadata(&self, header: &FileHeader) -> Option<Sealed<Metadata>> {
        let size = header.metadata_bytes.get();
        let offset = size_of::<FileHeader>() as u64;
        if size > MAX_METADATA || u64::from(size) > self.len - offset {
            return None;
        }
        let mut json = vec![0; size as usize];
        self.source.read_at(offset, &mut json).ok()?;
        let whole = crc32fast::hash(&json) == header.metadata_crc.get();
        whole.then(|| serde_json::from_slice(&json).ok()).flatten()
    }

    /// The mark of the chunks that have most of the bytes from here on; anything else that looks like a chunk is
    /// ignored.
    fn prevailing_mark(&mut self) -> Option<Mark> {
        let mut sums = HashMap::<Mark, u64>::new();
        let mut to_try = self.len;
        let mut at = Some(self.offset);
        while let Some(offset) = at.filter(|&at| at < SAMPLE || sums.is_empty()) {
            let next = match self.packed(offset) {
                Ok(header) => {
                    let bytes = HEADER + u64::from(header.packed_bytes.get());
                    *sums.entry(Mark::of(&header, &self.packed)).or_default() += bytes;
                    offset + bytes
                }
                Err(fault) => fault.next(offset, &mut to_try),
            };
            at = self.search(next);
        }
        sums.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(mark, _)| mark)
    }

    /// The offset of the next header of a chunk, at `from` or after it, whatever its number.
    fn next_header(&mut self, from: u64) -> Option<u64> {
        self.highest = None;
        let mut at = self.search(from);
        while let Some(offset) = at.filter(|&offset| self.header(offset).is_err()) {
            at = self.search(offset + 1);
        }
        at
    }

    /// Reads all chunks from `head` on. Bytes that are no chunk are reported as a gap in `reading`.
    pub fn chunks<E>(
        &mut self,
        head: &Head,
        reading: &mut Reading,
        mut on_event: impl FnMut(&Event) -> Result<(), E>,
    ) -> Result<(), E> {
        (self.offset, self.mark) = (head.first_chunk, head.mark);
        let mut gap = head.metadata.is_none().then(|| Fault {
            found: "the header of the file is damaged".to_owned(),
            ends: false,
            past: 0,
            cost: 0,
        });
        let mut gap_at = if gap.is_some() { 0 } else { self.offset };
        let mut damage = Damage::default();
        // Bytes that may be read in vain. Chunks are searched for inside of damaged ones too, but not without end:
        // only a file that was made for it needs more, and in that file the announced lengths are believed.
        let mut to_try = self.len;
        let mut ended = false;
        while self.offset < self.len && !ended {
            let (start, expected) = (self.offset, self.sequence);
            let most = start.saturating_sub(gap_at) / HEADER + 1;
            self.highest = gap.is_some().then(|| expected.saturating_add(most));
            match self.chunk(start) {
                Ok((header, contents)) => {
                    let missing = header.sequence.get() - expected;
                    if gap.is_some() || missing > 0 {
                        let found = gap.take().map_or("chunks are missing".to_owned(), |g| g.found);
                        let bytes = start - std::mem::replace(&mut gap_at, start).min(start);
                        damage.add(Gap {
                            offset: start - bytes,
                            bytes,
                            chunks: Some(missing),
                            found,
                        });
                    }
                    let delivered = contents.deliver(&mut reading.tables, &mut on_event)?;
                    let status = &mut reading.status;
                    status.events += delivered.events;
                    status.chunks += 1;
                    status.end_clock = delivered.end_clock.or(status.end_clock);
                    ended = header.kind.get() == chunk_kind::END;
                    self.offset = start + HEADER + u64::from(header.packed_bytes.get());
                    (status.bytes, gap_at) = (self.offset, self.offset);
                    self.sequence = header.sequence.get().saturating_add(1);
                }
                Err(fault) => {
                    let from = fault.next(start, &mut to_try);
                    gap.get_or_insert(fault);
                    self.offset = self.search(from).unwrap_or(self.len);
                }
            }
        }
        let rest = self.len - gap_at;
        let status = &mut reading.status;
        status.bytes = status.bytes.max(head.first_chunk);
        match gap {
            Some(fault) if fault.ends => status.truncated_at = Some(gap_at),
            None if rest == 0 => {}
            other => {
                let found = other.map_or("more than the last chunk".to_owned(), |g| g.found);
                damage.add(Gap { offset: gap_at, bytes: rest, chunks: None, found });
            }
        }
        reading.damage = (damage.count > 0).then_some(damage);
        status.complete = ended && reading.damage.is_none();
        Ok(())
    }

    /// The offset of the next bytes, at `from` or after it, with which a chunk begins.
    fn search(&mut self, mut from: u64) -> Option<u64> {
        let whole = CHUNK_MAGIC.len();
        while self.len.saturating_sub(from) >= whole as u64 {
            let window = from.checked_sub(self.window_at).and_then(|at| usize::try_from(at).ok());
            let window = window.and_then(|at| self.window.get(at..)).unwrap_or_default();
            if let Some(at) = window.windows(whole).position(|bytes| bytes == CHUNK_MAGIC) {
                return Some(from + at as u64);
            }
            // The last bytes of a window can be the first of a magic number.
            from += window.len().saturating_sub(whole - 1) as u64;
            let left = self.len - from;
            if left < whole as u64 {
                return None;
            }
            self.window.resize(usize::try_from(left).map_or(WINDOW, |left| left.min(WINDOW)), 0);
            self.window_at = from;
            if self.source.read_at(from, &mut self.window).is_err() {
                // Bytes that cannot be read contain no chunk.
                self.window.fill(0);
            }
        }
        None
    }

    /// The header of a chunk at `start`.
    fn header(&self, start: u64) -> Result<ChunkHeader, Fault> {
        let fault = |found: String| Fault { found, ends: false, past: 0, cost: HEADER };
        let mut bytes = [0; HEADER as usize];
        let left = self.len - start;
        let there = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = bytes.get_mut(..there).map(|bytes| self.source.read_at(start, bytes));
        if let Some(Err(error)) = read {
            return Err(fault(format!("cannot be read ({error})")));
        }
        let magic = there.min(CHUNK_MAGIC.len());
        if bytes.get(..magic) != CHUNK_MAGIC.get(..magic) {
            return Err(fault("no chunk begins here".to_owned()));
        }
        if left < HEADER {
            return Err(Fault { ends: true, ..fault("the file ends".to_owned()) });
        }
        let whole = |_| fault("no whole header of a chunk".to_owned());
        let header = ChunkHeader::read_from_bytes(&bytes).map_err(whole)?;
        if header.header_crc.get() != crc32fast::hash(checked_part(&bytes)) {
            return Err(fault("the header of the chunk does not fit its checksum".to_owned()));
        }
        let version = u32::from(header.version.get());
        let fits = |wanted: Option<u32>, found| wanted.is_none_or(|wanted| wanted == found);
        if !(OLDEST_VERSION..=VERSION).contains(&version) || !fits(self.mark.version, version) {
            return Err(fault(format!("a chunk of version {version}")));
        }
        if !fits(self.mark.trace, header.trace.get()) {
            return Err(fault("a chunk of another trace".to_owned()));
        }
        if ![chunk_kind::DATA, chunk_kind::END].contains(&header.kind.get()) {
            return Err(fault(format!("a chunk of the unknown kind {}", header.kind)));
        }
        if header.sequence.get() < self.sequence {
            let expected = self.sequence;
            return Err(fault(format!("chunk {} in the place of {expected}", header.sequence)));
        }
        if self.highest.is_some_and(|highest| header.sequence.get() > highest) {
            let expected = self.sequence;
            return Err(fault(format!("chunk {} too far from {expected}", header.sequence)));
        }
        if header.packed_bytes.get() > MAX_PACKED || header.raw_bytes.get() > MAX_RAW {
            let (packed, raw) = (header.packed_bytes, header.raw_bytes);
            return Err(fault(format!("a chunk of {packed} bytes, {raw} expanded: beyond 16 MiB")));
        }
        if u64::from(header.packed_bytes.get()) > left - HEADER {
            return Err(Fault {
                ends: true,
                ..fault("the chunk goes beyond the end of the file".to_owned())
            });
        }
        Ok(header)
    }

    /// The header of the chunk at `start`; its compressed data is put into `self.packed`.
    fn packed(&mut self, start: u64) -> Result<ChunkHeader, Fault> {
        let header = self.header(start)?;
        let packed_bytes = header.packed_bytes.get();
        let cost = HEADER + u64::from(packed_bytes);
        let torn = |found: String| Fault { found, ends: false, past: start + cost, cost };
        self.packed.resize(packed_bytes as usize, 0);
        self.source
            .read_at(start + HEADER, &mut self.packed)
            .map_err(|error| torn(format!("cannot be read ({error})")))?;
        if crc32fast::hash(&self.packed) != header.packed_crc.get() {
            return Err(torn("the chunk does not fit its checksum".to_owned()));
        }
        Ok(header)
    }

    /// The chunk at `start`, if it is whole.
    fn chunk(&mut self, start: u64) -> Result<(ChunkHeader, Contents<'_>), Fault> {
        let header = self.packed(start)?;
        let (packed_bytes, raw_bytes) = (header.packed_bytes.get(), header.raw_bytes.get());
        let cost = HEADER + u64::from(packed_bytes);
        let past = start + cost;
        let fault = |found| Fault { found, ends: false, past, cost: cost + u64::from(raw_bytes) };
        // An end in a gap may be made up.
        if header.kind.get() == chunk_kind::END
            && self.highest.is_some()
            && let Some(further) = self.next_header(past)
        {
            let found = "an end in front of further chunks".to_owned();
            return Err(Fault { cost: cost + (further - past), ..fault(found) });
        }
        let expanded = self.unpacker.unpack(&self.packed, raw_bytes as usize, &mut self.raw);
        if expanded.is_err() || self.raw.len() != raw_bytes as usize {
            let found = expanded.err().map_or("fewer".to_owned(), |e| e.to_string());
            return Err(fault(format!("no {raw_bytes} bytes compressed with zstd ({found})")));
        }
        if self.mark.seal.is_some_and(|seal| Seal::of_chunk(&self.raw) != Some(seal)) {
            return Err(fault("a chunk of another trace".to_owned()));
        }
        let contents =
            Contents::of(&self.raw).map_err(|e| fault(format!("the chunk does not hold {e}")))?;
        if contents.event_count != u64::from(header.events.get()) {
            let (announced, found) = (header.events, contents.event_count);
            return Err(fault(format!("a chunk of {announced} events has {found}")));
        }
        let table_bytes = self.table_bytes + contents.table_bytes;
        if table_bytes > MAX_TABLES {
            return Err(fault("more than 1 GiB of strings and tables".to_owned()));
        }
        self.table_bytes = table_bytes;
        Ok((header, contents))
    }
}
