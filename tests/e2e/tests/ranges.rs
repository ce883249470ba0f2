//! Marks and ranges of roctx: each exactly once, nested as the program nested them, with the GPU time of the
//! kernels that were launched in them.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
};

use e2e::{Operation, Ran, Recorded, Running, Scene, Signal, app, only_child, run, send_signal};
use serde_json::Value;
use tracer_common::{
    activity::{Domain, roctx},
    bpf::flag,
};
use tracer_records::model::ApiCall;

/// The calls of roctx in the trace.
fn calls(trace: &Recorded) -> impl Iterator<Item = &ApiCall> {
    trace.calls.iter().filter(|call| call.record.domain == Domain::ROCTX)
}

fn message(trace: &Recorded, call: &ApiCall) -> String {
    trace.tables().strings.get(&(call.record.bytes_or_name as u32)).cloned().unwrap_or_default()
}

/// Asserts that the trace has each call of roctx that the program counted exactly once, numbered without a gap
/// on each thread.
fn expect_calls(trace: &Recorded, ran: &Ran) {
    let mut counted = ran.counts();
    counted.retain(|function, _| function.starts_with("roctx"));
    assert_eq!(counted.len(), 5, "{counted:?}");
    let mut traced = trace.call_counts();
    traced.retain(|function, _| function.starts_with("roctx"));
    assert_eq!(traced, counted);
    let mut numbers: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for call in calls(trace) {
        let of_thread = numbers.entry(call.record.thread_id).or_default();
        of_thread.push((call.record.begin_ns, call.extra[0]));
    }
    for mut numbers in numbers.into_values() {
        numbers.sort_unstable();
        let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
        assert_eq!(numbers.into_iter().map(|(_, number)| number).collect::<Vec<_>>(), expected);
    }
}

/// What `roctap report` tells.
fn report(scene: &Scene) -> Value {
    let trace = scene.trace_path();
    let arguments = ["report", "--format", "json", "--top", "0"];
    let ran = run(scene.roctap(&arguments).arg(trace)).expect(0);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

/// A row of the table of ranges.
fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let rows = report["ranges"].as_array().expect("rows");
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}: {report:#}"))
}

/// How many kernels of these names the GPU ran, and for how long.
fn ran_on_gpu(truth: &[Operation], names: &[&str]) -> (u64, u64) {
    let of = |o: &&Operation| names.contains(&o.name.as_str());
    truth.iter().filter(of).fold((0, 0), |(n, ns), o| (n + 1, ns + o.end_ns - o.start_ns))
}

/// Which kernels are in which range.
const RANGES: [(&str, &[&str]); 6] = [
    ("outer 0", &["outer_t0", "inner_t0"]),
    ("inner 0", &["inner_t0"]),
    ("outer 1", &["outer_t1", "inner_t1"]),
    ("inner 1", &["inner_t1"]),
    ("handed", &["handed_t0", "handed_t1"]),
    (
        "whole",
        &[
            "outside_t0",
            "outer_t0",
            "inner_t0",
            "handed_t0",
            "outside_t1",
            "outer_t1",
            "inner_t1",
            "handed_t1",
        ],
    ),
];

/// Asserts that every range is in the report with the kernels below it, as the GPU ran them, of `rounds` rounds.
fn expect_ranges(scene: &Scene, trace: &Recorded, rounds: u64) {
    let report = report(scene);
    let truth = scene.true_dispatches();
    let pid = *trace.tables().processes.keys().next().expect("a process");
    let error_ns = 2 * (trace.stated_error_ns(pid) + 1000);
    for (name, kernels) in RANGES {
        let row = row(&report, name);
        let count = if name == "whole" { 1 } else { rounds };
        assert_eq!(row["count"], count, "{row}");
        let (mut operations, mut ns) = ran_on_gpu(&truth, kernels);
        if name == "whole" {
            // Each thread's first kernel was launched before.
            for name in ["outside_t0", "outside_t1"] {
                let first = truth.iter().filter(|o| o.name == name).min_by_key(|o| o.start_ns);
                let first = first.expect("it ran");
                (operations, ns) = (operations - 1, ns - (first.end_ns - first.start_ns));
            }
        }
        assert_eq!(row["gpu_operations"], operations, "{row}");
        let reported = row["gpu_ns"].as_u64().expect("a number");
        assert!(reported.abs_diff(ns) <= operations * error_ns, "{row}: not {ns}");
        let of = if ["handed", "whole"].contains(&name) { "process" } else { "thread" };
        assert_eq!(row["of"], of, "{row}");
        for unknown in ["open_at_start", "open_at_end", "gpu_incomplete"] {
            assert_eq!(row[unknown], 0, "{row}");
        }
    }
    assert_eq!(report["ranges"].as_array().map(Vec::len), Some(RANGES.len()), "{report:#}");
    let mark = |name: &str| {
        let marks = report["marks"].as_array().expect("marks").iter();
        marks.filter(|row| row["name"] == name).map(|row| row["count"].as_u64()).next().flatten()
    };
    assert_eq!(mark("inside"), Some(2 * rounds));
    assert_eq!((mark("round 0"), mark("round 1")), (Some(2), Some(2)));
}

#[test]
fn root_ranges_have_the_kernels_that_were_launched_in_them() {
    // Beside the calls of HIP, and alone.
    for (api, with_hip) in [("hip,roctx", true), ("roctx", false)] {
        let scene = Scene::default();
        let ran = scene.record_app(&["--api", api], "ranges", &["50"]).expect(0);
        let trace = scene.trace();
        trace.expect_complete();
        trace.expect_dispatches(&scene.true_dispatches(), 1000);
        expect_calls(&trace, &ran);
        expect_ranges(&scene, &trace, 50);
        assert_eq!(trace.call_counts().contains_key("hipLaunchKernel"), with_hip);
        if with_hip {
            trace.expect_counts(&ran);
        }
        // Who starts a range tells its id, by which another thread stops it.
        let handed: Vec<&ApiCall> =
            calls(&trace).filter(|call| message(&trace, call) == "handed").collect();
        assert_eq!(handed.len(), 50);
        let stops: HashMap<u64, &ApiCall> = calls(&trace)
            .filter(|call| call.record.op == roctx::STOP)
            .map(|call| (call.args[0], call))
            .collect();
        for start in handed {
            let stop = stops[&start.ret];
            assert_ne!(start.record.thread_id, stop.record.thread_id);
            assert!(start.record.end_ns > start.record.begin_ns);
            assert!(stop.record.begin_ns > start.record.end_ns);
        }
    }
}

#[test]
fn root_ranges_are_not_recorded_if_not_asked_for() {
    let scene = Scene::default();
    scene.record_app(&[], "ranges", &["2"]).expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    assert_eq!(calls(&trace).count(), 0);
    let libraries = &trace.tables().processes.values().next().expect("one").libraries;
    assert!(libraries.iter().all(|library| !library.path.contains("roctx")), "{libraries:?}");
}

#[test]
fn root_ranges_without_gpu_times() {
    let scene = Scene::default();
    let ran = scene.record_app(&["--api", "roctx", "--gpu", "off"], "ranges", &["5"]).expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    expect_calls(&trace, &ran);
    let report = report(&scene);
    let outer = row(&report, "outer 1");
    assert_eq!((&outer["count"], &outer["gpu_operations"]), (&5.into(), &0.into()), "{outer}");
    let ran = run(scene.roctap(&["report"]).arg(scene.trace_path())).expect(0);
    assert!(ran.stdout.contains("Ranges, nested ones counted at each level"), "{}", ran.stdout);
}

/// As wheels and ROCprofiler-SDK name it; it is loaded when the program runs.
#[test]
fn root_ranges_of_a_library_of_another_name() {
    for name in ["libroctx64-0a1b2c3d.so.4.1.0", "librocprofiler-sdk-roctx.so.1"] {
        let scene = Scene::default();
        let library: PathBuf = scene.path(name);
        fs::copy(app("libroctx64.so.4"), &library).expect("copied");
        let path = library.display().to_string();
        let ran = scene.record_app(&["--api", "roctx"], "ranges", &["20", &path]).expect(0);
        let trace = scene.trace();
        trace.expect_complete();
        expect_calls(&trace, &ran);
        expect_ranges(&scene, &trace, 20);
        let process = trace.tables().processes.values().next().expect("one");
        let probed = process.libraries.iter().find(|library| library.path == path);
        let probed = probed.unwrap_or_else(|| panic!("{:?}", process.libraries));
        assert_eq!((probed.probed, probed.entry_only), (5, 4));
    }
}

/// What was open when recording began has no begin, and what is open when it ends no end; everything between is
/// there.
#[test]
fn root_ranges_of_a_running_process() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("ranges")).arg("0"));
    let pid = target.pid();
    let mut record = scene.record(&["--api", "hip,roctx", "-p", &pid.to_string()]);
    let enough = |trace: &Recorded| {
        trace.kernels_of(pid) > 200
            && calls(trace).filter(|call| call.record.op == roctx::POP).count() > 200
    };
    scene.record_until(&mut record, "ranges are recorded", enough).expect(0);
    target.end().expect(0);
    let trace = scene.trace();
    let report = report(&scene);
    for (name, _) in &RANGES[..5] {
        let row = row(&report, name);
        assert!(row["count"].as_u64() > Some(10), "{row}");
        // Two of each thread, one of the process, at most.
        assert!(row["open_at_end"].as_u64() <= Some(1), "{row}");
    }
    let rows = report["ranges"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["name"] != "whole"), "neither end of it was seen: {rows:#?}");
    let unknown = rows.iter().filter(|row| row["name"] == "(unknown range)");
    let unknown: u64 = unknown.filter_map(|row| row["open_at_start"].as_u64()).sum();
    assert!(unknown <= 5, "{rows:#?}");
    assert!(calls(&trace).all(|call| call.flags & (flag::UNREADABLE | flag::CUT) == 0));
    // Each range that is whole has its kernels: two of its own, and those of the one inside.
    let process = &trace.tables().processes[&pid];
    let whole = process.attached_ns..process.detached_ns;
    let mut open: HashMap<u32, Vec<(u64, String)>> = HashMap::new();
    let mut of_roctx: Vec<&ApiCall> = calls(&trace).collect();
    of_roctx.sort_by_key(|call| (call.record.thread_id, call.record.begin_ns));
    let mut measured = 0;
    for call in of_roctx {
        let (at, thread) = (call.record.begin_ns, call.record.thread_id);
        let stack = open.entry(thread).or_default();
        if call.record.op == roctx::PUSH {
            stack.push((at, message(&trace, call)));
        } else if call.record.op == roctx::POP
            && let Some((begin, name)) = stack.pop()
            && whole.contains(&begin)
            && whole.contains(&at)
        {
            let inside = |d: &&tracer_records::model::Dispatch| {
                d.record.thread_id == thread && (begin..at).contains(&d.enqueue_ns)
            };
            let kernels = trace.dispatches.iter().filter(inside).count();
            assert_eq!(kernels, if name.starts_with("outer") { 4 } else { 2 }, "{name}");
            measured += 1;
        }
    }
    assert!(measured > 50, "{measured}");
}

#[test]
fn root_messages_of_any_kind() {
    let scene = Scene::default();
    let ran = scene.record_app(&["--api", "roctx"], "ranges", &["2", "-", "odd"]).expect(0);
    let trace = scene.trace();
    expect_calls(&trace, &ran);
    let unreadable =
        "marks and ranges: message not readable, or no room for it (they are recorded)".to_owned();
    assert_eq!(trace.losses(), BTreeMap::from([(unreadable, 1)]));
    let first = |number| calls(&trace).find(|call| call.extra[0] == number).expect("recorded");
    let of_main = |call: &&ApiCall| call.record.thread_id == call.record.process_or_device;
    let mut odd: Vec<&ApiCall> =
        calls(&trace).filter(of_main).filter(|c| c.extra[0] <= 5).collect();
    odd.sort_by_key(|call| call.extra[0]);
    let said =
        odd.iter().map(|call| (message(&trace, call), call.flags & (flag::UNREADABLE | flag::CUT)));
    let expected = [
        (String::new(), 0),
        ("x".repeat(254) + "…", flag::CUT),
        (String::new(), flag::UNREADABLE),
        ("a \"b\"\n\u{1b}[31m".to_owned(), 0),
        ("untouched".to_owned(), 0),
    ];
    assert_eq!(said.collect::<Vec<_>>(), expected);
    assert_eq!(first(1).record.op, roctx::MARK);
    let ran = run(scene.roctap(&["export", "-f", "text"]).arg(scene.trace_path())).expect(0);
    let pid = odd[0].record.process_or_device;
    let lines: Vec<String> = odd
        .iter()
        .map(|call| {
            let begin_ns = call.record.begin_ns;
            ran.stdout
                .lines()
                .find(|line| line.starts_with(&format!("{begin_ns} {pid}:{pid} 0:0:")))
                .unwrap_or_else(|| panic!("{}", ran.stdout))
                .to_owned()
        })
        .collect();
    for (line, said) in lines.iter().zip(["\"\"", "…\"", "\"?\"", r#""a "b"\n\u{1b}[31m""#]) {
        assert!(line.ends_with(said), "{line}");
    }
}

/// A program that is killed ends no range.
#[test]
fn root_ranges_of_a_program_that_is_killed() {
    let scene = Scene::default();
    let mut record = scene.recording(&["--api", "roctx"], "ranges", &["0"]);
    let recording = Running::start(&mut record);
    scene.wait_for_trace("ranges are recorded", |trace| calls(trace).count() > 100);
    send_signal(only_child(recording.pid()), Signal::KILL);
    let ran = recording.ended();
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let report = report(&scene);
    let whole = row(&report, "whole");
    assert_eq!((&whole["count"], &whole["open_at_end"]), (&0.into(), &1.into()), "{whole}");
}
