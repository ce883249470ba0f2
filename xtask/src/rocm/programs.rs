//! The test programs on other releases of ROCm, whose runtimes see the emulated GPU at the driver's interface.

use std::{fs, path::Path};

use anyhow::{Context as _, bail};

use super::{describe, inside, root};
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

/// Builds and runs them on each release.
///
/// # Errors
///
/// When a release cannot be had, or a program's result is wrong there.
pub fn run_on_releases(releases: &[String]) -> anyhow::Result<()> {
    build_release(&["emulated-gpu-driver"])?;
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
    }
    Ok(())
}

fn check(root: &root::Root, driver: &Path, apps: &Path, program: &str) -> anyhow::Result<()> {
    let mut command = inside(root, "/usr/bin/env")?;
    command.arg(format!("LD_PRELOAD={}", driver.display()));
    let script = format!("cd {} && exec timeout 300 ./{program}", apps.display());
    command.args(["/bin/bash", "-c", &script]);
    let printed = run_silently(&mut command)?;
    if !printed.lines().any(|line| line == "result ok") {
        bail!("it printed no \"result ok\":\n{printed}");
    }
    Ok(())
}
