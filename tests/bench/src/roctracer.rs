//! `libroctracer64.so.4`: what a client of it adds to calls and launches.
//!
//! A process for each variant runs throughout; the rounds alternate between them. `ROCTRACER` names a library of AMD's,
//! which is measured beside ours; without it the figure to compare with is an empty callback that is registered with
//! HIP itself.

use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::{
    place::Places,
    stats::{Series, ratio},
    subject::{self, REQUESTS, Subject},
    table::Table,
};

/// What a client enables: how it is told, and called.
const VARIANTS: [(&str, &str); 7] = [
    ("disabled", "library loaded, nothing enabled"),
    ("hip", "HIP calls recorded"),
    ("callback", "empty callback of HIP calls"),
    ("hip callback", "both"),
    ("ops", "GPU work recorded"),
    ("hip ops", "HIP calls and GPU work recorded"),
    ("hsa", "HSA calls recorded"),
];

/// Measures and prints.
pub fn run(places: &Places, rounds: u32) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let own = subject::library(&capi_build::ROCTRACER, places, directory.path())?;
    let client = directory.path().join("client.so");
    compile(&client, &own)?;
    let start = |name: &str, library: &Path, mode: &str| {
        Subject::start(places, name, &[library, &client], &[("BENCH_CLIENT", mode.as_ref())])
    };
    let mut subjects = vec![Subject::start(places, "(untraced)", &[], &[])?];
    for (mode, name) in VARIANTS {
        subjects.push(start(name, &own, mode)?);
    }
    subjects.push(start("empty callback, by HIP itself", &own, "direct")?);
    if let Some(other) = std::env::var_os("ROCTRACER") {
        let other = Path::new(&other).canonicalize().context("ROCTRACER")?;
        for (mode, name) in VARIANTS {
            subjects.push(start(&format!("{}: {name}", other.display()), &other, mode)?);
        }
    }
    for (what, request, calls) in REQUESTS {
        let series = subject::measure(&mut subjects, request, calls, rounds)?;
        print(what, &subjects, &series);
    }
    Ok(())
}

fn compile(client: &Path, library: &Path) -> anyhow::Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/roctracer.cpp");
    let mut compiler = subject::compiler("CXX", "c++");
    compiler.args(["-O2", "-shared", "-fPIC", "-std=c++11", "-o"]).arg(client).arg(source);
    compiler.arg("-I").arg(capi_build::include_directory()?.join("roctracer")).arg(library);
    ensure!(
        compiler.status().context("the C++ compiler")?.success(),
        "the client does not compile"
    );
    Ok(())
}

fn print(what: &str, subjects: &[Subject], series: &[Series]) {
    let title = format!("roctracer: ns added to a {what}; median (quartiles)");
    let mut table = Table::new(title, &["variant", "wall", "thread CPU", "CPU / HIP's callback"]);
    let Some((untraced, others)) = series.split_first() else { return };
    let direct = subjects.iter().position(|subject| subject.name.ends_with("by HIP itself"));
    let direct = direct.and_then(|at| series.get(at)).map(|series| series.above(untraced));
    let direct = direct.map_or(f64::NAN, |added| added.cpu().median());
    let own = [untraced.wall().shown(), untraced.cpu().shown()];
    let [wall, cpu] = own;
    table.row(["(untraced)".to_owned(), wall, cpu, String::new()]);
    for (subject, series) in subjects.iter().skip(1).zip(others) {
        let added = series.above(untraced);
        table.row([
            subject.name.clone(),
            added.wall().shown(),
            added.cpu().shown(),
            ratio(added.cpu().median(), direct),
        ]);
    }
    table.print();
}
