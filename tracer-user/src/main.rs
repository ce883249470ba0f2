//! The `roctap` program.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::{io::IsTerminal as _, process::ExitCode};

use clap::{Parser, Subcommand};
use roctap::{doctor, export, inject, probes, record, report, shown, tool};
use tracing_subscriber::EnvFilter;

/// Traces AMD ROCm programs: API calls and GPU work, joined
#[derive(Parser)]
#[command(name = "roctap", version, arg_required_else_help = true)]
#[command(after_help = "A first session:
  sudo roctap record -o run.rtrace -- ./my_hip_app
  roctap report run.rtrace
  roctap export run.rtrace -f csv -o csv/

`roctap doctor` says what this machine allows. ROCTAP_LOG=roctap=debug takes the place of -v.")]
struct Cli {
    /// More messages (-v, -vv)
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Record API calls and GPU work of a command or of running processes
    Record(record::Options),
    /// Summarise a trace: kernels, API calls, copies, losses
    Report(report::ReportOptions),
    /// Write a trace in the formats of other tools
    Export(export::ExportOptions),
    /// Show where the functions of a library or process would be probed, and at what cost
    Probes(probes::Options),
    Tool(tool::Options),
    Doctor(doctor::Options),
    /// List the running ROCm processes: id, command, libraries with the API and version of each. Without root, your own
    Ps,
}

fn main() -> ExitCode {
    if let Some(code) = helper() {
        return code;
    }
    let cli = Cli::parse();
    let level = ["roctap=warn", "roctap=info", "roctap=debug"][usize::from(cli.verbose.min(2))];
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::try_from_env("ROCTAP_LOG").unwrap_or_else(|_| EnvFilter::new(level)),
        )
        .fmt_fields(shown::LogFields)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        // The error would be printed on standard error, which nobody reads, and end the program.
        .log_internal_errors(false)
        .with_target(false)
        .init();
    let result = match &cli.verb {
        Verb::Record(options) => record::run(options),
        Verb::Report(options) => report::run(options),
        Verb::Export(options) => export::run(options, &export::ApiTables),
        Verb::Probes(options) => probes::run(options),
        Verb::Tool(options) => tool::run(options),
        Verb::Doctor(options) => doctor::run(options),
        Verb::Ps => doctor::ps(),
    };
    match result {
        Ok(code) => code,
        Err(error) if error.is::<record::Usage>() => fail(&error, 2),
        Err(error) => fail(&error, 1),
    }
}

/// Runs the hidden subcommands, by which this program is its own helper.
fn helper() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    let result = if first == record::HOLD {
        // Returns only when the command cannot be run.
        record::hold(&arguments.collect::<Vec<_>>())
    } else if first == inject::HELPER {
        inject::helper(&arguments.collect::<Vec<_>>())
    } else if first == export::plugin::HOST {
        export::plugin::host(&arguments.collect::<Vec<_>>())
    } else {
        return None;
    };
    Some(result.map_or_else(|error| fail(&error, 127), |()| ExitCode::SUCCESS))
}

fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    shown::say(&format!("{error:#}"));
    ExitCode::from(code)
}
