//! Puts the compiled BPF programs where `probe` includes them, or an empty stub when they have not
//! been built: a plain `cargo check` needs no BPF toolchain.

use std::{env, fs, io, path::PathBuf};

fn main() -> io::Result<()> {
    let var = |name: &str| env::var_os(name).map(PathBuf::from);
    let built = var("ROCTAP_BPF_OBJECT").unwrap_or_else(|| {
        let manifest = var("CARGO_MANIFEST_DIR").unwrap_or_default();
        manifest.join("../target/bpf/roctap.bpf.o")
    });
    println!("cargo::rerun-if-env-changed=ROCTAP_BPF_OBJECT");
    println!("cargo::rerun-if-changed={}", built.display());
    let output = var("OUT_DIR").unwrap_or_default().join("roctap.bpf.o");
    match fs::read(&built) {
        Ok(object) => fs::write(output, object),
        Err(e) if e.kind() == io::ErrorKind::NotFound => fs::write(output, []),
        Err(e) => Err(io::Error::new(e.kind(), format!("{}: {e}", built.display()))),
    }
}
