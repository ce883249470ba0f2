//! Joins the records that the probes, the shims and the looks from outside deliver, and writes them.
//!
//! A second consumer of records, such as a live view, belongs here: give the joiner a sink that hands records on to
//! the [`Writer`] and to that consumer ([`tracer_records::sink::RecordSink`]); `finish`, `flush_chunk` and
//! `left_out`, which are no matter of records, stay the Writer's. Losses come into a sink at the end only; while
//! recording, `Session::lost` has them (`session/mod.rs`, which also opens the recorder). The loop in `record/mod.rs`
//! draws, in the place of the line of `record/progress.rs`, and through `shown.rs`, since names come from a traced
//! process; that loop reads the rings too, so it must not wait for a terminal. Options are in `record/options.rs`.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Range,
    path::Path,
    time::{Duration, Instant},
};

use tracer_common::{
    activity::Domain,
    bpf::{ApiRecord, LinkRecord, MarkRecord},
    calls::Call,
};

use crate::{
    clock, discover,
    join::{Counts, Joiner, Launches, Mode},
    shim::Frame,
    trace::{TraceError, Writer, limits::MAX_NOTICES},
};
use tracer_records::{model::Process, sink::RecordSink as _};

/// How often chunks are written.
const CHUNK_INTERVAL: Duration = Duration::from_millis(250);

/// The most notices that are written while a recording goes on; the rest of the room is for those of its end.
const MOST_NOTICES: usize = MAX_NOTICES - 50;
/// The number of threads that are remembered without a look whether they still exist.
const FEW_THREADS: usize = 4096;

/// Joins records, and writes them to the trace.
pub struct Recorder {
    joiner: Joiner,
    trace: Writer,
    threads: Threads,
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

/// The threads that were seen, and their processes.
struct Threads {
    known: HashSet<(u32, u32)>,
    /// Beyond this number, threads that are gone are looked for and forgotten.
    most: usize,
}

impl Recorder {
    /// Nothing is recorded yet.
    pub fn new(mode: Mode, trace: Writer) -> Self {
        let threads = Threads { known: HashSet::new(), most: FEW_THREADS };
        let (joiner, losses) = (Joiner::new(mode), BTreeMap::new());
        let notices = Notices::default();
        let last_chunk = Instant::now();
        Self { joiner, trace, threads, notices, losses, last_chunk, has_begun: false }
    }

    /// The named processes were attached to, or the command runs: the trace exists from here on.
    pub fn begin(&mut self) -> Result<(), TraceError> {
        self.has_begun = true;
        self.trace.begin()
    }

    /// A call that probes saw.
    pub fn api(&mut self, call: &ApiRecord) -> Result<(), TraceError> {
        self.thread(call.header.pid, call.header.tid);
        self.joiner.api(call, &mut self.trace)
    }

    /// A call of roctx, with its message.
    pub fn mark(&mut self, mark: &MarkRecord) -> Result<(), TraceError> {
        self.thread(mark.call.header.pid, mark.call.header.tid);
        self.joiner.mark(mark, &mut self.trace)
    }

    /// The call that launched an operation.
    pub fn link(&mut self, link: &LinkRecord) -> Result<(), TraceError> {
        self.joiner.link(link, &mut self.trace)
    }

    /// A frame that thread `tid` of process `pid` wrote through its shim.
    pub fn frame(&mut self, pid: u32, tid: u32, frame: Frame) -> Result<(), TraceError> {
        self.joiner.frame(pid, tid, frame, &mut self.trace)
    }

    /// The ids that the shim of process `pid` gives to its calls.
    pub fn shim_ids(&mut self, pid: u32, ids: Range<u64>) {
        self.joiner.shim_ids(pid, ids);
    }

    /// A call that a shim recorded, with further flags.
    pub fn shim_call(&mut self, pid: u32, tid: u32, call: &Call, flags: u16) {
        self.joiner.shim_call(pid, tid, call, flags);
    }

    /// Names a thread that was not seen before.
    pub fn thread(&mut self, pid: u32, tid: u32) {
        self.threads.see(&mut self.trace, pid, tid);
    }

    /// Asks for the records made before, if calls wait for them: see [`Joiner::ask_for_calls`].
    pub fn ask_for_calls(
        &mut self,
        open: impl FnMut(u32) -> Vec<ApiRecord>,
        request: impl FnOnce() -> u64,
    ) {
        self.joiner.ask_for_calls(open, request);
    }

    /// Writes the shims' calls whose requests are answered, up to request `answered`.
    pub fn settle_calls(&mut self, answered: u64) -> Result<(), TraceError> {
        let threads = &mut self.threads;
        self.joiner.settle_calls(answered, &mut self.trace, |pid, tid, trace| {
            threads.see(trace, pid, tid);
        })
    }

    /// Lends the joiner and the writer to the code that sees GPU work from outside, which writes to both.
    pub fn join<T>(&mut self, act: impl FnOnce(&mut Joiner, &mut Writer) -> T) -> T {
        act(&mut self.joiner, &mut self.trace)
    }

    /// Settles the records that have waited long enough; called now and then.
    pub fn tick(&mut self) -> Result<(), TraceError> {
        self.joiner.tick(clock::now_ns(), &mut self.trace)
    }

    /// Writes a chunk if it is time. None before recording has begun: the first chunk takes an old trace's place, and
    /// attaching may still fail.
    pub fn write(&mut self, now: Instant) -> Result<(), TraceError> {
        if self.has_begun && now - self.last_chunk >= CHUNK_INTERVAL {
            self.last_chunk = now;
            self.trace.flush_chunk()?;
        }
        Ok(())
    }

    /// Process `pid` executed another program, or another process has its number by now: writes the remaining records
    /// of the old one.
    pub fn executed(&mut self, pid: u32, time_ns: u64) -> Result<(), TraceError> {
        self.joiner.executed(pid, time_ns, &mut self.trace)
    }

    /// Process `pid` has ended, and all of its records have come: writes the remaining ones, and forgets the process.
    pub fn ended(&mut self, pid: u32) -> Result<Launches, TraceError> {
        let threads = &mut self.threads;
        let launches = self.joiner.ended(pid, &mut self.trace, |pid, tid, trace| {
            threads.see(trace, pid, tid);
        });
        self.threads.forget(pid);
        launches
    }

    /// GPU work of process `pid` is recorded from `time_ns` on.
    pub fn gpu_from(&mut self, pid: u32, time_ns: u64) {
        self.joiner.gpu_from(pid, time_ns);
    }

    /// No GPU work is recorded that is enqueued later than `time_ns`.
    pub fn gpu_until(&mut self, time_ns: u64) {
        self.joiner.gpu_until(time_ns);
    }

    /// How many kernels process `pid` launched while its GPU work was recorded.
    pub fn launches(&self, pid: u32) -> u64 {
        self.joiner.launches(pid)
    }

    /// Whether probes saw calls of a process in a domain.
    pub fn saw_by_probes(&self, pid: u32, domain: Domain) -> bool {
        self.joiner.saw_by_probes(pid, domain)
    }

    /// The counts of joined records.
    pub fn counts(&self) -> Counts {
        self.joiner.counts()
    }

    /// Sets the description of a process.
    pub fn process(&mut self, pid: u32, process: Process) {
        self.trace.process(pid, process);
    }

    /// The name of an operation that the table of operations does not have.
    pub fn operation(&mut self, domain: u32, operation: u32, name: &str) {
        self.trace.operation(domain, operation, name);
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
            self.trace.notice(text);
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
        notices.iter().for_each(|text| self.trace.notice(text));
    }

    /// Adds to the losses of process `pid`; 0 means no process in particular.
    pub fn loss(&mut self, pid: u32, cause: &str, count: u64) {
        self.trace.loss(pid, cause, count);
        let sum = self.losses.entry(cause.to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }

    /// How many records were lost so far: those of programs that are gone, and those that the joiner could not match.
    pub fn lost(&self) -> u64 {
        let joined = self.joiner.counts().losses().map(|(_, count)| count);
        joined.iter().chain(self.losses.values()).fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// The losses, by cause.
    pub fn losses(&self) -> Vec<(String, u64)> {
        let lost = self.losses.iter().filter(|&(_, &count)| count > 0);
        lost.map(|(cause, &count)| (cause.clone(), count)).collect()
    }

    /// How many names and descriptions the trace had no room for.
    pub fn left_out(&self) -> u64 {
        self.trace.left_out()
    }

    /// Writes all records that wait: those that are not complete now never will be.
    pub fn join_the_rest(&mut self) -> Result<(), TraceError> {
        self.joiner.finish(&mut self.trace)
    }

    /// Writes the end of the trace.
    pub fn finish(self) -> Result<(), TraceError> {
        self.trace.finish(clock::offsets())
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

impl Threads {
    /// Names a thread that was not seen before.
    fn see(&mut self, trace: &mut Writer, pid: u32, tid: u32) {
        if !self.known.insert((pid, tid)) {
            return;
        }
        trace.thread(pid, tid, &discover::thread_name(pid, tid));
        if self.known.len() > self.most {
            self.known.retain(|(pid, tid)| Path::new(&format!("/proc/{pid}/task/{tid}")).exists());
            self.most = FEW_THREADS.max(2 * self.known.len());
        }
    }

    /// Process `pid` has ended.
    fn forget(&mut self, pid: u32) {
        self.known.retain(|&(of, _)| of != pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Existing, Trace};
    use tracer_records::model::Metadata;

    fn recorder(directory: &Path) -> Recorder {
        let metadata = Metadata {
            roctap_version: String::new(),
            host: String::new(),
            kernel: String::new(),
            command: String::new(),
            clock: clock::offsets(),
        };
        let path = directory.join("test.rtrace");
        Recorder::new(Mode::default(), Writer::create(&path, &metadata, Existing::Refuse).unwrap())
    }

    /// Threads that a process starts one after the other, and threads of processes that have ended.
    #[test]
    fn threads_that_are_gone_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let mut recorder = recorder(directory.path());
        let own = std::process::id();
        recorder.thread(own, own);
        // No thread has such a number.
        for gone in 0..4 * FEW_THREADS as u32 {
            recorder.thread(own, u32::MAX - gone);
        }
        assert!(recorder.threads.known.len() <= FEW_THREADS);
        assert!(recorder.threads.known.contains(&(own, own)), "it lives");
        recorder.ended(own).unwrap();
        assert!(recorder.threads.known.is_empty());
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
