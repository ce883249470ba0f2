//! `cargo xtask abi check`: the libraries with C interfaces and their headers, compared with the lists in
//! `tracer-capi/abi`.

use std::path::PathBuf;

use capi_build::link::{LIBRARIES_VARIABLE, Profile, Source};
use capi_build::{LIBRARIES, Library, layouts};
use clap::Subcommand;

use crate::run::root;

/// What is done with the lists.
#[derive(Subcommand)]
pub enum Action {
    /// Build the libraries and compare exports, versions, sizes and offsets
    Check,
}

/// Runs `cargo xtask abi`.
pub fn run_abi(action: &Action) -> anyhow::Result<()> {
    match action {
        Action::Check => check().map(|_| ()),
    }
}

/// The variable by which tests find the libraries that were built, and its value.
pub type Variable = (&'static str, PathBuf);

/// Builds the libraries as users get them, and compares.
///
/// # Errors
///
/// If one cannot be built, or is not as listed.
pub fn check() -> anyhow::Result<Variable> {
    layouts::check(&directory())?;
    for library in build()? {
        println!("{}: as listed", library.display());
    }
    println!("headers: as listed, in C99 and C++11");
    Ok((LIBRARIES_VARIABLE, directory().canonicalize()?))
}

/// Where the libraries are.
fn directory() -> PathBuf {
    root().join("target/capi")
}

/// Builds the libraries, compares them with the lists, and returns where they are.
fn build() -> anyhow::Result<Vec<PathBuf>> {
    let source = Source::Cargo(root().join("target"), Profile::Release);
    let built = |library: &Library| {
        println!("\nBuilding {}", library.soname);
        let file = library.make(&source, &directory())?;
        library.check(&file)?;
        Ok(file)
    };
    LIBRARIES.iter().map(built).collect()
}
