//! Processes in which another tool has redirected functions of the HSA runtime's tables.

use std::{collections::BTreeMap, path::PathBuf};

use e2e::{Ran, Recorded, Running, Scene, app, run};
use serde_json::Value;
use tracer_common::{bpf::flag, calls::FIRST_ID};
use tracer_records::model::ApiCall;

/// Starts `hsa_direct` with a copy of the tool loaded, and says where that is.
fn start(scene: &Scene) -> (Running, PathBuf) {
    let tool = scene.path("libhsa_tool.so");
    std::fs::copy(app("libhsa_tool.so"), &tool).expect("copied");
    let mut command = scene.command(app("hsa_direct"));
    let target = Running::ringing_by(scene, command.env("HSA_TOOLS_LIB", &tool));
    (target, tool)
}

/// Ends it: it found nothing wrong, and said no more than without us.
fn finish(target: Running) {
    let ran = target.end().expect(0);
    ran.expect_quiet();
    assert!(ran.stdout.contains("result ok"), "{ran:?}");
    assert_eq!(ran.counts()["hsa_signal_create"], ran.launches()["direct_one"]);
}

/// What `roctap probes` says of the functions that the tool has redirected, by name.
fn probes(scene: &Scene, target: &Running) -> BTreeMap<String, Value> {
    let pid = target.pid().to_string();
    let options = ["probes", "-p", &pid, "--format", "json"];
    let ran = run(&mut scene.roctap(&options)).expect(0);
    let plans: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let functions = plans[0]["functions"].as_array().expect("functions").iter();
    let redirected = functions.filter(|row| !row["redirected_to"].is_null());
    let rows: BTreeMap<String, Value> = redirected
        .map(|row| (row["symbol"].as_str().expect("a name").to_owned(), row.clone()))
        .collect();
    let names: Vec<&str> = rows.keys().map(String::as_str).collect();
    assert_eq!(names, REDIRECTED);
    rows
}

const REDIRECTED: [&str; 4] =
    ["hsa_signal_create", "hsa_signal_destroy", "hsa_signal_wait_scacquire", "hsa_system_get_info"];

/// When the calls of each redirected function began that were recorded that way.
fn times(trace: &Recorded, pid: u32, that_way: fn(&ApiCall) -> bool) -> [Vec<u64>; 4] {
    REDIRECTED.map(|name| {
        let calls = trace.calls.iter().filter(|call| trace.function(call) == name);
        let by_program = calls.filter(|call| call.record.thread_id == pid && that_way(call));
        // When those that were open at the start began is not known.
        let whole = by_program.filter(|call| call.flags & flag::OPEN_AT_START == 0);
        let mut times: Vec<u64> = whole.map(|call| call.record.begin_ns).collect();
        times.sort_unstable();
        times
    })
}

/// Each round of the program makes one call of each of three redirected functions, and two of the
/// fourth, which the library calls too: while all of them were recorded that way, none is missing.
fn expect_all_calls(trace: &Recorded, pid: u32, that_way: fn(&ApiCall) -> bool) {
    trace.expect_complete();
    let times = times(trace, pid, that_way);
    let from = times.iter().map(|times| times[0]).max().expect("four");
    let to = times.iter().map(|times| times[times.len() - 1]).min().expect("four");
    let counts = times.map(|times| times.iter().filter(|t| (from..=to).contains(t)).count());
    let [created, destroyed, waited, asked] = counts;
    assert!(created > 100 && asked + 2 >= 2 * created, "{counts:?}");
    for count in [destroyed, waited] {
        assert!(count.abs_diff(created) <= 1, "{counts:?}");
    }
}

/// Records until there is enough that was recorded that way.
fn record(
    scene: &Scene,
    target: &Running,
    options: &[&str],
    that_way: fn(&ApiCall) -> bool,
) -> Ran {
    let pid = target.pid().to_string();
    let mut record = scene.record(&["-p", &pid, "--api", "hsa", "--force"]);
    // A program that does nothing but call fills a ring of the default size in 0.2 s, for as long as
    // which a machine may keep the reader waiting.
    record.args(["--shim-ring-bytes", "33554432"]).args(options);
    scene
        .record_until(&mut record, "enough calls are recorded", |trace| {
            times(trace, target.pid(), that_way).iter().all(|times| times.len() > 200)
        })
        .expect(0)
}

#[test]
fn root_redirected_functions_are_probed_behind_the_other_tool() {
    let scene = Scene::default();
    let (target, file) = start(&scene);
    let tool = file.display().to_string();
    let rows = probes(&scene, &target);
    for row in rows.values() {
        assert_eq!(row["reached"], "implementation", "{row}");
    }
    assert_eq!(rows["hsa_signal_create"]["redirected_to"], tool);
    assert_eq!(rows["hsa_system_get_info"]["redirected_to"], "anonymous memory");

    // Only a slow probe reaches the implementation of hsa_signal_create.
    let ran = record(&scene, &target, &["--gpu", "uprobes", "--allow-slow"], |_| true);
    expect_all_calls(&scene.trace(), target.pid(), |_| true);
    ran.complains(&["functions, hsa_signal_create among them", &tool, "is probed"]);
    ran.complains(&["hsa_system_get_info has", "anonymous memory", "the implementation in"]);
    finish(target);
}

/// Where the shim is put in on top of the other tool, it records the calls, each once.
#[test]
fn root_redirected_functions_are_recorded_by_the_shim_where_it_is() {
    let scene = Scene::default();
    let (target, _) = start(&scene);
    for _ in 0..3 {
        let by_shim: fn(&ApiCall) -> bool = |call| call.record.correlation_id >= FIRST_ID;
        let ran = record(&scene, &target, &[], by_shim);
        let trace = scene.trace();
        expect_all_calls(&trace, target.pid(), by_shim);
        let main = || trace.calls.iter().filter(|c| c.record.thread_id == target.pid());
        let last = main().filter(|c| !by_shim(c)).map(|c| c.record.begin_ns).max();
        let first = main().filter(|c| by_shim(c)).map(|c| c.record.begin_ns).min();
        assert!(last < first, "each call once");
        assert!(!trace.dispatches.is_empty(), "{ran:?}");
        // What the shim leaves behind is no other tool.
        assert!(!ran.stderr.contains("libroctap_shim"), "{ran:?}");
    }
    finish(target);
}
