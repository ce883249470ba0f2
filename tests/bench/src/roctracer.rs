//! `libroctracer64.so.4`: what a client of it adds to calls and launches.
//!
//! A process for each variant runs throughout; the rounds alternate between them. `ROCTRACER` names a library of AMD's,
//! which is measured beside ours; without it the figure to compare with is an empty callback that is registered with
//! HIP itself.

use std::{path::Path, process::Command};

use anyhow::{Context as _, ensure};
use capi_build::link::Profile;

use crate::{
    place::{Places, Private},
    stats::{Series, ratio},
    table::Table,
    target::Target,
};

/// What is measured: what it is called, the request, and how often.
const REQUESTS: [(&str, &str, u64); 4] = [
    ("call of hipGetDevice", "device", 100_000),
    ("call of hipGetDevice, with 8 threads at once", "devices", 20_000),
    ("call of hsa_signal_load_relaxed", "hsa", 100_000),
    ("kernel launch by hipLaunchKernel (1 call of HIP)", "bare", 2_048),
];

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

/// A process and its libraries; the process ends first.
struct Subject {
    name: String,
    target: Target,
    _private: Private,
}

/// Measures and prints.
pub fn run(places: &Places, rounds: u32) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let target = places.apps().parent().context("no target directory")?;
    let own = capi_build::ROCTRACER.build(target, Profile::Release, directory.path())?;
    let client = directory.path().join("client.so");
    compile(&client, &own)?;
    let mut subjects = vec![start(places, "(untraced)", None)?];
    for (mode, name) in VARIANTS {
        subjects.push(start(places, name, Some((&client, &own, mode)))?);
    }
    let direct = Some((&*client, &*own, "direct"));
    subjects.push(start(places, "empty callback, by HIP itself", direct)?);
    if let Some(other) = std::env::var_os("ROCTRACER") {
        let other = Path::new(&other).canonicalize().context("ROCTRACER")?;
        for (mode, name) in VARIANTS {
            let name = format!("{}: {name}", other.display());
            subjects.push(start(places, &name, Some((&client, &other, mode)))?);
        }
    }
    for (what, request, calls) in REQUESTS {
        let mut series = vec![Series::new(); subjects.len()];
        for _ in 0..rounds {
            for (subject, series) in subjects.iter_mut().zip(&mut series) {
                subject.target.ask(&format!("{request} {}", calls / 8))?;
                series.push(subject.target.ask(&format!("{request} {calls}"))?.cost());
            }
        }
        print(what, &subjects, &series);
    }
    Ok(())
}

fn compile(client: &Path, library: &Path) -> anyhow::Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/roctracer.cpp");
    let mut compiler = Command::new("c++");
    compiler.args(["-O2", "-shared", "-fPIC", "-std=c++11", "-o"]).arg(client).arg(source);
    compiler.arg("-I").arg(capi_build::include_directory()?.join("roctracer")).arg(library);
    ensure!(compiler.status().context("c++")?.success(), "the client does not compile");
    Ok(())
}

/// Starts a process, with a client that is given a library and told what to enable.
fn start(
    places: &Places,
    name: &str,
    client: Option<(&Path, &Path, &str)>,
) -> anyhow::Result<Subject> {
    let private = places.copy_libraries()?;
    let mut command = private.command(&places.bench_target())?;
    if let Some((client, library, mode)) = client {
        let mut preloaded = library.as_os_str().to_owned();
        preloaded.push(":");
        preloaded.push(client);
        command.env("LD_PRELOAD", preloaded).env("BENCH_CLIENT", mode);
    }
    let target = Target::start(&mut command).with_context(|| private.complaints())?;
    Ok(Subject { name: name.to_owned(), target, _private: private })
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
