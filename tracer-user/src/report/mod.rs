//! `roctap report`: a trace as summary tables.
//!
//! One pass over the events collects sums by operation, kernel and direction ([`summary`]), and if there are ranges of
//! roctx, another pass collects the GPU work in each; then they are shown as tables for people ([`render`]) or as JSON
//! for programs. Both always report the losses and the source of the GPU times.

mod ranges;
mod render;
mod rows;
pub mod summary;
mod units;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::trace::Trace;
use crate::{privileges, shown};
use summary::Summary;

/// Options of `roctap report`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roctap report run.rtrace               the twenty longest kernels and API functions
  roctap report run.rtrace --top 0       all of them
  roctap report run.rtrace --wide | less -S
  roctap report run.rtrace --format json | jq '.kernels[0]'")]
pub struct ReportOptions {
    /// Trace file that `roctap record` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Rows of each table; 0 for all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// `table` for people, `json` for programs (times in ns, sizes in bytes)
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub format: ReportFormat,
    /// Do not shorten names to the width: $COLUMNS, else that of the terminal, else 120
    #[arg(long)]
    pub wide: bool,
}

/// How a report is written.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportFormat {
    /// Tables for people.
    Table,
    /// One JSON object.
    Json,
}

/// Reports on standard output. Of a trace that is damaged, or whose end is missing, the readable part is reported; the
/// missing part is then returned as the error.
pub fn run(options: &ReportOptions) -> anyhow::Result<ExitCode> {
    privileges::keep_for_reading();
    let file = Trace::file(&options.file)?;
    privileges::drop_all();
    let trace = Trace::of(&options.file, file)?;
    let mut summary = Summary::of(&trace);
    let missing = summary.take_missing();
    let text = match options.format {
        ReportFormat::Json => {
            let top = summary.top(options.top);
            shown::json(&top).context("cannot encode the report")?
        }
        ReportFormat::Table => {
            let columns = std::env::var("COLUMNS").ok();
            let width = (!options.wide).then(|| width(columns.as_deref(), std::io::stdout()));
            render::tables(&summary.top(options.top), width)
        }
    };
    shown::print(&text).context("cannot write to standard output")?;
    match missing {
        Some(missing) => Err(missing.into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The report as text of at most `width` columns, unlimited without one. For tests; the command line uses [`run`].
pub fn text(summary: &Summary, width: Option<usize>) -> String {
    render::tables(summary, width)
}

/// Columns of a report: those of the environment, else those of the terminal.
fn width(columns: Option<&str>, output: impl AsFd) -> usize {
    const DEFAULT: usize = 120;
    let asked = columns.and_then(|columns| columns.parse().ok());
    // An output that is no terminal has no size, and some terminals do not know theirs.
    let terminal = || {
        let size = rustix::termios::tcgetwinsize(output).ok()?;
        Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
    };
    asked.or_else(terminal).unwrap_or(DEFAULT).max(60)
}

#[cfg(test)]
mod tests {
    use rustix::{
        pty::{OpenptFlags, openpt},
        termios::{Winsize, tcsetwinsize},
    };

    use super::*;

    #[test]
    fn a_report_is_as_wide_as_its_terminal() {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let size = |ws_col| Winsize { ws_row: 24, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        for (columns, wanted) in [(200, 200), (20, 60), (0, 120)] {
            tcsetwinsize(&terminal, size(columns)).unwrap();
            assert_eq!(width(None, &terminal), wanted);
            assert_eq!(width(Some("90"), &terminal), 90);
        }
        assert_eq!(width(None, std::fs::File::open("/dev/null").unwrap()), 120);
    }
}
