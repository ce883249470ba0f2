//! Writing a trace.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use zerocopy::IntoBytes as _;

use super::compress::Packer;
use super::error::TraceError;
use super::format::{
    ChunkFacts, ChunkHeader, FileHeader, SectionHeader, StringHeader, chunk_kind, section_kind,
};
use super::limits::{
    CHUNK_TARGET, MAX_METADATA, MAX_NOTICES, MAX_RAW, MAX_STRING, MAX_TABLES, MAX_TEXT,
    REPEATED_TABLES, STRING_BYTES, TABLES_TARGET, WRITTEN_BY_PROCESSES, WRITTEN_LOSSES,
    WRITTEN_OF_A_PROCESS, WRITTEN_TABLES, WithinLimits as _, cut,
};
use super::seal::{SEALED, Seal, Sealed};
use super::sink::{Existing, Sink, claim};
use super::tables::Increment;
use super::wire;
use crate::budget::Budget;
use tracer_records::model::{Agent, ClockOffsets, Event, Kernel, Metadata, Process, StringId};
use tracer_records::sink::{RecordSink, SinkError};

/// The loss of names and descriptions beyond the limits: a program can make any number of them.
const BEYOND_LIMITS: &str = "names and descriptions: left out, a trace holds 256 MiB of them, of one process no more than half of what others leave, and 16 MiB of descriptions";

const _: () = assert!(WRITTEN_TABLES == 256 << 20);
const _: () = assert!(WRITTEN_OF_A_PROCESS == 16 << 20);

/// Writes one trace file.
///
/// Events and table entries are collected and go out as chunks: whenever about 1 MiB has been collected, and when the
/// recorder calls [`Writer::flush_chunk`], every 250 ms or so. Whatever happens to the process afterwards, flushed
/// chunks stay readable. A writer that is dropped without [`Writer::finish`] leaves a trace like that of a recorder
/// that was killed.
///
/// Input is cut to [`super::limits`], so that a reader accepts every trace that is written. Before a chunk is written,
/// it is checked once more that it is within the limits: else the write fails.
pub struct Writer {
    path: PathBuf,
    sink: Box<dyn Sink>,
    packer: Packer,
    /// Length of the file up to the last whole chunk.
    whole_bytes: u64,
    /// [`FileHeader::trace`].
    trace: u32,
    sequence: u64,
    /// Encoded events of the open chunk.
    events: Vec<u8>,
    event_count: u32,
    total_events: u64,
    ids: HashMap<Box<str>, StringId>,
    /// Encoded strings that no chunk has yet.
    strings: Vec<u8>,
    /// Batches of such strings, each for a chunk of its own.
    string_batches: Vec<Vec<u8>>,
    increment: Increment,
    increment_bytes: usize,
    /// Such parts of the tables, each for a chunk of its own.
    increments: Vec<Increment>,
    /// All names and descriptions except those of processes, as long as they are few enough to be repeated.
    repeated: Increment,
    /// Bytes of losses, and the counts beyond [`WRITTEN_LOSSES`] by cause.
    loss_bytes: u64,
    further_losses: BTreeMap<String, u64>,
    /// Bytes of names and descriptions that were taken, and how many were not.
    taken_bytes: u64,
    left_out: u64,
    /// Of these bytes, those that processes chose.
    chosen_bytes: Budget<(u32, ChosenText)>,
    /// The size of strings and tables, as a reader counts it.
    table_bytes: u64,
    notices: Vec<String>,
    /// The open chunk. Its seal is always there.
    raw: Vec<u8>,
    out: Vec<u8>,
    closed: bool,
}

/// The texts that a process chose.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ChosenText {
    /// Its description.
    Itself,
    /// Names of its threads, agents and kernels.
    Names,
}

impl Writer {
    /// Creates the file and writes its header.
    ///
    /// Only an older trace, or an empty file, is ever replaced; any other file that exists already is an error.
    pub fn create(
        path: &Path,
        metadata: &Metadata,
        existing: Existing,
    ) -> Result<Self, TraceError> {
        let file = claim(path, existing)?;
        Self::with_sink(path, Box::new(file), metadata)
    }

    /// Begins a trace in an empty `sink`; messages name it by `path`.
    pub(super) fn with_sink(
        path: &Path,
        mut sink: Box<dyn Sink>,
        metadata: &Metadata,
    ) -> Result<Self, TraceError> {
        let encode = |cause| TraceError::Encode { path: path.to_path_buf(), cause };
        let metadata = metadata.clone().within_limits();
        let seal = Seal::new().map_err(encode)?;
        let json =
            serde_json::to_vec(&Sealed::new(&metadata, seal)).map_err(|e| encode(e.into()))?;
        if json.len() > MAX_METADATA as usize {
            return Err(encode(io::Error::other("the metadata are too large")));
        }
        let header = FileHeader::new(&json);
        let mut out = header.as_bytes().to_vec();
        out.extend_from_slice(&json);
        let mut raw = Vec::new();
        section(&mut raw, section_kind::SEAL, &seal.to_bytes());
        sink.append(&out).map_err(|cause| TraceError::Write {
            path: path.to_path_buf(),
            kept_bytes: 0,
            lost: 0,
            cause,
        })?;
        Ok(Self {
            path: path.to_path_buf(),
            sink,
            packer: Packer::new().map_err(encode)?,
            whole_bytes: out.len() as u64,
            trace: header.trace(),
            sequence: 0,
            events: Vec::with_capacity(CHUNK_TARGET + 4096),
            event_count: 0,
            total_events: 0,
            ids: HashMap::new(),
            strings: Vec::new(),
            string_batches: Vec::new(),
            increment: Increment::default(),
            increment_bytes: 0,
            increments: Vec::new(),
            repeated: Increment::default(),
            loss_bytes: 0,
            further_losses: BTreeMap::new(),
            taken_bytes: 0,
            left_out: 0,
            chosen_bytes: Budget::new(WRITTEN_BY_PROCESSES as usize),
            table_bytes: 0,
            notices: Vec::new(),
            raw,
            out: Vec::new(),
            closed: false,
        })
    }

    /// Whether there is room for a name or description of this many bytes from process `process_id` (0: no process in
    /// particular); if not, counts it.
    fn takes(&mut self, process_id: u32, text: ChosenText, bytes: usize) -> bool {
        let taken = self.taken_bytes + bytes as u64;
        let takes = taken <= WRITTEN_TABLES
            && (process_id == 0 || self.chosen_bytes.take((process_id, text), bytes));
        if takes {
            self.taken_bytes = taken;
            if taken > REPEATED_TABLES {
                self.repeated = Increment::default();
            }
        } else {
            self.left_out += 1;
        }
        takes
    }

    /// Adds an entry of process `process_id` to the tables, if there is room for it.
    fn describe<T: Serialize + Clone>(
        &mut self,
        process_id: u32,
        entry: T,
        add: impl Fn(&mut Increment, T),
    ) {
        let bytes = weigh(&entry);
        if self.takes(process_id, ChosenText::Names, bytes + size_of::<T>()) {
            if self.taken_bytes <= REPEATED_TABLES {
                add(&mut self.repeated, entry.clone());
            }
            self.increase(bytes, |increment| add(increment, entry));
        }
    }

    fn increase(&mut self, bytes: usize, add: impl FnOnce(&mut Increment)) {
        add(&mut self.increment);
        self.increment_bytes += bytes;
        if self.increment_bytes >= TABLES_TARGET {
            self.increments.push(std::mem::take(&mut self.increment));
            self.increment_bytes = 0;
        }
    }

    /// How many names and descriptions were left out, because those of the trace had reached
    /// [`WRITTEN_TABLES`], or those of a process its share of them.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Writes the collected events and entries, if there are any.
    ///
    /// When the write fails, the file is cut back to its last whole chunk, the collected events and entries are lost,
    /// and the writer takes nothing more.
    pub fn flush_chunk(&mut self) -> Result<(), TraceError> {
        if self.closed {
            return Err(self.closed_error());
        }
        if self.events.is_empty()
            && self.strings.is_empty()
            && self.string_batches.is_empty()
            && self.increments.is_empty()
            && self.increment.is_empty()
        {
            return Ok(());
        }
        self.write_chunks(chunk_kind::DATA)
    }

    /// Writes the rest and the mark of a complete trace, and waits until the device has written it.
    pub fn finish(mut self, end_clock: ClockOffsets) -> Result<(), TraceError> {
        for (cause, count) in std::mem::take(&mut self.further_losses) {
            self.increase(weigh(&(0, &cause, count)), |i| i.losses.push((0, cause, count)));
        }
        self.flush_chunk()?;
        self.repeat();
        self.increment.end_clock = Some(end_clock);
        self.write_chunks(chunk_kind::END)?;
        self.sink.sync().map_err(|cause| self.write_error(cause))
    }

    /// Writes names and descriptions once more if they are few. Those of processes are written at the end in any case.
    fn repeat(&mut self) {
        if self.taken_bytes > REPEATED_TABLES {
            return;
        }
        let ids = std::mem::take(&mut self.ids);
        ids.iter().for_each(|(text, &id)| self.put_string(id, text));
        self.increment = std::mem::take(&mut self.repeated);
    }

    fn write_chunks(&mut self, kind: u16) -> Result<(), TraceError> {
        let result = self.try_write_chunks(kind);
        result.map_err(|cause| {
            self.closed = true;
            let error = self.write_error(cause);
            // A failure here leaves a torn chunk at the end, which readers can handle too.
            let _ = self.sink.cut(self.whole_bytes);
            (self.events, self.strings, self.string_batches) = Default::default();
            (self.increment, self.increments) = Default::default();
            error
        })
    }

    fn try_write_chunks(&mut self, kind: u16) -> io::Result<()> {
        for batch in std::mem::take(&mut self.string_batches) {
            self.tables(section_kind::STRINGS, &batch);
            self.write_chunk(chunk_kind::DATA, 0)?;
        }
        for increment in std::mem::take(&mut self.increments) {
            self.table_bytes += increment.kept_bytes() as u64;
            self.tables(section_kind::TABLES, &serde_json::to_vec(&increment)?);
            self.write_chunk(chunk_kind::DATA, 0)?;
        }
        if !self.strings.is_empty() {
            let strings = std::mem::take(&mut self.strings);
            self.tables(section_kind::STRINGS, &strings);
        }
        if !self.increment.is_empty() {
            let increment = std::mem::take(&mut self.increment);
            self.increment_bytes = 0;
            self.table_bytes += increment.kept_bytes() as u64;
            self.tables(section_kind::TABLES, &serde_json::to_vec(&increment)?);
        }
        if !self.events.is_empty() {
            section(&mut self.raw, section_kind::EVENTS, &self.events);
        }
        self.write_chunk(kind, self.event_count)?;
        self.events.clear();
        self.event_count = 0;
        Ok(())
    }

    /// Puts strings or tables into the open chunk.
    fn tables(&mut self, kind: u32, body: &[u8]) {
        self.table_bytes += body.len() as u64;
        section(&mut self.raw, kind, body);
    }

    /// Writes `self.raw` as one chunk, in one write, and empties it except for the seal.
    fn write_chunk(&mut self, kind: u16, events: u32) -> io::Result<()> {
        let raw_bytes = self.raw.len();
        if raw_bytes > MAX_RAW as usize || self.table_bytes > MAX_TABLES {
            return Err(io::Error::other(format!(
                "a chunk of {raw_bytes} bytes, {} of strings and tables in all: nobody could read it",
                self.table_bytes
            )));
        }
        let room = size_of::<ChunkHeader>();
        self.packer.pack(&self.raw, &mut self.out, room)?;
        self.raw.truncate(SEALED);
        let (header_bytes, packed) = self.out.split_at_mut(room);
        let (trace, sequence, raw_bytes) = (self.trace, self.sequence, raw_bytes as u32);
        let facts = ChunkFacts { kind, trace, sequence, raw_bytes, events };
        let header = ChunkHeader::new(facts, packed);
        header_bytes.copy_from_slice(header.as_bytes());
        self.sink.append(&self.out)?;
        self.whole_bytes += self.out.len() as u64;
        self.sequence += 1;
        self.total_events += u64::from(events);
        Ok(())
    }

    fn write_error(&self, cause: io::Error) -> TraceError {
        TraceError::Write {
            path: self.path.clone(),
            kept_bytes: self.whole_bytes,
            lost: u64::from(self.event_count),
            cause,
        }
    }

    fn closed_error(&self) -> TraceError {
        TraceError::Closed { path: self.path.clone() }
    }

    fn put_string(&mut self, id: StringId, text: &str) {
        self.table_bytes += STRING_BYTES as u64;
        let header = StringHeader { id: id.into(), bytes: (text.len() as u32).into() };
        self.strings.extend_from_slice(header.as_bytes());
        self.strings.extend_from_slice(text.as_bytes());
        if self.strings.len() >= TABLES_TARGET {
            self.string_batches.push(std::mem::take(&mut self.strings));
        }
    }
}

impl RecordSink for Writer {
    /// Writes the collected events and entries, even if there are none: from here on, there is a trace.
    fn begin(&mut self) -> Result<(), SinkError> {
        if self.closed {
            return Err(self.closed_error().into());
        }
        Ok(self.write_chunks(chunk_kind::DATA)?)
    }

    fn push(&mut self, event: Event) -> Result<(), SinkError> {
        if self.closed {
            return Err(self.closed_error().into());
        }
        wire::encode(&mut self.events, &event);
        self.event_count += 1;
        if self.events.len() >= CHUNK_TARGET { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(self.flush_chunk()?)
    }

    fn finish(self: Box<Self>, end_clock: ClockOffsets) -> Result<(), SinkError> {
        Ok((*self).finish(end_clock)?)
    }

    fn losses(&self) -> Vec<(&'static str, u64)> {
        vec![(BEYOND_LIMITS, self.left_out)]
    }

    fn string(&mut self, process_id: u32, text: &str) -> StringId {
        let text = &*cut(text, MAX_STRING);
        if text.is_empty() {
            return 0;
        }
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let kept = size_of::<StringHeader>() + STRING_BYTES + text.len();
        if !self.takes(process_id, ChosenText::Names, kept) {
            return 0;
        }
        let id = self.ids.len() as StringId + 1;
        self.ids.insert(text.into(), id);
        self.put_string(id, text);
        id
    }

    fn kernel(&mut self, process_id: u32, kernel_id: u32, kernel: Kernel) {
        self.describe(process_id, (kernel_id, kernel), |increment, entry| {
            increment.kernels.push(entry);
        });
    }

    fn operation(&mut self, domain: u32, operation: u32, name: &str) {
        let name = self.string(0, name);
        self.describe(0, (domain, operation, name), |increment, entry| {
            increment.operations.push(entry);
        });
    }

    fn process(&mut self, process_id: u32, process: Process) {
        let entry = (process_id, process.within_limits());
        let bytes = weigh(&entry);
        let kept = bytes + size_of_val(&entry) + size_of_val(&*entry.1.libraries);
        let described = self.chosen_bytes.of((process_id, ChosenText::Itself));
        if described as u64 + kept as u64 > WRITTEN_OF_A_PROCESS {
            self.left_out += 1;
        } else if self.takes(process_id, ChosenText::Itself, kept) {
            self.increase(bytes, |increment| increment.processes.push(entry));
        }
    }

    fn thread(&mut self, process_id: u32, thread_id: u32, name: &str) {
        let name = self.string(process_id, name);
        self.describe(process_id, (process_id, thread_id, name), |increment, entry| {
            increment.threads.push(entry);
        });
    }

    fn agent(&mut self, process_id: u32, node_id: u32, agent: Agent) {
        let entry = (process_id, node_id, agent.within_limits());
        self.describe(process_id, entry, |increment, entry| increment.agents.push(entry));
    }

    /// When the losses of many processes have reached [`WRITTEN_LOSSES`], those of all others are added up, without
    /// their process.
    fn loss(&mut self, process_id: u32, cause: &str, count: u64) {
        let cause = cut(cause, MAX_TEXT).into_owned();
        let entry = (process_id, cause, count);
        let bytes = weigh(&entry);
        self.loss_bytes += (bytes + size_of_val(&entry)) as u64;
        if self.loss_bytes > WRITTEN_LOSSES {
            let (_, cause, count) = entry;
            let sum = self.further_losses.entry(cause).or_default();
            *sum = sum.saturating_add(count);
        } else {
            self.increase(bytes, |increment| increment.losses.push(entry));
        }
    }

    fn notice(&mut self, text: &str) {
        let text = cut(text, MAX_TEXT);
        if self.notices.len() < MAX_NOTICES && !self.notices.iter().any(|n| *n == text) {
            self.notices.push(text.clone().into_owned());
            self.increase(weigh(&text), |increment| increment.notices.push(text.into_owned()));
        }
    }
}

/// Bytes of an entry as JSON, with the separator between it and the next.
fn weigh(entry: &impl Serialize) -> usize {
    struct JsonLength(usize);
    impl io::Write for JsonLength {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut weight = JsonLength(1);
    // An entry that cannot be JSON is noticed when it is written.
    let _ = serde_json::to_writer(&mut weight, entry);
    weight.0
}

fn section(raw: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let header = SectionHeader { kind: kind.into(), bytes: (body.len() as u32).into() };
    raw.extend_from_slice(header.as_bytes());
    raw.extend_from_slice(body);
}
