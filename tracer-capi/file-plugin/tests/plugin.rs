//! The plugin as a tool uses it, in a process of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use capi_build::clients::{Clients, succeed};
use capi_build::layouts::Language;
use capi_build::{FILE_PLUGIN, include_directory};

fn clients() -> Clients {
    Clients::new(&FILE_PLUGIN, env!("CARGO_MANIFEST_DIR")).expect("the library")
}

/// A tool in small, which hands one of each to the plugin.
fn tool(clients: &Clients) -> Command {
    let program = clients.directory().join("hands_over");
    let mut compiler = Language::C.compiler().expect("a compiler");
    compiler.arg("-I").arg(include_directory().expect("headers").join("roctracer"));
    compiler.arg("-o").args([&program, &clients.source("hands_over.c"), &clients.library()]);
    succeed(&mut compiler).expect("it compiles");
    let mut command = clients.command(&program);
    command.env_remove("ROCP_OUTPUT_DIR").env_remove("ROCP_TRUNCATE_NAMES");
    command
}

fn run(command: &mut Command) -> (String, String) {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    let [said, warned] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
    assert!(status.success(), "{status}\n{said}\n{warned}");
    (said, warned)
}

/// The files, by their names behind the process id.
fn files(directory: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let (process_id, name) = name.split_once('_').expect("a process id");
        process_id.parse::<u32>().expect("a process id");
        (name.to_owned(), std::fs::read_to_string(&path).expect("a file"))
    };
    entries.map(file).collect()
}

const HANDED_OVER: &str = "start 0\npop 0\nhsa 0\nshut_down 0\nno such call -1\nnothing -1\n\
    event 0\nwork 0\nno work 0\n";

const LEFT_OUT: [&str; 2] = [
    "ROCtracer warning: the file plugin has no file for calls of the domain HSA_EVT: left out",
    "ROCtracer warning: the file plugin has no file for activities 0 of the domain HSA_OPS: left out",
];

const VERSIONS: [&str; 2] = [
    "ROCtracer warning: the file plugin serves version 4.1 of roctracer, not 5.0",
    "ROCtracer warning: the file plugin serves version 4.1 of roctracer, not 4.0",
];

#[test]
fn exports_are_as_listed() {
    clients().check().expect("the exports");
}

#[test]
fn lines_go_into_files() {
    let clients = clients();
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = tool(&clients);
    let (said, warned) = run(command.env("ROCP_OUTPUT_DIR", directory.path()));
    assert_eq!(said, format!("major -1\nminor -1\nbegin 0\n{HANDED_OVER}"));
    let expected: Vec<&str> = VERSIONS.into_iter().chain(LEFT_OUT).collect();
    assert_eq!(warned.lines().collect::<Vec<_>>(), expected);

    let files = files(directory.path());
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    // No HSA runtime is there whose agents could be told of.
    let expected = [
        "async_copy_trace.txt",
        "begin_ts_file.txt",
        "hcc_ops_trace.txt",
        "hsa_api_trace.txt",
        "roctx_trace.txt",
    ];
    assert_eq!(names, expected);
    let begin: u64 = files["begin_ts_file.txt"].trim_end().parse().expect("a time");
    assert!(begin > 0);
    assert_eq!(files["roctx_trace.txt"], "10 7:8 3:3:\"a \"mark\"\\nof mine\"\n10 7:8 2:0:\"\"\n");
    let mut calls = files["hsa_api_trace.txt"].lines();
    let call = calls.next().expect("a call");
    assert!(call.starts_with("10:20 7:8 hsa_system_get_info(5, 0x"), "{call}");
    assert!(call.ends_with(") = 4097 :77"), "{call}");
    assert_eq!(calls.next(), Some("10:10 7:8 hsa_shut_down() = 4097 :77"));
    let process_id = process_id(&files["async_copy_trace.txt"]);
    assert_eq!(files["async_copy_trace.txt"], format!("105:205 async-copy:5:{process_id}\n"));
    assert_eq!(
        files["hcc_ops_trace.txt"],
        format!(
            "101:201 1:2 shift:1:{process_id}\n102:202 1:2 KernelExecution:2:{process_id}\n\
             103:203 1:2 CopyHostToDevice:3:{process_id}\n"
        )
    );
}

fn process_id(copies: &str) -> u32 {
    let id = copies.trim_end().rsplit(':').next().expect("an id");
    id.parse().expect("an id")
}

#[test]
fn lines_go_to_standard_output_in_their_order() {
    let clients = clients();
    let (said, _) = run(&mut tool(&clients));
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(':')).collect();
    assert_eq!(lines.len(), 8, "{said}");
    assert!(lines[0].contains("a \"mark\"") && lines[7].contains("async-copy:5:"), "{said}");
}

#[test]
fn it_begins_once() {
    let clients = clients();
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = tool(&clients);
    let (said, warned) = run(command.arg("again").env("ROCP_OUTPUT_DIR", directory.path()));
    assert!(said.contains("begin 0\nagain -1\nstart 0\n"), "{said}");
    assert!(warned.contains("the file plugin is in use already\n"), "{warned}");
    let (said, warned) = run(tool(&clients).arg("early"));
    assert!(said.lines().all(|line| line.ends_with(" -1")), "{said}");
    assert_eq!(warned, "");
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let clients = clients();
    let directory = tempfile::tempdir().expect("a directory");
    let nowhere = directory.path().join("nowhere");
    let (said, warned) = run(tool(&clients).env("ROCP_OUTPUT_DIR", &nowhere));
    assert!(said.starts_with("major -1\nminor -1\nbegin -1\nstart -1\n"), "{said}");
    let created = format!("ROCtracer warning: cannot create {}/", nowhere.display());
    let last = warned.lines().last().expect("a warning");
    assert!(
        last.starts_with(&created) && last.contains("begin_ts_file.txt: No such file"),
        "{last}"
    );
}

/// A child of the program that is traced writes nothing, and nothing twice.
#[test]
fn a_forked_child_writes_nothing() {
    let clients = clients();
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = tool(&clients);
    let (said, _) = run(command.arg("fork").env("ROCP_OUTPUT_DIR", directory.path()));
    assert!(said.contains("start -1\npop -1\n") && said.contains("start 0\npop 0\n"), "{said}");
    assert_eq!(files(directory.path())["roctx_trace.txt"].lines().count(), 2);
}
