//! `cargo xtask dist`: a tarball to copy to another machine.

use std::{fs, process::Command};

use anyhow::Context as _;
use capi_build::link::Profile;

use crate::{
    artifacts,
    run::{root, run},
    setup,
};

/// What goes into the tarball beside the programs.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Builds and packs.
pub fn run_dist() -> anyhow::Result<()> {
    setup::packages()?;
    artifacts::build_release(&["roctap", "tracer-shim"])?;
    let name = format!("roctap-{}-x86_64-linux", env!("CARGO_PKG_VERSION"));
    let dist = root().join("target/dist");
    let directory = dist.join(&name);
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    let programs = ["roctap", "libroctap_shim.so"].map(|p| root().join("target/release").join(p));
    for file in programs.into_iter().chain(DOCUMENTS.map(|document| root().join(document))) {
        let to = directory.join(file.file_name().context("a file name")?);
        fs::copy(&file, to).with_context(|| format!("copying {}", file.display()))?;
    }
    run(Command::new("cp").arg("-r").arg(root().join("docs")).arg(&directory))?;
    let target = root().join("target");
    for library in &capi_build::LIBRARIES {
        library.install(&target, Profile::Release, &directory)?;
        library.check(&library.installed(&directory))?;
    }
    let tarball = format!("{name}.tar.gz");
    run(Command::new("tar").args(["-czf", &tarball, &name]).current_dir(&dist))?;
    println!("\n{}", dist.join(tarball).display());
    Ok(())
}
