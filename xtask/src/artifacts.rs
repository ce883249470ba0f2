//! Builds what the demo, the tests and the benchmarks run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use crate::{
    run::{cargo, root, run},
    setup,
};

/// Where everything is.
pub struct Artifacts {
    /// The `roctap` program; the shim lies beside it.
    pub roctap: PathBuf,
    /// Directory for LD_LIBRARY_PATH that holds the emulated GPU.
    pub gpu: PathBuf,
    /// Directory of the test programs.
    pub apps: PathBuf,
}

/// Compiles the BPF programs to `target/bpf/roctap.bpf.o`.
pub fn build_ebpf(bpf_linker_directory: &Path) -> anyhow::Result<()> {
    let target = root().join("target/bpf");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        std::iter::once(bpf_linker_directory.to_owned()).chain(std::env::split_paths(&path)),
    )?;
    run(cargo()
        .env("PATH", path)
        // build-std and the BPF target's intrinsics are not stable yet.
        .env("RUSTC_BOOTSTRAP", "1")
        .env(
            "RUSTFLAGS",
            "-C linker=bpf-linker -C target-cpu=v3 -C debuginfo=2 -C link-arg=--btf -D warnings",
        )
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .args(["build", "--release", "-Z", "build-std=core", "--package", "tracer-ebpf"])
        .args(["--target", "bpfel-unknown-none", "--target-dir"])
        .arg(&target))?;
    let built = target.join("bpfel-unknown-none/release/tracer-ebpf");
    let object = target.join("roctap.bpf.o");
    // Only when it changed: `roctap` is built again when the file is newer.
    if fs::read(&built)? != fs::read(&object).unwrap_or_default() {
        fs::copy(&built, &object).with_context(|| format!("copying {}", built.display()))?;
    }
    Ok(())
}

/// Builds everything, installing what is missing.
pub fn build() -> anyhow::Result<Artifacts> {
    setup::packages()?;
    build_ebpf(&setup::bpf_toolchain()?)?;
    run(cargo().args(["build", "--release", "--package", "roctap"]).args([
        "--package",
        "tracer-shim",
        "--package",
        "emulated-gpu",
    ]))?;
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
