//! Generates `tracer-records/src/api/generated.rs`, the table of HIP and HSA functions, and
//! `tracer-capi/common/src/hip/generated.rs`, where the arguments are in what HIP tells of a call.
//!
//! The facts come from what is installed: prototypes and enumerations from the C headers as clang
//! parses them (`-ast-dump=json`), sizes from clang too, exported symbols from `nm -D`. Nothing is
//! guessed from the text of a header, so macros, conditional compilation and typedefs need no care
//! here. Debian packages: `libamdhip64-dev`, `libhsa-runtime-dev`, `clang-15` (or any later one;
//! hipcc brings one) and `binutils`. `CLANG`, `HIP_LIBRARY` and `HSA_LIBRARY` override
//! what is looked for. Functions that are new in later releases come from the roots of
//! `cargo xtask rocm`.
//!
//! The output is checked in: neither building nor running roctap needs ROCm's headers.

mod call_data;
mod clang;
mod emit;
mod functions;
mod types;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::rocm;
use call_data::CallData;

/// Releases whose new functions are added, in this order: whose are added behind changes no ids; and what
/// the table of arguments calls them.
const LATER: [(&str, &str); 3] =
    [("5.7", call_data::FIVE), ("6.4", call_data::LATER), ("7.2", call_data::LATER)];
/// Where libraries are in a root.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Writes the table anew, in the workspace that xtask runs in.
pub fn run() -> Result<()> {
    let root = workspace_root()?;
    let headers = clang::Headers::parse(None)?;
    let hip = exports(&library("HIP_LIBRARY", "libamdhip64.so.5"))?;
    let hsa = exports(&library("HSA_LIBRARY", "libhsa-runtime64.so.1"))?;
    let mut table = functions::table(&headers, &hip, &hsa)?;
    let mut call_data = CallData::default();
    call_data.add(call_data::FIRST, &headers)?;
    for (release, word) in LATER {
        let root = rocm::files(release)?;
        let headers = clang::Headers::parse(Some(&root))?;
        let libraries = root.join(LIBRARIES);
        let mut symbols = exports(&libraries.join("libamdhip64.so"))?;
        symbols.extend(exports(&libraries.join("libhsa-runtime64.so"))?);
        table.add_later(&headers, &symbols).with_context(|| format!("ROCm {release}"))?;
        call_data.add(word, &headers).with_context(|| format!("ROCm {release}"))?;
    }
    let version = package_version("libamdhip64-dev").unwrap_or_else(|| "of unknown version".into());

    let output = root.join("tracer-records/src/api/generated.rs");
    std::fs::write(&output, emit::source(&table, &version))
        .with_context(|| format!("write {}", output.display()))?;
    let arguments = root.join("tracer-capi/common/src/hip/generated.rs");
    std::fs::write(&arguments, call_data.source(&version))
        .with_context(|| format!("write {}", arguments.display()))?;

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

/// An installed library, unless the environment names another.
fn library(variable: &str, name: &str) -> PathBuf {
    let installed = || Path::new("/").join(LIBRARIES).join(name);
    std::env::var_os(variable).map_or_else(installed, PathBuf::from)
}

/// The functions that a library exports, without version suffixes.
fn exports(library: &Path) -> Result<Vec<String>> {
    let out = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    let out = out.context("nm")?;
    let library = library.display();
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
