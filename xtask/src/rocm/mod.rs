//! `cargo xtask rocm`: other releases of ROCm than this machine's, each in a root of its own.

mod bench;
mod left_out;
mod programs;
mod root;
mod suite;

use std::{path::PathBuf, process::Command};

use anyhow::Context as _;
use clap::Args;

use crate::run::{root as workspace, run};
pub use bench::bench;
pub use root::{Root, make};
pub use suite::{Extent, LIBRARIES, QUICK_ON, sets};
#[cfg(test)]
pub use {left_out::LEFT_OUT, suite::LIBRARIES_QUICK};

/// Options of `cargo xtask rocm`.
#[derive(Args)]
pub struct Options {
    /// Release of ROCm, such as 6.4
    release: String,

    /// What to run in its root, with this machine's /proc, /sys, /dev and /tmp, and with the workspace
    /// where it is
    #[arg(last = true)]
    command: Vec<String>,
}

/// Makes the root and says what is in it; runs a command there.
pub fn run_rocm(options: &Options) -> anyhow::Result<()> {
    let root = root::make(&options.release)?;
    println!("rocm: {} in {}", describe(&root)?, root.path.display());
    if options.command.is_empty() {
        return Ok(());
    }
    run(inside(&root)?.args(&options.command))
}

/// The files of a release, unpacked, under a directory as they would be under `/`.
///
/// # Errors
///
/// When it cannot be had.
pub fn files(release: &str) -> anyhow::Result<PathBuf> {
    Ok(root::make(release)?.path)
}

/// The versions that matter, of what was found.
fn describe(root: &Root) -> anyhow::Result<String> {
    let hip = root.library("libamdhip64-").context("the root has no HIP")?;
    let hsa = root.library("libhsa-runtime64-").context("the root has no HSA runtime")?;
    let libc = root.version("libc6").context("the root has no C library")?;
    Ok(format!("HIP {hip}, HSA runtime {hsa}, C library {libc}"))
}

/// A command that runs in the root what it gets as further arguments. What is mounted for it goes with it:
/// it has a mount namespace.
fn inside(root: &Root) -> anyhow::Result<Command> {
    // $0 is the root, $1 the workspace, and the rest what to run.
    const SCRIPT: &str = r#"set -e
for place in /proc /sys /dev /tmp "$1"; do
    mkdir -p "$0$place"
    mount --rbind "$place" "$0$place"
done
cd "$0"
exec chroot "$0" /bin/bash -c 'cd "$0" && exec "$@"' "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash", "-c", SCRIPT]);
    command.arg(&root.path).arg(workspace().canonicalize()?);
    Ok(command)
}
