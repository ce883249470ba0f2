//! Processes that nothing is put into: launches, names, and the times of packets with signals are seen
//! from outside.

use std::collections::{BTreeMap, HashMap};

use e2e::{Recorded, Running, Scene, Signal, app, only_child, run, send_signal, times};
use tracer_common::loss::ShimLoss;
use tracer_records::model::{ApiCall, op_flag};

/// Dispatches by kernel.
fn by_kernel(trace: &Recorded) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for dispatch in &trace.dispatches {
        *counts.entry(trace.kernel(dispatch)).or_default() += 1;
    }
    counts
}

/// Every launch has its one dispatch, with its name, its thread and its call; without times. But for those that
/// are counted: the GPU took them for another thread's doorbell, which was being seen.
#[test]
fn root_outside_hip_launches_are_seen_by_name() {
    let scene = Scene::default();
    let ran = scene.record_app(&["--gpu", "uprobes"], "storm", &["8", "4", "1000"]).expect(0);
    let trace = scene.trace();
    let mut lost = trace.losses();
    let missed = lost.remove(ShimLoss::PACKET_PASSED.describe()).unwrap_or(0);
    assert_eq!(lost, BTreeMap::new());
    trace.expect_counts(&ran);
    let mut unseen: BTreeMap<String, u64> = BTreeMap::new();
    for operation in scene.true_dispatches() {
        *unseen.entry(operation.name).or_default() += 1;
    }
    for (kernel, seen) in by_kernel(&trace) {
        let unseen = unseen.get_mut(&kernel).unwrap_or_else(|| panic!("{kernel} did not run"));
        *unseen = unseen.checked_sub(seen).expect("each once");
    }
    // Of what the GPU took it is not known what it was: it may have been a barrier, of which not every one is recorded.
    let is_barrier = |kind: &str| !matches!(kind, "dispatch" | "copy");
    let barriers = scene.truth().iter().filter(|o| is_barrier(&o.kind)).count() - trace.barriers;
    let launches_unseen: u64 =
        unseen.iter().filter(|(kernel, _)| kernel.starts_with("storm")).map(|(_, &n)| n).sum();
    let unseen = unseen.into_values().sum::<u64>();
    assert!(
        (unseen..=unseen + barriers as u64).contains(&missed),
        "{unseen} unseen, {missed} told"
    );
    let calls: HashMap<u64, &ApiCall> =
        trace.calls.iter().map(|call| (call.record.correlation_id, call)).collect();
    let mut launches = 0;
    for dispatch in trace.dispatches.iter().filter(|d| trace.kernel(d).starts_with("storm")) {
        let call = calls.get(&dispatch.record.correlation_id).expect("a call");
        assert_eq!(trace.function(call), "hipLaunchKernel");
        assert_eq!(call.record.thread_id, dispatch.record.thread_id);
        assert!(call.record.begin_ns <= dispatch.enqueue_ns);
        assert!(dispatch.enqueue_ns <= call.record.end_ns);
        assert_eq!(dispatch.flags & op_flag::INCOMPLETE, op_flag::INCOMPLETE);
        assert_eq!((dispatch.record.begin_ns, dispatch.grid[1], dispatch.workgroup[2]), (0, 1, 1));
        launches += 1;
    }
    assert_eq!(launches + launches_unseen, ran.launches().values().sum::<u64>());
    let process = trace.tables().processes.values().next().expect("a process");
    assert!(process.gpu_tier.contains("partial"), "{}", process.gpu_tier);
    ran.complains(&["kernels were seen from outside alone: 0 have times"]);
}

/// With a signal of its own for each packet every time is known, within the error that is told, by
/// whatever clock the GPU has.
#[test]
fn root_outside_times_of_packets_with_signals() {
    for settings in
        [&[][..], &[("EMUGPU_CLOCK_OFFSET_NS", "123456789012345"), ("EMUGPU_CLOCK_PPM", "40")]]
    {
        let scene = Scene::new(settings);
        let options = ["--gpu", "uprobes", "--api", "hsa"];
        // Names are read while the program lives: it does until there are some.
        let recording =
            Running::start(&mut scene.recording(&options, "hsa_direct", &["sz", "30000"]));
        scene.wait_for_trace("kernels have names", |trace| {
            trace.dispatches.iter().any(|d| trace.kernel(d) == "direct_one")
        });
        send_signal(only_child(recording.pid()), Signal::TERM);
        let ran = recording.ended().expect(0);
        let trace = scene.trace();
        trace.expect_complete();
        trace.expect_dispatches(&scene.true_dispatches(), 1000);
        for dispatch in &trace.dispatches {
            assert_eq!(dispatch.flags & op_flag::ESTIMATED_TIMES, op_flag::ESTIMATED_TIMES);
        }
        ran.complains(&["30000 have times, which are estimated"]);
    }
}

/// Whoever rings, each packet is seen once, and is its own thread's.
#[test]
fn root_outside_packets_of_four_producers() {
    let scene = Scene::default();
    let options = ["--gpu", "uprobes", "--api", "hsa"];
    scene.record_app(&options, "hsa_direct", &["p", "2000"]).expect(0);
    let trace = scene.trace();
    let missed = trace.losses().into_values().sum::<u64>();
    assert_eq!(trace.dispatches.len() as u64 + missed, 8000, "{:?}", trace.losses());
    let calls: HashMap<u64, &ApiCall> =
        trace.calls.iter().map(|call| (call.record.correlation_id, call)).collect();
    let mut threads: BTreeMap<u32, u64> = BTreeMap::new();
    for dispatch in &trace.dispatches {
        let call = calls.get(&dispatch.record.correlation_id).expect("a call");
        assert!(trace.function(call).starts_with("hsa_signal_store"), "{}", trace.function(call));
        assert_eq!(call.record.thread_id, dispatch.record.thread_id);
        *threads.entry(dispatch.record.thread_id).or_default() += 1;
    }
    assert_eq!(threads.len(), 4);
    assert!(threads.values().all(|&count| count.abs_diff(2000) <= missed), "{threads:?}");
}

/// Kernels that were loaded before are named in a process that runs already.
#[test]
fn root_outside_of_a_running_process() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "2", "1000"]));
    let pid = target.pid().to_string();
    let mut record = scene.record(&["-p", &pid, "--gpu", "uprobes"]);
    scene
        .record_until(&mut record, "kernels are recorded by name", |trace| {
            let kernels = by_kernel(trace);
            ["loop_t0", "loop_t1"].iter().all(|&name| kernels.get(name).is_some_and(|&n| n > 100))
        })
        .expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    let kernels = by_kernel(&trace);
    assert_eq!(kernels.keys().collect::<Vec<_>>(), ["loop_t0", "loop_t1"]);
    let process = &trace.tables().processes[&target.pid()];
    let within = |call: &&ApiCall| {
        let record = &call.record;
        trace.function(call) == "hipLaunchKernel"
            && process.attached_ns <= record.begin_ns
            && (record.begin_ns..=process.detached_ns).contains(&record.end_ns)
    };
    let mut launches = 0;
    for call in trace.calls.iter().filter(within) {
        let id = call.record.correlation_id;
        let of_call = trace.dispatches.iter().filter(|d| d.record.correlation_id == id);
        assert_eq!(of_call.count(), 1, "{call:?}");
        launches += 1;
    }
    assert!(launches > 100, "{launches}");
}

/// A program that ends as soon as its shim has found that it does not know the runtime: what is seen from
/// outside is seen from the first packet on.
#[test]
fn root_outside_short_programs_whose_shim_is_helpless() {
    for _ in 0..times(5) {
        let scene = Scene::default();
        let mut record = scene.record(&["--api", "hsa"]);
        let script = "HSA_TOOLS_LIB=\"$0 $HSA_TOOLS_LIB\" exec \"$1\" s 50";
        record.args(["--", "sh", "-c", script]).arg(app("libhsa_tool.so")).arg(app("hsa_direct"));
        run(record.env("HSA_TOOL_UNKNOWN", "1")).expect(0);
        let (trace, truth) = (scene.trace(), scene.true_dispatches());
        trace.expect_complete();
        assert_eq!((trace.dispatches.len(), truth.len()), (50, 50));
        let process = trace.tables().processes.values().next().expect("a process");
        assert!(process.gpu_tier.contains("partial"), "{}", process.gpu_tier);
    }
}

/// A release whose tables the shim does not know, or that is taken for one.
#[test]
fn root_outside_where_the_shim_does_not_know_the_tables() {
    let enough = |trace: &Recorded| by_kernel(trace).get("loop_t0").is_some_and(|&n| n > 100);
    let expect_partial = |trace: &Recorded, why: &str| {
        let process = trace.tables().processes.values().next().expect("a process");
        assert!(process.gpu_tier.contains("partial") && process.gpu_tier.contains(why));
        let kernels = by_kernel(trace);
        assert!(!kernels.contains_key(""), "{kernels:?}");
    };
    let tool = app("libhsa_tool.so");

    let scene = Scene::default();
    let mut record = scene.record(&[]);
    record.args(["--", "sh", "-c"]);
    let script = "HSA_TOOLS_LIB=\"$0 $HSA_TOOLS_LIB\" exec \"$1\" 0 1 1000";
    record.arg(script).arg(&tool).arg(app("loop")).env("HSA_TOOL_UNKNOWN", "1");
    let recording = Running::spawn(&mut record);
    scene.wait_for_trace("kernels are recorded", enough);
    send_signal(only_child(recording.pid()), Signal::TERM);
    recording.ended().expect(0).complains(&["kernels were seen from outside alone"]);
    expect_partial(&scene.trace(), "does not know the API tables");

    let scene = Scene::default();
    let mut command = scene.command(app("loop"));
    command.env("HSA_TOOLS_LIB", &tool).env("HSA_TOOL_UNKNOWN", "1").args(["0", "1", "1000"]);
    let target = Running::start(&mut command);
    let pid = target.pid().to_string();
    let mut record = scene.record(&["-p", &pid]);
    let ran = scene.record_until(&mut record, "kernels are recorded", enough).expect(0);
    ran.complains(&["seen from outside", "the HSA AMD extension table, version"]);
    expect_partial(&scene.trace(), "the HSA AMD extension table, version");
    let ran = run(&mut scene.record(&["-p", &pid, "--force", "--gpu", "inject"]));
    ran.expect(1).complains(&["the HSA AMD extension table, version"]);
    assert!(target.end().expect(0).stdout.contains("result ok"));
}
