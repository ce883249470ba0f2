//! A summary as tables.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tracer_common::shim::UNKNOWN_CLOCK_ERROR_NS;

use super::summary::{
    Api, CopyRow, Failed, LossRow, MarkRow, ProcessRow, RangeRow, Row, Summary, Times,
};
use super::units::{bytes, count, duration, percent, shorten, shorten_apart};
use crate::shown::clean;
use tracer_records::model::{Metadata, ProbedLibrary};

/// The whole report, with names shortened so that lines have at most `width` characters.
pub fn tables(summary: &Summary, width: Option<usize>) -> String {
    let mut out = String::new();
    header(&mut out, summary, width);
    kernels(&mut out, summary, width);
    summary.apis.iter().for_each(|api| functions(&mut out, api, width));
    failed_calls(&mut out, summary, width);
    ranges(&mut out, summary, width);
    marks(&mut out, summary, width);
    copies(&mut out, summary);
    barriers(&mut out, &summary.barriers);
    losses(&mut out, summary, width);
    notices(&mut out, summary);
    out
}

/// The most processes, and losses, that are shown: nobody reads more, and a trace that was made up can name millions.
const MAX_LINES: usize = 1_000;

/// Appends a line, whatever it is made of. Writing into a `String` cannot fail.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{
        let _ = writeln!($out, "{}", clean(&format!($($arg)*)));
    }};
}

fn header(out: &mut String, summary: &Summary, width: Option<usize>) {
    match &summary.metadata {
        Some(metadata) => {
            let Metadata { roctap_version, host, kernel, command, clock: _ } = metadata;
            line!(out, "roctap {roctap_version} on {host}, Linux {kernel}");
            line!(out, "Command    {command}");
        }
        None => line!(out, "Command    unknown: the header of the file is damaged"),
    }
    let at_least = if summary.ended { "" } else { "at least " };
    let events = count(summary.events);
    line!(out, "Recorded   {at_least}{}, {events} events", duration(summary.duration_ns));
    if let Some(damage) = &summary.damage {
        line!(out, "DAMAGED    {damage}");
    }
    match (summary.ended, summary.truncated_at) {
        (true, _) => {}
        (false, Some(at)) => {
            line!(out, "INCOMPLETE the recording was cut off: the file is whole up to byte {at}")
        }
        (false, None) => {
            line!(out, "INCOMPLETE the recording goes on or was cut off: its end is missing")
        }
    }
    summary.processes.iter().take(MAX_LINES).for_each(|row| process(out, row, width));
    further(out, summary.processes.len());
}

/// Appends how many rows, of `all`, are beyond [`MAX_LINES`].
fn further(out: &mut String, all: usize) {
    if all > MAX_LINES {
        line!(out, "  … and {} more (--format json shows all)", all - MAX_LINES);
    }
}

fn process(
    out: &mut String,
    ProcessRow { process_id, process }: &ProcessRow,
    width: Option<usize>,
) {
    let prefix = format!("Process    {process_id}  ");
    let command = clean(&process.command);
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(prefix.len()));
    line!(out, "{prefix}{}", shorten(&command, room));
    let tier = if process.gpu_tier.is_empty() { "none" } else { &process.gpu_tier };
    let error = match process.clock_error_ns {
        0 => String::new(),
        UNKNOWN_CLOCK_ERROR_NS => " (by how much they are off is not known)".to_owned(),
        ns => format!(" (±{})", duration(ns)),
    };
    let stopped = match process.stopped_ns {
        0 => String::new(),
        ns => format!("; one thread was stopped for {}", duration(ns)),
    };
    line!(out, "           GPU times: {tier}{error}{stopped}");
    for library in &process.libraries {
        let version = match library.version.as_str() {
            "" => String::new(),
            version => format!(" {version}"),
        };
        let entry_only = match library.entry_only {
            0 => String::new(),
            some => format!(", {some} of them at entry only"),
        };
        let ProbedLibrary { path, probed, .. } = library;
        line!(out, "           {path}{version}: {probed} functions{entry_only}");
    }
}

fn title(out: &mut String, text: &str) {
    out.push('\n');
    line!(out, "{text}");
}

/// Cells of a table, numbers to the right; the last column is the name, to the left.
fn table(out: &mut String, head: &[&str], rows: &[Vec<String>], width: Option<usize>) {
    let columns = head.len() - 1;
    let chars = |text: &str| text.chars().count();
    let widths = Vec::from_iter((0..columns).map(|column| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| chars(cell));
        cells.chain(head.get(column).map(|cell| chars(cell))).max().unwrap_or(0)
    }));
    let used: usize = widths.iter().map(|width| width + 2).sum::<usize>() + 2;
    // A name is never cut so much that it cannot be recognised.
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(used).max(16));
    let names = Vec::from_iter(rows.iter().filter_map(|row| row.get(columns)).map(String::as_str));
    let names = shorten_apart(&names, room);
    let mut put = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (column, cell) in cells.enumerate() {
            match widths.get(column) {
                Some(width) => {
                    let _ = write!(text, "  {cell:>width$}");
                }
                None => {
                    let _ = write!(text, "  {}", names.get(cell).map_or(cell, String::as_str));
                }
            }
        }
        line!(out, "{}", text.trim_end());
    };
    put(&mut head.iter().copied());
    for row in rows {
        put(&mut row.iter().map(String::as_str));
    }
}

/// The kind of rows in a table with times.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timed {
    Kernels,
    Functions,
}

/// Rows with times. The column that counts calls or kernels without times is there if there are any.
fn timed_rows(out: &mut String, what: Timed, rows: &[Row], width: Option<usize>) {
    let with_untimed = rows.iter().any(|row| row.untimed() > 0);
    let (untimed, name) = match what {
        Timed::Kernels => ("incomplete", "kernel"),
        Timed::Functions => ("untimed", "function"),
    };
    let mut head = vec!["%", "total", "calls", "mean", "min", "max", name];
    if what == Timed::Functions {
        head.insert(3, "failed");
    }
    if with_untimed {
        head.insert(3, untimed);
    }
    let rows = Vec::from_iter(rows.iter().map(|row| {
        let Times { count: calls, total_ns, min_ns, max_ns } = row.times;
        let time = |ns| if calls == 0 { "-".to_owned() } else { duration(ns) };
        let mut cells = vec![
            format!("{:.2}", row.percent),
            time(total_ns),
            count(calls),
            time(row.mean_ns),
            time(min_ns),
            time(max_ns),
            clean(&row.name).into_owned(),
        ];
        if what == Timed::Functions {
            cells.insert(3, row.failed.map_or("-".to_owned(), count));
        }
        if with_untimed {
            cells.insert(3, count(row.untimed()));
        }
        cells
    }));
    table(out, &head, &rows, width);
}

fn more(out: &mut String, shown: usize, all: usize) {
    if shown < all {
        line!(out, "  … and {} more (--top 0 shows all)", all - shown);
    }
}

fn kernels(out: &mut String, summary: &Summary, width: Option<usize>) {
    title(out, &format!("Kernels: {} of GPU time", duration(summary.kernel_ns)));
    if summary.kernels.is_empty() {
        return line!(out, "  none seen");
    }
    timed_rows(out, Timed::Kernels, &summary.kernels, width);
    more(out, summary.kernels.len(), summary.all_kernels);
    let incomplete = summary.incomplete_kernels;
    if incomplete > 0 {
        line!(out, "  without a completion, in no sum: {}", count(incomplete));
    }
}

fn functions(out: &mut String, api: &Api, width: Option<usize>) {
    let total = duration(api.total_ns);
    title(out, &format!("{}: {total} inside calls, nested ones counted at each level", api.domain));
    timed_rows(out, Timed::Functions, &api.functions, width);
    more(out, api.functions.len(), api.all);
    let untimed = [
        (api.open_at_start, "open when tracing began"),
        (api.open_at_end, "open when tracing ended"),
        (api.entry_only, "recorded at entry only"),
    ];
    for (calls, what) in untimed.into_iter().filter(|(calls, _)| *calls > 0) {
        line!(out, "  {what}, in no sum: {}", count(calls));
    }
}

fn failed_calls(out: &mut String, summary: &Summary, width: Option<usize>) {
    if summary.failed_calls.is_empty() {
        return;
    }
    title(out, "Failed calls");
    let rows = Vec::from_iter(summary.failed_calls.iter().map(|row| {
        let Failed { domain, function, error, count: failed } = row;
        let cells = [&count(*failed), domain, error, function];
        cells.map(|cell| clean(cell).into_owned()).into()
    }));
    table(out, &["count", "domain", "error", "function"], &rows, width);
    more(out, summary.failed_calls.len(), summary.all_failed_calls);
}

/// The message of a mark or range, for people.
fn message(name: &str) -> String {
    if name.is_empty() { "(no message)".to_owned() } else { clean(name).into_owned() }
}

/// Columns for rare counts are there only if a count is not zero.
fn ranges(out: &mut String, summary: &Summary, width: Option<usize>) {
    if summary.ranges.is_empty() {
        return;
    }
    title(out, "Ranges, nested ones counted at each level");
    let untimed = |row: &RangeRow| row.open_at_start + row.open_at_end;
    let with_untimed = summary.ranges.iter().any(|row| untimed(row) > 0);
    let with_incomplete = summary.ranges.iter().any(|row| row.gpu_incomplete > 0);
    let mut head = vec!["total", "count", "GPU time", "operations", "of", "range"];
    if with_incomplete {
        head.insert(4, "incomplete");
    }
    if with_untimed {
        head.insert(2, "untimed");
    }
    let rows = Vec::from_iter(summary.ranges.iter().map(|row| {
        let Times { count: times, total_ns, .. } = row.times;
        let time = |ns, count| if count == 0 { "-".to_owned() } else { duration(ns) };
        let mut cells = vec![
            time(total_ns, times),
            count(times),
            time(row.gpu_ns, row.gpu_operations),
            count(row.gpu_operations),
            row.of.to_owned(),
            message(&row.name),
        ];
        if with_incomplete {
            cells.insert(4, count(row.gpu_incomplete));
        }
        if with_untimed {
            cells.insert(2, count(untimed(row)));
        }
        cells
    }));
    table(out, &head, &rows, width);
    more(out, summary.ranges.len(), summary.all_ranges);
    let without = [
        (summary.ranges_open_at_start, "begin not seen"),
        (summary.ranges_open_at_end, "end not seen"),
    ];
    for (ranges, what) in without.into_iter().filter(|(ranges, _)| *ranges > 0) {
        line!(out, "  {what}, in no sum: {}", count(ranges));
    }
}

fn marks(out: &mut String, summary: &Summary, width: Option<usize>) {
    if summary.marks.is_empty() {
        return;
    }
    title(out, "Marks");
    let cells = |row: &MarkRow| vec![count(row.count), message(&row.name)];
    let rows = Vec::from_iter(summary.marks.iter().map(cells));
    table(out, &["count", "mark"], &rows, width);
    more(out, summary.marks.len(), summary.all_marks);
}

fn copies(out: &mut String, summary: &Summary) {
    title(out, "Copies");
    if summary.copies.is_empty() {
        return line!(out, "  none seen");
    }
    let total = |sum: u64, row: &CopyRow| sum.saturating_add(row.times.total_ns);
    let all = summary.copies.iter().fold(0, total);
    let head = ["%", "total", "count", "incomplete", "bytes", "mean", "GB/s", "direction"];
    let rows = Vec::from_iter(summary.copies.iter().map(|row| {
        vec![
            format!("{:.2}", percent(row.times.total_ns, all)),
            duration(row.times.total_ns),
            count(row.times.count),
            count(row.incomplete),
            bytes(row.bytes),
            duration(row.times.mean_ns()),
            format!("{:.3}", row.gb_per_s),
            row.direction.to_owned(),
        ]
    }));
    table(out, &head, &rows, None);
}

fn barriers(out: &mut String, barriers: &Times) {
    if barriers.count > 0 {
        title(out, "Barriers");
        let total = duration(barriers.total_ns);
        line!(out, "  {} with a completion signal, {total} in all", count(barriers.count));
    }
}

/// The counters that are not zero, and how many others there are.
fn losses(out: &mut String, summary: &Summary, width: Option<usize>) {
    let counted = Vec::from_iter(summary.losses.iter().filter(|loss| loss.count > 0));
    let causes = |losses: &mut dyn Iterator<Item = &LossRow>| {
        BTreeSet::from_iter(losses.map(|loss| loss.cause.as_str())).len()
    };
    let all = causes(&mut summary.losses.iter());
    let others = all - causes(&mut counted.iter().copied());
    let sum = counted.iter().fold(0_u64, |sum, loss| sum.saturating_add(loss.count));
    match summary.lost {
        Some(lost) => title(out, &format!("Lost: {}", count(lost))),
        None if sum > 0 => title(out, &format!("Lost: at least {}", count(sum))),
        None => title(out, "Lost: unknown"),
    }
    if !counted.is_empty() {
        let rows = Vec::from_iter(counted.iter().take(MAX_LINES).map(|loss| {
            let process = match loss.process_id {
                0 => "-".to_owned(),
                id => id.to_string(),
            };
            vec![count(loss.count), process, clean(&loss.cause).into_owned()]
        }));
        table(out, &["count", "process", "cause"], &rows, width);
        further(out, counted.len());
    }
    match summary.lost {
        Some(0) => line!(out, "  nothing was lost ({all} causes counted)"),
        Some(_) => line!(out, "  nothing else was lost ({others} other causes counted)"),
        None if !summary.ended => {
            line!(out, "  losses are counted until the end of a recording, which is missing")
        }
        None if summary.losses.is_empty() => line!(out, "  the trace has no loss counters"),
        None => line!(out, "  what was in the gaps of the file is not known, counters among it"),
    }
}

fn notices(out: &mut String, summary: &Summary) {
    if !summary.notices.is_empty() {
        title(out, "Notices");
        summary.notices.iter().for_each(|notice| line!(out, "  {notice}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracer_records::model::Process;

    #[test]
    fn an_error_that_is_not_known_is_not_told_as_none() {
        let shown = |clock_error_ns| {
            let process =
                Process { gpu_tier: "tables".into(), clock_error_ns, ..Process::default() };
            let mut out = String::new();
            super::process(&mut out, &ProcessRow { process_id: 1, process }, None);
            out
        };
        assert!(shown(0).contains("GPU times: tables\n"), "{}", shown(0));
        assert!(shown(500).contains("tables (±500 ns)"), "{}", shown(500));
        let unknown = shown(UNKNOWN_CLOCK_ERROR_NS);
        assert!(unknown.contains("tables (by how much they are off is not known)"), "{unknown}");
    }

    #[test]
    fn no_trace_fills_the_terminal() {
        let process_id = 1;
        let process = ProcessRow { process_id, process: Process::default() };
        let loss = LossRow { process_id, cause: "cause".into(), count: 1 };
        let mut summary = Summary::default();
        summary.processes = vec![process; MAX_LINES + 7];
        summary.losses = vec![loss; MAX_LINES + 8];
        let shown = tables(&summary, None);
        assert!(shown.lines().count() < 3 * MAX_LINES + 50);
        assert!(shown.contains("… and 7 more") && shown.contains("… and 8 more"));
    }
}
