//! `cargo xtask bench`: builds everything and runs the benchmarks.

use capi_build::link::LIBRARIES_VARIABLE;
use clap::Args;

use crate::{
    artifacts, kernels, rocm,
    run::{cargo, root, run},
    setup,
};

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub struct Options {
    /// What to measure: api, launch, attach, consumer, kernel, probes, roctracer, sdk, wait [default: all]
    #[arg(value_name = "PART")]
    #[arg(value_parser = [
        "api", "launch", "attach", "consumer", "kernel", "probes", "roctracer", "sdk", "wait",
    ])]
    parts: Vec<String>,

    /// The part `kernel` alone, on the newest of each of these versions that Debian has for clouds, in
    /// virtual machines without KVM
    #[arg(long, value_name = "VERSIONS", num_args = 0..=1, value_delimiter = ',')]
    #[arg(default_missing_value = kernels::DEFAULT, conflicts_with = "parts")]
    kernels: Option<Vec<String>>,

    /// On these releases of ROCm, one after the other: 5.2 is this machine's own, others have roots of their own
    #[arg(long, value_name = "RELEASES", value_delimiter = ',', conflicts_with = "kernels")]
    rocm: Vec<String>,

    /// Rounds, each of which measures every variant once
    #[arg(long, default_value_t = 15)]
    rounds: u32,

    /// Options of a part, after `--`: see `cargo run -p bench -- --help`
    #[arg(last = true, value_name = "OPTIONS")]
    more: Vec<String>,
}

/// Runs the benchmarks.
pub fn run_bench(options: &Options) -> anyhow::Result<()> {
    if let Some(versions) = &options.kernels {
        return kernels::bench_on_kernels(versions, options.rounds);
    }
    let mut arguments = vec!["--rounds".to_owned(), options.rounds.to_string()];
    arguments.extend(options.parts.iter().chain(&options.more).cloned());
    for release in &options.rocm {
        println!("\nROCm {release}");
        match release.as_str() {
            OWN => bench(options, &arguments)?,
            _ => rocm::bench(release, &arguments)?,
        }
    }
    if options.rocm.is_empty() { bench(options, &arguments) } else { Ok(()) }
}

/// The release of this machine's packages.
const OWN: &str = "5.2";

/// On this machine's own ROCm.
fn bench(options: &Options, arguments: &[String]) -> anyhow::Result<()> {
    let built = artifacts::build()?;
    let compares = options.parts.is_empty() || options.parts.iter().any(|part| part == "probes");
    if compares && std::env::var_os("BPFTRACE").is_none() {
        setup::install(&["bpftrace"])?;
    }
    run(cargo()
        // Of whoever calls this: the libraries that are there may be old.
        .env_remove(LIBRARIES_VARIABLE)
        .env("ROCTAP_BIN", root().join(&built.roctap))
        .env("ROCTAP_TEST_GPU", root().join(&built.gpu))
        .env("ROCTAP_TEST_APPS", root().join(&built.apps))
        .args(["run", "--release", "--package", "bench", "--"])
        .args(arguments))
}
