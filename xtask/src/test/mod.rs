//! `cargo xtask test`: every test, to the end, whatever fails on the way; then one table.

mod again;
pub mod nextest;
pub mod outcome;
mod report;
mod row;
pub mod stress;

use std::{path::PathBuf, process::ExitCode, thread};

use anyhow::bail;
use clap::Args;

use crate::{
    abi,
    artifacts::{self, Artifacts, ForAllUsers, TRACED, UNIT_FEATURES},
    imports, kernels, rocm,
    run::{cargo, output, root, run},
    setup,
};
use nextest::{Nextest, TRACED_AT_ONCE, untraced_at_once};
use outcome::Set;
use report::Report;
use row::Row;

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

    /// Only the end-to-end tests and those of the libraries, on these releases of ROCm, unpacked beside the system
    #[arg(long, value_name = "RELEASES", value_delimiter = ',', conflicts_with_all = ["unprivileged", "kernels"])]
    rocm: Option<Vec<String>>,

    /// Of the tests on other kernels or releases, only those whose names contain this
    #[arg(last = true)]
    filter: Option<String>,
}

/// Runs the tests.
///
/// # Errors
///
/// When they cannot be run as who runs this.
pub fn run_tests(options: &Options) -> anyhow::Result<ExitCode> {
    let mut report = Report::new();
    if options.unprivileged {
        report.step("cargo-nextest", setup::nextest);
        checks(&mut report);
        report.set(&unit_tests());
        return Ok(report.close());
    }
    must_be_root()?;
    if options.filter.is_some() && options.rocm.is_none() && options.kernels.is_none() {
        bail!("which tests is said of those on other kernels or releases: --kernels or --rocm");
    }
    if let Some(releases) = &options.rocm {
        report.step("tools", tools);
        let libraries = report.step("C interfaces", abi::check);
        for release in releases {
            if let Some(root) = report.step(&format!("ROCm {release}"), || rocm::make(release)) {
                on_rocm(
                    &mut report,
                    &root,
                    rocm::Extent::Whole,
                    &libraries,
                    options.filter.as_deref(),
                );
            }
        }
    } else if let Some(versions) = &options.kernels {
        report.step("tools", tools);
        if let Some(ForAllUsers { artifacts: built, .. }) = &report.step("building", build) {
            let mut prepare = |version: &String| {
                report.step(&format!("kernel {version}"), || kernels::prepare(version))
            };
            let kernels = versions.iter().filter_map(&mut prepare).collect();
            on_kernels(&mut report, kernels, built, options.filter.as_deref());
        }
    } else {
        all(&mut report);
    }
    Ok(report.close())
}

/// Fails unless root runs this.
///
/// # Errors
///
/// When it is somebody else.
pub fn must_be_root() -> anyhow::Result<()> {
    if output("id", &["-u"]).is_none_or(|id| id.trim() != "0") {
        bail!("the tests that trace need root; run as root, or with --unprivileged for the others");
    }
    Ok(())
}

/// Installs what building and running needs.
fn tools() -> anyhow::Result<()> {
    setup::packages()?;
    setup::nextest()?;
    setup::bpf_toolchain()
}

fn all(report: &mut Report) {
    report.step("tools", tools);
    // Meanwhile: it takes the network's time, and little of the CPUs'.
    let fetched = thread::spawn(|| {
        let kernels = kernels::DEFAULT.split(',').map(|v| (v, kernels::prepare(v)));
        (kernels.collect::<Vec<_>>(), rocm::make(rocm::QUICK_ON))
    });
    report.step("formatting", || run(cargo().args(["fmt", "--all", "--check"])));
    report.step("lints", || {
        let warnings = ["--", "-D", "warnings"];
        let all = ["--workspace", "--all-targets"];
        run(cargo().arg("clippy").args(all).args(UNIT_FEATURES).args(warnings))
    });
    let libraries = checks(report);
    report.set(&unit_tests());
    report.set(&loom());
    let built = report.step("building", build);
    let built = built.as_ref().map(|built| &built.artifacts);
    if let Some(built) = built {
        for set in traced(report, built, &libraries) {
            report.set(&set);
        }
    }
    let Ok((kernels, root)) = fetched.join() else {
        report.broken("fetching", "it panicked");
        return;
    };
    let Some(built) = built else { return };
    match root {
        Ok(root) => on_rocm(report, &root, rocm::Extent::Quick, &libraries, None),
        Err(error) => report.not_had(&format!("ROCm {}", rocm::QUICK_ON), &error),
    }
    let mut found = Vec::new();
    for (version, kernel) in kernels {
        match kernel {
            Ok(kernel) => found.push(kernel),
            Err(error) => report.not_had(&format!("kernel {version}"), &error),
        }
    }
    on_kernels(report, found, built, None);
}

/// Builds what is traced and who traces it.
fn build() -> anyhow::Result<ForAllUsers> {
    ForAllUsers::copy(&artifacts::build()?)
}

/// What is looked at without running it. Where the libraries are that were built for that.
fn checks(report: &mut Report) -> Option<abi::Variable> {
    report.step("imports", imports::run_check);
    report.step("C interfaces", abi::check)
}

/// The tests of the packages that need no root, with all checks that are there without optimisation: also in the libraries
/// that clients use. Those on the ROCm runtime are [`traced`]'s.
fn unit_tests() -> Nextest {
    Nextest::new("unit tests", &[], "not test(rocm_)")
        .with(&UNIT_FEATURES)
        .at_once(untraced_at_once())
}

/// The ring of the shared memory, and a callback that is exchanged with its argument, under every
/// interleaving that loom finds. Not optimised: building takes longer than running.
fn loom() -> Nextest {
    Nextest::new("loom", &["tracer-common", "roctracer", "rocprofiler"], "test(loom_tests)")
        .with(&["--lib"])
        .built_in(root().join("target/loom"))
        .in_environment([("RUSTFLAGS", PathBuf::from("--cfg loom"))])
}

/// Tests of what was built. Builds what else they need.
fn traced(
    report: &mut Report,
    built: &Artifacts,
    libraries: &Option<abi::Variable>,
) -> Vec<Nextest> {
    let logging = report.step("BPF programs that log", artifacts::build_logging);
    let set = |label, packages, filter| {
        Nextest::new(label, packages, filter)
            .at_once(TRACED_AT_ONCE)
            .in_environment(built.environment())
            .in_environment(logging.iter().flatten().cloned())
            .in_environment(libraries.clone())
    };
    // These were built for the unit tests already.
    let unoptimised = |label, filter| set(label, &[], filter).with(&UNIT_FEATURES);
    let optimised = |label, filter| set(label, &TRACED, filter).with(&["--release"]);
    vec![
        unoptimised("plans for ROCm's libraries", "package(roctap) and test(rocm_)"),
        unoptimised("libraries in HIP programs", rocm::LIBRARIES).at_once(untraced_at_once()),
        optimised("ROCm on the emulated GPU", "package(emulated-gpu) and test(rocm_)"),
        optimised("the shim in ROCm", "package(tracer-shim) and test(rocm_)"),
        optimised("end to end", "package(e2e) and test(root_)"),
        optimised("hostile targets", "package(hostile) and test(hostile_)"),
    ]
}

/// Runs the tests on a release of ROCm.
fn on_rocm(
    report: &mut Report,
    root: &rocm::Root,
    extent: rocm::Extent,
    libraries: &Option<abi::Variable>,
    filter: Option<&str>,
) {
    let label = format!("programs on ROCm {}", root.release);
    if let Some(sets) = report.step(&label, || rocm::sets(root, extent, libraries, filter)) {
        sets.iter().for_each(|set| report.set(set));
    }
}

/// Runs the tests on kernels.
fn on_kernels(
    report: &mut Report,
    kernels: Vec<kernels::Kernel>,
    built: &Artifacts,
    filter: Option<&str>,
) {
    if kernels.is_empty() {
        return;
    }
    let sets = report.step("image for kernels", || kernels::sets(kernels, built, filter));
    // At once: a test mostly waits for one of its programs, so that one machine leaves a core idle.
    let rows: Vec<Row> = thread::scope(|scope| {
        let sets: Vec<_> = sets.iter().flatten().collect();
        let running: Vec<_> = sets.iter().map(|&set| scope.spawn(|| again::run(set))).collect();
        let row = |(set, thread): (&kernels::OnKernel, thread::ScopedJoinHandle<'_, Row>)| {
            thread.join().unwrap_or_else(|_| Row::broken(&set.label(), "its thread panicked"))
        };
        sets.into_iter().zip(running).map(row).collect()
    });
    rows.into_iter().for_each(|row| report.add(row));
}
