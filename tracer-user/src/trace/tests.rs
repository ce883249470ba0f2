use std::convert::Infallible;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tracer_common::activity::{ActivityRecord, Domain};

use super::contents::Contents;
use super::cursor::{Cursor, ReadAt};
use super::format::{CHUNK_MAGIC, ChunkFacts, ChunkHeader};
use super::limits::{
    MARK, MAX_COMMAND, MAX_LIBRARIES, MAX_NOTICES, MAX_STRING, MAX_TEXT, WRITTEN_LOSSES,
    WRITTEN_TABLES, cut,
};
use super::lookup::Tables;
use super::seal::{Seal, Sealed};
use super::sink::{Existing, Sink};
use super::tables::Increment;
use super::{Reading, Trace, TraceError, Writer, fuzz_reader};
use tracer_records::model::{
    Agent, ApiCall, Barrier, ClockOffsets, Copy, Dispatch, Event, Kernel, Metadata, ProbedLibrary,
    Process,
};
use tracer_records::sink::RecordSink as _;

const CLOCK: ClockOffsets = ClockOffsets { boottime_ns: 9, monotonic_ns: 8, realtime_ns: 7 };

/// A file in memory that holds `room` bytes.
#[derive(Clone)]
struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: usize,
}

impl Memory {
    fn new(room: usize) -> Self {
        Self { bytes: Arc::default(), room }
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl Sink for Memory {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut stored = self.bytes.lock().unwrap();
        let fits = bytes.len().min(self.room - stored.len());
        stored.extend_from_slice(&bytes[..fits]);
        if fits < bytes.len() { Err(io::Error::from_raw_os_error(28)) } else { Ok(()) }
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().truncate(len as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn event(n: u64) -> Event {
    let record = ActivityRecord {
        domain: Domain::HIP_API,
        op: n as u32 % 400,
        correlation_id: n,
        begin_ns: 1_000 * n,
        end_ns: 1_000 * n + 500,
        process_or_device: 100,
        thread_id: 101,
        ..Default::default()
    };
    match n % 4 {
        0 => Event::Api(ApiCall {
            record,
            parent_id: n / 2,
            ret: n,
            args: [n; 6],
            extra: [1, 2, 3],
            flags: 9,
        }),
        1 => Event::Dispatch(Dispatch {
            record,
            process_id: 100,
            demangled: 5,
            kernel_id: 6,
            dispatch_id: n,
            enqueue_ns: n,
            grid: [1, 2, 3],
            workgroup: [4, 5, 6],
            flags: 7,
            group_bytes: 8,
            private_bytes: 9,
            stream: 10,
        }),
        2 => Event::Copy(Copy {
            record,
            process_id: 1,
            src_node: 2,
            dst_node: 3,
            flags: 4,
            dispatch_id: 5,
            enqueue_ns: 6,
            stream: 7,
        }),
        _ => Event::Barrier(Barrier {
            record,
            process_id: 1,
            flags: 2,
            dispatch_id: 3,
            enqueue_ns: 4,
        }),
    }
}

fn writer(memory: &Memory) -> Writer {
    let metadata = Metadata { command: "roctap record".into(), ..Default::default() };
    Writer::with_sink(Path::new("t"), Box::new(memory.clone()), &metadata).unwrap()
}

/// `chunks` chunks of `each` events.
fn sample(chunks: u64, each: u64, finished: bool) -> Vec<u8> {
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    for chunk in 0..chunks {
        writer.string(0, &format!("string {chunk}"));
        for n in 0..each {
            writer.push(event(chunk * each + n)).unwrap();
        }
        writer.loss(1, "ring full", 2);
        writer.flush_chunk().unwrap();
    }
    if finished {
        writer.finish(CLOCK).unwrap();
    }
    memory.bytes()
}

fn read(bytes: Vec<u8>) -> Result<(Vec<Event>, Reading), TraceError> {
    let trace = Trace::from_bytes("t", bytes)?;
    let mut events = Vec::new();
    let Ok(reading) = trace.for_each_event(|event| {
        events.push(*event);
        Ok::<(), Infallible>(())
    });
    Ok((events, reading))
}

fn assert_prefix(events: &[Event]) {
    for (n, found) in events.iter().enumerate() {
        assert_eq!(*found, event(n as u64));
    }
}

#[test]
fn round_trip() {
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    assert_eq!(writer.string(0, ""), 0);
    let name = writer.string(0, "hipMalloc");
    assert_eq!(writer.string(0, "hipMalloc"), name);
    writer.operation(3, 7, "hipMalloc");
    writer.process(100, Process { command: "old".into(), ..Default::default() });
    writer.flush_chunk().unwrap();
    writer.flush_chunk().unwrap();
    let process =
        Process { command: "./a.out".into(), gpu_tier: "tools".into(), ..Default::default() };
    writer.process(100, process.clone());
    writer.thread(100, 101, "main");
    writer.agent(100, 1, Agent { name: "gfx90a".into(), gpu: true, index: 0 });
    writer.kernel(0, 6, Kernel { name, vgpr_count: 32, ..Default::default() });
    writer.loss(0, "a", 0);
    writer.loss(100, "b", 2);
    (0..1000).for_each(|n| writer.push(event(n)).unwrap());
    writer.flush_chunk().unwrap();
    writer.loss(100, "b", 3);
    writer.notice("late");
    writer.notice("late");
    writer.finish(CLOCK).unwrap();

    let (events, Reading { tables, status, damage }) = read(memory.bytes()).unwrap();
    assert!(damage.is_none());
    assert!(status.complete);
    assert_eq!((status.chunks, status.truncated_at, status.end_clock), (4, None, Some(CLOCK)));
    assert_eq!(events.len(), 1000);
    assert_prefix(&events);
    assert_eq!(tables.strings[&tables.operations[&(3, 7)]], "hipMalloc");
    assert_eq!(tables.strings[&tables.threads[&(100, 101)]], "main");
    assert_eq!(tables.processes[&100], process);
    assert_eq!(tables.kernels[&6].vgpr_count, 32);
    assert!(tables.agents[&(100, 1)].gpu);
    assert_eq!(tables.losses[&(0, "a".to_owned())], 0);
    assert_eq!(tables.losses[&(100, "b".to_owned())], 5);
    assert_eq!(tables.notices, ["late"]);
}

#[test]
fn chunks_close_by_themselves_and_strings_have_limits() {
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    let long = "é".repeat(1 << 20);
    for n in 0..9 {
        writer.string(0, &format!("{n}{long}"));
    }
    (0..20_000).for_each(|n| writer.push(event(n)).unwrap());
    writer.finish(CLOCK).unwrap();
    let (events, reading) = read(memory.bytes()).unwrap();
    assert!(reading.damage.is_none(), "{:?}", reading.damage);
    assert_eq!(events.len(), 20_000);
    assert!(reading.status.chunks > 4);
    assert_eq!(reading.tables.strings.len(), 9);
    // Cut in front of the mark, between two characters.
    let length = (MAX_STRING - MARK.len() - 1) / 2 * 2 + 1 + MARK.len();
    assert!(reading.tables.strings.values().all(|s| s.len() == length && s.ends_with(MARK)));
}

/// Three mebibytes of what takes six bytes each as JSON.
fn control_bytes() -> String {
    "\u{1}".repeat(3 << 20)
}

#[test]
fn a_description_without_end_does_not_spoil_what_follows() {
    let memory = Memory::new(usize::MAX);
    let command = control_bytes();
    let metadata = Metadata { command: command.clone(), ..Default::default() };
    let mut writer =
        Writer::with_sink(Path::new("t"), Box::new(memory.clone()), &metadata).unwrap();
    writer.process(1, Process { command, ..Default::default() });
    writer.flush_chunk().unwrap();
    (0..10).for_each(|n| writer.push(event(n)).unwrap());
    writer.finish(CLOCK).unwrap();
    let (events, Reading { tables, status, damage }) = read(memory.bytes()).unwrap();
    assert!(damage.is_none(), "{damage:?}");
    assert!(status.complete && events.len() == 10);
    let kept = &tables.processes[&1].command;
    assert!(kept.len() <= MAX_COMMAND && kept.ends_with(MARK), "{} bytes", kept.len());
}

#[test]
fn many_descriptions_in_one_chunk_are_several_chunks() {
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    let process = Process { command: control_bytes(), ..Default::default() };
    for pid in 0..500 {
        writer.process(pid, process.clone());
    }
    writer.finish(CLOCK).unwrap();
    let (_, Reading { tables, status, damage }) = read(memory.bytes()).unwrap();
    assert!(damage.is_none() && status.complete, "{damage:?}");
    assert_eq!(tables.processes.len(), 500);
    assert!(status.chunks > 10);
}

/// More names than a reader takes: what is too much is left out, and the rest can be read.
#[test]
fn names_without_end_are_left_out_and_counted() {
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    let long = "x".repeat(MAX_STRING);
    let fit = WRITTEN_TABLES / MAX_STRING as u64;
    for n in 0..fit + 20 {
        let id = writer.string(0, &format!("{n}{long}"));
        assert_eq!(id == 0, n >= fit - 1, "{n}");
        writer.flush_chunk().unwrap();
    }
    assert_eq!(writer.left_out(), 21);
    writer.loss(0, "names", writer.left_out());
    writer.notice("told all the same");
    writer.push(event(0)).unwrap();
    writer.finish(CLOCK).unwrap();
    let (events, Reading { tables, status, damage }) = read(memory.bytes()).unwrap();
    assert!(damage.is_none() && status.complete, "{damage:?}");
    assert_eq!((events.len(), tables.strings.len() as u64), (1, fit - 1));
    assert_eq!(tables.losses[&(0, "names".to_owned())], 21);
    assert_eq!(tables.notices, ["told all the same"]);
}

/// Processes that tell all that they may, of every kind, leave room for others.
#[test]
fn many_processes_leave_room_for_the_names_of_others() {
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    let long = "x".repeat(MAX_STRING - 100);
    let mut number = 0;
    for pid in 1..=20 {
        for kind in 0..4 {
            let before = writer.left_out();
            while writer.left_out() == before {
                number += 1;
                assert!(number < 10_000_000, "without a limit");
                match kind {
                    0 => drop(writer.string(pid, &format!("{number}{long}"))),
                    1 => writer.thread(pid, number, ""),
                    2 => writer.kernel(pid, number, Kernel::default()),
                    _ => writer.agent(pid, number, Agent::default()),
                }
            }
            writer.flush_chunk().unwrap();
        }
    }
    let left_out = writer.left_out();
    for pid in 21..1000 {
        assert_ne!(writer.string(pid, &format!("kernel {pid}")), 0);
        writer.thread(pid, pid, "thread");
        writer.process(pid, Process { command: format!("c{pid}"), ..Process::default() });
    }
    // What has told too much is described all the same, and operations are named.
    writer.process(1, Process { command: "c1".to_owned(), ..Process::default() });
    for operation in 0..1000 {
        writer.operation(1, operation, &format!("{operation}{}", "o".repeat(10_000)));
    }
    assert_eq!(writer.left_out(), left_out);
    writer.finish(CLOCK).unwrap();
    let (_, Reading { tables, status, damage }) = read(memory.bytes()).unwrap();
    assert!(damage.is_none() && status.complete, "{damage:?}");
    assert_eq!(tables.processes.len(), 1000 - 21 + 1);
    assert_eq!(tables.operations.len(), 1000);
}

/// One process is described again and again, with all the libraries that fit.
#[test]
fn one_process_leaves_room_for_the_others() {
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    let large = |n: usize| {
        let path = format!("{n}{}", "x".repeat(MAX_TEXT - 100));
        let library = ProbedLibrary { path, ..ProbedLibrary::default() };
        Process { libraries: vec![library; MAX_LIBRARIES], ..Process::default() }
    };
    let mut described = 0;
    while writer.left_out() == 0 {
        writer.process(7, large(described));
        described += 1;
        assert!(described < 1000, "without a limit");
    }
    assert!(described > 10);
    for pid in 8..1000 {
        writer.process(pid, Process { command: format!("c{pid}"), ..Process::default() });
    }
    assert_eq!(writer.left_out(), 1);
    writer.finish(CLOCK).unwrap();
    let (_, Reading { tables, status, damage }) = read(memory.bytes()).unwrap();
    assert!(damage.is_none() && status.complete, "{damage:?}");
    assert_eq!(tables.processes.len(), 1000 - 7);
    assert_eq!(tables.processes[&999].command, "c999");
}

/// Entries that say nothing take memory all the same.
#[test]
fn entries_are_counted_with_the_memory_that_they_take() {
    let mut strings = vec![1, 0, 0, 0];
    strings.extend_from_slice(&(8 * 1000_u32).to_le_bytes());
    (1..=1000_u32).for_each(|id| strings.extend([id, 0].map(u32::to_le_bytes).concat()));
    let counted = Contents::of(&strings).unwrap().table_bytes;
    assert_eq!(counted, 1000 * (8 + size_of::<(u32, String)>() as u64));

    let json = format!("{{\"threads\":[{}]}}", vec!["[1,2,3]"; 1000].join(","));
    let tables = [&[2, 0, 0, 0][..], &(json.len() as u32).to_le_bytes(), json.as_bytes()].concat();
    let counted = Contents::of(&tables).unwrap().table_bytes;
    assert_eq!(counted, json.len() as u64 + 1000 * 12);
}

/// What nobody writes, a trace that was made up can still say.
#[test]
fn texts_are_cut_when_they_are_read_too() {
    let long = "x".repeat(2 * MAX_COMMAND);
    let process = Process { command: long.clone(), ..Process::default() };
    let increment = Increment {
        processes: vec![(1, process)],
        losses: vec![(0, long.clone(), 1)],
        notices: vec![long],
        ..Increment::default()
    };
    let mut tables = Tables::default();
    increment.merge_into(&mut tables);
    assert_eq!(tables.processes[&1].command.len(), MAX_COMMAND);
    assert!(tables.losses.keys().all(|(_, cause)| cause.len() == MAX_TEXT));
    assert_eq!(tables.notices[0].len(), MAX_TEXT);
}

/// As many processes as a large build starts, each with all its counters, most of them zero.
#[test]
fn forty_thousand_processes_end_in_chunks_that_are_read() {
    const CAUSES: u64 = 25;
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    let process = |pid| Process { command: format!("cc1plus -o {pid}"), ..Process::default() };
    for pid in 1..=40_000 {
        writer.process(pid, process(pid));
        for cause in 0..CAUSES {
            writer.loss(
                pid,
                &format!("GPU operations: no completion seen, way {cause}"),
                cause / 24,
            );
        }
    }
    (0..10).for_each(|n| writer.push(event(n)).unwrap());
    writer.finish(CLOCK).unwrap();
    let (events, Reading { tables, status, damage }) = read(memory.bytes()).unwrap();
    assert!(damage.is_none() && status.complete && events.len() == 10, "{damage:?}");
    assert!(status.chunks > 5, "{status:?}");
    assert_eq!(tables.processes.len(), 40_000);
    assert_eq!(tables.processes[&39_999], process(39_999));
    assert_eq!(tables.losses.len() as u64, 40_000 * CAUSES);
    assert_eq!(tables.losses.values().sum::<u64>(), 40_000);
}

/// More counters than a reader takes.
#[test]
fn losses_without_end_are_added_up() {
    let memory = Memory::new(usize::MAX);
    let mut writer = writer(&memory);
    let cause = "x".repeat(MAX_TEXT);
    let fit = WRITTEN_LOSSES as u32 / MAX_TEXT as u32;
    for pid in 1..=fit + 50 {
        writer.loss(pid, &cause, 2);
    }
    writer.finish(CLOCK).unwrap();
    let (_, Reading { tables, status, damage }) = read(memory.bytes()).unwrap();
    assert!(damage.is_none() && status.complete, "{damage:?}");
    assert!(tables.losses[&(0, cause)] >= 100);
    assert_eq!(tables.losses.values().sum::<u64>(), u64::from(fit + 50) * 2);
}

/// What a chunk names that is damaged is named once more at the end.
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

#[test]
fn only_files_are_opened() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let others = [(directory.path(), "it is a directory"), (&fifo, "it is no file")];
    for (path, expected) in others.into_iter().chain([("/dev/null".as_ref(), "it is no file")]) {
        let error = Trace::file(path).unwrap_err();
        assert!(
            matches!(&error, TraceError::NotATrace { found, .. } if found == expected),
            "{error}"
        );
    }
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    Trace::file(&file).unwrap();
}

#[test]
fn a_full_disk_leaves_whole_chunks() {
    let whole = sample(3, 100, false);
    for room in [whole.len() - 1, whole.len() - 50, whole.len() + 10] {
        let memory = Memory::new(room);
        let mut writer = writer(&memory);
        let mut failed = None;
        for n in 0..5_000 {
            writer.push(event(n)).unwrap();
            if n % 100 == 99
                && let Err(error) = writer.flush_chunk()
            {
                failed = Some(error);
                break;
            }
        }
        let error = failed.unwrap();
        assert!(matches!(error, TraceError::Write { lost: 100, .. }), "{error}");
        assert!(error.to_string().starts_with("cannot write to t: No space left"), "{error}");
        assert!(matches!(writer.push(event(0)), Err(TraceError::Closed { .. })));
        assert!(matches!(writer.finish(CLOCK), Err(TraceError::Closed { .. })));
        let (events, reading) = read(memory.bytes()).unwrap();
        assert!(reading.damage.is_none() && reading.status.truncated_at.is_none());
        assert!(!reading.status.complete);
        assert!(events.len() >= 200 && events.len() % 100 == 0);
        assert_prefix(&events);
    }
}

#[test]
fn existing_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.roctap");
    let metadata = Metadata::default();
    let first = Writer::create(&path, &metadata, Existing::Refuse).unwrap();
    assert!(matches!(
        Writer::create(&path, &metadata, Existing::Refuse),
        Err(TraceError::Exists { .. })
    ));
    assert!(matches!(
        Writer::create(&path, &metadata, Existing::Replace),
        Err(TraceError::Busy { .. })
    ));
    drop(first);
    assert!(!path.exists(), "a recording that did not begin leaves nothing");
    let mut second = Writer::create(&path, &metadata, Existing::Refuse).unwrap();
    second.push(event(0)).unwrap();
    second.finish(CLOCK).unwrap();
    let recorded = || Trace::open(&path).unwrap().tables().status.clone();
    assert!(recorded().complete);

    // With the first chunk, no earlier, the new one replaces it.
    drop(Writer::create(&path, &metadata, Existing::Replace).unwrap());
    assert!(recorded().complete, "nor does it take anything away");
    let mut third = Writer::create(&path, &metadata, Existing::Replace).unwrap();
    third.push(event(0)).unwrap();
    assert!(recorded().complete);
    third.flush_chunk().unwrap();
    assert!(!recorded().complete);
    assert!(matches!(
        Writer::create(&path, &metadata, Existing::Replace),
        Err(TraceError::Busy { .. })
    ));
    let fourth = Writer::create(&path, &metadata, Existing::Replace);
    drop(third);
    assert!(matches!(fourth, Err(TraceError::Busy { .. })) && !recorded().complete);

    let other = dir.path().join("thesis.tex");
    std::fs::write(&other, "years of work").unwrap();
    assert!(matches!(
        Writer::create(&other, &metadata, Existing::Replace),
        Err(TraceError::NotOurs { .. })
    ));
    assert!(matches!(
        Writer::create(dir.path(), &metadata, Existing::Replace),
        Err(TraceError::NotOurs { .. })
    ));
    assert_eq!(std::fs::read(&other).unwrap(), b"years of work");
    assert!(matches!(Trace::open(&other), Err(TraceError::NotATrace { .. })));
    assert!(matches!(Trace::open(dir.path()), Err(TraceError::NotATrace { .. })));
    let files = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.count(), 2, "nothing is left beside them");
    let missing = dir.path().join("none/t");
    assert!(matches!(
        Writer::create(&missing, &metadata, Existing::Refuse),
        Err(TraceError::Open { .. })
    ));
}

/// Where the file of a new trace is when it is claimed, and when its first chunk is there.
#[test]
fn an_old_trace_is_there_until_the_new_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.roctap");
    let names = || {
        let files = std::fs::read_dir(dir.path()).unwrap();
        Vec::from_iter(files.map(|file| file.unwrap().file_name().into_string().unwrap()))
    };
    std::fs::write(&path, super::format::FILE_MAGIC).unwrap();
    let mut writer = Writer::create(&path, &Metadata::default(), Existing::Replace).unwrap();
    assert_eq!(names().len(), 2, "the new one is written beside the old one");
    assert_eq!(std::fs::read(&path).unwrap(), super::format::FILE_MAGIC);
    writer.begin().unwrap();
    assert_eq!(names(), ["t.roctap"]);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let reading = Trace::open(&path).unwrap().tables();
    assert!(reading.damage.is_none() && reading.status.chunks == 1);
    writer.finish(CLOCK).unwrap();
    assert!(Trace::open(&path).unwrap().tables().status.complete);

    // Somebody else has put another there: a file, then a link.
    let aside = dir.path().join("moved");
    let mut writer = Writer::create(&path, &Metadata::default(), Existing::Replace).unwrap();
    std::fs::rename(&path, &aside).unwrap();
    std::fs::write(&path, "another").unwrap();
    let error = writer.begin().unwrap_err().to_string();
    assert!(error.contains("another recorder has replaced it"), "{error}");
    drop(writer);
    assert_eq!((std::fs::read(&path).unwrap(), names().len()), (b"another".to_vec(), 2));
    std::fs::rename(&aside, &path).unwrap();
    let mut writer = Writer::create(&path, &Metadata::default(), Existing::Replace).unwrap();
    std::fs::rename(&path, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &path).unwrap();
    writer.begin().unwrap_err();
    drop(writer);
    assert!(path.is_symlink() && names().len() == 2);
    assert!(Trace::open(&aside).unwrap().tables().status.complete);
}

/// A trace of 6 chunks of 50 events and of the one that ends it, and where they begin; the end of the
/// file comes last.
fn chunks() -> (Vec<u8>, Vec<usize>) {
    let bytes = sample(6, 50, true);
    let starts = bytes.windows(4).enumerate().filter(|(_, four)| *four == CHUNK_MAGIC);
    let starts = starts.map(|(at, _)| at).chain([bytes.len()]).collect::<Vec<_>>();
    assert_eq!(starts.len(), 8);
    (bytes, starts)
}

fn gaps(reading: &Reading) -> Vec<(u64, u64, Option<u64>)> {
    let gaps = reading.damage.iter().flat_map(|damage| &damage.gaps);
    gaps.map(|gap| (gap.offset, gap.bytes, gap.chunks)).collect()
}

fn numbers(events: &[Event]) -> Vec<u64> {
    for found in events {
        assert_eq!(*found, event(found.record().correlation_id));
    }
    events.iter().map(|found| found.record().correlation_id).collect()
}

/// What is damaged costs the chunk that it is in, and nothing else.
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
    // Bytes that are missing, or too many, inside of a chunk; the next one is found where it is now.
    let (events, reading) = spoiled(&|bytes| drop(bytes.drain(from + 50..from + 60)));
    assert_eq!(numbers(&events), all_but(100..150));
    assert_eq!(gaps(&reading), [(from as u64, (to - from - 10) as u64, Some(1))]);
    let (events, reading) = spoiled(&|bytes| drop(bytes.splice(from..from, *b"RTCK more bytes")));
    assert_eq!(numbers(&events), all_but(0..0));
    assert_eq!(gaps(&reading), [(from as u64, 15, Some(0))]);
    // Whole chunks that are missing, twice there, in another order.
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

/// The bytes of a chunk that somebody made up, who knows `trace`, and the seal if it has one.
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

/// The number of chunks or the end, in a damaged place: neither costs what was written after it.
#[test]
fn what_is_made_up_in_a_gap_ends_nothing() {
    let (whole, starts) = chunks();
    let trace = u32::from_le_bytes(whole[16..20].try_into().unwrap());
    let seal = seal(&whole);
    // The last has a fitting number, but not the seal.
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
    // The end behind a damaged chunk is the end.
    let mut bytes = whole;
    bytes[starts[5]] ^= 1;
    let (events, reading) = read(bytes).unwrap();
    assert_eq!(numbers(&events), Vec::from_iter(0..250));
    assert_eq!(reading.status.end_clock, Some(CLOCK));
}

/// The first thing like a chunk in a file with a damaged header does not decide what the file is.
#[test]
fn most_of_the_bytes_tell_what_a_file_is() {
    let (whole, starts) = chunks();
    let guessed = u32::from_le_bytes(whole[16..20].try_into().unwrap());
    let forged = [77, 78, guessed].map(|trace| made_up(1, trace, None, 0)).concat();
    // The version, so that another one seems to be meant; the header's own checksum; the metadata, so that
    // the header tells the mark, and not the seal.
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

/// Who knows everything that the metadata say does not know what its chunks are known by.
#[test]
fn no_two_traces_have_the_same_mark() {
    let mark = || u32::from_le_bytes(sample(0, 0, false)[16..20].try_into().unwrap());
    // One of 2^32 pairs is the same by chance: not three.
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

/// A file that was made to be looked through again and again: each of its chunks announces all that
/// follows, and none is whole.
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
        let checked = super::format::checked_part(zerocopy::IntoBytes::as_bytes(&header));
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

/// Memory that counts what is read of it.
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

/// What a writer can be told, by whomever.
#[derive(Clone, Debug)]
enum Told {
    Events(u16),
    String(String),
    Process(u32, String, Vec<String>),
    Thread(u32, String),
    Agent(u32, String),
    Kernel(u32, String),
    Operation(u32, String),
    Loss(u32, String, u64),
    Notice(String),
    Flush,
}

/// A text of a hostile program: of any characters, up to beyond every limit.
fn text() -> impl Strategy<Value = String> {
    let unit = prop_oneof![
        Just("\u{0}".to_owned()),
        Just("\"\\".to_owned()),
        Just("\u{202e}é".to_owned()),
        "[a-z]{1,3}",
        any::<char>().prop_map(String::from),
    ];
    let times = prop_oneof![8 => 0usize..40, 4 => 1_000usize..9_000, 1 => Just(1 << 20)];
    (unit, times).prop_map(|(unit, times)| unit.repeat(times))
}

fn told() -> impl Strategy<Value = Told> {
    prop_oneof![
        (0u16..9_000).prop_map(Told::Events),
        text().prop_map(Told::String),
        (0u32..4, text(), prop::collection::vec(text(), 0..3))
            .prop_map(|(pid, command, paths)| Told::Process(pid, command, paths)),
        (0u32..4, text()).prop_map(|(tid, name)| Told::Thread(tid, name)),
        (0u32..4, text()).prop_map(|(node, name)| Told::Agent(node, name)),
        (0u32..4, text()).prop_map(|(id, name)| Told::Kernel(id, name)),
        (0u32..4, text()).prop_map(|(id, name)| Told::Operation(id, name)),
        (0u32..4, text(), 0u64..9).prop_map(|(pid, cause, count)| Told::Loss(pid, cause, count)),
        text().prop_map(Told::Notice),
        Just(Told::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is written is read: all events, and all names, cut to their limits.
    #[test]
    fn what_is_written_is_read(all in prop::collection::vec(told(), 0..10), many: u8) {
        let memory = Memory::new(usize::MAX);
        let mut writer = writer(&memory);
        let (mut events, mut expected) = (0, Tables::default());
        let named = |writer: &mut Writer, text: &str, expected: &mut Tables| {
            let id = writer.string(0, text);
            if id != 0 {
                expected.strings.insert(id, cut(text, MAX_STRING).into_owned());
            }
            id
        };
        for told in &all {
            match told {
                Told::Events(count) => for _ in 0..*count {
                    writer.push(event(events)).unwrap();
                    events += 1;
                },
                Told::String(text) => drop(named(&mut writer, text, &mut expected)),
                Told::Process(pid, command, paths) => {
                    let library = |path: &String| ProbedLibrary { path: path.clone(), ..Default::default() };
                    let mut libraries: Vec<ProbedLibrary> = paths.iter().map(library).collect();
                    if let Some(first) = libraries.first().cloned() {
                        libraries.extend(std::iter::repeat_n(first, many.into()));
                    }
                    let mut process = Process {
                        command: command.clone(),
                        gpu_tier: command.clone(),
                        libraries,
                        ..Default::default()
                    };
                    writer.process(*pid, process.clone());
                    process.command = cut(&process.command, MAX_COMMAND).into_owned();
                    process.gpu_tier = cut(&process.gpu_tier, MAX_TEXT).into_owned();
                    process.libraries.truncate(MAX_LIBRARIES);
                    for library in &mut process.libraries {
                        library.path = cut(&library.path, MAX_TEXT).into_owned();
                    }
                    expected.processes.insert(*pid, process);
                }
                Told::Thread(tid, name) => {
                    writer.thread(1, *tid, name);
                    let id = named(&mut writer, name, &mut expected);
                    expected.threads.insert((1, *tid), id);
                }
                Told::Agent(node, name) => {
                    let agent = Agent { name: name.clone(), ..Default::default() };
                    writer.agent(1, *node, agent.clone());
                    let name = cut(name, MAX_TEXT).into_owned();
                    expected.agents.insert((1, *node), Agent { name, ..agent });
                }
                Told::Kernel(id, name) => {
                    let name = named(&mut writer, name, &mut expected);
                    let kernel = Kernel { name, ..Default::default() };
                    writer.kernel(0, *id, kernel.clone());
                    expected.kernels.insert(*id, kernel);
                }
                Told::Operation(id, name) => {
                    writer.operation(3, *id, name);
                    let name = named(&mut writer, name, &mut expected);
                    expected.operations.insert((3, *id), name);
                }
                Told::Loss(pid, cause, count) => {
                    writer.loss(*pid, cause, *count);
                    let cause = cut(cause, MAX_TEXT).into_owned();
                    *expected.losses.entry((*pid, cause)).or_default() += count;
                }
                Told::Notice(text) => {
                    writer.notice(text);
                    let text = cut(text, MAX_TEXT).into_owned();
                    if expected.notices.len() < MAX_NOTICES && !expected.notices.contains(&text) {
                        expected.notices.push(text);
                    }
                }
                Told::Flush => writer.flush_chunk().unwrap(),
            }
        }
        prop_assert_eq!(writer.left_out(), 0);
        writer.finish(CLOCK).unwrap();
        let (found, Reading { tables, status, damage }) = read(memory.bytes()).unwrap();
        prop_assert!(damage.is_none(), "{:?}", damage);
        prop_assert!(status.complete);
        prop_assert_eq!(found.len() as u64, events);
        assert_prefix(&found);
        prop_assert!(tables == expected, "the tables differ");
    }
}

/// Something that happens to a file.
#[derive(Clone, Debug)]
enum Blow {
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
    /// The bytes of one place, in another one.
    Repeat(prop::sample::Index, usize, prop::sample::Index),
    Zeros(prop::sample::Index, usize),
}

fn blow() -> impl Strategy<Value = Blow> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), 1u8..).prop_map(|(at, bits)| Blow::Flip(at, bits)),
        at().prop_map(Blow::Cut),
        (at(), 0usize..9_000).prop_map(|(at, count)| Blow::Remove(at, count)),
        (at(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(at, new)| Blow::Insert(at, new)),
        (at(), 0usize..9_000, at()).prop_map(|(at, count, to)| Blow::Repeat(at, count, to)),
        (at(), 0usize..9_000).prop_map(|(at, count)| Blow::Zeros(at, count)),
    ]
}

impl Blow {
    fn strike(&self, bytes: &mut Vec<u8>) {
        // Behind the first bytes, which say that it is a trace.
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
        let told = damage.is_some() || status.truncated_at.is_some() || status.end_clock.is_none();
        prop_assert!(told || !missing, "{reading:?}");
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
            super::wire::encode(&mut raw, &event(n));
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
