//! Joins the records that the probes, the shims and the looks from outside deliver, hands them to a sink, and keeps
//! what the end needs: notices and losses.
//!
//! The sink is the [`Writer`](crate::trace::Writer) of the trace, which `Session::open` makes. Another one, such as a
//! live view, wraps it ([`RecordSink`]): it hands on what it gets. It must not wait for a terminal, since the thread
//! that calls it reads the rings, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use tracer_records::{
    model::Process,
    sink::{RecordSink, SinkError},
};

use crate::{
    clock,
    join::{Joiner, Mode},
    trace::limits::MAX_NOTICES,
};

/// How often chunks are written.
const CHUNK_INTERVAL: Duration = Duration::from_millis(250);

/// The most notices that are written while a recording goes on; the rest of the room is for those of its end.
const MOST_NOTICES: usize = MAX_NOTICES - 50;

/// Joins records, and hands them on.
pub struct Recorder {
    /// Takes the records.
    pub joiner: Joiner,
    notices: Notices,
    /// Losses by cause, of all processes.
    losses: BTreeMap<String, u64>,
    last_chunk: Instant,
    /// [`Recorder::begin`] was called.
    has_begun: bool,
}

/// The notices of a recording: as many as people read, and the trace has room for.
#[derive(Default)]
struct Notices {
    texts: BTreeSet<String>,
    /// How many further notices there were.
    more: u64,
}

/// Whether a notice is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NoticeOutcome {
    New,
    Known,
    /// There are too many notices; the first time that this happens is to be reported.
    TooMany,
}

impl Recorder {
    /// Nothing is recorded yet.
    pub fn new(mode: Mode, sink: Box<dyn RecordSink>) -> Self {
        Self {
            joiner: Joiner::new(mode, sink),
            notices: Notices::default(),
            losses: BTreeMap::new(),
            last_chunk: Instant::now(),
            has_begun: false,
        }
    }

    /// The named processes were attached to, or the command runs: the trace exists from here on.
    pub fn begin(&mut self) -> Result<(), SinkError> {
        self.has_begun = true;
        self.joiner.sink().begin()
    }

    /// Sets the description of a process.
    pub fn process(&mut self, pid: u32, process: Process) {
        self.joiner.sink().process(pid, process);
    }

    /// Writes a chunk if it is time. None before recording has begun: the first chunk takes an old trace's place, and
    /// attaching may still fail.
    pub fn write(&mut self, now: Instant) -> Result<(), SinkError> {
        if self.has_begun && now - self.last_chunk >= CHUNK_INTERVAL {
            self.last_chunk = now;
            self.joiner.sink().flush()?;
        }
        Ok(())
    }

    /// Prints a notice, and writes it into the trace.
    pub fn notice(&mut self, text: &str) {
        match self.note(text) {
            NoticeOutcome::New | NoticeOutcome::Known => tracing::warn!("{text}"),
            NoticeOutcome::TooMany if self.notices.more == 1 => {
                tracing::warn!("there are more notices; they are counted, and said no more");
            }
            NoticeOutcome::TooMany => {}
        }
    }

    /// Writes a notice into the trace, if the trace has room for it.
    fn note(&mut self, text: &str) -> NoticeOutcome {
        let taken = self.notices.take(text);
        if taken == NoticeOutcome::New {
            self.joiner.sink().notice(text);
        }
        taken
    }

    /// Writes a notice into the trace without printing it.
    pub fn write_notice(&mut self, text: &str) {
        self.note(text);
    }

    /// Writes the notices of the end, for which there is always room, and adds one that says how many notices were not
    /// written.
    pub fn last_notices(&mut self, notices: &mut Vec<String>) {
        if self.notices.more > 0 {
            notices.push(format!("{} more notices are not in the trace", self.notices.more));
        }
        notices.iter().for_each(|text| self.joiner.sink().notice(text));
    }

    /// Adds to the losses of process `pid`; 0 means no process in particular.
    pub fn loss(&mut self, pid: u32, cause: &str, count: u64) {
        self.joiner.sink().loss(pid, cause, count);
        let sum = self.losses.entry(cause.to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }

    /// How many records were lost, of the losses that were written.
    pub fn lost(&self) -> u64 {
        self.losses.values().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// The losses, by cause.
    pub fn losses(&self) -> Vec<(String, u64)> {
        let lost = self.losses.iter().filter(|&(_, &count)| count > 0);
        lost.map(|(cause, &count)| (cause.clone(), count)).collect()
    }

    /// Writes the end of the trace.
    pub fn finish(self) -> Result<(), SinkError> {
        self.joiner.finish(clock::offsets())
    }
}

impl Notices {
    fn take(&mut self, text: &str) -> NoticeOutcome {
        if self.texts.contains(text) {
            return NoticeOutcome::Known;
        }
        if self.texts.len() >= MOST_NOTICES {
            self.more += 1;
            return NoticeOutcome::TooMany;
        }
        self.texts.insert(text.to_owned());
        NoticeOutcome::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    use tracer_records::model::Metadata;

    use crate::trace::{Existing, Trace, Writer};

    fn recorder(directory: &Path) -> Recorder {
        let metadata = Metadata {
            roctap_version: String::new(),
            host: String::new(),
            kernel: String::new(),
            command: String::new(),
            clock: clock::offsets(),
        };
        let path = directory.join("test.rtrace");
        let trace = Writer::create(&path, &metadata, Existing::Refuse).unwrap();
        Recorder::new(Mode::default(), Box::new(trace))
    }

    /// The reader finds as many notices as there is room for, those of the end, and how many more there were.
    #[test]
    fn too_many_notices_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let mut recorder = recorder(directory.path());
        for number in 0..MAX_NOTICES + 20 {
            recorder.notice(&format!("notice {number}"));
            recorder.notice("again and again");
        }
        let mut last = vec!["the end".to_owned()];
        recorder.last_notices(&mut last);
        let left_out = MAX_NOTICES + 21 - MOST_NOTICES;
        assert_eq!(
            last,
            ["the end".to_owned(), format!("{left_out} more notices are not in the trace")]
        );
        recorder.finish().unwrap();
        let trace = Trace::open(&directory.path().join("test.rtrace")).unwrap();
        let reading = trace.for_each_event(|_| Ok::<_, std::convert::Infallible>(())).unwrap();
        let notices = &reading.tables.notices;
        assert_eq!(notices.len(), MOST_NOTICES + 2);
        assert!(last.iter().all(|text| notices.contains(text)), "{notices:?}");
    }

    #[test]
    fn losses_are_added_up_and_do_not_overflow() {
        let directory = tempfile::tempdir().unwrap();
        let mut recorder = recorder(directory.path());
        for (pid, count) in [(1, 2), (2, 3), (3, u64::MAX)] {
            recorder.loss(pid, "some", count);
            recorder.loss(pid, "none", 0);
        }
        assert_eq!(recorder.losses(), [("some".to_owned(), u64::MAX)]);
    }
}
