//! What must hold on every kernel that roctap supports. Small: `cargo xtask test --kernels` runs these on
//! emulated machines, where everything takes 20 to 100 times as long.

mod killed;
mod limits;
mod load;
mod privileges;
mod running;
mod support;

use e2e::{
    Ran, Running, Scene, app,
    compare::{expect_joined, expect_launches_joined, expect_no_holes},
};
use roctap::plan::KernelVersion;

/// The ways to place probes.
const METHODS: [&str; 2] = ["multi", "event"];

fn kernel() -> KernelVersion {
    KernelVersion::running().expect("a version")
}

/// Whether this kernel has a way to place probes: `uprobe_multi` is of 6.6, and looks at processes and
/// not at their first threads alone since 6.10.
fn has(method: &str) -> bool {
    method != "multi" || kernel() >= KernelVersion::new(6, 10)
}

/// Shown if the test fails: nobody can look into a machine that is gone.
fn tell(ran: &Ran) {
    println!("{}", ran.stderr);
}

/// Two threads, two streams.
#[test]
fn root_kernel_hip_command() {
    let scene = Scene::default();
    let ran = scene.record_app(&[], "storm", &["2", "2", "50"]).expect(0);
    tell(&ran);
    let trace = scene.trace();
    trace.expect_complete();
    trace.expect_counts(&ran);
    trace.expect_dispatches(&scene.true_dispatches(), 1000);
    expect_launches_joined(&trace);
}

/// Two processes that call the same functions: before 6.6, a return probe is told of both.
#[test]
fn root_kernel_parent_and_child() {
    let scene = Scene::default();
    let storm = app("storm").display().to_string();
    let ran = scene.record_app(&[], "fork_exec", &[&storm, "1", "1", "20"]).expect(0);
    tell(&ran);
    let trace = scene.trace();
    trace.expect_complete();
    trace.expect_counts(&ran);
    assert_eq!(trace.tables().processes.len(), 2);
}

/// Dispatches with a signal each and with none, and copies.
#[test]
fn root_kernel_hsa_command() {
    let scene = Scene::default();
    let ran = scene.record_app(&["--api", "hsa"], "hsa_direct", &["snc", "20"]).expect(0);
    tell(&ran);
    let trace = scene.trace();
    trace.expect_complete();
    trace.expect_dispatches(&scene.true_dispatches(), 1000);
    let (traced, counted) = (trace.call_counts(), ran.counts());
    let function = "hsa_signal_store_screlease";
    assert!(counted[function] > 0);
    assert_eq!(traced[function], counted[function]);
    for dispatch in &trace.dispatches {
        let id = dispatch.record.correlation_id;
        let call = trace.calls.iter().find(|call| call.record.correlation_id == id);
        assert_eq!(trace.function(call.expect("a call")), function);
    }
}

/// A program that runs already goes on as if nothing had been.
#[test]
fn root_kernel_running() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "2", "100"]));
    let pid = target.pid();
    let mut record = scene.record(&["-p", &pid.to_string()]);
    tell(&scene.record_kernels(&mut record, &[pid], 20).expect(0));
    let ran = target.end().expect(0);
    assert!(ran.stdout.contains("result ok"), "{ran:#?}");
    let trace = scene.trace();
    expect_no_holes(&trace, &scene.true_dispatches());
    expect_joined(&trace, pid);
}
