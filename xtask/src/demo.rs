//! `cargo xtask demo`: a real HIP program on the emulated GPU, traced.

use std::process::Command;

use crate::{
    artifacts,
    run::{root, run},
};

/// Runs the demo.
pub fn run_demo() -> anyhow::Result<()> {
    let built = artifacts::build()?;
    let directory = root().join("target/demo");
    std::fs::create_dir_all(&directory)?;
    let trace = directory.join("demo.rtrace");
    let csv = directory.join("csv");
    println!("\nThe real HIP runtime runs on an emulated GPU; roctap traces it.");
    run(Command::new(&built.roctap)
        .env("LD_LIBRARY_PATH", &built.gpu)
        .args(["record", "--force", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(built.apps.join("storm"))
        .args(["4", "2", "250"]))?;
    run(Command::new(&built.roctap).args(["report", "--top", "10"]).arg(&trace))?;
    run(Command::new(&built.roctap)
        .args(["export", "--force", "-f", "csv", "-o"])
        .arg(&csv)
        .arg(&trace))?;
    println!("\nThe trace is {}, its CSV tables are in {}.", trace.display(), csv.display());
    Ok(())
}
