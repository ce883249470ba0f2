//! The end-to-end tests on other releases of ROCm.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, bail};

use super::{describe, inside, left_out::LEFT_OUT, programs, root, root::Root};
use crate::{
    artifacts::{Artifacts, build_release, end_to_end_tests},
    run::{in_words, output_of, passed, run_and_read},
};

/// The release that `cargo xtask test` runs [`QUICK`] on, beside this machine's own.
const QUICK_ON: &str = "6.4";

/// Test binaries of the package `e2e`. The others have no ROCm in them (`inject`, `logging`), or run in
/// virtual machines (`kernels`, `methods`).
const BINARIES: [&str; 8] =
    ["attach", "calls", "circumstances", "complete", "losses", "mistakes", "outside", "redirected"];

/// Which tests run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All but those of [`LEFT_OUT`].
    Whole,
    /// Of these, those of [`QUICK`].
    Quick,
}

/// Of every way of recording, and of what programs do with a GPU, one. Some minutes on two cores.
const QUICK: [&str; 18] = [
    "root_a_program_that_never_touches_the_gpu",
    "root_a_program_without_rocm",
    "root_attach_follows_children_and_programs_that_are_executed",
    "root_attach_sees_every_kernel_with_its_call",
    "root_calls_of_a_pure_hsa_program_are_those_that_it_made",
    "root_calls_that_the_compiler_makes_are_recorded_where_asked_for",
    "root_copies_have_their_bytes_and_directions",
    "root_ctrl_c_ends_cleanly",
    "root_exceptions_pass_through_recorded_functions",
    "root_forked_workers_are_followed_with_their_gpu_work",
    "root_graphs_modules_and_callbacks",
    "root_hsa_calls_are_inside_of_their_hip_calls",
    "root_outside_hip_launches_are_seen_by_name",
    "root_outside_of_a_running_process",
    "root_outside_short_programs_whose_shim_is_helpless",
    "root_programs_run_untraced",
    "root_redirected_is_a_choice_for_running_processes",
    "root_storm_of_8_threads_4_streams_5000_launches",
];

/// Runs all tests on each release.
///
/// # Errors
///
/// When a release cannot be had, or a test fails there.
pub fn run_on_releases(releases: &[String]) -> anyhow::Result<()> {
    let with_root = |release: &String| Ok((release.clone(), root::make(release)?));
    let roots: Vec<(String, Root)> =
        releases.iter().map(with_root).collect::<anyhow::Result<_>>()?;
    run_in(&roots, Extent::Whole)
}

/// Runs the most telling tests on one release. Where that cannot be had it is said; in continuous
/// integration (`CI=true`), which should be able to have it, that is an error.
///
/// # Errors
///
/// When a test fails.
pub fn run_quickly() -> anyhow::Result<()> {
    match root::make(QUICK_ON) {
        Ok(root) => run_in(&[(QUICK_ON.to_owned(), root)], Extent::Quick),
        Err(error) if std::env::var_os("CI").is_some_and(|ci| ci == "true") => {
            Err(error.context(format!("ROCm {QUICK_ON} cannot be had")))
        }
        Err(error) => {
            println!("\nNot run: the tests on ROCm {QUICK_ON}, which cannot be had: {error:#}");
            Ok(())
        }
    }
}

fn run_in(roots: &[(String, Root)], extent: Extent) -> anyhow::Result<()> {
    build_release(&["roctap", "tracer-shim", "emulated-gpu-driver"])?;
    let binaries = end_to_end_tests(&BINARIES)?;
    let mut outcomes = Vec::new();
    for (release, root) in roots {
        println!("\nTests on {}:", describe(root)?);
        let began = Instant::now();
        let outcome = run_on(release, root, &binaries, extent);
        outcomes.push((release, outcome, began.elapsed()));
    }
    println!();
    let mut failed = Vec::new();
    for (release, outcome, took) in outcomes {
        let took = in_words(took);
        match outcome {
            Ok(passed) => println!("ROCm {release}: {passed} tests passed in {took}"),
            Err(error) => {
                println!("ROCm {release}: failed after {took}: {error:#}");
                failed.push(release.as_str());
            }
        }
    }
    if !failed.is_empty() {
        bail!("the tests failed on ROCm {}", failed.join(" and "));
    }
    Ok(())
}

/// Runs all binaries, also when tests of one fail.
fn run_on(release: &str, root: &Root, binaries: &[PathBuf], extent: Extent) -> anyhow::Result<u64> {
    let built = programs::build(root, release)?;
    programs::run_untraced(root, &built)?;
    let tests = binaries.iter().map(|path| tests(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let all: Vec<&String> = tests.iter().flatten().collect();
    let mut named = LEFT_OUT.iter().flat_map(|left| left.tests).copied().chain(QUICK);
    if let Some(unknown) = named.find(|name| !all.iter().any(|test| test == name)) {
        bail!("there is no test {unknown}");
    }
    let (mut count, mut failed) = (0, Vec::new());
    for (path, tests) in binaries.iter().zip(&tests) {
        let wanted = |test: &&String| match extent {
            Extent::Whole => true,
            Extent::Quick => QUICK.contains(&test.as_str()),
        };
        let mut names = Vec::new();
        for test in tests.iter().filter(wanted) {
            match LEFT_OUT.iter().find(|left| left.has(test, release)) {
                Some(left) => println!("not run: {test}: {}", left.why),
                None => names.push(test.as_str()),
            }
        }
        if names.is_empty() {
            continue;
        }
        match run_tests(release, root, &built, path, &names) {
            Ok(passed) if passed == names.len() as u64 => count += passed,
            Ok(passed) => bail!("{passed} of {} tests of {} ran", names.len(), path.display()),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    if count == 0 {
        bail!("no test ran");
    }
    Ok(count)
}

/// The names of a binary's tests.
fn tests(binary: &Path) -> anyhow::Result<Vec<String>> {
    let mut list = std::process::Command::new(binary);
    let listed = output_of(list.args(["root_", "--list", "--format", "terse"]))
        .with_context(|| format!("cannot list the tests of {}", binary.display()))?;
    let name = |line: &str| line.strip_suffix(": test").map(str::to_owned);
    Ok(listed.lines().filter_map(name).collect())
}

fn run_tests(
    release: &str,
    root: &Root,
    built: &Artifacts,
    binary: &Path,
    names: &[&str],
) -> anyhow::Result<u64> {
    let binary = binary.canonicalize()?;
    let mut command = inside(root, &binary.display().to_string())?;
    command.args(["--test-threads=1", "--exact"]).args(names);
    command.envs(built.environment()).env("ROCTAP_TEST_ROCM", release);
    Ok(passed(&run_and_read(&mut command)?))
}
