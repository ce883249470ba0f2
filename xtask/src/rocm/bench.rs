//! The benchmarks on another release of ROCm.

use super::{describe, inside, programs, root};
use crate::{
    abi,
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
    // There is no cargo in the root, and no compiler that has the usual name.
    let libraries = abi::check()?;
    let compilers = [("CC", root.compiler("clang")?), ("CXX", root.compiler("clang++")?)];
    let mut bench = inside(&root)?;
    bench.arg(program).args(arguments).envs(built.environment()).envs([libraries]).envs(compilers);
    run(&mut bench)
}
