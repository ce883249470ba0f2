//! `cargo xtask test`: every test, and a check that none of the tagged sets was empty.

use std::process::Command;

use anyhow::bail;
use clap::Args;

use crate::{
    abi,
    artifacts::{self, Artifacts},
    imports, kernels, rocm,
    run::{cargo, output, passed, run, run_and_read},
    setup,
};

/// Options of `cargo xtask test`.
#[derive(Args)]
pub struct Options {
    /// Only the tests that need no root, no ROCm and no BPF toolchain
    #[arg(long)]
    unprivileged: bool,

    /// Only the tests on other kernels, on the newest of each of these versions that Debian has for
    /// clouds, in virtual machines
    #[arg(long, value_name = "VERSIONS", num_args = 0..=1, value_delimiter = ',')]
    #[arg(default_missing_value = kernels::DEFAULT, conflicts_with = "unprivileged")]
    kernels: Option<Vec<String>>,

    /// Only the end-to-end tests, on these releases of ROCm, unpacked beside the system
    #[arg(long, value_name = "RELEASES", value_delimiter = ',', conflicts_with_all = ["unprivileged", "kernels"])]
    rocm: Option<Vec<String>>,

    /// Of the tests on other kernels, only those whose names contain this
    #[arg(last = true, requires = "kernels")]
    filter: Option<String>,
}

/// A set of tests that must not be empty: a tag in the test's name, and where it is.
struct Tagged {
    tag: &'static str,
    package: &'static str,
    what: &'static str,
}

const TAGGED: [Tagged; 4] = [
    Tagged { tag: "rocm_", package: "emulated-gpu", what: "the ROCm runtime on the emulated GPU" },
    Tagged { tag: "rocm_", package: "tracer-shim", what: "the shim in the ROCm runtime" },
    Tagged { tag: "root_", package: "e2e", what: "roctap as root, end to end" },
    Tagged { tag: "hostile_", package: "hostile", what: "targets that mean harm" },
];

/// Runs the tests.
pub fn run_tests(options: &Options) -> anyhow::Result<()> {
    if options.unprivileged {
        imports::run_check()?;
        abi::check()?;
        return run(cargo().args(["test"]));
    }
    if output("id", &["-u"]).is_none_or(|id| id.trim() != "0") {
        bail!("the tests that trace need root; run as root, or with --unprivileged for the others");
    }
    if let Some(releases) = &options.rocm {
        return rocm::run_on_releases(releases);
    }
    if let Some(versions) = &options.kernels {
        return kernels::run_on_kernels(versions, options.filter.as_deref());
    }
    imports::run_check()?;
    setup::packages()?;
    abi::check()?;
    // Those on the ROCm runtime come below, one at a time and optimised.
    run(cargo().args(["test", "--", "--skip", "rocm_"]))?;
    loom()?;
    let built = artifacts::build()?;
    let logging = artifacts::build_logging()?;
    for set in TAGGED {
        println!("\nTests of {}:", set.what);
        let printed = run_and_read(
            with_artifacts(cargo().args(["test", "--release", "--package", set.package]), &built)
                .env("ROCTAP_LOGGING_BIN", &logging)
                .args(["--", "--test-threads=1", set.tag]),
        )?;
        let passed = passed(&printed);
        if passed == 0 {
            bail!("no test of {} ran (tag {} in package {})", set.what, set.tag, set.package);
        }
        println!("{passed} tests of {} passed", set.what);
    }
    rocm::run_quickly()?;
    let versions: Vec<String> = kernels::DEFAULT.split(',').map(str::to_owned).collect();
    kernels::run_on_kernels(&versions, None)
}

/// The ring of the shared memory, and a callback that is exchanged with its argument, under every
/// interleaving that loom finds.
fn loom() -> anyhow::Result<()> {
    for package in ["tracer-common", "roctracer"] {
        let printed = run_and_read(
            cargo()
                .env("RUSTFLAGS", "--cfg loom")
                .args(["test", "--release", "--package", package, "--lib"])
                .args(["--target-dir", "target/loom", "--", "loom_tests"]),
        )?;
        if passed(&printed) == 0 {
            bail!("no loom test of {package} ran");
        }
    }
    Ok(())
}

fn with_artifacts<'c>(command: &'c mut Command, built: &Artifacts) -> &'c mut Command {
    command.envs(built.environment())
}
