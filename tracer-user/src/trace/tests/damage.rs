//! Files that are cut or damaged: whole chunks are delivered, and missing ones are reported as a gap.

use std::path::Path;

use proptest::prelude::*;
use tracer_records::{
    model::{Agent, Kernel},
    sink::RecordSink as _,
};

use super::{
    super::{Reading, Trace, TraceError, fuzz_reader, wire},
    CLOCK, Memory, assert_prefix, chunks, event, gaps, numbers, read, sample, writer,
};

/// Names that stood in a damaged chunk are repeated at the end.
#[test]
fn names_outlive_the_chunk_that_they_stood_in() {
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    let name = writer.string(0, "_Z5scalePfi");
    writer.kernel(0, 6, Kernel { name, vgpr_count: 32, ..Default::default() });
    writer.operation(3, 7, "hipMalloc");
    writer.thread(100, 101, "old");
    writer.thread(100, 101, "main");
    writer.agent(100, 1, Agent { name: "gfx90a".into(), gpu: true, index: 0 });
    writer.flush_chunk().unwrap();
    let first = memory.bytes().len() - 2;
    writer.push(event(0)).unwrap();
    writer.finish(CLOCK).unwrap();
    let whole = memory.bytes();
    let mut damaged = whole.clone();
    damaged[first] ^= 1;
    let (_, expected) = read(whole).unwrap();
    let (events, found) = read(damaged).unwrap();
    assert!(expected.status.complete && found.damage.is_some());
    assert_eq!((events.len(), &found.tables), (1, &expected.tables));
    assert_eq!(found.tables.text(found.tables.threads[&(100, 101)]), "main");
}

/// Damage costs the chunk that it is in, and nothing else.
#[test]
fn damage_is_skipped_to_the_next_whole_chunk() {
    let (whole, starts) = chunks();
    let (from, to) = (starts[2], starts[3]);
    let spoiled = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        read(bytes).unwrap()
    };
    let all_but =
        |lost: std::ops::Range<u64>| Vec::from_iter((0..300).filter(|n| !lost.contains(n)));
    let flips: [(&str, usize); 4] = [
        ("no chunk begins here", from),
        ("the header of the chunk does not fit its checksum", from + 17),
        ("the chunk does not fit its checksum", from + 60),
        ("the chunk does not fit its checksum", to - 2),
    ];
    for (found, at) in flips {
        let (events, reading) = spoiled(&|bytes| {
            bytes[at] ^= 0x55;
            bytes[at + 1] ^= 0x55;
        });
        assert_eq!(numbers(&events), all_but(100..150), "{found}");
        assert_eq!(gaps(&reading), [(from as u64, (to - from) as u64, Some(1))]);
        assert!(reading.damage.as_ref().unwrap().gaps[0].found.contains(found), "{reading:?}");
        assert!(!reading.status.complete && reading.status.end_clock == Some(CLOCK));
        assert_eq!((reading.status.chunks, reading.status.events), (6, 250));
        let said = reading.check(Path::new("t")).unwrap_err().to_string();
        let place = format!("the first at byte {from}: {found}");
        assert!(said.starts_with("t is damaged: 1 gap") && said.contains(&place), "{said}");
    }
    // Bytes that are missing, or too many, inside of a chunk; the next chunk is found where it is now.
    let (events, reading) = spoiled(&|bytes| drop(bytes.drain(from + 50..from + 60)));
    assert_eq!(numbers(&events), all_but(100..150));
    assert_eq!(gaps(&reading), [(from as u64, (to - from - 10) as u64, Some(1))]);
    let (events, reading) = spoiled(&|bytes| drop(bytes.splice(from..from, *b"RTCK more bytes")));
    assert_eq!(numbers(&events), all_but(0..0));
    assert_eq!(gaps(&reading), [(from as u64, 15, Some(0))]);
    // Whole chunks that are missing, there twice, in another order.
    let (events, reading) = spoiled(&|bytes| drop(bytes.drain(from..starts[4])));
    assert_eq!(numbers(&events), all_but(100..200));
    assert_eq!(gaps(&reading), [(from as u64, 0, Some(2))]);
    let chunk = whole[from..to].to_vec();
    let (events, reading) = spoiled(&|bytes| drop(bytes.splice(to..to, chunk.clone())));
    assert_eq!(numbers(&events), all_but(0..0));
    assert_eq!(gaps(&reading), [(to as u64, chunk.len() as u64, Some(0))]);
    // Zeros to the end, as some file systems leave them after a crash.
    let (events, reading) = spoiled(&|bytes| bytes[from..].fill(0));
    assert_eq!(numbers(&events), Vec::from_iter(0..100));
    assert_eq!(gaps(&reading), [(from as u64, (whole.len() - from) as u64, None)]);
    assert_eq!(reading.status.truncated_at, None);
    let (events, reading) = spoiled(&|bytes| bytes.push(0));
    assert_eq!(numbers(&events), all_but(0..0));
    assert_eq!(gaps(&reading), [(whole.len() as u64, 1, None)]);
}

#[test]
fn a_damaged_header_costs_the_metadata_alone() {
    let (whole, starts) = chunks();
    for at in [8, 12, 20, 30] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        let trace = Trace::from_bytes("t", bytes.clone()).unwrap();
        assert_eq!(trace.metadata(), None, "{at}");
        let (events, reading) = read(bytes).unwrap();
        assert_eq!(numbers(&events), Vec::from_iter(0..300));
        assert_eq!(gaps(&reading), [(0, starts[0] as u64, Some(0))]);
        assert!(!reading.status.complete);
    }
    let mut alone = whole[..starts[0]].to_vec();
    alone[30] ^= 0x40;
    assert!(matches!(read(alone).unwrap_err(), TraceError::HeaderDamaged { .. }));
}

#[test]
fn another_version_is_named() {
    let (mut bytes, _) = chunks();
    bytes[8] = 3;
    let checksum = crc32fast::hash(&bytes[..20]).to_le_bytes();
    bytes[20..24].copy_from_slice(&checksum);
    let error = read(bytes).unwrap_err();
    assert!(matches!(error, TraceError::Version { found: 3, oldest: 1, newest: 2, .. }), "{error}");
}

/// A kind of damage to a file.
#[derive(Clone, Debug)]
enum DamageKind {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
    /// Copies the bytes of one place to another one.
    Repeat(prop::sample::Index, usize, prop::sample::Index),
    Zeros(prop::sample::Index, usize),
}

fn blow() -> impl Strategy<Value = DamageKind> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), 1u8..).prop_map(|(at, bits)| DamageKind::Flip(at, bits)),
        at().prop_map(DamageKind::Cut),
        (at(), 0usize..9_000).prop_map(|(at, count)| DamageKind::Remove(at, count)),
        (at(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(at, new)| DamageKind::Insert(at, new)),
        (at(), 0usize..9_000, at()).prop_map(|(at, count, to)| DamageKind::Repeat(at, count, to)),
        (at(), 0usize..9_000).prop_map(|(at, count)| DamageKind::Zeros(at, count)),
    ]
}

impl DamageKind {
    fn strike(&self, bytes: &mut Vec<u8>) {
        // Behind the first bytes, which identify the file as a trace.
        let place = |at: &prop::sample::Index| 8 + at.index(bytes.len() - 8);
        let range = |at, count: &usize| place(at)..(place(at) + count).min(bytes.len());
        match self {
            Self::Flip(at, bits) => {
                let at = place(at);
                bytes[at] ^= bits;
            }
            Self::Cut(at) => {
                let at = place(at).max(9);
                bytes.truncate(at);
            }
            Self::Remove(at, count) => {
                let end = range(at, count).end.min(bytes.len() - 1).max(9);
                let start = range(at, count).start.min(end);
                bytes.drain(start..end);
            }
            Self::Insert(at, new) => {
                let at = place(at);
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Repeat(at, count, to) => {
                let (piece, to) = (bytes[range(at, count)].to_vec(), place(to));
                bytes.splice(to..to, piece);
            }
            Self::Zeros(at, count) => {
                let range = range(at, count);
                bytes[range].fill(0);
            }
        }
    }
}

proptest! {
    #[test]
    fn truncation_keeps_the_prefix(cut in 0usize..30_000, finished: bool) {
        let mut bytes = sample(6, 50, finished);
        let whole = bytes.len();
        bytes.truncate(cut.min(whole));
        let cut = bytes.len();
        let Ok((events, reading)) = read(bytes) else {
            prop_assert!(cut < 300);
            return Ok(());
        };
        prop_assert!(reading.damage.is_none());
        prop_assert_eq!(events.len() % 50, 0);
        prop_assert_eq!(reading.status.complete, finished && cut == whole);
        let at = reading.status.truncated_at.unwrap_or(cut as u64);
        prop_assert_eq!(at, reading.status.bytes);
        assert_prefix(&events);
    }

    /// Whatever happens to a file: what is delivered is whole chunks of it, in order, and if that is not all
    /// of them, it is said. Bytes are in chunks or in gaps, none in both.
    #[test]
    fn damage_is_a_told_gap(blows in prop::collection::vec(blow(), 1..6)) {
        let (whole, starts) = chunks();
        let mut bytes = whole.clone();
        blows.iter().for_each(|blow| blow.strike(&mut bytes));
        let len = bytes.len() as u64;
        let same = bytes == whole;
        let Ok((events, reading)) = read(bytes) else {
            prop_assert!(!same);
            return Ok(());
        };
        let found = numbers(&events);
        prop_assert!(found.is_sorted() && found.windows(2).all(|two| two[0] != two[1]));
        prop_assert!(found.chunks(50).all(|chunk| chunk[0] % 50 == 0 && chunk.len() == 50));
        let Reading { status, damage, .. } = &reading;
        prop_assert_eq!(status.complete, same);
        prop_assert_eq!(reading.check(Path::new("t")).is_ok(), same);
        let missing = found.len() < 300;
        let is_reported = damage.is_some() || status.truncated_at.is_some() || status.end_clock.is_none();
        prop_assert!(is_reported || !missing, "{reading:?}");
        let mut end = 0;
        for (offset, bytes, _) in gaps(&reading) {
            prop_assert!(offset >= end && offset + bytes <= len);
            end = offset + bytes;
        }
        let chunk = |n: u64| (starts[n as usize + 1] - starts[n as usize]) as u64;
        let ends = if status.end_clock.is_some() { chunk(6) } else { 0 };
        let delivered: u64 = found.iter().filter(|n| *n % 50 == 0).map(|n| chunk(n / 50)).sum();
        let header = if gaps(&reading).first().is_some_and(|gap| gap.0 == 0) { 0 } else { starts[0] as u64 };
        let rest = status.truncated_at.map_or(0, |at| len - at);
        let in_gaps = damage.as_ref().map_or(0, |damage| damage.bytes);
        prop_assert_eq!(header + delivered + ends + in_gaps + rest, len);
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        fuzz_reader(&bytes);
        let mut chunk = sample(1, 3, false);
        chunk.extend_from_slice(&bytes);
        fuzz_reader(&chunk);
    }

    #[test]
    fn damaged_contents_of_a_chunk_do_no_harm(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut raw = Vec::new();
        for n in 0..8 {
            wire::encode(&mut raw, &event(n));
        }
        let mut bytes = vec![3, 0, 0, 0];
        bytes.extend_from_slice(&(raw.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&raw);
        bytes.extend_from_slice(&[1, 0, 0, 0, 11, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, b'a', b'b', b'c']);
        for (index, value) in flips {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        fuzz_reader(&bytes);
    }
}
