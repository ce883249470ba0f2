//! Programs in C99 and C++11 that use `libroctracer64.so.4`, linked as it is for users.

use std::process::Command;

use capi_build::{
    ROCTRACER, ROCTX,
    clients::{Clients, succeed},
    layouts::Language,
    link::Source,
};

fn clients() -> Clients {
    Clients::new(&ROCTRACER, env!("CARGO_MANIFEST_DIR")).expect("the library")
}

#[test]
fn exports_are_as_listed() {
    clients().check().expect("the exports");
}

#[test]
fn every_function_and_its_errors() {
    clients().run(Language::C, "calls").expect("it runs");
}

#[test]
fn exceptions_of_the_clients_functions() {
    clients().run(Language::Cpp, "throws").expect("it runs");
}

#[test]
fn under_sanitizers() {
    let clients = clients();
    clients.run_sanitized(Language::C, "calls").expect("it runs");
    clients.run_sanitized(Language::Cpp, "throws").expect("it runs");
}

#[test]
fn loaded_and_unloaded() {
    clients().run_loading("loads").expect("it runs");
}

#[test]
fn client_linked_without_versions() {
    clients().run_linked_against("unversioned.c", "old_client.c").expect("it runs");
}

#[test]
fn marks_and_ranges() {
    let clients = clients().beside(&ROCTX).expect("the library of roctx");
    clients.run(Language::C, "marks").expect("it runs");
}

/// What is registered with roctx, and when: in the place of its library is one that tells.
#[test]
fn registered_while_wanted() {
    run_with_fake("libroctx64.so.4", "fake_roctx.c", "registers");
}

/// Functions of HIP are those of the runtime that is loaded; a later one than is known is refused.
#[test]
fn later_hip_has_names_and_is_refused() {
    run_with_fake("libamdhip64.so.9", "fake_hip.c", "later_hip");
}

/// Runs a client with a library that stands in for another.
fn run_with_fake(soname: &str, source: &str, client: &str) {
    let clients = clients();
    let fake = clients.directory().join(soname);
    let mut compiler = Language::C.compiler().expect("a compiler");
    compiler.args(["-shared", "-fPIC", &format!("-Wl,-soname,{soname}"), "-o"]).arg(&fake);
    succeed(compiler.arg(clients.source(source))).expect("the library");
    let program = clients.directory().join(client);
    let source = clients.source(&format!("{client}.c"));
    let mut compiler = Language::C.compiler().expect("a compiler");
    compiler.arg("-o").args([&program, &source, &clients.library(), &fake]);
    succeed(&mut compiler).expect("the client");
    succeed(&mut clients.command(&program)).expect("it runs");
}

/// What `cargo xtask dist` packs, and where somebody has moved it.
#[test]
fn found_by_pkg_config_and_cmake() {
    for tool in ["pkg-config", "cmake"] {
        if Command::new(tool).arg("--version").output().is_err() {
            eprintln!("skipped: {tool} is not installed; `cargo xtask setup` installs it");
            return;
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let source = Source::of_tests().expect("a target directory");
    for library in [&ROCTRACER, &ROCTX] {
        library.install(&source, &at("first")).expect("installed");
    }
    std::fs::rename(at("first"), at("moved")).expect("moved");
    let source = "#include <roctracer/roctracer_ext.h>\n#include <roctx.h>\n\
        int main(void) { return roctracer_version_major() != 4 || roctx_version_major() != 4; }\n";
    std::fs::write(at("client.c"), source).expect("written");

    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", at("moved/lib/pkgconfig"));
    pkg_config.args(["--cflags", "--libs", "roctracer >= 4.1", "roctx"]);
    let options = pkg_config.output().expect("pkg-config").stdout;
    let options = String::from_utf8(options).expect("text");
    let mut compiler = Language::C.compiler().expect("a compiler");
    compiler.arg("-o").args([at("by_pkg_config"), at("client.c")]);
    succeed(compiler.args(options.split_whitespace())).expect("it compiles");
    let mut client = Command::new(at("by_pkg_config"));
    succeed(client.env("LD_LIBRARY_PATH", at("moved/lib"))).expect("it runs");

    let project = "cmake_minimum_required(VERSION 3.18)\nproject(client C)\n\
        find_package(roctracer 4.0 REQUIRED)\nfind_package(roctx REQUIRED)\n\
        add_executable(client client.c)\n\
        target_link_libraries(client roctracer::roctracer roctx::roctx)\n";
    std::fs::write(at("CMakeLists.txt"), project).expect("written");
    for arguments in [["-S", ".", "-B", "build"], ["--build", "build", "--config", "Debug"]] {
        let mut cmake = Command::new("cmake");
        cmake.args(arguments).current_dir(&directory).env("CMAKE_PREFIX_PATH", at("moved"));
        let output = cmake.output().expect("cmake");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // CMake has it find the libraries.
    succeed(&mut Command::new(at("build/client"))).expect("it runs");
}
