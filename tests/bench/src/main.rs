//! `roctap-bench`: what tracing costs, measured on the real ROCm runtime on the emulated GPU.
//!
//! `cargo xtask bench` builds what this needs and says in the environment where it is. Each part
//! prints a table; `docs/performance.md` explains the figures. A part compares variants in rounds
//! that alternate between them, so that what else the machine does meets all of them alike, and
//! gives medians. The target's own clocks measure: wall time and the calling thread's CPU time.
//!
//! Not tests: nothing here fails because it is slow.

#![deny(unsafe_code)]

mod api;
mod attach;
mod consumer;
mod kernel;
mod launch;
mod peer;
mod place;
mod roctracer;
mod sdk;
mod sites;
mod stats;
mod subject;
mod table;
mod target;
mod tool;
mod wait;

use clap::{Parser, ValueEnum};

use place::Places;

/// Measures what tracing costs
#[derive(Parser)]
struct Cli {
    /// What to measure; all when none is named
    #[arg(value_enum)]
    parts: Vec<Part>,

    /// Rounds, each of which measures every variant once
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    #[command(flatten)]
    wait: wait::Options,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A full record of an API call, against probes that do nothing
    Api,
    /// A kernel launch: the probes' share and the shim's
    Launch,
    /// Attaching and detaching
    Attach,
    /// The reader of the records
    Consumer,
    /// What the kernel charges for a probe, by class, and for placing and removing probes, by method
    Kernel,
    /// The probes of roctap against those of bpftrace
    Probes,
    /// Clients of libroctracer64
    Roctracer,
    /// Tools of librocprofiler-sdk
    Sdk,
    /// Waiting for the GPU: time of a synchronisation, CPU of the shim's thread
    Wait,
}

fn main() -> anyhow::Result<()> {
    let Cli { parts, rounds, wait } = Cli::parse();
    let places = Places::from_environment()?;
    let parts = if parts.is_empty() { Part::value_variants() } else { &parts };
    for part in parts {
        match part {
            Part::Api => api::run(&places, rounds)?,
            Part::Launch => launch::run(&places, rounds)?,
            Part::Attach => attach::run(&places, rounds)?,
            Part::Consumer => consumer::run(&places)?,
            Part::Kernel => kernel::run(&places, rounds)?,
            Part::Probes => peer::run(&places, rounds)?,
            Part::Roctracer => roctracer::run(&places, rounds)?,
            Part::Sdk => sdk::run(&places, rounds)?,
            Part::Wait => wait::run(&places, &wait, rounds)?,
        }
    }
    Ok(())
}
