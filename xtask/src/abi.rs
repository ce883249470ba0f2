//! `cargo xtask abi check`: the libraries with C interfaces and their headers, compared with the lists in
//! `tracer-capi/abi`.

use std::path::{Path, PathBuf};

use capi_build::{LIBRARIES, Library, layouts, link::Profile};
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
        Action::Check => check(),
    }
}

/// Builds and compares.
pub fn check() -> anyhow::Result<()> {
    let target = root().join("target");
    layouts::check(&target.join("capi"))?;
    for library in build(&LIBRARIES, &target.join("capi"))? {
        println!("{}: as listed", library.display());
    }
    println!("headers: as listed, in C99 and C++11");
    Ok(())
}

/// Builds libraries as users get them into a directory, compares them with the lists, and returns where
/// they are.
pub fn build(libraries: &[Library], directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let target = root().join("target");
    libraries
        .iter()
        .map(|library| {
            println!("\nBuilding {}", library.soname);
            let file = library.build(&target, Profile::Release, directory)?;
            library.check(&file)?;
            Ok(file)
        })
        .collect()
}
