//! Processes that differ in what is preloaded into them, measured by turns.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use capi_build::{
    Library,
    link::{Profile, Source},
};

use crate::{
    place::{Places, Private},
    stats::Series,
    target::Target,
};

/// What is measured of libraries in the process: what it is called, the request, and how often.
pub const REQUESTS: [(&str, &str, u64); 4] = [
    ("call of hipGetDevice", "device", 100_000),
    ("call of hipGetDevice, with 8 threads at once", "devices", 20_000),
    ("call of hsa_signal_load_relaxed", "hsa", 100_000),
    ("kernel launch by hipLaunchKernel (1 call of HIP)", "bare", 2_048),
];

/// A process and its libraries; the process ends first.
pub struct Subject {
    pub name: String,
    target: Target,
    _private: Private,
}

impl Subject {
    /// Starts a process into which libraries are preloaded, with variables.
    pub fn start(
        places: &Places,
        name: &str,
        preloaded: &[&Path],
        variables: &[(&str, &OsStr)],
    ) -> anyhow::Result<Self> {
        let private = places.copy_libraries()?;
        let mut command = private.command(&places.bench_target())?;
        if !preloaded.is_empty() {
            let paths: Vec<&OsStr> = preloaded.iter().map(|path| path.as_os_str()).collect();
            command.env("LD_PRELOAD", paths.join(OsStr::new(":")));
        }
        command.envs(variables.iter().copied());
        let target = Target::start(&mut command).with_context(|| private.complaints())?;
        Ok(Self { name: name.to_owned(), target, _private: private })
    }
}

/// A library with a C interface, as users get it, in a directory.
pub fn library(library: &Library, places: &Places, directory: &Path) -> anyhow::Result<PathBuf> {
    let target = places.apps().parent().context("no target directory")?;
    let source = Source::given().unwrap_or(Source::Cargo(target.to_owned(), Profile::Release));
    library.make(&source, directory)
}

/// A compiler for what is preloaded, as a variable names it, or else by its usual name.
pub fn compiler(variable: &str, usual: &str) -> Command {
    Command::new(env::var_os(variable).unwrap_or_else(|| usual.into()))
}

/// Has each process answer a request, so many times each in a round, the rounds by turns.
pub fn measure(
    subjects: &mut [Subject],
    request: &str,
    calls: u64,
    rounds: u32,
) -> anyhow::Result<Vec<Series>> {
    let mut series = vec![Series::new(); subjects.len()];
    for _ in 0..rounds {
        for (subject, series) in subjects.iter_mut().zip(&mut series) {
            subject.target.ask(&format!("{request} {}", calls / 8))?;
            series.push(subject.target.ask(&format!("{request} {calls}"))?.cost());
        }
    }
    Ok(series)
}
