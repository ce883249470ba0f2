//! What compiling the programs needs, and where it lies.

use std::{
    env,
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

/// bpf-linker's release line that goes with the programs.
pub const BPF_LINKER: &str = "0.13";

/// What compiles the programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Toolchain {
    /// bpf-linker: a path, or a name that is looked for in PATH.
    pub linker: PathBuf,
}

/// What is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// `core` is compiled for BPF from its sources.
    RustSource,
    /// It links what rustc's LLVM makes into a BPF object.
    Linker,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RustSource => "rust-src",
            Self::Linker => "bpf-linker",
        })
    }
}

impl Toolchain {
    /// Looks for what goes with `rustc`: the bpf-linker of `cargo xtask setup`, which is built for this
    /// very rustc, before any in PATH.
    ///
    /// # Errors
    ///
    /// What is missing.
    pub fn find(rustc: &OsStr) -> Result<Self, Missing> {
        if !sysroot(rustc).is_some_and(|sysroot| rust_source(&sysroot).exists()) {
            return Err(Missing::RustSource);
        }
        let of_setup = linker_prefix(rustc).map(|prefix| prefix.join("bin/bpf-linker"));
        let candidates = of_setup.into_iter().chain([PathBuf::from("bpf-linker")]);
        let linker = candidates.into_iter().find(|linker| runs(linker));
        linker.map(|linker| Self { linker }).ok_or(Missing::Linker)
    }
}

/// Whether the program can be run: its libraries are those of a toolchain that can go away.
pub fn runs(program: &Path) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Where rustc has its libraries.
pub fn sysroot(rustc: &OsStr) -> Option<PathBuf> {
    printed(rustc, &["--print", "sysroot"]).map(|path| path.trim().into())
}

/// A file that is there if the component rust-src is.
pub fn rust_source(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust/library/core/Cargo.toml")
}

/// A field of `rustc -vV`.
pub fn rustc_field(rustc: &OsStr, name: &str) -> Option<String> {
    let version = printed(rustc, &["-vV"])?;
    let field = version.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    field.map(str::to_owned)
}

/// Where tools are kept: they outlive `cargo clean` and clones of the repository.
pub fn data_directory() -> Option<PathBuf> {
    let xdg = env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    Some(xdg.or_else(home)?.join("roctap"))
}

/// Where the bpf-linker is installed that goes with this rustc: one for each release, since it must
/// understand its bitcode.
pub fn linker_prefix(rustc: &OsStr) -> Option<PathBuf> {
    let release = rustc_field(rustc, "release")?;
    Some(data_directory()?.join(format!("bpf-linker-{BPF_LINKER}-rust-{release}")))
}

/// What a command prints, or nothing when it fails or is not there.
fn printed(program: &OsStr, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rustc_has_no_sources() {
        assert_eq!(Toolchain::find("/no/rustc".as_ref()), Err(Missing::RustSource));
    }

    #[test]
    fn linker_is_kept_by_release_of_rustc() {
        let release = rustc_field("rustc".as_ref(), "release").unwrap();
        let prefix = linker_prefix("rustc".as_ref()).unwrap();
        assert!(prefix.ends_with(format!("roctap/bpf-linker-0.13-rust-{release}")));
    }

    #[test]
    fn program_that_is_not_there_does_not_run() {
        assert!(!runs(Path::new("/no/bpf-linker")));
        assert!(runs(Path::new("rustc")));
    }
}
