//! Puts the compiled BPF programs where `probe` includes them, or an empty stub: `bpf_build` decides.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use bpf_build::{Programs, Toolchain};

/// What the object is made from, in the workspace.
const SOURCES: [&str; 6] = [
    "tracer-ebpf/src",
    "tracer-ebpf/Cargo.toml",
    "tracer-common/src",
    "tracer-common/Cargo.toml",
    "Cargo.toml",
    "Cargo.lock",
];

/// Does not exist: cargo runs the build script again each time, and finds what was installed meanwhile.
const ALWAYS: &str = "bpf-toolchain-is-missing";

/// What `roctap` is compiled with.
struct Embedded {
    /// Empty for a stub.
    object: Vec<u8>,
    /// Why it is a stub although it should be none.
    warning: Option<String>,
}

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=ROCTAP_BPF_OBJECT");
    match embedded().and_then(|embedded| write(&embedded)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
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

fn embedded() -> io::Result<Embedded> {
    let profile = variable("PROFILE");
    let find = || Toolchain::find(&variable("RUSTC"));
    let given = env::var_os("ROCTAP_BPF_OBJECT");
    let object = match bpf_build::decide(given, &profile.to_string_lossy(), find) {
        Programs::LeftOut => Vec::new(),
        Programs::Given(path) => {
            println!("cargo::rerun-if-changed={}", path.display());
            read(&path)?
        }
        Programs::Compiled(toolchain) => compile(&toolchain)?,
        Programs::Missing(missing) => {
            println!("cargo::rerun-if-changed={ALWAYS}");
            let warning = Some(bpf_build::warning(missing));
            return Ok(Embedded { object: Vec::new(), warning });
        }
    };
    Ok(Embedded { object, warning: None })
}

fn compile(toolchain: &Toolchain) -> io::Result<Vec<u8>> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    read(&bpf_build::compile(toolchain, &root, &output("bpf"))?)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

fn write(embedded: &Embedded) -> io::Result<()> {
    let Embedded { object, warning } = embedded;
    if let Some(warning) = warning {
        println!("cargo::warning={warning}");
    }
    let rustflags = variable("CARGO_ENCODED_RUSTFLAGS");
    let notice = bpf_build::notice(warning.as_deref(), &rustflags.to_string_lossy());
    fs::write(output("notice.rs"), notice)?;
    fs::write(output("roctap.bpf.o"), object)
}
