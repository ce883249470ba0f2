//! Bytes that were made up or belong elsewhere: none is taken for a chunk, and reading ends.

use std::{
    convert::Infallible,
    io,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use tracer_records::{model::Metadata, sink::RecordSink as _};

use super::{
    super::{
        Reading, Writer,
        cursor::{Cursor, ReadAt},
        format::{self, ChunkFacts, ChunkHeader},
        seal::{Seal, Sealed},
    },
    CLOCK, Memory, chunks, event, gaps, numbers, read, sample,
};

/// A name of a traced program that looks like a chunk of its trace, and bytes of an older trace.
#[test]
fn what_was_not_written_as_a_chunk_is_none() {
    let other = {
        let metadata = Metadata { host: "another".into(), ..Default::default() };
        let memory = Memory::new(usize::MAX);
        let mut writer =
            Writer::with_sink(Path::new("t"), Box::new(memory.clone()), &metadata).unwrap();
        (0..100).for_each(|_| {
            writer.push(event(777)).unwrap();
            writer.flush_chunk().unwrap();
        });
        memory.bytes()
    };
    let (mut bytes, starts) = chunks();
    let at = other.len() - 2_000;
    bytes.splice(starts[3] + 1..starts[4], other[at..].iter().copied());
    let (events, reading) = read(bytes).unwrap();
    assert_eq!(numbers(&events), Vec::from_iter((0..150).chain(200..300)));
    assert_eq!(gaps(&reading), [(starts[3] as u64, 2_001, Some(1))]);
}

/// The bytes of a chunk that somebody made up who knows `trace`, and the seal if there is one.
fn made_up(kind: u16, trace: u32, seal: Option<Seal>, sequence: u64) -> Vec<u8> {
    let json = "{\"notices\":[\"made up\"]}";
    let mut raw = Vec::new();
    if let Some(seal) = seal {
        raw.extend_from_slice(&[4, 0, 0, 0, 16, 0, 0, 0]);
        raw.extend_from_slice(&seal.to_bytes());
    }
    raw.extend_from_slice(&[2, 0, 0, 0]);
    raw.extend_from_slice(&(json.len() as u32).to_le_bytes());
    raw.extend_from_slice(json.as_bytes());
    let packed = zstd::bulk::compress(&raw, 1).unwrap();
    let facts = ChunkFacts { kind, trace, sequence, raw_bytes: raw.len() as u32, events: 0 };
    let header = ChunkHeader::new(facts, &packed);
    [zerocopy::IntoBytes::as_bytes(&header), &packed].concat()
}

/// A chunk with a wrong number, or an end, in a damaged place: neither costs the chunks after it.
#[test]
fn what_is_made_up_in_a_gap_ends_nothing() {
    let (whole, starts) = chunks();
    let trace = u32::from_le_bytes(whole[16..20].try_into().unwrap());
    let seal = seal(&whole);
    // The last one has a fitting number, but not the seal.
    let forged = [(1, seal, 1 << 63), (2, seal, 3), (2, seal, 1 << 63), (1, None, 3)];
    for (kind, seal, sequence) in forged {
        let mut bytes = whole.clone();
        bytes[starts[3]] ^= 1;
        let forged = made_up(kind, trace, seal, sequence);
        bytes.splice(starts[3] + 50..starts[3] + 50, forged);
        let (events, reading) = read(bytes).unwrap();
        let expected = Vec::from_iter((0..150).chain(200..300));
        assert_eq!(numbers(&events), expected, "{kind} {sequence}");
        assert!(reading.tables.notices.is_empty() && reading.status.end_clock == Some(CLOCK));
    }
    // An end behind a damaged chunk is the end of the trace.
    let mut bytes = whole;
    bytes[starts[5]] ^= 1;
    let (events, reading) = read(bytes).unwrap();
    assert_eq!(numbers(&events), Vec::from_iter(0..250));
    assert_eq!(reading.status.end_clock, Some(CLOCK));
}

/// In a file with a damaged header, the first bytes that look like a chunk do not decide what the file is.
#[test]
fn most_of_the_bytes_tell_what_a_file_is() {
    let (whole, starts) = chunks();
    let guessed = u32::from_le_bytes(whole[16..20].try_into().unwrap());
    let forged = [77, 78, guessed].map(|trace| made_up(1, trace, None, 0)).concat();
    // Damages the version, so that another one seems to be meant; the header's own checksum; the metadata, so that the
    // header has the mark, and not the seal.
    for (at, bits) in [(8, 3), (20, 0x40), (30, 0x40)] {
        let mut bytes = whole.clone();
        bytes[at] ^= bits;
        bytes.splice(starts[0]..starts[0], forged.iter().copied());
        let (events, reading) = read(bytes).unwrap();
        assert_eq!(numbers(&events), Vec::from_iter(0..300), "{at}");
        assert!(reading.tables.notices.is_empty());
    }
}

/// The seal of a file with a whole header.
fn seal(bytes: &[u8]) -> Option<Seal> {
    let end = 24 + u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let sealed: Sealed<Metadata> = serde_json::from_slice(&bytes[24..end]).unwrap();
    sealed.seal()
}

/// The facts in a trace's metadata do not determine the mark of its chunks, nor the seal.
#[test]
fn no_two_traces_have_the_same_mark() {
    let mark = || u32::from_le_bytes(sample(0, 0, false)[16..20].try_into().unwrap());
    // One of 2^32 pairs is equal by chance: not three pairs.
    assert!(mark() != mark() || mark() != mark() || mark() != mark());
    let first = seal(&sample(0, 0, false));
    assert!(first.is_some() && first != seal(&sample(0, 0, false)));
}

#[test]
fn a_bomb_is_refused() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    for (raw_bytes, expected) in [(64 << 20, "beyond 16 MiB"), (1000, "1000 bytes compressed")] {
        let mut bytes = sample(0, 0, false);
        let trace = u32::from_le_bytes(bytes[16..20].try_into().unwrap());
        let facts = ChunkFacts { kind: 1, trace, sequence: 0, raw_bytes, events: 0 };
        let header = ChunkHeader::new(facts, &bomb);
        bytes.extend_from_slice(zerocopy::IntoBytes::as_bytes(&header));
        bytes.extend_from_slice(&bomb);
        let (_, reading) = read(bytes).unwrap();
        let message = reading.damage.unwrap().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

/// A file that was made to be searched again and again: each of its chunks announces all the bytes that follow, and
/// none is whole.
#[test]
fn chunks_within_chunks_are_not_read_without_end() {
    let (mut bytes, starts) = chunks();
    let trace = u32::from_le_bytes(bytes[16..20].try_into().unwrap());
    bytes.truncate(starts[0]);
    let each = size_of::<ChunkHeader>();
    let count = 1_000;
    for n in (0..count).rev() {
        let facts = ChunkFacts { kind: 1, trace, sequence: 0, raw_bytes: 9, events: 0 };
        let mut header = ChunkHeader::new(facts, &vec![0; n * each]);
        header.packed_crc = 1.into();
        let checked = format::checked_part(zerocopy::IntoBytes::as_bytes(&header));
        header.header_crc = crc32fast::hash(checked).into();
        bytes.extend_from_slice(zerocopy::IntoBytes::as_bytes(&header));
    }
    let source = Counting { bytes, read: 0.into() };
    let len = source.bytes.len() as u64;
    let mut cursor = Cursor::new(Path::new("t"), &source, len).unwrap();
    let head = cursor.head().unwrap();
    let mut reading = Reading::default();
    let Ok(()) = cursor.chunks(&head, &mut reading, |_| Ok::<(), Infallible>(()));
    assert_eq!(gaps(&reading), [(starts[0] as u64, (count * each) as u64, None)]);
    let read = source.read.load(Relaxed);
    assert!(read < 8 * len, "{read} bytes of {len}");
}

/// Memory that counts the bytes that are read of it.
struct Counting {
    bytes: Vec<u8>,
    read: AtomicU64,
}

impl ReadAt for Counting {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read.fetch_add(buffer.len() as u64, Relaxed);
        self.bytes.read_at(offset, buffer)
    }
}
