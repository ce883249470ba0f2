//! Texts that are too long are cut, entries that are too many are left out and counted, or added up; the rest can be
//! read.

use std::path::Path;

use tracer_records::{
    model::{Agent, Kernel, Metadata, ProbedLibrary, Process},
    sink::RecordSink as _,
};

use super::{
    super::{
        Reading, Writer,
        contents::Contents,
        limits::{
            MARK, MAX_COMMAND, MAX_LIBRARIES, MAX_STRING, MAX_TEXT, WRITTEN_LOSSES, WRITTEN_TABLES,
        },
        lookup::Tables,
        tables::Increment,
    },
    CLOCK, Memory, event, read, writer,
};

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

/// Three mebibytes of characters that take six bytes each as JSON.
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

/// More names than a reader takes: those that are too many are left out, and the rest can be read.
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

/// Processes that send as many names as they may, of every kind, leave room for others.
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
    // A process that has sent too many names is described all the same, and operations are named.
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

/// One process is described again and again, with as many libraries as fit.
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

/// Empty entries take memory all the same.
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

/// A trace that was made up can have texts that are longer than any that is written.
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

/// As many processes as a large build starts, each with all its counters, most of which are zero.
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
