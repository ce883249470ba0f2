//! Programs in C99 and C++11 that use `librocprofiler-sdk-roctx.so.0`, linked as it is for users.

use std::process::Command;

use capi_build::clients::{Clients, succeed};
use capi_build::layouts::Language;
use capi_build::link::Source;
use capi_build::{ROCPROFILER_SDK, ROCPROFILER_SDK_ROCTX, include_directory};

fn clients() -> Clients {
    let package = env!("CARGO_MANIFEST_DIR");
    Clients::new(&ROCPROFILER_SDK_ROCTX, package).expect("the library")
}

#[test]
fn exports_are_as_listed() {
    clients().check().expect("the exports");
}

#[test]
fn clients_that_nobody_records() {
    let clients = clients();
    for language in Language::ALL {
        clients.run(language, "calls").expect("it runs");
    }
}

/// A library that takes the tables has the calls: it is there at the first call, or asks for them later.
#[test]
fn tables_are_handed_over() {
    let clients = clients();
    let program = clients.directory().join("taken");
    let mut compiler = Language::C.compiler().expect("a compiler");
    compiler.arg("-o").args([&program, &clients.source("taken.c"), &clients.library()]);
    succeed(compiler.arg("-ldl")).expect("the program");
    for (soname, options) in [
        ("librocprofiler-sdk.so.0", &[][..]),
        ("librocprofiler-sdk.so.1", &[]),
        ("librocprofiler-register.so.0", &["-DAS_REGISTER"]),
    ] {
        // Its file may be called otherwise.
        let taker = clients.directory().join("taker");
        let mut compiler = Language::C.compiler().expect("a compiler");
        compiler.args(["-shared", "-fPIC", "-o"]).args([&taker, &clients.source("takes.c")]);
        compiler.arg(format!("-Wl,-soname,{soname}"));
        compiler.arg("-I").arg(include_directory().expect("headers")).args(options);
        succeed(&mut compiler).expect("the library that takes");
        for when in ["at once", "late"] {
            let mut command = clients.command(&program);
            succeed(command.arg(&taker).arg(when)).expect("it runs");
        }
    }
}

/// What `cargo xtask dist` packs, with `librocprofiler-sdk`, whose headers include some of these.
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
    for library in [&ROCPROFILER_SDK, &ROCPROFILER_SDK_ROCTX] {
        library.install(&source, &at("prefix")).expect("installed");
    }
    let source = "#include <rocprofiler-sdk/rocprofiler.h>\n#include <rocprofiler-sdk-roctx/roctx.h>\n\
        int main(void) { rocprofiler_get_version(0, 0, 0); return roctxRangePushA(\"range\"); }\n";
    std::fs::write(at("client.c"), source).expect("written");

    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", at("prefix/lib/pkgconfig"));
    pkg_config.args(["--cflags", "--libs", "rocprofiler-sdk >= 0.5", "rocprofiler-sdk-roctx"]);
    let options = pkg_config.output().expect("pkg-config").stdout;
    let options = String::from_utf8(options).expect("text");
    let mut compiler = Command::new("cc");
    compiler.arg("-o").args([at("by_pkg_config"), at("client.c")]);
    succeed(compiler.args(options.split_whitespace())).expect("it compiles");
    let mut client = Command::new(at("by_pkg_config"));
    succeed(client.env("LD_LIBRARY_PATH", at("prefix/lib"))).expect("it runs");

    let project = "cmake_minimum_required(VERSION 3.18)\nproject(client C)\n\
        find_package(rocprofiler-sdk 0.5 REQUIRED)\nfind_package(rocprofiler-sdk-roctx REQUIRED)\n\
        add_executable(client client.c)\n\
        target_link_libraries(client rocprofiler-sdk::rocprofiler-sdk rocprofiler-sdk-roctx::rocprofiler-sdk-roctx)\n";
    std::fs::write(at("CMakeLists.txt"), project).expect("written");
    for arguments in [["-S", ".", "-B", "build"], ["--build", "build", "--config", "Debug"]] {
        let mut cmake = Command::new("cmake");
        cmake.args(arguments).current_dir(&directory).env("CMAKE_PREFIX_PATH", at("prefix"));
        let output = cmake.output().expect("cmake");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    succeed(&mut Command::new(at("build/client"))).expect("it runs");
}
