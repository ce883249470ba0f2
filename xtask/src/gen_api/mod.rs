//! Generates `tracer-records/src/api/generated.rs`, the table of HIP and HSA functions.
//!
//! The facts come from what is installed: prototypes and enumerations from the C headers as clang
//! parses them (`-ast-dump=json`), sizes from clang too, exported symbols from `nm -D`. Nothing is
//! guessed from the text of a header, so macros, conditional compilation and typedefs need no care
//! here. Debian packages: `libamdhip64-dev`, `libhsa-runtime-dev`, `clang-15` (or any later one;
//! hipcc brings one) and `binutils`. `CLANG`, `HIP_LIBRARY` and `HSA_LIBRARY` override
//! what is looked for.
//!
//! The output is checked in: neither building nor running roctap needs ROCm's headers.

mod clang;
mod emit;
mod functions;
mod types;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Writes the table anew, in the workspace that xtask runs in.
pub fn run() -> Result<()> {
    let root = workspace_root()?;
    let headers = clang::Headers::parse()?;
    let hip = exports("HIP_LIBRARY", "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5")?;
    let hsa = exports("HSA_LIBRARY", "/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1")?;
    let table = functions::table(&headers, &hip, &hsa)?;
    let version = package_version("libamdhip64-dev").unwrap_or_else(|| "of unknown version".into());

    let output = root.join("tracer-records/src/api/generated.rs");
    std::fs::write(&output, emit::source(&table, &version))
        .with_context(|| format!("write {}", output.display()))?;

    let arguments: usize = table.functions.iter().map(|f| f.args.len()).sum();
    println!(
        "{}: {} functions ({} without a prototype), {arguments} arguments, {} types, {} enumerations",
        output.display(),
        table.functions.len(),
        table.functions.iter().filter(|f| f.ret.kind == types::Kind::Unknown).count(),
        table.types().len(),
        table.enumerations().len(),
    );
    Ok(())
}

fn workspace_root() -> Result<PathBuf> {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR").context("run me as `cargo xtask`")?;
    Ok(Path::new(&xtask).parent().context("xtask has no parent directory")?.to_path_buf())
}

/// The functions that a library exports, without version suffixes.
fn exports(variable: &str, default: &str) -> Result<Vec<String>> {
    let library = std::env::var(variable).unwrap_or_else(|_| default.into());
    let out = Command::new("nm").args(["-D", "--defined-only", &library]).output().context("nm")?;
    ensure!(out.status.success(), "nm {library}: {}", String::from_utf8_lossy(&out.stderr));
    let symbols: Vec<String> = String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let code = matches!(words.next()?, "T" | "W");
            let symbol = words.next()?;
            code.then(|| symbol.split('@').next().unwrap_or(symbol).to_owned())
        })
        .collect();
    ensure!(!symbols.is_empty(), "{library} exports no function");
    Ok(symbols)
}

/// What the distribution calls the version, for the file's header.
fn package_version(package: &str) -> Option<String> {
    let out = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
