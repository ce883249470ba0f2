//! The test programs on another release of ROCm, whose runtimes see the emulated GPU at the driver's interface.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, bail};

use super::{inside, root::Root};
use crate::{
    artifacts::Artifacts,
    run::{root as workspace, run, run_silently},
};

/// The driver's front, which the programs are linked with: so it is in them, whoever starts them, and in
/// nobody else.
const DRIVER: &str = "emulated_gpu_driver";

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

/// Builds the programs with the compiler and for the runtimes in `root`. What they are linked with is built
/// already, as is roctap.
pub fn build(root: &Root) -> anyhow::Result<Artifacts> {
    let target = workspace().join("target").canonicalize()?;
    let directory = |name: &str| -> anyhow::Result<PathBuf> {
        let path = target.join(name);
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    };
    let gpu = directory("gpu-driver")?;
    let name = format!("lib{DRIVER}.so");
    let library = target.join("release").join(&name);
    fs::copy(&library, gpu.join(&name))
        .with_context(|| format!("copying {}", library.display()))?;
    let apps = directory(&format!("apps-{}", root.release))?;
    let settings = [
        format!("OUT={}", apps.display()),
        format!("GPU=-L{} -l{DRIVER}", gpu.display()),
        // What other GPUs do is tested on this machine's ROCm.
        "ARCHS=gfx900".to_owned(),
    ];
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    let mut make = inside(root)?;
    run(make.args(["make", "--silent", "-C", "tests/apps", &format!("-j{cpus}")]).args(settings))?;
    Ok(Artifacts { roctap: target.join("release/roctap"), gpu, apps })
}

/// Runs them without roctap: what goes wrong there is not its doing.
pub fn run_untraced(root: &Root, built: &Artifacts) -> anyhow::Result<()> {
    for program in PROGRAMS {
        let script = format!("cd {} && exec timeout 300 ./{program}", built.apps.display());
        let mut command = inside(root)?;
        command.args(["/bin/bash", "-c", &script]).env("LD_LIBRARY_PATH", &built.gpu);
        let printed = run_silently(&mut command)?;
        if !printed.lines().any(|line| line == "result ok") {
            bail!("{program} printed no \"result ok\":\n{printed}");
        }
    }
    println!("{} programs have their results, untraced", PROGRAMS.len());
    Ok(())
}
