//! The test programs on other releases of ROCm, whose runtimes see the emulated GPU at the driver's interface.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context as _, bail};

use super::{Root, describe, inside, root};
use crate::{
    artifacts::build_release,
    run::{root as workspace, run, run_silently},
};

/// Programs that check what they got, and print so.
const PROGRAMS: [&str; 9] = [
    "basic",
    "copies",
    "graph",
    "storm",
    "workers",
    "module",
    "throwing",
    "callbacks",
    "hsa_direct",
];

/// Those whose calls of HIP are compared with what is recorded of them. Not `workers`: what its children do
/// before they have their probes is not recorded.
const RECORDED: [&str; 6] = ["basic", "copies", "graph", "storm", "module", "callbacks"];

/// Builds and runs them on each release, and records what they call of HIP.
///
/// # Errors
///
/// When a release cannot be had, a program's result is wrong there, or a call is missing.
pub fn run_on_releases(releases: &[String]) -> anyhow::Result<()> {
    build_release(&["roctap", "tracer-shim", "emulated-gpu-driver"])?;
    let driver = workspace().join("target/release/libemulated_gpu_driver.so");
    for release in releases {
        let root = root::make(release)?;
        println!("\nPrograms on {}:", describe(&root)?);
        let apps = workspace().join("target").join(format!("apps-{release}"));
        fs::create_dir_all(&apps).with_context(|| format!("creating {}", apps.display()))?;
        let out = format!("OUT={}", apps.canonicalize()?.display());
        run(inside(&root, "make")?.args(["--silent", "-C", "tests/apps", &out]))?;
        for program in PROGRAMS {
            check(&root, &driver.canonicalize()?, &apps.canonicalize()?, program)
                .with_context(|| format!("{program} on ROCm {release}"))?;
        }
        println!("{} programs have their results on ROCm {release}", PROGRAMS.len());
        for program in RECORDED {
            check_recorded(&root, &driver.canonicalize()?, &apps.canonicalize()?, program)
                .with_context(|| format!("{program} recorded on ROCm {release}"))?;
        }
        println!("All calls of {} programs are recorded on ROCm {release}", RECORDED.len());
    }
    Ok(())
}

fn check(root: &Root, driver: &Path, apps: &Path, program: &str) -> anyhow::Result<()> {
    run_program(root, driver, apps, &format!("./{program}")).map(drop)
}

/// Records a program: its calls of HIP are those that it says that it made, function by function.
fn check_recorded(root: &Root, driver: &Path, apps: &Path, program: &str) -> anyhow::Result<()> {
    let roctap = workspace().join("target/release/roctap").canonicalize()?;
    let trace = apps.join(format!("{program}.rtrace"));
    // Without GPU times, which the shim does not take of these releases yet: a recording that misses kernels
    // fails.
    let record = format!("{} record --gpu off --force -o {}", roctap.display(), trace.display());
    let printed = run_program(root, driver, apps, &format!("{record} -- ./{program}"))?;
    let made: Counts = printed.lines().filter_map(made).collect();
    let tables = apps.join(format!("{program}-csv"));
    let mut export = Command::new(roctap);
    export.args(["export", "--force", "-f", "csv", "-o"]).args([&tables, &trace]);
    run_silently(&mut export)?;
    let table = fs::read_to_string(tables.join("hip_api_trace.csv"))?;
    let mut recorded = Counts::new();
    for function in table.lines().skip(1).filter_map(|row| row.split('"').nth(3)) {
        *recorded.entry(function.to_owned()).or_default() += 1;
    }
    if made.is_empty() || made != recorded {
        bail!("it made {made:?}, recorded are {recorded:?}");
    }
    Ok(())
}

/// Calls by function.
type Counts = BTreeMap<String, u64>;

/// What a line that a program printed tells of calls of HIP that it made, those of the compiler aside.
fn made(line: &str) -> Option<(String, u64)> {
    let (function, calls) = line.strip_prefix("count ")?.split_once(' ')?;
    function.starts_with("hip").then(|| Some((function.to_owned(), calls.parse().ok()?)))?
}

/// Runs a command in the programs' directory; what it printed.
fn run_program(root: &Root, driver: &Path, apps: &Path, line: &str) -> anyhow::Result<String> {
    let mut command = inside(root, "/usr/bin/env")?;
    command.arg(format!("LD_PRELOAD={}", driver.display()));
    let script = format!("cd {} && exec timeout 300 {line}", apps.display());
    command.args(["/bin/bash", "-c", &script]);
    let printed = run_silently(&mut command)?;
    if !printed.lines().any(|line| line == "result ok") {
        bail!("it printed no \"result ok\":\n{printed}");
    }
    Ok(printed)
}
