//! `librocprofiler-sdk.so.0`: what a tool adds to calls and launches.
//!
//! A process for each variant runs throughout; the rounds alternate between them.

use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::{
    place::Places,
    stats::ratio,
    subject::{self, REQUESTS, Subject},
    table::Table,
};

/// What a tool asks for: the numbers of kinds, and what they are called.
const VARIANTS: [(&str, &str); 5] = [
    ("", "tool loaded, nothing asked for"),
    ("5", "HIP_RUNTIME_API"),
    ("1", "HSA_CORE_API"),
    ("11", "KERNEL_DISPATCH"),
    ("5,11", "HIP_RUNTIME_API, KERNEL_DISPATCH"),
];

/// Measures and prints.
pub fn run(places: &Places, rounds: u32) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let library = subject::library(&capi_build::ROCPROFILER_SDK, places, directory.path())?;
    let tool = directory.path().join("tool.so");
    compile(&tool, &library)?;
    let mut subjects = vec![Subject::start(places, "(untraced)", &[], &[])?];
    for (kinds, name) in VARIANTS {
        let variables = [("BENCH_KINDS", kinds.as_ref())];
        subjects.push(Subject::start(places, name, &[&library, &tool], &variables)?);
    }
    for (what, request, calls) in REQUESTS {
        let series = subject::measure(&mut subjects, request, calls, rounds)?;
        let title = format!("rocprofiler-sdk: ns added to a {what}; median (quartiles)");
        let mut table = Table::new(title, &["variant", "wall", "thread CPU", "CPU / untraced"]);
        let Some((untraced, others)) = series.split_first() else { continue };
        let [wall, cpu] = [untraced.wall().shown(), untraced.cpu().shown()];
        table.row(["(untraced)".to_owned(), wall, cpu, String::new()]);
        let alone = untraced.cpu().median();
        for (subject, series) in subjects.iter().skip(1).zip(others) {
            let added = series.above(untraced);
            table.row([
                subject.name.clone(),
                added.wall().shown(),
                added.cpu().shown(),
                ratio(alone + added.cpu().median(), alone),
            ]);
        }
        table.print();
    }
    Ok(())
}

fn compile(tool: &Path, library: &Path) -> anyhow::Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/sdk.c");
    let mut compiler = subject::compiler("CC", "cc");
    compiler.args(["-O2", "-shared", "-fPIC", "-std=gnu11", "-o"]).arg(tool).arg(source);
    compiler.arg("-I").arg(capi_build::include_directory()?).arg(library);
    ensure!(compiler.status().context("the C compiler")?.success(), "the tool does not compile");
    Ok(())
}
