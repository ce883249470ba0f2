//! `roctap export`: a trace in the formats of other tools.
//!
//! * [`text`]: the files of roctracer's file plugin; `docs/formats/text.md`.
//! * [`csv`]: rocprofv3's columns; `docs/formats/csv.md`.
//! * [`plugin`]: the output of any plugin of roctracer's; `docs/roctracer.md`.
//!
//! All of these hold less than a trace does. Facts for which a format has no place are left out with a warning that
//! counts them, never in silence.
//!
//! Another format is a file here with a function `export`, a value of [`ExportFormat`], what it leaves out
//! in [`LeftOut`], what it needs of `-o` (an attribute there, and an arm of [`run`]), its page in `docs/formats/` and its golden files; `tests/hostile` lists the formats whose
//! names and outputs it tries.

mod calls;
pub mod csv;
mod error;
mod exported;
mod launched;
mod left_out;
mod output;
pub mod plugin;
pub mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::privileges;
use crate::trace::Trace;

pub use calls::{ApiTables, CallFormat};
pub use error::ExportError;
pub use exported::Exported;
pub use left_out::LeftOut;

/// Options of `roctap export`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  roctap export run.rtrace -f text             roctracer's lines on standard output
  roctap export run.rtrace -f text -o out      out/<pid>_hip_api_trace.txt and so on
  roctap export run.rtrace -f csv -o out       out/kernel_trace.csv and so on
  ROCP_OUTPUT_DIR=out roctap export run.rtrace --plugin lib/roctracer/libfile_plugin.so
All times are ns of CLOCK_BOOTTIME.")]
pub struct ExportOptions {
    /// Trace file that `roctap record` wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Format to write
    #[arg(short, long, value_enum, required_unless_present = "plugin")]
    pub format: Option<ExportFormat>,
    /// Feed this plugin of roctracer's, which writes what it likes. It runs with the rights of the user, never of
    /// root: under `sudo`, of the user who called that
    #[arg(long, value_name = "LIB", conflicts_with_all = ["format", "output", "force"])]
    pub plugin: Option<PathBuf>,
    /// Wait for the trace, as standard input says
    #[arg(long, hide = true, requires = "plugin")]
    pub when_recorded: bool,
    /// Directory to write into; it is created. `text` goes to standard output without it
    #[arg(short, long, value_name = "DIR", required_if_eq("format", "csv"))]
    pub output: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long)]
    pub force: bool,
}

/// Formats of other tools.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportFormat {
    /// roctracer's file plugin: hip_api_trace.txt, hsa_api_trace.txt, hcc_ops_trace.txt,
    /// async_copy_trace.txt, roctx_trace.txt, each prefixed with the process id
    Text,
    /// rocprofv3's columns: kernel_trace.csv, hip_api_trace.csv, hsa_api_trace.csv,
    /// memory_copy_trace.csv, marker_api_trace.csv
    Csv,
}

/// Exports a trace. Of a trace that is damaged, or whose end is missing, the readable part is exported; the missing
/// part is then returned as the error.
pub fn run(options: &ExportOptions, calls: &dyn CallFormat) -> anyhow::Result<ExitCode> {
    if let Some(plugin) = &options.plugin {
        return plugin::run(&options.file, plugin, options.when_recorded);
    }
    let output = options.output.as_deref();
    // The files' names are in the trace: the rights to create the files are given up when they are there.
    match output {
        Some(_) => privileges::keep_for_writing(),
        None => privileges::keep_for_reading(),
    }
    let file = Trace::file(&options.file)?;
    if output.is_none() {
        privileges::drop_all();
    }
    let trace = Trace::of(&options.file, file)?;
    let result = match (options.format, output) {
        (Some(ExportFormat::Text), _) => text::export(&trace, calls, output, options.force),
        (Some(ExportFormat::Csv), Some(output)) => {
            csv::export(&trace, calls, output, options.force)
        }
        (Some(ExportFormat::Csv), None) => {
            anyhow::bail!("csv is several files: name a directory for them with -o")
        }
        (None, _) => anyhow::bail!("name a format with -f, or a plugin with --plugin"),
    };
    let exported = match result {
        Err(error) if error.is_broken_pipe() => return Ok(ExitCode::SUCCESS),
        result => result?,
    };
    exported.left_out.warnings().for_each(|warning| tracing::warn!("{warning}"));
    exported.reading.check(&options.file)?;
    Ok(ExitCode::SUCCESS)
}
