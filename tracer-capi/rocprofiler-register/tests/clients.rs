//! A program in C99 and C++11 that hands tables over as runtimes do, and tools that want them.

use std::path::{Path, PathBuf};

use capi_build::clients::{Clients, succeed};
use capi_build::layouts::Language;
use capi_build::{Library, ROCPROFILER_REGISTER, ROCPROFILER_SDK, ROCPROFILER_SDK_1};

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

fn clients() -> Clients {
    let clients = Clients::new(&ROCPROFILER_REGISTER, PACKAGE).expect("the library");
    let clients = clients.beside(&ROCPROFILER_SDK).expect("the library for tools");
    clients.beside(&ROCPROFILER_SDK_1).expect("the library for tools")
}

#[test]
fn exports_are_as_listed() {
    Clients::new(&ROCPROFILER_REGISTER, PACKAGE)
        .expect("the library")
        .check()
        .expect("the exports");
}

fn runtime(clients: &Clients, language: Language) -> PathBuf {
    let program = clients.directory().join(format!("runtime-{}", language.extension()));
    let mut compiler = language.compiler().expect("a compiler");
    let source = clients.source(&format!("runtime.{}", language.extension()));
    compiler.arg("-o").args([&program, &source, &clients.library()]);
    succeed(&mut compiler).expect("the program");
    program
}

/// A tool of the tests of `rocprofiler-sdk`, linked against one of its libraries.
fn tool(clients: &Clients, library: &Library, options: &[&str]) -> PathBuf {
    let tool = clients.directory().join(format!("tool-{}.so", library.package));
    let source = Path::new(PACKAGE).join("../rocprofiler-sdk/tests/clients/tool.c");
    let mut compiler = Language::C.compiler().expect("a compiler");
    compiler.args(["-shared", "-fPIC", "-DNAME=\"mine\""]).args(options).arg("-o");
    compiler.args([tool.clone(), source, clients.directory().join(library.soname)]);
    succeed(&mut compiler).expect("the tool");
    tool
}

/// What the program says where the environment has these variables.
fn said(clients: &Clients, program: &Path, words: &[(&str, &str)]) -> String {
    let output = clients.command(program).envs(words.iter().copied()).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success() && err.is_empty(), "{}: {out}{err}", output.status);
    out
}

#[test]
fn nobody_wants_tables() {
    let clients = clients();
    for language in Language::ALL {
        let program = runtime(&clients, language);
        assert_eq!(said(&clients, &program, &[]), "roctx 1\nfew 1\n");
        // Nothing is loaded for it.
        let library = [("ROCPROFILER_REGISTER_LIBRARY", "librocprofiler-sdk.so.0")];
        assert_eq!(said(&clients, &program, &library), "roctx 1\nfew 1\n");
    }
}

/// `librocprofiler-sdk` is loaded for a tool that the environment names, and that of a preloaded tool is found.
#[test]
fn tools_get_tables() {
    let clients = clients();
    let program = runtime(&clients, Language::C);
    let first = tool(&clients, &ROCPROFILER_SDK, &[]);
    let later = tool(&clients, &ROCPROFILER_SDK_1, &["-DROCPROFILER_SDK_INTERFACE=1"]);
    let [first, later] = [first, later].map(|path| path.display().to_string());
    let expected = |version: &str| {
        format!(
            "configure mine, version {version}, 0 before it\ninitialize mine\nroctx 0\nfew 6\nfinalize mine\n"
        )
    };
    let (old, new) = (expected("500 (0.5.0)"), expected("10000 (1.0.0)"));
    let named = |tool: &str, library| {
        let words = [("ROCP_TOOL_LIBRARIES", tool), ("ROCPROFILER_REGISTER_LIBRARY", library)];
        said(&clients, &program, &words)
    };
    assert_eq!(named(&first, ""), old);
    assert_eq!(named(&later, ROCPROFILER_SDK_1.soname), new);
    for (tool, expected) in [(&first, old), (&later, new)] {
        assert_eq!(said(&clients, &program, &[("LD_PRELOAD", tool)]), expected);
    }
    let forced = said(&clients, &program, &[("ROCPROFILER_REGISTER_FORCE_LOAD", "1")]);
    assert_eq!(forced, "roctx 0\nfew 6\n");
    let not_forced = said(&clients, &program, &[("ROCPROFILER_REGISTER_FORCE_LOAD", "0")]);
    assert_eq!(not_forced, "roctx 1\nfew 1\n");
}
