//! `cargo xtask test --kernels`: roctap on other kernels than this machine's, each in a virtual machine.
//!
//! The kernels are Debian's for clouds, which have all that a small machine needs built in: no
//! initramfs, no modules. They run in QEMU without KVM, which works wherever the other tests do, and
//! slowly: what runs there is chosen for that.

mod image;
mod machine;
mod packages;

use std::path::PathBuf;

use anyhow::{Context as _, bail};

use image::Run;
pub use machine::KERNEL;
pub use packages::{Kernel, numbers};

use crate::{
    artifacts::{self, Artifacts},
    run::{cargo, root, run},
    setup,
    test::outcome::{Outcome, Set, Test},
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

/// The tests on a kernel.
pub struct OnKernel {
    kernel: Kernel,
    image: PathBuf,
    tests: Vec<Test>,
}

impl Set for OnKernel {
    fn label(&self) -> String {
        format!("kernel {}", self.kernel.release)
    }

    fn run(&self, only: Option<&[Test]>) -> anyhow::Result<Vec<Outcome>> {
        let tests = only.unwrap_or(&self.tests);
        let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        let named = if only.is_some() { &names[..] } else { &[] };
        Ok(machine::run(&self.kernel, &self.image, named)?.outcomes(tests))
    }
}

/// The tests on these kernels, or those whose names contain `filter`. Of kernels that are not supported
/// they test that.
///
/// # Errors
///
/// When something cannot be built.
pub fn sets(
    kernels: Vec<Kernel>,
    built: &Artifacts,
    filter: Option<&str>,
) -> anyhow::Result<Vec<OnKernel>> {
    let (supported, refused): (Vec<Kernel>, Vec<Kernel>) =
        kernels.into_iter().partition(|kernel| is_supported(&kernel.release));
    let mut sets = Vec::new();
    for (kernels, name, filter) in
        [(supported, "tests", filter), (refused, "refused", Some(REFUSED))]
    {
        if kernels.is_empty() {
            continue;
        }
        let (runs, tests) = build_tests(filter)?;
        let image = image::build(built, &runs, name)?;
        let on = |kernel| OnKernel { kernel, image: image.clone(), tests: tests.clone() };
        sets.extend(kernels.into_iter().map(on));
    }
    Ok(sets)
}

fn is_supported(version: &str) -> bool {
    packages::numbers(version).as_slice() >= OLDEST.as_slice()
}

/// Measures what kernels of the versions charge for probes, one after the other. `rounds` is for each
/// variant.
pub fn bench_on_kernels(versions: &[String], rounds: u32) -> anyhow::Result<()> {
    let kernels: Vec<Kernel> =
        versions.iter().map(|version| prepare(version)).collect::<anyhow::Result<_>>()?;
    let built = artifacts::build()?;
    run(cargo().args(["build", "--release", "--package", "bench"]))?;
    let path = root().join("target/release/roctap-bench");
    let arguments = ["--rounds", &rounds.to_string(), "kernel"].map(str::to_owned);
    let bench = Run { path, arguments: arguments.into(), filter: None };
    let image = image::build(&built, &[bench], "bench")?;
    for kernel in &kernels {
        machine::run(kernel, &image, &[])?
            .ended_well()
            .with_context(|| format!("on kernel {}", kernel.release))?;
    }
    Ok(())
}

/// Installs what the machines need, and fetches a kernel of a version.
///
/// # Errors
///
/// When it cannot be had.
pub fn prepare(version: &str) -> anyhow::Result<Kernel> {
    println!("Other kernels need {}.", PACKAGES.join(", "));
    setup::install(&PACKAGES)?;
    packages::fetch(version)
}

/// Builds the test binaries of [`SUITES`]: how they are run, and which tests that runs.
fn build_tests(filter: Option<&str>) -> anyhow::Result<(Vec<Run>, Vec<Test>)> {
    let binaries = artifacts::end_to_end_tests(&SUITES.map(|suite| suite.binary))?;
    let (mut runs, mut tests) = (Vec::new(), Vec::new());
    for (suite, path) in SUITES.iter().zip(binaries) {
        let filter = filter.unwrap_or(suite.filter).to_owned();
        let test = |name| Test { binary: format!("e2e::{}", suite.binary), name };
        tests.extend(artifacts::tests(&path, &filter)?.into_iter().map(test));
        runs.push(Run {
            path,
            arguments: vec!["--test-threads=1".to_owned()],
            filter: Some(filter),
        });
    }
    if tests.is_empty() {
        bail!("no test has {} in its name", filter.unwrap_or_default());
    }
    Ok((runs, tests))
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
