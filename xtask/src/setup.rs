//! Installs what building and testing needs, once.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use bpf_build::BPF_LINKER;

use crate::{
    apt::{Apt, patiently},
    run::{cargo, output, output_of, run},
};

/// Of the toolchain that cargo runs this with.
pub const RUSTC: &str = "rustc";

/// Debian packages, and what each is for.
const PACKAGES: [(&str, &str); 18] = [
    ("gcc", "links programs"),
    ("g++", "tests of the C interfaces: clients in C++"),
    ("cmake", "tests of the C interfaces: how projects find them"),
    ("make", "builds libbpf and the test programs"),
    ("pkg-config", "finds libelf"),
    ("libelf-dev", "libbpf reads ELF with it"),
    ("zlib1g-dev", "libelf's compression"),
    ("libamdhip64-5", "the HIP runtime (ROCm 5.2.3)"),
    ("libamdhip64-dev", "its headers"),
    ("libhsa-runtime64-1", "the HSA runtime"),
    ("libhsa-runtime-dev", "its headers"),
    ("libhsakmt-dev", "headers of the layer that the emulated GPU replaces"),
    ("hipcc", "compiles the test programs"),
    ("libjemalloc2", "tests of attaching: an allocator with thread-local state"),
    ("libtcmalloc-minimal4", "tests of attaching: another one"),
    ("musl-tools", "tests of attaching: another C library, which is refused"),
    ("strace", "tests of attaching: somebody else who traces"),
    ("python3", "tests of plans: a program that initialises the runtime"),
];

/// Runs `cargo xtask setup`.
pub fn run_setup() -> anyhow::Result<()> {
    packages()?;
    bpf_toolchain()?;
    nextest()?;
    println!("setup: everything is in place");
    Ok(())
}

/// Installs the missing Debian packages.
pub fn packages() -> anyhow::Result<()> {
    if output("apt-get", &["--version"]).is_none() {
        println!(
            "setup: this system has no apt-get. Install the equivalents of these Debian packages:"
        );
        for (name, purpose) in PACKAGES {
            println!("  {name:20} {purpose}");
        }
        println!(
            "then rust-src (`rustup component add rust-src`), and run the command again with ROCTAP_SKIP_PACKAGES=1."
        );
        if std::env::var_os("ROCTAP_SKIP_PACKAGES").is_some() {
            return Ok(());
        }
        bail!("cannot install packages without apt-get");
    }
    let missing: Vec<&str> =
        PACKAGES.iter().map(|&(name, _)| name).filter(|name| !is_installed(name)).collect();
    install(&missing)
}

fn is_installed(package: &str) -> bool {
    output("dpkg-query", &["-W", "-f", "${db:Status-Status}", package])
        .is_some_and(|status| status == "installed")
}

/// Installs Debian packages by name; nothing when there are none to install.
pub fn install(packages: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<&str> = packages.iter().copied().filter(|name| !is_installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("setup: installing {missing:?} with apt-get");
    if output("id", &["-u"]).is_none_or(|id| id.trim() != "0") {
        bail!("installing packages needs root; run as root, or install them yourself: {missing:?}");
    }
    let apt = Apt::of_this_machine();
    apt.run(&["update", "-qq"])?;
    let install = ["install", "-y", "-qq", "--no-install-recommends"];
    apt.run(&install.into_iter().chain(missing).collect::<Vec<_>>())
}

/// Makes rust-src and bpf-linker available where the build script of `roctap` looks for them.
pub fn bpf_toolchain() -> anyhow::Result<()> {
    let sysroot = bpf_build::sysroot(RUSTC.as_ref()).context("rustc is not installed")?;
    rust_src(&sysroot)?;
    bpf_linker(&sysroot)
}

fn rust_src(sysroot: &Path) -> anyhow::Result<()> {
    let library = bpf_build::rust_source(sysroot);
    if library.exists() {
        return Ok(());
    }
    println!("setup: rust-src is missing; `rustup component add rust-src`");
    if run(Command::new("rustup").args(["component", "add", "rust-src"])).is_ok()
        && library.exists()
    {
        return Ok(());
    }
    rust_src_from_debian(sysroot)?;
    if !library.exists() {
        bail!("rust-src is still missing: {} does not exist", library.display());
    }
    Ok(())
}

/// Debian's backports have the sources of the same release.
fn rust_src_from_debian(sysroot: &Path) -> anyhow::Result<()> {
    let version = rustc_field("release")?;
    println!("setup: trying the package rust-src {version} of Debian trixie-backports");
    let home = data_directory()?.join("rust-src");
    let apt = Apt::of_suites(&home, "debian", &["trixie-backports"])?;
    let hint = format!(
        "install the sources of Rust {version}: `rustup component add rust-src`, or Debian's package rust-src of that version linked to lib/rustlib/src/rust below `rustc --print sysroot`"
    );
    let download = || run(apt.command("apt-get").args(["download", "rust-src"]).current_dir(&home));
    apt.run(&["update"]).and_then(|()| patiently(download)).with_context(|| hint.clone())?;
    let package = fs::read_dir(&home)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with(&format!("rust-src_{version}")) && name.ends_with(".deb")
        })
        .with_context(|| format!("trixie-backports has another version; {hint}"))?;
    run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&home))?;
    let extracted = home.join(format!("usr/src/rustc-{version}"));
    let place = sysroot.join("lib/rustlib/src");
    fs::create_dir_all(&place)?;
    symlink(&extracted, place.join("rust"))
        .with_context(|| format!("linking {}", extracted.display()))
}

fn rustc_field(name: &str) -> anyhow::Result<String> {
    bpf_build::rustc_field(RUSTC.as_ref(), name)
        .with_context(|| format!("rustc is not installed, or `rustc -vV` names no {name}"))
}

/// Where tools are kept.
pub fn data_directory() -> anyhow::Result<PathBuf> {
    bpf_build::data_directory().context("neither XDG_DATA_HOME nor HOME is set")
}

/// bpf-linker links against LLVM, and must understand the bitcode of this rustc: so it is built
/// against the LLVM that rustc brings, once for each release of rustc.
fn bpf_linker(sysroot: &Path) -> anyhow::Result<()> {
    let prefix = bpf_build::linker_prefix(RUSTC.as_ref())
        .context("no rustc, or neither XDG_DATA_HOME nor HOME is set")?;
    if bpf_build::runs(&prefix.join("bin/bpf-linker")) {
        return Ok(());
    }
    println!("setup: building bpf-linker {BPF_LINKER} in {} (about a minute)", prefix.display());
    link_llvm(sysroot, &prefix.join("lib"))?;
    let llvm = rustc_field("LLVM version")?;
    let feature = format!("llvm-{}", llvm.split('.').next().unwrap_or(&llvm));
    patiently(|| {
        run(cargo()
            .env("LLVM_PREFIX", &prefix)
            .env_remove("CARGO_TARGET_DIR")
            .args(["install", "bpf-linker", "--version", &format!("^{BPF_LINKER}")])
            .args(["--no-default-features", "--features", &feature, "--locked", "--force"])
            .arg("--root")
            .arg(&prefix))
    })
}

/// The release of cargo-nextest that is installed where there is none. Others serve as well.
const NEXTEST: &str = "0.9.143";

/// Makes cargo-nextest available, which runs the tests.
///
/// # Errors
///
/// When it can be neither run nor built.
pub fn nextest() -> anyhow::Result<()> {
    let runs = || output_of(cargo().args(["nextest", "--version"])).is_some();
    if runs() {
        return Ok(());
    }
    println!("setup: building cargo-nextest {NEXTEST} (some minutes)");
    patiently(|| {
        run(cargo().env_remove("CARGO_TARGET_DIR").args([
            "install",
            "cargo-nextest",
            "--version",
            NEXTEST,
            "--locked",
        ]))
    })?;
    if !runs() {
        bail!("cargo-nextest was installed, and `cargo nextest --version` does not work");
    }
    Ok(())
}

/// Links the toolchain's libLLVM into `lib`, by its own name (which the loader looks for) and as
/// `libLLVM.so` (which the build looks for).
fn link_llvm(sysroot: &Path, lib: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(lib)?;
    // Next to the library lies a linker script of a few bytes under a similar name.
    let library = fs::read_dir(sysroot.join("lib"))?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("libLLVM"))
        .max_by_key(|entry| entry.metadata().map_or(0, |meta| meta.len()))
        .context("the Rust toolchain has no libLLVM")?;
    for name in [library.file_name(), "libLLVM.so".into()] {
        let link = lib.join(name);
        let _ = fs::remove_file(&link);
        symlink(library.path(), &link).with_context(|| format!("linking {}", link.display()))?;
    }
    Ok(())
}
