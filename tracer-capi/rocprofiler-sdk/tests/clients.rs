//! Tools in C99 and C++11 that use `librocprofiler-sdk.so.0`, linked as it is for users; in the package `rocprofiler-sdk-1`
//! `librocprofiler-sdk.so.1`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use capi_build::clients::{Clients, succeed};
use capi_build::layouts::Language;
use capi_build::{Library, ROCPROFILER_SDK, ROCPROFILER_SDK_1, ROCPROFILER_SDK_ROCTX};
use rocprofiler::kinds::Kind;

/// Both are made of the same sources, and have the same clients.
const LIBRARY: &Library = if cfg!(feature = "v1") { &ROCPROFILER_SDK_1 } else { &ROCPROFILER_SDK };
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rocprofiler-sdk");
/// What tools are told the interface's version is.
const VERSION: &str = if cfg!(feature = "v1") { "10000 (1.0.0)" } else { "500 (0.5.0)" };
/// The kinds of roctx, and `ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT`.
const MARKS: &str = if cfg!(feature = "v1") { "7,8,9,13" } else { "7,8,9,14" };

fn clients() -> Clients {
    Clients::new(LIBRARY, PACKAGE).expect("the library")
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

/// Tools in C++17 have these headers from AMD's samples on.
#[test]
fn cxx_has_names_hashes_and_comparisons() {
    clients().run_with(Language::Cpp, "cxx", &["-std=c++17"]).expect("it runs");
}

/// Both languages take the headers of services that are not served, and each function of them says so.
#[test]
fn what_is_not_implemented_says_so() {
    let clients = clients();
    for language in Language::ALL {
        clients.run(language, "unserved").expect("it runs");
    }
}

/// As an exception ends any program: with what it says.
#[test]
fn a_finalize_function_that_throws() {
    let clients = clients();
    let program = clients.directory().join("throws");
    let mut compiler = clients.compiler(Language::Cpp).expect("a compiler");
    compiler.arg("-o").args([&program, &clients.source("throws.cpp"), &clients.library()]);
    succeed(&mut compiler).expect("the program");
    let output = clients.command(&program).output().expect("it runs");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.signal(), Some(6), "{said}");
    assert!(said.contains("what():  it was the tool") && !said.contains("panic"), "{said}");
}

/// The others, which `pthread_create` creates, are told of where the real runtime is.
#[test]
fn a_tool_is_told_of_a_thread_of_std() {
    let clients = clients();
    let in_directory = |name| clients.directory().join(name);
    let (program, runtime) = (in_directory("starts"), in_directory("libhsa-runtime64.so.1"));
    let source = clients.source("starts.cpp");
    let mut compiler = clients.compiler(Language::Cpp).expect("a compiler");
    compiler.args(["-DRUNTIME", "-shared", "-fPIC", "-Wl,-soname,libhsa-runtime64.so.1", "-o"]);
    succeed(compiler.args([&runtime, &source])).expect("the library");
    let mut compiler = clients.compiler(Language::Cpp).expect("a compiler");
    compiler.arg("-o").args([&program, &source, &runtime, &clients.library()]);
    succeed(&mut compiler).expect("the program");
    succeed(&mut clients.command(&program)).expect("it runs");
}

/// Makes a tool's library, which calls itself `name`.
fn tool(clients: &Clients, name: &str, options: &[&str]) -> PathBuf {
    let library = clients.directory().join(format!("lib{name}.so"));
    let mut compiler = clients.compiler(Language::C).expect("a compiler");
    compiler.args(["-shared", "-fPIC"]).args(options).arg(format!("-DNAME=\"{name}\""));
    compiler.arg("-o").args([&library, &clients.source("tool.c"), &clients.library()]);
    succeed(&mut compiler).expect("the tool");
    library
}

/// Runs the program that is no tool, and to which a runtime hands its tables; what it said.
fn host(clients: &Clients, libraries: &[&Path], named: &str) -> (String, String) {
    let program = clients.directory().join("host");
    if !program.exists() {
        let mut compiler = clients.compiler(Language::C).expect("a compiler");
        compiler.arg("-o").args([&program, &clients.source("host.c")]);
        succeed(compiler.arg("-ldl")).expect("the program");
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
    let expected = format!(
        "\
configure first, version {VERSION}, 0 before it
configure second, version {VERSION}, 1 before it
configure third, version {VERSION}, 2 before it
initialize first
initialize second
initialize third
main ends
finalize first
finalize second
finalize third
"
    );
    assert_eq!((said.as_str(), complaints.as_str()), (expected.as_str(), ""));
}

#[test]
fn a_tool_that_answers_null_takes_no_part() {
    let clients = clients();
    let inactive = tool(&clients, "inactive", &["-DINACTIVE"]);
    let active = tool(&clients, "active", &[]);
    let named = format!("{}:{}", inactive.display(), active.display());
    let (said, complaints) = host(&clients, &[], &named);
    let expected = format!(
        "\
configure inactive, version {VERSION}, 0 before it
configure active, version {VERSION}, 1 before it
initialize active
main ends
finalize active
"
    );
    assert_eq!((said.as_str(), complaints.as_str()), (expected.as_str(), ""));
}

#[test]
fn a_tool_may_finalize_itself_once() {
    let clients = clients();
    let early = tool(&clients, "early", &["-DFINALIZES_ITSELF"]);
    let (said, _) = host(&clients, &[], &early.display().to_string());
    let expected = format!(
        "\
configure early, version {VERSION}, 0 before it
initialize early
finalize early
main ends
"
    );
    assert_eq!(said, expected);
}

/// By a thread of its own, while the process exits.
#[test]
fn the_exit_waits_for_a_tool_that_finalizes_itself() {
    let clients = clients();
    let slow = tool(&clients, "slow", &["-DFINALIZES_BESIDE"]);
    let (said, complaints) = host(&clients, &[], &slow.display().to_string());
    assert!(said.contains("main ends\n") && said.contains("finalize slow\n"), "{said}");
    assert_eq!(complaints, "");
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

/// Callback threads that were made before a fork are not in the child.
#[test]
fn a_forked_child_has_callback_threads_of_its_own() {
    with_roctx().run(Language::C, "forks").expect("it runs");
}

/// A record of a call of roctx: kind, operation, ids, thread and times.
type Call = [u64; 8];

/// Runs the program that calls roctx with the tool that writes records down, which gets what these variables say.
fn marks(
    clients: &Clients,
    words: &[(&str, &str)],
) -> (BTreeMap<String, u64>, Vec<Call>, Vec<u64>) {
    let (tool, program) =
        (clients.directory().join("libwatches.so"), clients.directory().join("marks"));
    let mut compiler = clients.compiler(Language::C).expect("a compiler");
    compiler.args(["-shared", "-fPIC", "-o"]).args([&tool, &clients.source("watches.c")]);
    succeed(compiler.arg(clients.library())).expect("the tool");
    let mut compiler = clients.compiler(Language::C).expect("a compiler");
    compiler.arg("-o").args([&program, &clients.source("marks.c")]);
    let roctx = clients.directory().join(ROCPROFILER_SDK_ROCTX.soname);
    succeed(compiler.arg(roctx)).expect("the program");
    let written = clients.directory().join("output");
    let mut command = clients.command(&program);
    command.env("LD_PRELOAD", tool).env("WATCH_OUT", &written).envs(words.iter().copied());
    let running = command.stdout(std::process::Stdio::piped()).spawn().expect("it begins");
    let written = written.with_extension(running.id().to_string());
    let output = running.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", output.status);
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    let count = |line: &str| {
        let (name, times) = line.strip_prefix("count ")?.split_once(' ')?;
        Some((name.to_owned(), times.parse().expect("a number")))
    };
    let counts = said.lines().filter_map(count).collect();
    let written = std::fs::read_to_string(written).expect("what was told");
    assert!(written.ends_with("end\n") && !written.contains("wrong: "), "{written}");
    let lines = |word| {
        let words = written.lines().map(str::split_whitespace);
        let meant = words.filter_map(move |mut line| (line.next() == Some(word)).then_some(line));
        meant.map(|numbers| numbers.map(|n| n.parse().expect("a number")).collect::<Vec<u64>>())
    };
    let calls = lines("call").map(|call| call.try_into().expect("eight")).collect();
    (counts, calls, lines("retired").map(|retired| retired[0]).collect())
}

fn with_roctx() -> Clients {
    clients().beside(&ROCPROFILER_SDK_ROCTX).expect("the library of roctx")
}

/// Of each function, on each thread, with the context's external id; and each has a correlation id, which is retired.
#[test]
fn every_call_of_roctx_is_recorded() {
    let clients = with_roctx();
    let (counts, calls, retired) = marks(&clients, &[("WATCH_KINDS", MARKS)]);
    let mut recorded = BTreeMap::<String, u64>::new();
    for &[kind, number, _, ancestor, external_id, thread, begin_ns, end_ns] in &calls {
        let kinds = [Kind::MarkerCoreApi, Kind::MarkerControlApi, Kind::MarkerNameApi];
        let names = kinds[kind as usize - 7].operations().expect("functions");
        *recorded.entry(names[number as usize].to_str().expect("UTF-8").to_owned()).or_default() +=
            1;
        assert!(ancestor == 0 && external_id == 77 && thread > 0 && begin_ns <= end_ns);
    }
    assert_eq!((recorded.len(), recorded), (12, counts));
    let ids: BTreeSet<u64> = calls.iter().map(|call| call[2]).collect();
    assert_eq!((ids.len(), retired.len()), (calls.len(), calls.len()));
    assert_eq!(ids, BTreeSet::from_iter(retired));
    let threads: BTreeSet<u64> = calls.iter().map(|call| call[5]).collect();
    assert_eq!(threads.len(), 2);
    // Those of a thread come one after the other.
    for thread in threads {
        let mut own: Vec<&Call> = calls.iter().filter(|call| call[5] == thread).collect();
        own.sort_by_key(|call| call[2]);
        assert!(own.windows(2).all(|two| two[0][7] <= two[1][6]));
    }
}

#[test]
fn functions_of_roctx_that_are_not_asked_for() {
    let clients = with_roctx();
    let pop = [("WATCH_KINDS", "7"), ("WATCH_OPERATION", "2")];
    let (counts, calls, _) = marks(&clients, &pop);
    assert!(calls.iter().all(|call| call[..2] == [7, 2]));
    assert_eq!(calls.len() as u64, counts["roctxRangePop"]);
    let (_, calls, _) = marks(&clients, &[("WATCH_KINDS", "8")]);
    assert!(calls.len() == 6 && calls.iter().all(|call| call[0] == 8));
}

/// Callbacks that throw, that flush other buffers, and one that finalizes the tool.
#[test]
fn callbacks_of_buffers_do_as_they_like() {
    with_roctx().run(Language::Cpp, "buffers").expect("it runs");
}

/// The callback of a runtime that begins calls roctx; and HSA's table is told once, and that it is not known.
#[cfg(feature = "v1")]
#[test]
fn callbacks_of_runtimes_call_no_others() {
    let said = with_roctx().run(Language::C, "runtimes").expect_err("it is not known").to_string();
    let (ended, said) = said.split_once('\n').expect("lines");
    assert!(ended.ends_with("exit status: 0"), "{ended}\n{said}");
    assert!(said.lines().all(|line| line.ends_with("tables of this HSA runtime are not known")));
}
