//! What is lost is counted, by cause, exactly; and killing either side spoils nothing.

use std::process::Command;

use e2e::{
    Running, Scene, Signal, app, interrupt, only_child, remains::changed_code, run, send_signal,
};
use roctap::trace::Trace;

const RING_FULL: &str = "API calls: ring buffer full";

#[test]
fn root_tiny_api_rings_lose_what_they_count() {
    let scene = Scene::default();
    let options = ["--ring-bytes", "4096", "--gpu", "off"];
    let ran = scene.record_app(&options, "storm", &["4", "2", "2000"]).expect(0);
    let trace = scene.trace();
    // What the program counted, and what it could not: registration of its code objects.
    let counted: u64 = ran.counts().values().sum();
    let whole = Scene::default();
    let all = whole.record_app(&["--gpu", "off"], "storm", &["4", "2", "2000"]).expect(0);
    whole.trace().expect_complete();
    let uncounted = whole.trace().calls.len() as u64 - all.counts().values().sum::<u64>();
    let lost = trace.losses();
    assert!(lost[RING_FULL] > 0);
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(trace.calls.len() as u64 + lost[RING_FULL], counted + uncounted);
}

#[test]
fn root_tiny_shim_rings_lose_what_they_count() {
    let scene = Scene::default();
    let options = ["--shim-ring-bytes", "4096"];
    scene.record_app(&options, "storm", &["4", "2", "2000"]).expect(0);
    let trace = scene.trace();
    let lost = trace.losses();
    let count = |cause: &str| lost.get(cause).copied().unwrap_or(0);
    let dropped = count("GPU operations: the enqueueing thread's ring full");
    assert!(dropped > 0, "{lost:?}");
    // An operation whose times were lost is in the trace, without them.
    assert_eq!(
        count("GPU operations: times lost, the ring of the thread that saw the end full"),
        count("GPU operations: no completion seen")
    );
    let truth = scene.truth();
    let barriers = truth.iter().filter(|o| o.kind.starts_with("barrier") && o.signal != 0).count();
    let expected = scene.true_dispatches().len() + barriers;
    let seen = trace.dispatches.len() + trace.barriers;
    let copies = truth.iter().filter(|o| o.kind == "copy").count() - trace.copies.len();
    assert_eq!(seen as u64 + dropped, (expected + copies) as u64, "{lost:?}");
}

#[test]
fn root_killing_roctap_leaves_the_target_and_a_readable_trace() {
    let scene = Scene::default();
    let recording = Running::start(&mut scene.recording(&[], "loop", &["0", "4", "1000"]));
    scene.wait_for_trace("calls and kernels are written", |trace| {
        !trace.calls.is_empty() && !trace.dispatches.is_empty()
    });
    let target = only_child(recording.pid());
    send_signal(recording.pid(), Signal::KILL);
    scene.wait_for_dispatches(scene.true_dispatches().len() + 1000);
    send_signal(target, Signal::TERM);
    // The program inherited the pipe: its end is the end of the output.
    let ran = recording.ended();
    assert!(ran.stdout.contains("result ok"), "the target finished: {ran:#?}");
    let trace = scene.trace();
    assert!(!trace.reading.status.complete && trace.reading.damage.is_none());
    assert!(!trace.calls.is_empty() && !trace.dispatches.is_empty());
    let ran = run(scene.roctap(&["report"]).arg(scene.trace_path())).expect(1);
    assert!(ran.stdout.contains("Lost: unknown"), "{ran:#?}");
}

#[test]
fn root_killing_the_target_keeps_everything_up_to_then() {
    let scene = Scene::default();
    let child = scene.recording(&[], "loop", &["0", "2", "1000"]).spawn().expect("roctap");
    let loops = |name: &str| name.starts_with("loop_t");
    // Names are told by the shim's thread, which a busy machine may keep waiting.
    scene.wait_for_trace("kernels are written, with their names", |trace| {
        trace.dispatches.iter().any(|d| loops(&trace.kernel(d)))
    });
    send_signal(only_child(child.id()), Signal::KILL);
    let ran: e2e::Ran = child.wait_with_output().expect("output").into();
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    ran.complains(&["the command ended with signal: 9"]);
    let trace = scene.trace();
    assert!(trace.reading.status.complete);
    // Every dispatch that the GPU finished is there, finished or not seen to finish; what finished
    // in the last moment may not have been read by the shim any more, and is marked.
    let truth = scene.true_dispatches().iter().filter(|o| loops(&o.name)).count();
    let seen = trace.dispatches.iter().filter(|d| loops(&trace.kernel(d))).count();
    assert!(seen >= truth, "{seen} of {truth}: {ran:#?}");
}

#[test]
fn root_uprobes_alone_leave_nothing_in_the_target() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "2"]));
    let state = |pid: u32| {
        let text = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
        let count = |name: &str| std::fs::read_dir(format!("/proc/{pid}/{name}")).unwrap().count();
        let libraries: Vec<String> =
            text("maps").lines().filter(|line| line.contains(".so")).map(str::to_owned).collect();
        (count("fd"), count("task"), libraries)
    };
    let pid = target.pid();
    let before = state(pid);
    for round in 0..3 {
        let api = if round == 1 { "hip,hsa" } else { "hip" };
        let mut record = scene.record(&["-p", &pid.to_string(), "--gpu", "uprobes", "--api", api]);
        scene
            .record_until(&mut record, "launches are recorded", |trace| {
                trace.call_counts().get("hipLaunchKernel").is_some_and(|&launches| launches > 10)
            })
            .expect(0);
        scene.trace().expect_complete();
        assert_eq!(state(pid), before, "round {round}");
        assert_eq!(changed_code(pid), Vec::<u64>::new(), "round {round}");
    }
    let ran = target.end().expect(0);
    assert!(ran.stdout.contains("result ok"), "{ran:#?}");
}

#[test]
fn root_ctrl_c_ends_cleanly() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "1"]));
    let child = scene.record(&["-p", &target.pid().to_string()]).spawn().expect("roctap");
    scene.wait_for_a_kernel_of(target.pid());
    interrupt(child).expect(0);
    assert!(Trace::open(&scene.trace_path()).expect("trace").tables().status.complete);
}

/// Not a test of ours, but the ground that the others stand on: the programs run untraced.
#[test]
fn root_programs_run_untraced() {
    let scene = Scene::default();
    for name in ["basic", "graph", "plain"] {
        run(&mut scene.command(app(name))).expect(0);
    }
    assert!(Command::new("true").status().expect("true").success());
}
