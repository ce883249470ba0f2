//! Programs in C99 and C++11 that use `libroctx64.so.4`, linked as it is for users.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use capi_build::{ROCTX, include_directory, layouts::Language, link::Profile};
use tempfile::TempDir;

/// A directory with the library in it.
fn built() -> &'static Path {
    static BUILT: OnceLock<TempDir> = OnceLock::new();
    let directory = BUILT.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let exe = std::env::current_exe().expect("own path");
        // <target>/<profile>/deps/<this>. `cargo test` alone makes no archive that has its own name.
        let target = exe.ancestors().nth(3).expect("the target directory");
        ROCTX.build(target, Profile::Debug, directory.path()).expect("building");
        directory
    });
    directory.path()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Runs a command that must succeed and say nothing.
fn succeed(command: &mut Command) {
    let output = command.output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.is_empty(), "{command:?}: {}\n{said}", output.status);
}

/// A program that runs with our library.
fn client(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", built());
    command
}

fn linked_client(language: Language, name: &str) -> PathBuf {
    let program = built().join(format!("{name}-{}", language.extension()));
    let source = source(&format!("{name}.{}", language.extension()));
    let mut compiler = language.compiler().expect("a compiler");
    // As those do who name the directory of the headers alone.
    compiler.arg("-I").arg(include_directory().expect("headers").join("roctracer"));
    succeed(compiler.arg("-o").args([&program, &source]).arg("-L").arg(built()).arg("-lroctx64"));
    program
}

#[test]
fn exports_are_as_listed() {
    ROCTX.check(&built().join(ROCTX.soname)).expect("the exports");
}

#[test]
fn c99_client() {
    succeed(&mut client(&linked_client(Language::C, "calls")));
}

#[test]
fn cpp11_client_and_exceptions() {
    succeed(&mut client(&linked_client(Language::Cpp, "calls")));
}

#[test]
fn loaded_and_unloaded() {
    let program = built().join("loads");
    let mut compiler = Language::C.compiler().expect("a compiler");
    succeed(compiler.arg("-o").arg(&program).arg(source("loads.c")).arg("-ldl"));
    succeed(client(&program).arg(built().join(ROCTX.soname)));
}

#[test]
fn client_linked_without_versions() {
    let old = built().join("old");
    std::fs::create_dir_all(&old).expect("a directory");
    let library = old.join(ROCTX.soname);
    let soname = format!("-Wl,-soname,{}", ROCTX.soname);
    let compiler = || Language::C.compiler().expect("a compiler");
    succeed(
        compiler()
            .args(["-shared", "-fPIC", &soname, "-o"])
            .args([&library, &source("unversioned.c")]),
    );
    let program = old.join("client");
    succeed(compiler().arg("-o").args([&program, &source("old_client.c"), &library]));
    succeed(&mut client(&program));
}
