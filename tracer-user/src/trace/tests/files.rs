//! The files that are opened, those that are replaced and when, and the rest that a full disk leaves.

use std::os::unix::fs::MetadataExt as _;

use tracer_records::{model::Metadata, sink::RecordSink as _};

use super::{
    super::{Existing, Trace, TraceError, Writer, format},
    CLOCK, Memory, assert_prefix, event, read, sample, writer,
};

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
        let refused = writer.push(event(0)).unwrap_err().to_string();
        assert_eq!(refused, "t is closed after a failed write");
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

    // The new trace replaces it with the first chunk, no earlier.
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

/// The place of a new trace's file when it is claimed, and when its first chunk is there.
#[test]
fn an_old_trace_is_there_until_the_new_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.roctap");
    let names = || {
        let files = std::fs::read_dir(dir.path()).unwrap();
        Vec::from_iter(files.map(|file| file.unwrap().file_name().into_string().unwrap()))
    };
    std::fs::write(&path, format::FILE_MAGIC).unwrap();
    let mut writer = Writer::create(&path, &Metadata::default(), Existing::Replace).unwrap();
    assert_eq!(names().len(), 2, "the new one is written beside the old one");
    assert_eq!(std::fs::read(&path).unwrap(), format::FILE_MAGIC);
    writer.begin().unwrap();
    assert_eq!(names(), ["t.roctap"]);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let reading = Trace::open(&path).unwrap().tables();
    assert!(reading.damage.is_none() && reading.status.chunks == 1);
    writer.finish(CLOCK).unwrap();
    assert!(Trace::open(&path).unwrap().tables().status.complete);

    // Another process has put something else there: a file, then a link.
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
