//! From the sources to the archive, and from that to the shared library.
//!
//! By the C compiler and not by rustc, which gives the linker a version script of its own for each shared library: one
//! without a version, which GNU ld does not combine with one that has versions (docs/decisions/0024).

use std::{env, fs, os::unix::fs::symlink, path::Path, path::PathBuf, process::Command};

use anyhow::{Context as _, bail};

use crate::{Library, source_directory};

/// Further options of the linker: of the archive only exported functions stay, and the code that these need, without
/// the debug information of Rust's library; nothing may be missing, and nothing is looked up later, in the middle of a
/// call. A symbol that a library has itself it does not take from another one that has the same: each of those that are
/// tools has an `HSA_AMD_TOOL_PRIORITY`.
const OPTIONS: [&str; 6] = [
    "-Wl,--gc-sections",
    "-Wl,--strip-debug",
    "-Wl,-z,defs",
    "-Wl,-z,now",
    "-Wl,--as-needed",
    "-Wl,-Bsymbolic",
];

/// The libraries that Rust's standard library needs on Linux.
const SYSTEM: [&str; 2] = ["-lgcc_s", "-lc"];

/// The profile by which the archive is compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// For tests.
    Debug,
    /// For users.
    Release,
}

/// The variable that names the directory where [`Source::given`] has all libraries.
pub const LIBRARIES_VARIABLE: &str = "ROCTAP_BUILT_LIBRARIES";

/// The source of a library.
#[derive(Clone, Debug)]
pub enum Source {
    /// It was built before, into this directory.
    Built(PathBuf),
    /// Cargo builds its archive below this directory.
    Cargo(PathBuf, Profile),
}

impl Source {
    /// The libraries that were built before, where the environment says that they were.
    #[must_use]
    pub fn given() -> Option<Self> {
        env::var_os(LIBRARIES_VARIABLE).map(|directory| Self::Built(directory.into()))
    }

    /// As [`Self::given`], for a test, which else has libraries built beside itself.
    ///
    /// # Errors
    ///
    /// If the test is not where cargo builds.
    pub fn of_tests() -> anyhow::Result<Self> {
        if let Some(given) = Self::given() {
            return Ok(given);
        }
        let exe = env::current_exe()?;
        // <target>/<profile>/deps/<this>
        let target = exe.ancestors().nth(3).context("no target directory")?;
        Ok(Self::Cargo(target.to_owned(), Profile::Debug))
    }
}

impl Library {
    /// Puts the shared library into a directory, with the link for `-l` beside it if it has one. Returns its path.
    ///
    /// # Errors
    ///
    /// If there is no C compiler, or a tool fails, with what it said; if there is no library.
    pub fn make(&self, source: &Source, directory: &Path) -> anyhow::Result<PathBuf> {
        fs::create_dir_all(directory)
            .with_context(|| format!("creating {}", directory.display()))?;
        let library = directory.join(self.soname);
        match source {
            Source::Built(built) => {
                let built = built.join(self.soname);
                fs::copy(&built, &library)
                    .with_context(|| format!("copying {}", built.display()))?;
            }
            Source::Cargo(target, profile) => {
                self.link(&self.archive(target, *profile)?, &library)?;
            }
        }
        if let Some(development) = &self.development {
            let link = directory.join(development.link);
            if link.symlink_metadata().is_ok() {
                fs::remove_file(&link).with_context(|| format!("removing {}", link.display()))?;
            }
            symlink(self.soname, &link).with_context(|| format!("linking {}", link.display()))?;
        }
        Ok(library)
    }

    /// Has cargo build the archive, and returns its path.
    fn archive(&self, target: &Path, profile: Profile) -> anyhow::Result<PathBuf> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(source_directory()?).args(["build", "--quiet"]);
        command.args(["--package", self.package, "--target-dir"]).arg(target);
        let built = match profile {
            Profile::Debug => target.join("debug"),
            Profile::Release => {
                command.arg("--release");
                target.join("release")
            }
        };
        succeed(&mut command)?;
        Ok(built.join(self.archive))
    }

    fn link(&self, archive: &Path, library: &Path) -> anyhow::Result<()> {
        let exports = source_directory()?.join(self.exports);
        let mut linker = Command::new("cc");
        linker.args(["-shared", "-o"]).arg(library);
        linker.arg(format!("-Wl,-soname,{}", self.soname));
        linker.arg(format!("-Wl,--version-script={}", exports.display())).args(OPTIONS);
        linker.args(self.options);
        linker.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive").args(SYSTEM);
        succeed(&mut linker)
    }
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} failed with {}:\n{said}", output.status);
    }
    Ok(())
}
