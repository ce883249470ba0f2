//! From the sources to the archive, and from that to the shared library.
//!
//! By the C compiler and not by rustc, which gives the linker a version script of its own for each shared
//! library: one without a version, which GNU ld does not combine with one that has versions
//! (docs/decisions/0024).

use std::{fs, os::unix::fs::symlink, path::Path, path::PathBuf, process::Command};

use anyhow::{Context as _, bail};

use crate::{Library, source_directory};

/// What the linker is told besides: of the archive only what is exported stays, and what that needs, without
/// the debug information of Rust's library; nothing may be missing, and nothing is looked up later, in
/// the middle of a call. What a library has itself it does not take from another one that has the same: each of
/// those that are tools has an `HSA_AMD_TOOL_PRIORITY`.
const OPTIONS: [&str; 6] = [
    "-Wl,--gc-sections",
    "-Wl,--strip-debug",
    "-Wl,-z,defs",
    "-Wl,-z,now",
    "-Wl,--as-needed",
    "-Wl,-Bsymbolic",
];

/// What Rust's standard library is linked against on Linux.
const SYSTEM: [&str; 2] = ["-lgcc_s", "-lc"];

/// How the archive is compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// For tests.
    Debug,
    /// For users.
    Release,
}

impl Library {
    /// Builds the archive below `target`, the directory that cargo builds in, and the shared library from it.
    /// Returns the latter's path.
    ///
    /// # Errors
    ///
    /// If there is no C compiler, or a tool fails, with what it said.
    pub fn build(
        &self,
        target: &Path,
        profile: Profile,
        directory: &Path,
    ) -> anyhow::Result<PathBuf> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
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
        self.link(&built.join(self.archive), directory)
    }

    /// Makes the shared library, and the link for `-l` beside it if it has one.
    fn link(&self, archive: &Path, directory: &Path) -> anyhow::Result<PathBuf> {
        fs::create_dir_all(directory)
            .with_context(|| format!("creating {}", directory.display()))?;
        let library = directory.join(self.soname);
        let exports = source_directory()?.join(self.exports);
        let mut linker = Command::new("cc");
        linker.args(["-shared", "-o"]).arg(&library);
        linker.arg(format!("-Wl,-soname,{}", self.soname));
        linker.arg(format!("-Wl,--version-script={}", exports.display())).args(OPTIONS);
        linker.args(self.options);
        linker.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive").args(SYSTEM);
        succeed(&mut linker)?;
        if let Some(development) = &self.development {
            let link = directory.join(development.link);
            if link.symlink_metadata().is_ok() {
                fs::remove_file(&link).with_context(|| format!("removing {}", link.display()))?;
            }
            symlink(self.soname, &link).with_context(|| format!("linking {}", link.display()))?;
        }
        Ok(library)
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
