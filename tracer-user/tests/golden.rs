//! Every output format, byte for byte, from one small trace.
//!
//! `ROCTAP_BLESS=1 cargo test --test golden` rewrites the expected files after a wanted change.

#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers too")]

#[path = "golden/sample.rs"]
mod sample;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use roctap::export::{CallFormat, ExportError, csv, text};
use roctap::report::summary::Summary;
use roctap::trace::{Trace, VERSION};
use tracer_common::bpf::flag;
use tracer_records::model::ApiCall;
use tracer_records::sink::RecordSink as _;

struct Fixed;

impl CallFormat for Fixed {
    fn args(&self, call: &ApiCall) -> String {
        if call.flags & flag::OUT_VALUE != 0 {
            return "ptr=0x7ffc10 -> 0x7f00, size=4096".into();
        }
        if call.record.op == 12 { String::new() } else { "a=0x7f00, b=(1, \"x\ny\")".into() }
    }

    fn ret(&self, call: &ApiCall) -> String {
        match (call.record.op, call.flags & flag::OPEN_AT_END) {
            (0, _) => String::new(),
            (_, 0) => call.ret.to_string(),
            _ => "?".to_owned(),
        }
    }
}

fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("ROCTAP_BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{name} differs; ROCTAP_BLESS=1 rewrites it");
}

fn sample(dir: &Path, finished: bool) -> Trace {
    let path = dir.join("sample.roctap");
    sample::write(&path, finished);
    Trace::open(&path).unwrap()
}

fn files(dir: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|p| (name(p), std::fs::read_to_string(p).unwrap())).collect()
}

#[test]
fn text_files() {
    let dir = tempfile::tempdir().unwrap();
    let trace = sample(dir.path(), true);
    let out = dir.path().join("a/b");
    let exported = text::export(&trace, &Fixed, Some(&out), false).unwrap();
    let files = files(&out);
    let names = Vec::from_iter(files.iter().map(|(name, _)| name.as_str()));
    assert_eq!(
        names,
        [
            "4242_hcc_ops_trace.txt",
            "4242_hip_api_trace.txt",
            "4242_hsa_api_trace.txt",
            "4242_roctx_trace.txt",
            "5151_async_copy_trace.txt",
            "5151_hsa_api_trace.txt",
        ]
    );
    for (name, found) in &files {
        golden(name, found);
        found.lines().for_each(|line| assert!(accepted(name, line), "{name}: {line}"));
    }
    let warnings = Vec::from_iter(exported.left_out.warnings());
    golden("text_warnings.txt", &(warnings.join("\n") + "\n"));
}

/// What rocprof's post-processing (tblextr.py) takes. Its regular expressions, by hand:
/// * API: `(\d+):(\d+) (\d+):(\d+) ([^\(]+)(\(.*)$`, ending in ` :(\d*)$`
///   of HIP, what stands before ` kernel=` and that end: `(\d+:\d+ \d+:\d+ \w+)\(\s*(.*)\)$`
/// * operations: `(\d+):(\d+) (\d+):(\d+) (.*)$`, the last group `^([^:]+):(\d+):(\d+)$`
/// * copies: `^(\d+):(\d+) (async-copy):(\d+):(\d+)$`
/// * roctx: `(\d+) (\d+):(\d+) (\d+):(\d+):"(.*)"$`
fn accepted(file: &str, line: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let pair = |text: &str| text.split_once(':').is_some_and(|(a, b)| number(a) && number(b));
    let Some((times, rest)) = line.split_once(' ') else { return false };
    if file.ends_with("async_copy_trace.txt") {
        return pair(times) && rest.strip_prefix("async-copy:").is_some_and(pair);
    }
    let Some((place, rest)) = rest.split_once(' ') else { return false };
    if file.ends_with("roctx_trace.txt") {
        let (ids, message) = rest.split_once(":\"").unwrap_or_default();
        return number(times) && pair(place) && pair(ids) && message.ends_with('"');
    }
    let body = if file.ends_with("hcc_ops_trace.txt") {
        rest.split_once(':').is_some_and(|(name, ids)| !name.is_empty() && pair(ids))
    } else {
        let name = rest.split('(').next().unwrap();
        let (call, id) = rest.rsplit_once(" :").unwrap_or_default();
        let call = call.split(" kernel=").next().unwrap();
        let arguments = file.ends_with("hsa_api_trace.txt") || call.ends_with(')');
        !name.is_empty() && name.len() < rest.len() && number(id) && arguments
    };
    pair(times) && pair(place) && body
}

#[test]
fn csv_files() {
    let dir = tempfile::tempdir().unwrap();
    let trace = sample(dir.path(), true);
    let out = dir.path().join("csv");
    let exported = csv::export(&trace, &Fixed, &out, false).unwrap();
    let files = files(&out);
    assert_eq!(files.len(), 5);
    for (name, found) in &files {
        golden(name, found);
        let columns = Vec::from_iter(found.lines().map(|line| fields(line).len()));
        assert!(columns.iter().all(|count| *count == columns[0]), "{name}: {columns:?}");
    }
    // Every kernel that has a call has the id of one that is in a table of calls.
    let ids = |name: &str, column: usize| {
        let (_, text) = files.iter().find(|(file, _)| file == name).unwrap();
        Vec::from_iter(text.lines().skip(1).map(|line| fields(line)[column].clone()))
    };
    let calls = [ids("hip_api_trace.csv", 4), ids("hsa_api_trace.csv", 4)].concat();
    for id in ids("kernel_trace.csv", 8) {
        assert!(id == "0" || calls.contains(&id), "{id}");
    }
    let warnings = Vec::from_iter(exported.left_out.warnings());
    golden("csv_warnings.txt", &(warnings.join("\n") + "\n"));
}

fn fields(line: &str) -> Vec<String> {
    let mut quoted = false;
    let mut fields = vec![String::new()];
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().unwrap().push(c),
        }
    }
    assert!(!quoted, "{line}");
    fields
}

#[test]
fn existing_files_are_kept_without_force() {
    let dir = tempfile::tempdir().unwrap();
    let trace = sample(dir.path(), true);
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("hsa_api_trace.csv"), "mine").unwrap();
    std::fs::write(out.join("5151_hsa_api_trace.txt"), "mine").unwrap();
    let error = csv::export(&trace, &Fixed, &out, false).unwrap_err();
    assert!(matches!(error, ExportError::Exists { .. }), "{error}");
    let error = text::export(&trace, &Fixed, Some(&out), false).unwrap_err();
    assert!(error.to_string().contains("5151_hsa_api_trace.txt exists already"), "{error}");
    assert_eq!(files(&out).len(), 2, "nothing else is created");
    assert!(files(&out).iter().all(|(_, text)| text == "mine"));
    csv::export(&trace, &Fixed, &out, true).unwrap();
    assert!(files(&out).iter().any(|(_, text)| text.contains("HSA_CORE_API")));
    let under_a_file =
        csv::export(&trace, &Fixed, &out.join("kernel_trace.csv"), true).unwrap_err();
    assert!(matches!(under_a_file, ExportError::Create { .. }), "{under_a_file}");
}

#[test]
fn report_tables() {
    let dir = tempfile::tempdir().unwrap();
    let trace = sample(dir.path(), true);
    let report = roctap::report::text(&Summary::of(&trace), Some(100));
    assert!(report.lines().all(|line| line.chars().count() <= 100), "{report}");
    golden("report.txt", &report);
    golden("report_wide.txt", &roctap::report::text(&Summary::of(&trace).top(1), None));
}

#[test]
fn report_json() {
    let dir = tempfile::tempdir().unwrap();
    let trace = sample(dir.path(), true);
    let json = serde_json::to_string_pretty(&Summary::of(&trace)).unwrap();
    golden("report.json", &(json + "\n"));
}

/// The sample without its end, or with some of its bytes changed.
fn spoiled(dir: &Path, spoil: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let path = dir.join("spoiled.trace");
    let _ = std::fs::remove_file(&path);
    sample::write(&path, true);
    let mut bytes = std::fs::read(&path).unwrap();
    spoil(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Runs `roctap`: its exit status, and what it said on standard output and standard error.
fn run(arguments: &[&str], path: &Path) -> (Option<i32>, String, String) {
    let mut roctap = Command::new(env!("CARGO_BIN_EXE_roctap"));
    let ran = roctap.args(arguments).arg(path).env_remove("COLUMNS").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ran.status.code(), text(ran.stdout), text(ran.stderr))
}

const READERS: [&[&str]; 3] =
    [&["report"], &["report", "--format", "json"], &["export", "-f", "text"]];

#[test]
fn what_a_trace_that_was_cut_off_does_not_tell_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let path = spoiled(dir.path(), |bytes| bytes.truncate(bytes.len() - 1));
    let summary = Summary::of(&Trace::open(&path).unwrap());
    assert!(!summary.complete && !summary.ended && summary.truncated_at.is_some());
    assert_eq!(summary.lost, None);
    assert_eq!(summary.processes.len(), 2, "the first chunk is there");
    assert_eq!(summary.kernels.len(), 4);
    let report = roctap::report::text(&summary, None);
    for line in [
        "INCOMPLETE the recording was cut off",
        "Recorded   at least ",
        "GPU times: tools: HSA_TOOLS_LIB at start",
        "GPU times: unknown, part of the trace is missing",
        "Lost: at least 17\n",
        "losses are counted until the end of a recording, which is missing",
    ] {
        assert!(report.contains(line), "{line}: {report}");
    }
    assert!(!report.contains("Lost: 0") && !report.contains("GPU times: none"), "{report}");
    for reader in READERS {
        let (code, said, complaint) = run(reader, &path);
        assert_eq!(code, Some(1), "{reader:?}: {complaint}");
        assert!(said.contains("hipMemcpy"), "what is there is shown: {said}");
        assert!(complaint.contains("the end of the recording is missing in"), "{complaint}");
    }
    let (_, json, _) = run(READERS[1], &path);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["lost"].is_null() && json["damage"].is_null() && json["ended"] == false, "{json}");
    let (code, _, complaint) = run(READERS[0], &spoiled(dir.path(), |_| ()));
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
}

#[test]
fn what_is_damaged_is_told_by_every_reader() {
    let dir = tempfile::tempdir().unwrap();
    let path = spoiled(dir.path(), |bytes| {
        let chunks = bytes.windows(4).enumerate().filter(|(_, four)| four == b"RTCK");
        let first = chunks.map(|(at, _)| at).next().unwrap();
        bytes[first + 50] ^= 1;
    });
    for reader in READERS {
        let (code, said, complaint) = run(reader, &path);
        assert_eq!(code, Some(1), "{reader:?}: {complaint}");
        assert!(said.contains("hsa_amd_memory_async_copy"), "what is there is shown: {said}");
        assert!(complaint.contains("is damaged: 1 gap, "), "{complaint}");
    }
    let summary = Summary::of(&Trace::open(&path).unwrap());
    let report = roctap::report::text(&summary, None);
    assert!(summary.ended && !summary.complete, "{report}");
    for line in ["DAMAGED    1 gap, ", "at least 1 chunks missing; the first at byte ", "Lost: "] {
        assert!(report.contains(line), "{line}: {report}");
    }
    assert!(!report.contains("Lost: 0"), "{report}");
    let path = spoiled(dir.path(), |bytes| bytes[30] ^= 1);
    let (code, said, complaint) = run(READERS[0], &path);
    assert_eq!(code, Some(1), "{complaint}");
    assert!(said.contains("unknown: the header of the file is damaged"), "{said}");
    assert!(said.contains("hipMemcpy"), "{said}");
}

#[test]
fn the_terminal_says_how_wide_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = spoiled(dir.path(), |_| ());
    let widest = |command: &str| {
        let mut script = Command::new("script");
        let script = script.args(["--quiet", "--return", "--command", command, "/dev/null"]);
        let script = script.env("ROCTAP", env!("CARGO_BIN_EXE_roctap")).env("TRACE", &path);
        let ran = script.env_remove("COLUMNS").stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        assert!(ran.status.success() && said.contains("nothing else was lost"), "{said}");
        // The lines of tables begin with two spaces: the others are not shortened.
        let lines = said.lines().map(str::trim_end).filter(|line| line.starts_with("  "));
        lines.map(|line| line.chars().count()).max().unwrap()
    };
    for columns in [110, 125] {
        let command = format!("stty columns {columns}; exec \"$ROCTAP\" report \"$TRACE\"");
        assert_eq!(widest(&command), columns);
    }
    assert_eq!(widest("stty columns 125; COLUMNS=115 \"$ROCTAP\" report \"$TRACE\""), 115);
    assert_eq!(widest("\"$ROCTAP\" report \"$TRACE\" | cat"), 120);
}

#[test]
fn losses_that_nobody_counted_are_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sample.trace");
    let mut writer =
        roctap::trace::Writer::create(&path, &Default::default(), roctap::trace::Existing::Refuse)
            .unwrap();
    // Without a chunk there is no trace.
    writer.notice("that is all");
    writer.flush_chunk().unwrap();
    drop(writer);
    let report = roctap::report::text(&Summary::of(&Trace::open(&path).unwrap()), None);
    assert!(report.contains("\nLost: unknown\n"), "{report}");
}

/// The trace still has all counters; the report tells those that counted something.
#[test]
fn zero_losses_are_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sample.trace");
    let mut writer =
        roctap::trace::Writer::create(&path, &Default::default(), roctap::trace::Existing::Refuse)
            .unwrap();
    for process in 0..100 {
        ["ring full", "no memory"].iter().for_each(|cause| writer.loss(process, cause, 0));
    }
    writer.finish(Default::default()).unwrap();
    let summary = Summary::of(&Trace::open(&path).unwrap());
    assert_eq!((summary.lost, summary.losses.len()), (Some(0), 200));
    let report = roctap::report::text(&summary, None);
    assert!(report.ends_with("Lost: 0\n  nothing was lost (2 causes counted)\n"), "{report}");
}

/// Traces as each version of the format was written: the files are never made anew.
#[test]
fn traces_of_every_version_are_read() {
    for version in 1..=VERSION {
        let name = format!("versions/{version}.trace");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
        let trace = Trace::open(&path).unwrap();
        let json = serde_json::to_string_pretty(&Summary::of(&trace)).unwrap();
        golden(&format!("versions/{version}.json"), &(json + "\n"));
    }
}
