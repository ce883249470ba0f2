//! The layout of the file: its header, the chunk headers, the sections inside a chunk.
//!
//! All integers are little-endian. Every length that is read is compared with a limit of
//! [`super::limits`] before anything is allocated for it.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first eight bytes of a trace. The last two reveal a transfer in text mode.
pub const FILE_MAGIC: [u8; 8] = *b"ROCTAP\r\n";
/// The version of the format that is written.
pub const VERSION: u32 = 2;
/// The oldest version that is read. Its chunks have no [`ChunkHeader::trace`].
pub const OLDEST_VERSION: u32 = 1;
/// The first four bytes of a chunk.
pub const CHUNK_MAGIC: [u8; 4] = *b"RTCK";

/// The fixed part of the file's header; `metadata_bytes` of JSON follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileHeader {
    /// [`FILE_MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// Bytes of JSON that follow.
    pub metadata_bytes: U32,
    /// CRC-32 of these.
    pub metadata_crc: U32,
    /// CRC-32 of the bytes above.
    pub header_crc: U32,
}

/// The kinds of chunks.
pub mod chunk_kind {
    /// Strings, tables and events.
    pub const DATA: u16 = 1;
    /// The last chunk of a recording that was ended properly.
    pub const END: u16 = 2;
}

/// The header of a chunk; `packed_bytes` of zstd data follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ChunkHeader {
    /// [`CHUNK_MAGIC`].
    pub magic: [u8; 4],
    /// [`VERSION`].
    pub version: U16,
    /// One of [`chunk_kind`].
    pub kind: U16,
    /// 0 for the first chunk, one more for each.
    pub sequence: U64,
    /// Bytes of compressed data that follow.
    pub packed_bytes: U32,
    /// Bytes that they expand to.
    pub raw_bytes: U32,
    /// Events among them.
    pub events: U32,
    /// CRC-32 of the compressed data.
    pub packed_crc: U32,
    /// Equal in all chunks of a file, see [`FileHeader::trace`]: in a damaged file, a rest of another trace, or bytes
    /// of a name that were made to look like a chunk, are not read as a chunk.
    pub trace: U32,
    /// CRC-32 of the bytes above.
    pub header_crc: U32,
}

/// The kinds of a chunk's sections.
pub mod section_kind {
    /// `{id: u32, bytes: u32, UTF-8}` repeated.
    pub const STRINGS: u32 = 1;
    /// JSON of `tables::Increment`.
    pub const TABLES: u32 = 2;
    /// `{kind: u16, bytes: u16, zero: u32, record}` repeated.
    pub const EVENTS: u32 = 3;
    /// The first section: 16 bytes that are equal in all chunks of a file, see `seal::Seal`.
    pub const SEAL: u32 = 4;
}

/// The header of a section; `bytes` bytes follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SectionHeader {
    /// One of [`section_kind`]; a reader skips unknown kinds.
    pub kind: U32,
    /// Bytes that follow.
    pub bytes: U32,
}

/// Before every string of a [`section_kind::STRINGS`] section.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StringHeader {
    /// Its id.
    pub id: U32,
    /// Its bytes.
    pub bytes: U32,
}

/// Before every record of a [`section_kind::EVENTS`] section.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EventHeader {
    /// One of [`event_kind`]; a reader skips unknown kinds.
    pub kind: U16,
    /// Bytes of the record; a reader ignores those beyond the ones that it knows.
    pub bytes: U16,
    /// Zero.
    pub reserved: U32,
}

/// The kinds of event records.
pub mod event_kind {
    /// [`tracer_records::model::ApiCall`].
    pub const API: u16 = 1;
    /// [`tracer_records::model::Dispatch`].
    pub const DISPATCH: u16 = 2;
    /// [`tracer_records::model::Copy`].
    pub const COPY: u16 = 3;
    /// [`tracer_records::model::Barrier`].
    pub const BARRIER: u16 = 4;
}

const _: () = {
    assert!(size_of::<FileHeader>() == 24);
    assert!(size_of::<ChunkHeader>() == 40);
    assert!(size_of::<SectionHeader>() == 8);
    assert!(size_of::<StringHeader>() == 8);
    assert!(size_of::<EventHeader>() == 8);
};

/// Bytes of a header that its own checksum covers: all but the last four.
pub fn checked_part(header: &[u8]) -> &[u8] {
    header.split_at(header.len().saturating_sub(4)).0
}

impl FileHeader {
    /// The header in front of `metadata`.
    pub fn new(metadata: &[u8]) -> Self {
        let mut header = Self {
            magic: FILE_MAGIC,
            version: VERSION.into(),
            metadata_bytes: (metadata.len() as u32).into(),
            metadata_crc: crc32fast::hash(metadata).into(),
            header_crc: 0.into(),
        };
        header.header_crc = crc32fast::hash(checked_part(header.as_bytes())).into();
        header
    }

    /// The value of [`ChunkHeader::trace`] in the chunks of the file: the checksum of the metadata, which include
    /// the seal's random bits.
    pub fn trace(&self) -> u32 {
        if self.version.get() == OLDEST_VERSION { 0 } else { self.metadata_crc.get() }
    }
}

/// The facts about a chunk beside its bytes.
#[derive(Clone, Copy, Debug)]
pub struct ChunkFacts {
    /// One of [`chunk_kind`].
    pub kind: u16,
    /// [`FileHeader::trace`].
    pub trace: u32,
    /// 0 for the first chunk, one more for each.
    pub sequence: u64,
    /// Bytes that it expands to.
    pub raw_bytes: u32,
    /// Events among them.
    pub events: u32,
}

impl ChunkHeader {
    /// The header in front of `packed`.
    pub fn new(facts: ChunkFacts, packed: &[u8]) -> Self {
        let ChunkFacts { kind, trace, sequence, raw_bytes, events } = facts;
        let mut header = Self {
            magic: CHUNK_MAGIC,
            version: (VERSION as u16).into(),
            kind: kind.into(),
            sequence: sequence.into(),
            packed_bytes: (packed.len() as u32).into(),
            raw_bytes: raw_bytes.into(),
            events: events.into(),
            packed_crc: crc32fast::hash(packed).into(),
            trace: trace.into(),
            header_crc: 0.into(),
        };
        header.header_crc = crc32fast::hash(checked_part(header.as_bytes())).into();
        header
    }
}
