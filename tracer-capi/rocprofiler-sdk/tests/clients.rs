//! Tools in C99 and C++11 that use `librocprofiler-sdk.so.0`, linked as it is for users.

use std::path::{Path, PathBuf};
use std::process::Command;

use capi_build::{ROCPROFILER_SDK, clients::Clients, include_directory, layouts::Language};

fn clients() -> Clients {
    Clients::new(&ROCPROFILER_SDK, env!("CARGO_MANIFEST_DIR")).expect("the library")
}

#[test]
fn exports_are_as_listed() {
    clients().check().expect("the exports");
}

/// Both languages take the headers; each function is called, and each status that it can return is seen.
#[test]
fn clients_configure_themselves() {
    let clients = clients();
    for language in Language::ALL {
        clients.run(language, "configures").expect("it runs");
    }
}

#[test]
fn kinds_and_operations_have_the_names_of_the_headers() {
    clients().run(Language::C, "names").expect("it runs");
}

#[test]
fn what_is_not_implemented_says_so() {
    clients().run(Language::C, "absent").expect("it runs");
}

/// Makes a tool's library, which calls itself `name`.
fn tool(clients: &Clients, name: &str, options: &[&str]) -> PathBuf {
    let library = clients.directory().join(format!("lib{name}.so"));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-std=c99", "-Wall", "-Wextra", "-Werror"]).args(options);
    compiler.arg(format!("-DNAME=\"{name}\"")).arg("-o").arg(&library);
    compiler.arg(clients.source("tool.c")).arg("-I").arg(include_directory().expect("headers"));
    compiler.arg(clients.library());
    let output = compiler.output().expect("cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// Runs the program that is no tool, and to which a runtime hands its tables; what it said.
fn host(clients: &Clients, libraries: &[&Path], named: &str) -> (String, String) {
    let program = clients.directory().join("host");
    if !program.exists() {
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        compiler.arg(clients.source("host.c")).arg("-ldl");
        assert!(compiler.status().expect("cc").success());
    }
    let mut command = clients.command(&program);
    command.arg(clients.library()).args(libraries).env("ROCP_TOOL_LIBRARIES", named);
    let output = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    (out, err)
}

/// "ROCprofiler-SDK collects all rocprofiler_tool_configure_result_t instances before invoking the initialize member of any
/// of these instances." Entries of the environment come first, the last one too, then those of libraries.
#[test]
fn tools_are_found_in_every_place_and_configured_before_any_is_initialized() {
    let clients = clients();
    let [first, second, third] = ["first", "second", "third"].map(|name| tool(&clients, name, &[]));
    let named = format!("{}:{}", first.display(), second.display());
    // The second one is loaded as well: each is found once.
    let (said, complaints) = host(&clients, &[&second, &third], &named);
    let expected = "\
configure first, version 500 (0.5.0), 0 before it
configure second, version 500 (0.5.0), 1 before it
configure third, version 500 (0.5.0), 2 before it
initialize first
initialize second
initialize third
main ends
finalize first
finalize second
finalize third
";
    assert_eq!((said.as_str(), complaints.as_str()), (expected, ""));
}

#[test]
fn a_tool_that_answers_null_takes_no_part() {
    let clients = clients();
    let inactive = tool(&clients, "inactive", &["-DINACTIVE"]);
    let active = tool(&clients, "active", &[]);
    let named = format!("{}:{}", inactive.display(), active.display());
    let (said, complaints) = host(&clients, &[], &named);
    let expected = "\
configure inactive, version 500 (0.5.0), 0 before it
configure active, version 500 (0.5.0), 1 before it
initialize active
main ends
finalize active
";
    assert_eq!((said.as_str(), complaints.as_str()), (expected, ""));
}

#[test]
fn a_tool_may_finalize_itself_once() {
    let clients = clients();
    let early = tool(&clients, "early", &["-DFINALIZES_ITSELF"]);
    let (said, _) = host(&clients, &[], &early.display().to_string());
    let expected = "\
configure early, version 500 (0.5.0), 0 before it
initialize early
finalize early
main ends
";
    assert_eq!(said, expected);
}

#[test]
fn what_is_no_tool_is_named_and_the_program_goes_on() {
    let clients = clients();
    let none = tool(&clients, "none", &["-DNO_TOOL"]);
    let old = tool(&clients, "old", &["-DOLD"]);
    let good = tool(&clients, "good", &[]);
    let named =
        format!("/nowhere/libtool.so:{}:{}:{}", none.display(), old.display(), good.display());
    let (said, complaints) = host(&clients, &[], &named);
    assert!(said.contains("initialize good") && !said.contains("initialize old"), "{said}");
    let lines: Vec<&str> = complaints.lines().collect();
    let [missing, no_tool, wrong] = lines[..] else { panic!("{complaints}") };
    assert!(missing.contains("the tool /nowhere/libtool.so cannot be loaded"), "{missing}");
    assert!(no_tool.contains("libnone.so is no tool: it has no function"), "{no_tool}");
    assert!(
        wrong.contains("libold.so is left out") && wrong.contains("8 bytes, not 32"),
        "{wrong}"
    );
}

/// A child that was forked has none of the threads; what its parent records stays its parent's.
#[test]
fn a_forked_child_ends_without_finalizing() {
    let clients = clients();
    let forks = tool(&clients, "forks", &["-DFORKS"]);
    let (said, _) = host(&clients, &[], &forks.display().to_string());
    assert_eq!(said.matches("finalize forks").count(), 1, "{said}");
}
