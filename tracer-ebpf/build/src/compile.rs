//! The build of the BPF crate, within the build of `roctap`.

use std::{
    env,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::toolchain::Toolchain;

/// Beside the linker. Warnings are errors: cargo does not show what a build script says that succeeds.
const FLAGS: [&str; 8] =
    ["-C", "target-cpu=v3", "-C", "debuginfo=2", "-C", "link-arg=--btf", "-D", "warnings"];

/// What the outer build tells its build scripts, or was told itself, and what is not meant for BPF:
/// flags, profiles, features, targets, the wrapper that is clippy.
const LEAKS: [&str; 25] = [
    "CARGO_BUILD_",
    "CARGO_CFG_",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_FEATURE_",
    "CARGO_INCREMENTAL",
    "CARGO_LLVM_COV",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PRIMARY_PACKAGE",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "CARGO_UNSTABLE_",
    "CLIPPY_",
    "DEBUG",
    "DEP_",
    "HOST",
    "LLVM_PROFILE_FILE",
    "NUM_JOBS",
    "OPT_LEVEL",
    "OUT_DIR",
    "PROFILE",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "TARGET",
];

/// Whether the programs log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Logging {
    /// As in every release.
    Off,
    /// Through the map `AYA_LOGS`.
    On,
}

/// Compiles the programs of the workspace `root` and returns the object's path.
///
/// `target` must be no directory that a waiting cargo builds in: that one holds its lock.
///
/// # Errors
///
/// When the programs do not compile. What is wrong with them is on standard error.
pub fn compile(
    toolchain: &Toolchain,
    logging: Logging,
    root: &Path,
    target: &Path,
) -> io::Result<PathBuf> {
    let status = command(toolchain, logging, root, target).status()?;
    if !status.success() {
        return Err(io::Error::other(format!(
            "the BPF programs do not compile with {} ({status}); ROCTAP_BPF_OBJECT= (empty) builds roctap without them",
            toolchain.linker.display()
        )));
    }
    Ok(target.join("bpfel-unknown-none/release/tracer-ebpf"))
}

fn command(toolchain: &Toolchain, logging: Logging, root: &Path, target: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os().filter(|(name, _)| leaks(name)) {
        command.env_remove(name);
    }
    command
        .current_dir(root)
        // Standard output of a build script is commands to cargo.
        .stdout(Stdio::from(io::stderr()))
        // build-std and the BPF target's intrinsics are not stable yet.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&toolchain.linker))
        .args(["build", "--release", "-Z", "build-std=core", "--package", "tracer-ebpf"])
        .args((logging == Logging::On).then_some("--features=bpf-log"))
        .args(["--target", "bpfel-unknown-none", "--target-dir"])
        .arg(target);
    command
}

fn leaks(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    // The whole name, or all names that begin so.
    LEAKS.iter().any(|leak| name == *leak || leak.ends_with('_') && name.starts_with(leak))
}

/// In cargo's form, which lets a path have spaces.
fn flags(linker: &Path) -> String {
    let linker = format!("linker={}", linker.display());
    let flags: Vec<&str> = ["-C", &linker].into_iter().chain(FLAGS).collect();
    flags.join("\x1f")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> Command {
        let toolchain = Toolchain { linker: "/a b/bpf-linker".into() };
        command(&toolchain, Logging::Off, Path::new("/root"), Path::new("/out/bpf"))
    }

    #[test]
    fn what_is_not_meant_for_bpf_leaks() {
        for name in [
            "RUSTFLAGS",
            "RUSTC_WORKSPACE_WRAPPER",
            "CARGO_CFG_TARGET_ARCH",
            "CARGO_FEATURE_USER",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_TARGET",
            "OUT_DIR",
            "TARGET",
        ] {
            assert!(leaks(name.as_ref()), "{name}");
        }
    }

    #[test]
    fn what_cargo_needs_stays() {
        for name in [
            "PATH",
            "HOME",
            "RUSTC",
            "RUSTUP_TOOLCHAIN",
            "CARGO",
            "CARGO_HOME",
            "CARGO_MAKEFLAGS",
            "CARGO_NET_OFFLINE",
            "CARGO_HTTP_CAINFO",
            "CARGO_REGISTRIES_CRATES_IO_PROTOCOL",
            "HOSTNAME",
        ] {
            assert!(!leaks(name.as_ref()), "{name}");
        }
    }

    #[test]
    fn inner_build_takes_out_what_leaks() {
        // Of the variables that this test has from cargo.
        let command = made();
        let removed: Vec<_> =
            command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        assert!(removed.contains(&OsStr::new("CARGO_MANIFEST_DIR")), "{removed:?}");
        assert!(!removed.contains(&OsStr::new("CARGO")), "{removed:?}");
    }

    #[test]
    fn inner_build_has_flags_and_a_target_directory_of_its_own() {
        let command = made();
        let variable = |wanted: &str| {
            command.get_envs().find(|(name, _)| *name == wanted).and_then(|(_, value)| value)
        };
        assert_eq!(variable("RUSTC_BOOTSTRAP"), Some(OsStr::new("1")));
        let flags = variable("CARGO_ENCODED_RUSTFLAGS").unwrap().to_str().unwrap();
        assert!(flags.starts_with("-C\x1flinker=/a b/bpf-linker\x1f"), "{flags:?}");
        assert!(flags.ends_with("\x1f-D\x1fwarnings"), "{flags:?}");
        assert_eq!(command.get_args().last(), Some(OsStr::new("/out/bpf")));
        assert!(!command.get_args().any(|argument| argument == "--features=bpf-log"));
    }
}
