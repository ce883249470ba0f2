//! Where things are, and private copies of the runtime libraries.
//!
//! A probe belongs to a file: processes that map the same file share its probes' bookkeeping in the
//! kernel. Each measured process therefore maps copies of its own, so that it meets the probes that
//! are meant for it and no others.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use roctap::discover::{self, Library, Runtime};
use tempfile::TempDir;

/// What `cargo xtask bench` built.
pub struct Places {
    /// The `roctap` program; the shim lies beside it.
    pub roctap: PathBuf,
    gpu: PathBuf,
    apps: PathBuf,
}

impl Places {
    /// Reads the environment.
    pub fn from_environment() -> anyhow::Result<Self> {
        let place = |name: &str| {
            let value = std::env::var_os(name).map(PathBuf::from);
            value.with_context(|| format!("{name} is not set: run `cargo xtask bench`"))
        };
        Ok(Self {
            roctap: place("ROCTAP_BIN")?,
            gpu: place("ROCTAP_TEST_GPU")?,
            apps: place("ROCTAP_TEST_APPS")?,
        })
    }

    /// The directory of the test programs.
    pub fn apps(&self) -> &Path {
        &self.apps
    }

    /// The program that is measured.
    pub fn bench_target(&self) -> PathBuf {
        self.apps.join("bench_target")
    }

    /// A directory with copies of the runtime libraries.
    pub fn copy_libraries(&self) -> anyhow::Result<Private> {
        let directory = tempfile::Builder::new().prefix("roctap-bench").tempdir()?;
        let found = discover::candidates(self.bench_target().as_os_str());
        for runtime in [Runtime::Hip, Runtime::Hsa] {
            let library = found
                .iter()
                .find(|library| library.runtime == runtime)
                .with_context(|| format!("{} is not installed", runtime.name()))?;
            copy_library(&library.open_path, runtime, directory.path())?;
        }
        fs::copy(self.shim()?, directory.path().join("libroctap_shim.so"))
            .context("copying the shim")?;
        let mut search = directory.path().as_os_str().to_owned();
        search.push(":");
        search.push(&self.gpu);
        Ok(Private { directory, search })
    }

    fn shim(&self) -> anyhow::Result<PathBuf> {
        Ok(self.roctap.parent().context("ROCTAP_BIN has no directory")?.join("libroctap_shim.so"))
    }
}

/// Copies a library under its own name, and gives it the other names that it has at its place: one
/// of them is the one that programs ask for.
fn copy_library(path: &Path, runtime: Runtime, to: &Path) -> anyhow::Result<()> {
    let real = path.canonicalize()?;
    let name = real.file_name().context("a library without a name")?;
    fs::copy(&real, to.join(name)).with_context(|| format!("copying {}", real.display()))?;
    for entry in fs::read_dir(path.parent().context("a library without a directory")?)?.flatten() {
        let other = entry.file_name();
        if other.to_string_lossy().starts_with(runtime.file_prefixes()[0])
            && other != name
            && entry.path().canonicalize().is_ok_and(|target| target == real)
        {
            symlink(name, to.join(other))?;
        }
    }
    Ok(())
}

/// Libraries of one process's own.
pub struct Private {
    directory: TempDir,
    search: OsString,
}

impl Private {
    /// A file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A command whose programs map these libraries, and find the emulated GPU.
    pub fn command(&self, program: &Path) -> anyhow::Result<Command> {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", &self.search)
            .env("ROCTAP_SHIM", self.path("libroctap_shim.so"))
            .stderr(File::create(self.path("stderr"))?);
        Ok(command)
    }

    /// What the commands said on standard error.
    pub fn complaints(&self) -> String {
        fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }

    /// The library of `runtime` that process `pid` maps, checked to be this copy.
    pub fn library(&self, pid: u32, runtime: Runtime) -> anyhow::Result<Library> {
        discover::libraries(pid)?
            .into_iter()
            .find(|l| l.runtime == runtime && l.path.starts_with(self.directory.path()))
            .with_context(|| format!("process {pid} does not map its copy of {}", runtime.name()))
    }
}
