//! `cargo xtask test --kernels`: roctap on other kernels than this machine's, each in a virtual machine.
//!
//! The kernels are Debian's for clouds, which have all that a small machine needs built in: no
//! initramfs, no modules. They run in QEMU without KVM, which works wherever the other tests do, and
//! slowly: what runs there is chosen for that.

mod image;
mod machine;
mod packages;

use std::{path::PathBuf, time::Instant};

use anyhow::bail;

use image::Run;
use machine::Expect;

use crate::{
    artifacts,
    run::{cargo, in_words, root, run},
    setup,
};

/// What is run where `--kernels` names none: before `uprobe_multi` (6.6), and before emulation of
/// long nops (6.16).
pub const DEFAULT: &str = "6.1,6.12";

/// What these tests need beside what the others need.
const PACKAGES: [&str; 3] = ["qemu-system-x86", "e2fsprogs", "util-linux"];

/// Tests that run on each kernel.
struct Suite {
    /// A test binary of the package `e2e`.
    binary: &'static str,
    /// What the names of its tests contain.
    filter: &'static str,
}

const SUITES: [Suite; 2] = [
    Suite { binary: "methods", filter: "root_kernel_" },
    Suite { binary: "kernels", filter: "root_kernel_" },
];

/// The first kernel that roctap supports.
const OLDEST: [u32; 2] = [5, 15];
/// The test on older ones: that they are refused.
const REFUSED: &str = "root_kernel_supported_or_refused";

/// Runs the tests, or those whose names contain `filter`, on a kernel of each of the versions. Of
/// kernels that are not supported, it tests that.
pub fn run_on_kernels(versions: &[String], filter: Option<&str>) -> anyhow::Result<()> {
    let (supported, refused): (Vec<String>, Vec<String>) =
        versions.iter().cloned().partition(|version| is_supported(version));
    if !supported.is_empty() {
        run_at_once(&supported, filter)?;
    }
    if !refused.is_empty() {
        run_at_once(&refused, Some(REFUSED))?;
    }
    Ok(())
}

fn is_supported(version: &str) -> bool {
    packages::numbers(version).as_slice() >= OLDEST.as_slice()
}

fn run_at_once(versions: &[String], filter: Option<&str>) -> anyhow::Result<()> {
    let kernels = prepare(versions)?;
    let built = artifacts::build()?;
    let image = image::build(&built, &build_tests(filter)?)?;
    // At once: a test mostly waits for one of its programs, so that one machine leaves a core idle.
    let outcomes = std::thread::scope(|scope| {
        let image = &image;
        let running: Vec<_> = kernels
            .iter()
            .map(|kernel| {
                scope.spawn(move || {
                    let began = Instant::now();
                    (kernel, machine::run(kernel, image, Expect::Tests), began.elapsed())
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    println!();
    let mut failed = Vec::new();
    for outcome in outcomes {
        let Ok((kernel, outcome, took)) = outcome else { bail!("a machine's thread panicked") };
        let took = in_words(took);
        match outcome {
            Ok(1) => println!("{}: 1 test passed in {took}", kernel.release),
            Ok(passed) => println!("{}: {passed} tests passed in {took}", kernel.release),
            Err(error) => {
                println!("{}: failed after {took}: {error:#}", kernel.release);
                failed.push(kernel.release.as_str());
            }
        }
    }
    if !failed.is_empty() {
        bail!("the tests failed on {}", failed.join(" and "));
    }
    Ok(())
}

/// Measures what kernels of the versions charge for probes, one after the other. `rounds` is for each
/// variant.
pub fn bench_on_kernels(versions: &[String], rounds: u32) -> anyhow::Result<()> {
    let kernels = prepare(versions)?;
    let built = artifacts::build()?;
    run(cargo().args(["build", "--release", "--package", "bench"]))?;
    let path = root().join("target/release/roctap-bench");
    let arguments = ["--rounds", &rounds.to_string(), "kernel"].map(str::to_owned);
    let image = image::build(&built, &[Run { path, arguments: arguments.into() }])?;
    for kernel in &kernels {
        machine::run(kernel, &image, Expect::Success)?;
    }
    Ok(())
}

/// Installs what the machines need, and fetches a kernel of each version.
fn prepare(versions: &[String]) -> anyhow::Result<Vec<packages::Kernel>> {
    println!("Other kernels need {}.", PACKAGES.join(", "));
    setup::install(&PACKAGES)?;
    versions.iter().map(|version| packages::fetch(version)).collect()
}

/// Builds the test binaries of [`SUITES`].
fn build_tests(filter: Option<&str>) -> anyhow::Result<Vec<Run>> {
    let binaries = artifacts::end_to_end_tests(&SUITES.map(|suite| suite.binary))?;
    let run = |(suite, path): (&Suite, PathBuf)| {
        let filter = filter.unwrap_or(suite.filter).to_owned();
        Run { path, arguments: vec!["--test-threads=1".to_owned(), filter] }
    };
    Ok(SUITES.iter().zip(binaries).map(run).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_supported_from_5_15_on() {
        assert!(["5.15", "5.15.3", "6.1"].into_iter().all(is_supported));
        assert!(!["5.10", "5.14.21", "4.19"].into_iter().any(is_supported));
    }
}
