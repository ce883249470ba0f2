//! Rows of marks and ranges.

use std::collections::HashMap;

use super::rows::{MarkRow, RangeRow, row};
use crate::ranges::{RangeOwner, Ranges};
use crate::trace::lookup::Tables;

/// Rows that are kept of each kind: programs may put numbers into their messages.
const MAX_ROWS: usize = 1 << 17;

/// The name that stands for a range whose message is not known.
const UNKNOWN: &str = "(unknown range)";
/// The name that stands for a mark whose message is not known.
const UNKNOWN_MARK: &str = "(unknown mark)";

/// Rows, the longest total first, and marks, the most frequent first; and how many marks and ranges have none.
pub fn rows(found: &Ranges, tables: &Tables) -> (Vec<RangeRow>, Vec<MarkRow>, u64) {
    let mut without_row = 0;
    let mut ranges = HashMap::new();
    for range in &found.ranges {
        let key = (range.of, range.message);
        let new = || RangeRow { of: of(range.of), ..RangeRow::default() };
        let Some(row) = row(&mut ranges, key, MAX_ROWS, new) else {
            without_row += 1;
            continue;
        };
        match range.duration_ns() {
            Some(ns) => {
                row.times.add(ns);
                row.gpu_ns = row.gpu_ns.saturating_add(range.gpu.ns);
                row.gpu_operations += range.gpu.operations;
                row.gpu_incomplete += range.gpu.incomplete;
            }
            None if range.begin_ns.is_none() => row.open_at_start += 1,
            None => row.open_at_end += 1,
        }
    }
    let name = |message: Option<u32>, unknown: &str| {
        message.map_or_else(|| unknown.to_owned(), |id| tables.text(id).into_owned())
    };
    let mut ranges = Vec::from_iter(ranges.into_iter().map(|((_, message), row)| RangeRow {
        name: name(message, UNKNOWN),
        mean_ns: row.times.mean_ns(),
        ..row
    }));
    let untimed = |row: &RangeRow| row.open_at_start + row.open_at_end;
    ranges.sort_by(|a, b| {
        let key = |row: &RangeRow| (row.times.total_ns, untimed(row));
        key(b).cmp(&key(a)).then_with(|| (&a.name, a.of).cmp(&(&b.name, b.of)))
    });
    let mut marks = HashMap::new();
    for mark in &found.marks {
        match row(&mut marks, mark.message, MAX_ROWS, || 0) {
            Some(count) => *count += 1,
            None => without_row += 1,
        }
    }
    let mut marks = Vec::from_iter(
        marks
            .into_iter()
            .map(|(message, count)| MarkRow { name: name(message, UNKNOWN_MARK), count }),
    );
    marks.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    (ranges, marks, without_row)
}

const fn of(of: RangeOwner) -> &'static str {
    match of {
        RangeOwner::Thread => "thread",
        RangeOwner::Process => "process",
    }
}
