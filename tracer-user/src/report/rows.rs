//! The rows of a summary.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use serde::Serialize;

use tracer_records::model::Process;

/// Durations of things of one kind, in ns.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Times {
    /// The number of things with a known duration.
    pub count: u64,
    /// Their sum.
    pub total_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Times {
    pub(super) fn add(&mut self, ns: u64) {
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.total_ns = self.total_ns.saturating_add(ns);
        self.count += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min_ns = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.count += other.count;
    }

    /// The mean, 0 if there is none.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count).unwrap_or(0)
    }
}

/// A row of a table.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Row {
    /// Kernel or function.
    pub name: String,
    /// Durations.
    #[serde(flatten)]
    pub times: Times,
    /// The mean duration.
    pub mean_ns: u64,
    /// Share of the table's total time, in percent.
    pub percent: f64,
    /// Kernels: dispatched, but no completion was seen. Not in `count`.
    pub incomplete: u64,
    /// Calls: open when tracing began. Not in `count`.
    pub open_at_start: u64,
    /// Calls: open when tracing ended. Not in `count`.
    pub open_at_end: u64,
    /// Calls: recorded at entry alone. Not in `count`.
    pub entry_only: u64,
    /// Calls: returned an error; none if the function has no result that tells.
    pub failed: Option<u64>,
}

impl Row {
    /// The number of those without a duration.
    pub fn untimed(&self) -> u64 {
        self.incomplete + self.open_at_start + self.open_at_end + self.entry_only
    }
}

/// Calls of one domain.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Api {
    /// `HIP_API`, `HSA_API`.
    pub domain: String,
    /// Functions, the longest total first.
    pub functions: Vec<Row>,
    /// Functions before the table was shortened.
    pub all: usize,
    /// Time inside all calls, ns. Nested calls count in each of their levels.
    pub total_ns: u64,
    /// Calls that were open when tracing began.
    pub open_at_start: u64,
    /// Calls that were open when tracing ended.
    pub open_at_end: u64,
    /// Calls that were recorded at entry alone.
    pub entry_only: u64,
}

/// Calls of one function that returned the same error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failed {
    /// `HIP_API`, `HSA_API`.
    pub domain: String,
    /// The function.
    pub function: String,
    /// The error: its name, its number if it has no name, or a text for all further numbers.
    pub error: String,
    /// The number of these calls.
    pub count: u64,
}

/// Copies of one direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CopyRow {
    /// Direction.
    pub direction: &'static str,
    /// Durations.
    #[serde(flatten)]
    pub times: Times,
    /// Bytes moved by those with a known duration.
    pub bytes: u64,
    /// 10⁹ bytes in a second of copying.
    pub gb_per_s: f64,
    /// Requested, but no completion was seen. Not in `count`.
    pub incomplete: u64,
}

impl CopyRow {
    pub(super) fn new(direction: &'static str) -> Self {
        Self { direction, times: Times::default(), bytes: 0, gb_per_s: 0.0, incomplete: 0 }
    }
}

/// Ranges of roctx with the same message.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RangeRow {
    /// The message.
    pub name: String,
    /// `thread`: pushed and popped; `process`: started and stopped.
    pub of: &'static str,
    /// The times for which they were open, nested ones counted at each level.
    #[serde(flatten)]
    pub times: Times,
    /// The mean duration.
    pub mean_ns: u64,
    /// Time of the kernels and copies that were enqueued in them, nested ranges counted at each level, ns.
    pub gpu_ns: u64,
    /// The number of these operations.
    pub gpu_operations: u64,
    /// The number of further operations, without a completion. Not in `gpu_ns`.
    pub gpu_incomplete: u64,
    /// Their begin was not seen. Not in `count`.
    pub open_at_start: u64,
    /// Their end was not seen. Not in `count`.
    pub open_at_end: u64,
}

/// Marks of roctx with the same message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MarkRow {
    /// The message.
    pub name: String,
    /// The number of these marks.
    pub count: u64,
}

/// A counter of losses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LossRow {
    /// 0 when no process in particular lost something.
    pub process_id: u32,
    /// The lost records, and the reason.
    pub cause: String,
    /// How often; 0 says that nothing was lost in this way.
    pub count: u64,
}

/// A traced process.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProcessRow {
    /// Its id.
    pub process_id: u32,
    /// Its description.
    #[serde(flatten)]
    pub process: Process,
}

/// The row of `key`, a new one if there are fewer than `most`.
pub(super) fn row<K: Eq + Hash, R>(
    rows: &mut HashMap<K, R>,
    key: K,
    most: usize,
    new: impl FnOnce() -> R,
) -> Option<&mut R> {
    let is_full = rows.len() >= most;
    match rows.entry(key) {
        Entry::Occupied(known) => Some(known.into_mut()),
        Entry::Vacant(_) if is_full => None,
        Entry::Vacant(place) => Some(place.insert(new())),
    }
}
