//! Every output format, byte for byte, from one small trace.
//!
//! `ROCTAP_BLESS=1 cargo test --test golden` rewrites the expected files after a wanted change.

#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers too")]

#[path = "golden/sample.rs"]
mod sample;

use std::path::{Path, PathBuf};

use roctap::export::{CallFormat, ExportError, csv, text};
use roctap::report::summary::Summary;
use roctap::trace::{Trace, VERSION};
use roctap::trace::model::ApiCall;
use tracer_common::bpf::flag;

struct Fixed;

impl CallFormat for Fixed {
    fn args(&self, call: &ApiCall) -> String {
        if call.flags & flag::OUT_VALUE != 0 {
            return "ptr=0x7ffc10 -> 0x7f00, size=4096".into();
        }
        if call.record.op == 12 { String::new() } else { "a=0x7f00, b=(1, \"x\ny\")".into() }
    }

    fn ret(&self, call: &ApiCall) -> String {
        if call.record.op == 0 { String::new() } else { call.ret.to_string() }
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
/// * operations: `(\d+):(\d+) (\d+):(\d+) (.*)$`, the last group `^([^:]+):(\d+):(\d+)$`
/// * copies: `^(\d+):(\d+) (async-copy):(\d+):(\d+)$`
fn accepted(file: &str, line: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let pair = |text: &str| text.split_once(':').is_some_and(|(a, b)| number(a) && number(b));
    let Some((times, rest)) = line.split_once(' ') else { return false };
    if file.ends_with("async_copy_trace.txt") {
        return pair(times) && rest.strip_prefix("async-copy:").is_some_and(pair);
    }
    let Some((place, rest)) = rest.split_once(' ') else { return false };
    let body = if file.ends_with("hcc_ops_trace.txt") {
        rest.split_once(':').is_some_and(|(name, ids)| !name.is_empty() && pair(ids))
    } else {
        let name = rest.split('(').next().unwrap();
        let id = rest.rsplit_once(" :").is_some_and(|(_, id)| number(id));
        !name.is_empty() && name.len() < rest.len() && id
    };
    pair(times) && pair(place) && body
}

#[test]
fn csv_files() {
    let dir = tempfile::tempdir().unwrap();
    let trace = sample(dir.path(), true);
    let out = dir.path().join("csv");
    let exported = csv::export(&trace, &out, false).unwrap();
    let files = files(&out);
    assert_eq!(files.len(), 4);
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
    let error = csv::export(&trace, &out, false).unwrap_err();
    assert!(matches!(error, ExportError::Exists { .. }), "{error}");
    let error = text::export(&trace, &Fixed, Some(&out), false).unwrap_err();
    assert!(error.to_string().contains("5151_hsa_api_trace.txt exists already"), "{error}");
    assert_eq!(files(&out).len(), 2, "nothing else is created");
    assert!(files(&out).iter().all(|(_, text)| text == "mine"));
    csv::export(&trace, &out, true).unwrap();
    assert!(files(&out).iter().any(|(_, text)| text.contains("HSA_CORE_API")));
    let under_a_file = csv::export(&trace, &out.join("kernel_trace.csv"), true).unwrap_err();
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

#[test]
fn report_of_a_trace_that_was_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sample.roctap");
    sample::write(&path, false);
    let whole = std::fs::metadata(&path).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(whole - 1).unwrap();
    let summary = Summary::of(&Trace::open(&path).unwrap());
    assert!(!summary.complete && summary.truncated_at.is_some());
    assert!(roctap::report::text(&summary, None).contains("INCOMPLETE the recording was cut off"));
    assert_eq!(summary.processes.len(), 2, "the first chunk is there");
    assert_eq!(summary.kernels.len(), 3);
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
