//! Builds what the demo, the tests and the benchmarks run.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, anyhow};
use bpf_build::{Logging, Toolchain};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    run::{cargo, output_of, root, run, run_silently},
    setup::{self, RUSTC},
};

/// The packages with tests of what was built. They are always named together: which features a dependency
/// is built with depends on that, and each is built once.
pub const TRACED: [&str; 4] = ["emulated-gpu", "tracer-shim", "e2e", "hostile"];

/// Where everything is.
pub struct Artifacts {
    /// The `roctap` program; the shim lies beside it.
    pub roctap: PathBuf,
    /// Directory for LD_LIBRARY_PATH that holds the emulated GPU.
    pub gpu: PathBuf,
    /// Directory of the test programs.
    pub apps: PathBuf,
}

/// What the unit tests are built with: with the log of the BPF programs, for the test of that.
pub const UNIT_FEATURES: [&str; 2] = ["--features", "roctap/bpf-log"];

/// Builds BPF programs that log, and names them and the `roctap` that shows it, which the unit tests have built.
///
/// # Errors
///
/// When they cannot be built.
pub fn build_logging() -> anyhow::Result<[(&'static str, PathBuf); 2]> {
    let toolchain = Toolchain::find(RUSTC.as_ref())
        .map_err(|missing| anyhow!("{missing} is missing: `cargo xtask setup` installs it"))?;
    let target = root().join("target");
    let object = bpf_build::compile(&toolchain, Logging::On, &root(), &target.join("bpf-log"))?;
    Ok([("ROCTAP_LOGGING_BIN", target.join("debug/roctap")), ("ROCTAP_LOGGING_OBJECT", object)])
}

/// What was built, where every user can run it: a checkout may be below a directory that is one user's
/// alone. Removed when it is dropped.
pub struct ForAllUsers {
    pub artifacts: Artifacts,
    _place: TempDir,
}

impl ForAllUsers {
    /// Copies what the tests run.
    pub fn copy(built: &Artifacts) -> anyhow::Result<Self> {
        let place = tempfile::Builder::new()
            .prefix("roctap-tests-")
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .context("making a temporary directory")?;
        let artifacts = Artifacts {
            roctap: place.path().join("bin/roctap"),
            gpu: place.path().join("gpu"),
            apps: place.path().join("apps"),
        };
        let shim = "libroctap_shim.so";
        copy(&built.roctap, &artifacts.roctap)?;
        copy(&built.roctap.with_file_name(shim), &artifacts.roctap.with_file_name(shim))?;
        for (from, to) in [(&built.gpu, &artifacts.gpu), (&built.apps, &artifacts.apps)] {
            for file in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
                let file = file?;
                copy(&file.path(), &to.join(file.file_name()))?;
            }
        }
        Ok(Self { artifacts, _place: place })
    }
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to.parent().context("below a directory")?)?;
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    Ok(())
}

impl Artifacts {
    /// Where the tests find what was built.
    pub fn environment(&self) -> [(&'static str, PathBuf); 3] {
        let absolute = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        [
            ("ROCTAP_BIN", absolute(&self.roctap)),
            ("ROCTAP_TEST_GPU", absolute(&self.gpu)),
            ("ROCTAP_TEST_APPS", absolute(&self.apps)),
        ]
    }
}

/// Builds packages as users do, all default ones if none is named. The build script of `roctap` compiles
/// the BPF programs, and leaves them out when it cannot: so what they need is installed first.
pub fn build_release(packages: &[&str]) -> anyhow::Result<()> {
    setup::bpf_toolchain()?;
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    run(cargo().args(["build", "--release"]).args(packages))
}

/// Builds everything, installing what is missing.
pub fn build() -> anyhow::Result<Artifacts> {
    setup::packages()?;
    build_release(&["roctap", "tracer-shim", "emulated-gpu", "roctx"])?;
    let target = root().join("target");
    let gpu = target.join("gpu");
    fs::create_dir_all(&gpu)?;
    let library = target.join("release/libemulated_gpu.so");
    fs::copy(&library, gpu.join("libhsakmt.so.1"))
        .with_context(|| format!("copying {}", library.display()))?;
    let apps = target.join("apps");
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    run(Command::new("make")
        .args(["--silent", "-C", "tests/apps", &format!("-j{cpus}")])
        .arg(format!("OUT={}", apps.display()))
        .current_dir(root()))?;
    Ok(Artifacts { roctap: target.join("release/roctap"), gpu, apps })
}

/// Builds test binaries of the package `e2e`, and says where each is.
pub fn end_to_end_tests(names: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let mut command = cargo();
    command.args(["test", "--release", "--no-run"]);
    command.args(TRACED.iter().flat_map(|package| ["--package", package]));
    command.args(["--message-format=json-render-diagnostics"]);
    command.args(names.iter().flat_map(|name| ["--test", name]));
    let messages = run_silently(&mut command)?;
    let built = |name: &&str| {
        let path = messages.lines().find_map(|line| executable(line, name));
        Ok(root().join(path.with_context(|| format!("cargo built no test {name}"))?))
    };
    names.iter().map(built).collect()
}

/// The names of a test binary's tests that contain `filter`.
pub fn tests(binary: &Path, filter: &str) -> anyhow::Result<Vec<String>> {
    let listed = output_of(Command::new(binary).args([filter, "--list", "--format", "terse"]))
        .with_context(|| format!("cannot list the tests of {}", binary.display()))?;
    let name = |line: &str| line.strip_suffix(": test").map(str::to_owned);
    Ok(listed.lines().filter_map(name).collect())
}

/// The executable of test `name`, if that is what a message of cargo's is about.
fn executable(message: &str, name: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let wanted = message["target"]["name"] == name && message["profile"]["test"] == true;
    wanted.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
}

#[cfg(test)]
mod tests {
    use super::executable;

    #[test]
    fn executables_are_found_in_cargos_messages() {
        let message = r#"{"reason":"compiler-artifact","target":{"name":"kernels"},"profile":{"test":true},"executable":"/t/kernels-1"}"#;
        assert_eq!(executable(message, "kernels"), Some("/t/kernels-1".into()));
        assert_eq!(executable(message, "attach"), None);
        assert_eq!(executable("no message", "kernels"), None);
    }
}
