//! Attaching to processes that run, several at once and several recordings of one.

use e2e::{
    LARGE_RINGS, Recorded, Running, Scene,
    compare::{expect_a_call_for_each_dispatch, expect_doorbells_joined, expect_no_holes},
    interrupt,
    remains::Tracefs,
    wait_until,
};

use tracer_records::model::ApiCall;

use crate::{METHODS, has, tell};

/// Calls by probes alone; each of the functions is called once a dispatch.
const CALLS: [&str; 5] = [
    "--api=hsa",
    "--gpu=off",
    "--include=hsa_amd_profiling_get_dispatch_time",
    "--include=hsa_queue_add_write_index_scacq_screl",
    "--force",
];

/// How often each of the functions was called in process `pid`, at least.
fn rounds_of(trace: &Recorded, pid: u32) -> usize {
    let functions = CALLS.iter().filter_map(|option| option.strip_prefix("--include="));
    let of = |call: &&ApiCall| call.record.process_or_device == pid;
    let count = |function| {
        trace.calls.iter().filter(of).filter(|call| trace.function(call) == function).count()
    };
    functions.map(count).min().unwrap_or(0)
}

/// Two processes with shims: each dispatch once and with its call, in its own process.
#[test]
fn root_kernel_two_processes_with_shims() {
    let scenes = [Scene::default(), Scene::default()];
    let targets = scenes.each_ref().map(Running::ringing);
    let pids = targets.each_ref().map(Running::pid);
    let [first, second] = pids.map(|pid| format!("-p{pid}"));
    let mut record = scenes[0].record(&["--api", "hsa", &first, &second]);
    record.args(LARGE_RINGS);
    tell(&scenes[0].record_kernels(&mut record, &pids, 20).expect(0));
    for target in targets {
        assert!(target.end().expect(0).stdout.contains("result ok"));
    }
    for (pid, scene) in pids.into_iter().zip(&scenes) {
        let trace = scenes[0].trace().only(pid);
        expect_no_holes(&trace, &scene.true_dispatches());
        expect_doorbells_joined(&trace, pid);
    }
}

/// Two processes that call the same functions of the same file, by every way to place probes.
#[test]
fn root_kernel_two_processes_by_every_method() {
    let scenes = [Scene::default(), Scene::default()];
    let targets = scenes.each_ref().map(Running::ringing);
    let pids = targets.each_ref().map(Running::pid);
    let [first, second] = pids.map(|pid| format!("-p{pid}"));
    for method in METHODS {
        let mut record = scenes[0].record(&["--probes", method, &first, &second]);
        let ran = scenes[0].record_until(record.args(CALLS), "calls are recorded", |trace| {
            pids.iter().all(|&pid| rounds_of(trace, pid) > 10)
        });
        tell(&ran);
        if !has(method) {
            ran.expect(1).complains(&["uprobe_multi"]);
            continue;
        }
        ran.expect(0);
        scenes[0].trace().expect_complete();
        for (pid, scene) in pids.into_iter().zip(&scenes) {
            let trace = scenes[0].trace().only(pid);
            expect_a_call_for_each_dispatch(&trace, &scene.true_dispatches());
        }
    }
    for target in targets {
        assert!(target.end().expect(0).stdout.contains("result ok"));
    }
}

/// A recording that begins and ends while another one is at work on the same functions.
#[test]
fn root_kernel_two_recordings_by_events() {
    let (scene, other, tracefs) = (Scene::default(), Scene::default(), Tracefs::default());
    let target = Running::ringing(&scene);
    let pid = format!("-p{}", target.pid());
    let by_events = |scene: &Scene| {
        let mut record = scene.record(&["--probes", "event", &pid]);
        record.args(CALLS);
        record
    };
    let long = by_events(&scene).spawn().expect("roctap");
    let calls = |scene: &Scene| scene.trace_so_far().map_or(0, |trace| trace.calls.len());
    wait_until("it records", || calls(&scene) > 20);
    let defined = tracefs.definitions_of(long.id());
    let loader = |definition: &&String| definition.contains("/p0 ");
    let of_functions = defined.len() - defined.iter().filter(loader).count();
    assert_eq!(of_functions, 4, "entries and returns: {defined:?}");
    assert!(of_functions < defined.len(), "and the dynamic linker: {defined:?}");
    let second = by_events(&other).spawn().expect("roctap");
    wait_until("the second one records", || calls(&other) > 20);
    let second_id = second.id();
    assert_eq!(tracefs.definitions_of(second_id).len(), defined.len());
    assert_eq!(tracefs.definitions_of(long.id()), defined);
    interrupt(second).expect(0);
    assert_eq!(tracefs.definitions_of(second_id), Vec::<String>::new());
    assert_eq!(tracefs.definitions_of(long.id()), defined);
    let before = calls(&scene);
    wait_until("the first one goes on", || calls(&scene) > before);
    let long_id = long.id();
    interrupt(long).expect(0);
    assert_eq!(tracefs.definitions_of(long_id), Vec::<String>::new());
    assert!(target.end().expect(0).stdout.contains("result ok"));
    for recorded in [&scene, &other] {
        let trace = recorded.trace();
        trace.expect_complete();
        expect_a_call_for_each_dispatch(&trace, &scene.true_dispatches());
    }
}
