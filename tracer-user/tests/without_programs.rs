//! A `roctap` without its BPF programs, as unit tests and builds without a BPF toolchain have it.

use std::process::{Command, Output};

use roctap::probe;

const COMMAND: &str = "`cargo xtask build-ebpf`";

/// Nothing where the programs are in: in a release build, or by `ROCTAP_BPF_OBJECT`.
fn without_programs(arguments: &[&str]) -> Option<Output> {
    if probe::built().is_ok() {
        eprintln!("skipped: the programs are in");
        return None;
    }
    let mut roctap = Command::new(env!("CARGO_BIN_EXE_roctap"));
    Some(roctap.args(arguments).output().expect("roctap"))
}

#[test]
fn record_says_one_line_and_does_nothing() {
    let directory = tempfile::tempdir().expect("directory");
    let (trace, touched) = (directory.path().join("t.rtrace"), directory.path().join("touched"));
    let names = [&trace, &touched].map(|path| path.to_str().expect("UTF-8"));
    let recorded = without_programs(&["record", "-o", names[0], "--", "touch", names[1]]);
    let Some(Output { status, stdout, stderr }) = recorded else { return };
    let said = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.starts_with("roctap: ") && said.contains(COMMAND), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(stdout.is_empty());
    assert!(!trace.exists() && !touched.exists());
}

#[test]
fn doctor_calls_recording_impossible() {
    let Some(Output { status, stdout, .. }) = without_programs(&["doctor"]) else { return };
    let said = String::from_utf8_lossy(&stdout);
    assert_eq!(status.code(), Some(1), "{said}");
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("MISSING  BPF programs"), "{said}");
    assert!(lines.next().is_some_and(|line| line.contains(COMMAND)), "{said}");
}

#[test]
fn measuring_says_one_line() {
    let Some(Output { status, stderr, .. }) = without_programs(&["doctor", "--calibrate"]) else {
        return;
    };
    let said = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains(COMMAND), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
