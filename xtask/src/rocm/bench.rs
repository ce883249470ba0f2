//! The benchmarks on another release of ROCm.

use super::{describe, inside, programs, root};
use crate::{
    artifacts::build_release,
    run::{root as workspace, run},
};

/// Runs the benchmarks on a release, with the arguments of their program.
///
/// # Errors
///
/// When something cannot be built, or measured.
pub fn bench(release: &str, arguments: &[String]) -> anyhow::Result<()> {
    let root = root::make(release)?;
    println!("{}", describe(&root)?);
    build_release(&["roctap", "tracer-shim", "emulated-gpu-driver", "roctx", "bench"])?;
    let built = programs::build(&root)?;
    let program = workspace().canonicalize()?.join("target/release/roctap-bench");
    run(inside(&root)?.arg(program).args(arguments).envs(built.environment()))
}
