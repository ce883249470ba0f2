//! `cargo xtask dist`: a tarball to copy to another machine.

use std::{fs, process::Command};

use anyhow::Context as _;
use capi_build::link::{Profile, Source};

use crate::{
    artifacts, documents,
    run::{root, run},
    setup,
};

/// What goes into the tarball beside the programs and the documents.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

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
    let documents = documents::AT_ROOT.into_iter().chain(LICENCES).map(|name| root().join(name));
    for file in programs.into_iter().chain(documents) {
        let to = directory.join(file.file_name().context("a file name")?);
        fs::copy(&file, to).with_context(|| format!("copying {}", file.display()))?;
    }
    run(Command::new("cp").arg("-r").arg(root().join("docs")).arg(&directory))?;
    for (_, linked) in documents::links(&root())? {
        let to = directory.join(&linked);
        if !to.exists() {
            fs::create_dir_all(to.parent().context("below the directory")?)?;
            fs::copy(root().join(&linked), &to)
                .with_context(|| format!("copying {}", linked.display()))?;
        }
    }
    let source = Source::Cargo(root().join("target"), Profile::Release);
    for library in &capi_build::LIBRARIES {
        library.install(&source, &directory)?;
        library.check(&library.installed(&directory))?;
    }
    let tarball = format!("{name}.tar.gz");
    run(Command::new("tar").args(["-czf", &tarball, &name]).current_dir(&dist))?;
    println!("\n{}", dist.join(tarball).display());
    Ok(())
}
