//! Puts the compiled BPF programs where `probe` includes them, or an empty stub: `bpf_build` decides. A
//! build that should have them and cannot fails, and says what to do.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use bpf_build::{Logging, Programs, Toolchain};

/// What the object is made from, in the workspace.
const SOURCES: [&str; 6] = [
    "tracer-ebpf/src",
    "tracer-ebpf/Cargo.toml",
    "tracer-common/src",
    "tracer-common/Cargo.toml",
    "Cargo.toml",
    "Cargo.lock",
];

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=ROCTAP_BPF_OBJECT");
    match object().and_then(|object| fs::write(output("roctap.bpf.o"), object)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Cargo shows this in one line, before all that the script says elsewhere.
            println!("cargo::error={error}");
            ExitCode::FAILURE
        }
    }
}

fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_default()
}

fn output(name: &str) -> PathBuf {
    PathBuf::from(variable("OUT_DIR")).join(name)
}

/// What `roctap` is compiled with; empty for a stub.
fn object() -> io::Result<Vec<u8>> {
    let profile = variable("PROFILE");
    let find = || Toolchain::find(&variable("RUSTC"));
    let given = env::var_os("ROCTAP_BPF_OBJECT");
    match bpf_build::decide(given, &profile.to_string_lossy(), find) {
        Programs::LeftOut => Ok(Vec::new()),
        Programs::Given(path) => {
            println!("cargo::rerun-if-changed={}", path.display());
            read(&path)
        }
        Programs::Compiled(toolchain) => compile(&toolchain),
        Programs::Missing(missing) => Err(io::Error::other(bpf_build::refusal(missing))),
    }
}

fn compile(toolchain: &Toolchain) -> io::Result<Vec<u8>> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let logging = match env::var_os("CARGO_FEATURE_BPF_LOG") {
        Some(_) => Logging::On,
        None => Logging::Off,
    };
    read(&bpf_build::compile(toolchain, logging, &root, &output("bpf"))?)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}
