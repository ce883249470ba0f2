//! The sums of a trace.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;

use serde::Serialize;
use tracer_common::activity::Domain;
use tracer_common::bpf::flag;

use super::ranges;
use super::rows::row;
pub use super::rows::{Api, CopyRow, Failed, LossRow, MarkRow, ProcessRow, RangeRow, Row, Times};
use crate::ranges::{Calls, Ranges};
use crate::trace::lookup::{Direction, Tables};
use crate::trace::{Damage, Reading, Trace, TraceError};
use tracer_records::api::{self, Operation, Outcome};
use tracer_records::model::{ApiCall, Barrier, Copy, Dispatch, Event, Metadata, StringId, op_flag};

/// The sums of a trace.
#[derive(Debug, Default, Serialize)]
pub struct Summary {
    /// The recording's own facts; none when the header of the file is damaged.
    pub metadata: Option<Metadata>,
    /// The time from the recording's begin to its end, ns. If one of them is missing, the first or last event stands
    /// for it.
    pub duration_ns: u64,
    /// Whether the recording was ended properly, and all of it was read.
    pub complete: bool,
    /// Whether the recording was ended properly, and its end was read.
    pub ended: bool,
    /// The damaged parts.
    pub damage: Option<Damage>,
    /// Where the file stops inside a chunk.
    pub truncated_at: Option<u64>,
    /// Events read.
    pub events: u64,
    /// Traced processes.
    pub processes: Vec<ProcessRow>,
    /// Kernels, the longest total first.
    pub kernels: Vec<Row>,
    /// Kernels before the table was shortened.
    pub all_kernels: usize,
    /// Time of all kernels, ns.
    pub kernel_ns: u64,
    /// Dispatches whose completion was not seen.
    pub incomplete_kernels: u64,
    /// Calls by domain.
    pub apis: Vec<Api>,
    /// Calls that returned an error, the most frequent first.
    pub failed_calls: Vec<Failed>,
    /// Such functions and errors before the table was shortened.
    pub all_failed_calls: usize,
    /// Ranges of roctx by their messages, the longest total first.
    pub ranges: Vec<RangeRow>,
    /// Such rows before the table was shortened.
    pub all_ranges: usize,
    /// Ranges whose begin was not seen.
    pub ranges_open_at_start: u64,
    /// Ranges whose end was not seen.
    pub ranges_open_at_end: u64,
    /// Marks of roctx by their messages, the most frequent first.
    pub marks: Vec<MarkRow>,
    /// Such rows before the table was shortened.
    pub all_marks: usize,
    /// Copies by direction.
    pub copies: Vec<CopyRow>,
    /// Barrier packets that completed.
    pub barriers: Times,
    /// The sum of all losses; none if it is not known, because part of the trace is missing.
    pub lost: Option<u64>,
    /// Losses, largest first. Zero counts say that nothing was lost in this way.
    pub losses: Vec<LossRow>,
    /// Facts that the user should know.
    pub notices: Vec<String>,
    #[serde(skip)]
    missing: Option<TraceError>,
}

/// The most errors that are told apart: a trace can have any number.
const MAX_ERRORS: usize = 1_000;

/// The most rows of functions, of kernels by their names, and of copies by their command, agents and process: a trace
/// that was made up can name any number. Real programs have fewer.
const MAX_FUNCTIONS: usize = 1 << 14;
const MAX_KERNELS: usize = 1 << 17;
const MAX_COPIES: usize = 1 << 18;

/// Shown in the place of facts that only the end of a recording has.
const UNKNOWN: &str = "unknown, part of the trace is missing";

#[derive(Default)]
struct Sums {
    /// When the first event began, and the last ended.
    first_ns: Option<u64>,
    last_ns: u64,
    calls: HashMap<(u32, u32), Row>,
    /// By domain, operation and error; all errors that came after [`MAX_ERRORS`] are counted together.
    failed: HashMap<(Domain, u32, Option<u32>), u64>,
    /// By the ids of the demangled and of the raw name.
    kernels: HashMap<(StringId, StringId), (Row, Dispatch)>,
    /// By the command, the agents and the process, which determine the direction.
    copies: HashMap<(u32, u32, u32, u32), (CopyRow, Copy)>,
    barriers: Times,
    /// Calls of roctx.
    roctx: Calls,
    /// Events without a row, because there were too many rows.
    without_row: u64,
    incomplete_barriers: u64,
    joined_by_time: u64,
    early: u64,
    unlinked: u64,
}

impl Summary {
    /// Reads all of `trace`.
    pub fn of(trace: &Trace) -> Self {
        let mut sums = Sums::default();
        let Ok(reading) = trace.for_each_event(|event| {
            sums.add(event);
            Ok::<(), Infallible>(())
        });
        let missing = reading.check(trace.path()).err();
        let calls = std::mem::take(&mut sums.roctx);
        sums.without_row += calls.left_out;
        let mut ranges = Ranges::default();
        if !calls.is_empty() {
            ranges = calls.put_together();
            ranges.measure(trace);
        }
        let mut summary = sums.resolve(reading, trace.metadata().cloned(), &ranges);
        summary.notices.extend(missing.iter().map(TraceError::to_string));
        Self { missing, ..summary }
    }

    /// The reason why part of the trace is missing, if it is.
    pub fn take_missing(&mut self) -> Option<TraceError> {
        self.missing.take()
    }

    /// The first `rows` of every table; all for 0.
    pub fn top(mut self, rows: usize) -> Self {
        if rows > 0 {
            self.kernels.truncate(rows);
            self.failed_calls.truncate(rows);
            self.ranges.truncate(rows);
            self.marks.truncate(rows);
            self.apis.iter_mut().for_each(|api| api.functions.truncate(rows));
        }
        self
    }
}

impl Sums {
    fn add(&mut self, event: &Event) {
        let record = event.record();
        self.last_ns = self.last_ns.max(record.end_ns).max(record.begin_ns);
        let known = [record.begin_ns, record.end_ns].into_iter().find(|ns| *ns > 0);
        self.first_ns = self.first_ns.into_iter().chain(known).min();
        match event {
            Event::Api(call) if call.record.domain == Domain::ROCTX => self.roctx.add(call),
            Event::Api(call) => self.call(call),
            Event::Dispatch(dispatch) => self.dispatch(dispatch),
            Event::Copy(copy) => self.copy(copy),
            Event::Barrier(barrier) => self.barrier(barrier),
        }
    }

    fn call(&mut self, call: &ApiCall) {
        let record = &call.record;
        let key = (record.domain.0, record.op);
        let Some(row) = row(&mut self.calls, key, MAX_FUNCTIONS, Row::default) else {
            self.without_row += 1;
            return;
        };
        if call.flags & flag::OPEN_AT_START != 0 {
            row.open_at_start += 1;
        } else if call.flags & flag::OPEN_AT_END != 0 {
            row.open_at_end += 1;
        } else if call.flags & flag::ENTRY_ONLY != 0 {
            row.entry_only += 1;
        } else {
            row.times.add(record.end_ns.saturating_sub(record.begin_ns));
        }
        match outcome(call) {
            Outcome::Unknown => {}
            Outcome::Success => row.failed = Some(row.failed.unwrap_or(0)),
            Outcome::Failure(error) => {
                row.failed = Some(row.failed.unwrap_or(0) + 1);
                let key = (record.domain, record.op, Some(error));
                let more = self.failed.len() >= MAX_ERRORS && !self.failed.contains_key(&key);
                let key = if more { (record.domain, record.op, None) } else { key };
                *self.failed.entry(key).or_default() += 1;
            }
        }
    }

    /// Counts how an operation was joined; returns whether it completed.
    fn operation(&mut self, flags: u32, correlation_id: u64) -> bool {
        let has = |bit: u16| flags & u32::from(bit) != 0;
        self.joined_by_time += u64::from(has(op_flag::JOINED_BY_TIME));
        self.early += u64::from(has(op_flag::STARTS_BEFORE_ENQUEUE));
        self.unlinked += u64::from(correlation_id == 0);
        !has(op_flag::INCOMPLETE)
    }

    fn dispatch(&mut self, dispatch: &Dispatch) {
        let record = &dispatch.record;
        let complete = self.operation(dispatch.flags.into(), record.correlation_id);
        let key = (dispatch.demangled, record.bytes_or_name as StringId);
        let new = || (Row::default(), *dispatch);
        let Some((row, _)) = row(&mut self.kernels, key, MAX_KERNELS, new) else {
            self.without_row += 1;
            return;
        };
        if complete {
            row.times.add(record.end_ns.saturating_sub(record.begin_ns));
        } else {
            row.incomplete += 1;
        }
    }

    fn copy(&mut self, copy: &Copy) {
        let record = &copy.record;
        let complete = self.operation(copy.flags, record.correlation_id);
        let key = (record.kind, copy.process_id, copy.src_node, copy.dst_node);
        let new = || (CopyRow::new(""), *copy);
        let Some((row, _)) = row(&mut self.copies, key, MAX_COPIES, new) else {
            self.without_row += 1;
            return;
        };
        if complete {
            row.times.add(record.end_ns.saturating_sub(record.begin_ns));
            row.bytes = row.bytes.saturating_add(record.bytes_or_name);
        } else {
            row.incomplete += 1;
        }
    }

    fn barrier(&mut self, barrier: &Barrier) {
        let record = &barrier.record;
        if u32::from(op_flag::INCOMPLETE) & barrier.flags == 0 {
            self.barriers.add(record.end_ns.saturating_sub(record.begin_ns));
        } else {
            self.incomplete_barriers += 1;
        }
    }

    fn resolve(mut self, reading: Reading, metadata: Option<Metadata>, ranges: &Ranges) -> Summary {
        let Reading { tables, status, damage } = reading;
        let tables = &tables;
        let (ranges, marks, without_row) = ranges::rows(ranges, tables);
        self.without_row += without_row;
        let notices = self.notices(tables);
        let begin_ns = metadata.as_ref().map(|metadata| metadata.clock.boottime_ns);
        let begin_ns = begin_ns.or(self.first_ns).unwrap_or_default();
        let end_ns = status.end_clock.map_or(self.last_ns, |clock| clock.boottime_ns);
        let (kernels, kernel_ns) = finish(merge(
            self.kernels
                .into_values()
                .map(|(row, dispatch)| (tables.kernel_name(&dispatch).into_owned(), row)),
        ));
        let mut domains = BTreeMap::<u32, Vec<(String, Row)>>::new();
        for ((domain, operation), row) in self.calls {
            let name = tables.operation(domain, operation).into_owned();
            domains.entry(domain).or_default().push((name, row));
        }
        // HIP above HSA: the program's calls above the calls that they led to.
        let apis = domains.into_iter().rev().map(|(domain, rows)| {
            let (functions, total_ns) = finish(merge(rows.into_iter()));
            let domain = Domain(domain).name().to_owned();
            let sum = |of: fn(&Row) -> u64| functions.iter().map(of).sum();
            Api {
                domain,
                all: functions.len(),
                total_ns,
                open_at_start: sum(|row| row.open_at_start),
                open_at_end: sum(|row| row.open_at_end),
                entry_only: sum(|row| row.entry_only),
                functions,
            }
        });
        let processes = tables.processes.iter().map(|(&process_id, process)| {
            let mut process = process.clone();
            if !status.complete && process.gpu_tier.is_empty() {
                process.gpu_tier = UNKNOWN.to_owned();
            }
            ProcessRow { process_id, process }
        });
        let failed_calls = failed_calls(self.failed, tables);
        let lost = tables.losses.values().fold(0_u64, |sum, &count| sum.saturating_add(count));
        let mut losses =
            Vec::from_iter(tables.losses.iter().map(|((process_id, cause), &count)| LossRow {
                process_id: *process_id,
                cause: cause.clone(),
                count,
            }));
        losses.sort_by_key(|loss| std::cmp::Reverse(loss.count));
        Summary {
            duration_ns: end_ns.saturating_sub(begin_ns),
            metadata,
            complete: status.complete,
            ended: status.end_clock.is_some(),
            damage,
            truncated_at: status.truncated_at,
            events: status.events,
            processes: processes.collect(),
            all_kernels: kernels.len(),
            incomplete_kernels: kernels.iter().map(|row| row.incomplete).sum(),
            kernels,
            kernel_ns,
            apis: apis.collect(),
            all_ranges: ranges.len(),
            ranges_open_at_start: ranges.iter().map(|row| row.open_at_start).sum(),
            ranges_open_at_end: ranges.iter().map(|row| row.open_at_end).sum(),
            ranges,
            all_marks: marks.len(),
            marks,
            copies: copies(self.copies, tables),
            barriers: self.barriers,
            all_failed_calls: failed_calls.len(),
            failed_calls,
            lost: (status.complete && !losses.is_empty()).then_some(lost),
            losses,
            notices,
            missing: None,
        }
    }

    fn notices(&self, tables: &Tables) -> Vec<String> {
        let own = [
            (self.joined_by_time, "GPU operations joined to their call by time"),
            (self.unlinked, "GPU operations whose call is not known"),
            (self.early, "GPU operations that began before they were enqueued, by their times"),
            (self.incomplete_barriers, "barriers without a completion"),
            (
                self.without_row,
                "calls, kernels, copies and ranges in no table, which has too many rows",
            ),
        ];
        let own = own.iter().filter(|(count, _)| *count > 0);
        let own = own.map(|(count, text)| format!("{text}: {count}"));
        tables.notices.iter().cloned().chain(own).collect()
    }
}

/// Adds up rows of the same name: processes can have different ids for it.
fn merge(rows: impl Iterator<Item = (String, Row)>) -> impl Iterator<Item = Row> {
    let mut by_name = BTreeMap::<String, Row>::new();
    for (name, row) in rows {
        let sum = by_name.entry(name).or_default();
        sum.times.merge(&row.times);
        sum.incomplete += row.incomplete;
        sum.open_at_start += row.open_at_start;
        sum.open_at_end += row.open_at_end;
        sum.entry_only += row.entry_only;
        sum.failed = sum.failed.into_iter().chain(row.failed).reduce(|a, b| a + b);
    }
    by_name.into_iter().map(|(name, row)| Row { name, ..row })
}

/// Sorts rows and fills in the values that depend on the whole table; returns its total time too.
fn finish(rows: impl Iterator<Item = Row>) -> (Vec<Row>, u64) {
    let mut rows = Vec::from_iter(rows);
    let whole = rows.iter().fold(0_u64, |sum, row| sum.saturating_add(row.times.total_ns));
    for row in &mut rows {
        row.mean_ns = row.times.mean_ns();
        row.percent = super::units::percent(row.times.total_ns, whole);
    }
    // A stable sort: equal rows stay in the order of their names.
    rows.sort_by_key(|row| std::cmp::Reverse((row.times.total_ns, row.untimed())));
    (rows, whole)
}

fn operation(domain: Domain, op: u32) -> Option<&'static Operation> {
    api::by_id(domain, u16::try_from(op).ok()?)
}

fn outcome(call: &ApiCall) -> Outcome {
    let returned = call.flags & (flag::OPEN_AT_END | flag::ENTRY_ONLY) == 0;
    match operation(call.record.domain, call.record.op) {
        Some(operation) if returned => api::outcome(operation, call.ret),
        _ => Outcome::Unknown,
    }
}

fn failed_calls(counts: HashMap<(Domain, u32, Option<u32>), u64>, tables: &Tables) -> Vec<Failed> {
    let mut rows = Vec::from_iter(counts.into_iter().map(|((domain, op, error), count)| {
        let error = match (operation(domain, op), error) {
            (Some(operation), Some(error)) => api::format_return(operation, error.into()),
            _ => "other numbers".to_owned(),
        };
        let function = tables.operation(domain.0, op).into_owned();
        Failed { domain: domain.name().to_owned(), function, error, count }
    }));
    let order = |row: &Failed| (row.function.clone(), row.error.clone());
    rows.sort_by_cached_key(|row| (std::cmp::Reverse(row.count), order(row)));
    rows
}

fn copies(sums: HashMap<(u32, u32, u32, u32), (CopyRow, Copy)>, tables: &Tables) -> Vec<CopyRow> {
    let mut by_direction = BTreeMap::<Direction, CopyRow>::new();
    for (row, copy) in sums.into_values() {
        let direction = tables.direction(&copy);
        let sum = by_direction.entry(direction).or_insert_with(|| CopyRow::new(direction.label()));
        sum.times.merge(&row.times);
        sum.bytes = sum.bytes.saturating_add(row.bytes);
        sum.incomplete += row.incomplete;
    }
    let finish = |mut row: CopyRow| {
        // Bytes in a nanosecond are 10⁹ bytes in a second.
        let ns = row.times.total_ns;
        row.gb_per_s = if ns == 0 { 0.0 } else { row.bytes as f64 / ns as f64 };
        row
    };
    by_direction.into_values().map(finish).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_trace_has_rows_without_end() {
        let mut sums = Sums::default();
        let most = MAX_COPIES as u32;
        for n in 0..most + 10 {
            let mut call = ApiCall::default();
            (call.record.domain, call.record.op) = (Domain(Domain::HSA_EVT.0 + n), n);
            sums.add(&Event::Api(call));
            sums.add(&Event::Dispatch(Dispatch { demangled: n, ..Default::default() }));
            sums.add(&Event::Copy(Copy { process_id: n, ..Default::default() }));
        }
        let rows = [sums.calls.len(), sums.kernels.len(), sums.copies.len()];
        assert_eq!(rows, [MAX_FUNCTIONS, MAX_KERNELS, MAX_COPIES]);
        let known = Dispatch { demangled: 3, ..Default::default() };
        sums.add(&Event::Dispatch(known));
        assert_eq!(sums.kernels[&(3, 0)].0.times.count, 2);
        let all = 3 * u64::from(most + 10);
        assert_eq!(sums.without_row, all - rows.iter().sum::<usize>() as u64);
        let notices = sums.notices(&Tables::default());
        assert!(notices.iter().any(|text| text.contains("too many rows")), "{notices:?}");
    }
}
