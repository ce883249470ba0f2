//! Killing roctap leaves nothing in the kernel and nothing in the program.

use std::{
    process::{Child, Command},
    time::Duration,
};

use e2e::{
    Running, Scene, Signal,
    remains::{InKernel, Tracefs, changed_code},
    send_signal, times, wait_until,
};

use crate::{METHODS, has};

/// Functions that the program calls all the time, and some more: what takes a while to be removed.
const FUNCTIONS: [&str; 2] = ["--include=hsa_signal_{store,wait,load}*", "--api=hsa"];

/// Starts a recording, and waits until it has seen calls; what it has in the kernel.
fn recording(scene: &Scene, target: &Running, method: &str) -> (Child, InKernel) {
    let pid = format!("-p{}", target.pid());
    let mut record = scene.record(&["--gpu=off", "--force", "--probes", method, &pid]);
    let _ = std::fs::remove_file(scene.trace_path());
    let roctap = record.args(FUNCTIONS).spawn().expect("roctap");
    scene.wait_for_trace("it records", |trace| !trace.calls.is_empty());
    let held = InKernel::of(roctap.id());
    assert_eq!(held.left(), held, "the kernel tells of all");
    assert!(held.links() > 2, "{held:?}");
    assert_ne!(changed_code(target.pid()), Vec::<u64>::new(), "breakpoints");
    (roctap, held)
}

/// Nothing is left, and the program goes on.
fn expect_nothing_left(scene: &Scene, target: &Running, held: &InKernel) {
    wait_until("the kernel has removed all", || held.left().is_empty());
    wait_until("its code is as on disk", || changed_code(target.pid()).is_empty());
    scene.wait_for_dispatches(scene.true_dispatches().len() + 1);
}

#[test]
fn root_kernel_killed_while_recording() {
    let scene = Scene::default();
    let target = Running::ringing(&scene);
    for method in METHODS.into_iter().filter(|method| has(method)) {
        let (mut roctap, held) = recording(&scene, &target, method);
        roctap.kill().expect("killed");
        roctap.wait().expect("status");
        expect_nothing_left(&scene, &target, &held);
    }
    assert!(target.end().expect(0).stdout.contains("result ok"));
}

fn record_a_call(scene: &Scene, record: &mut Command) {
    scene.record_until(record, "a call is recorded", |trace| !trace.calls.is_empty()).expect(0);
}

/// At some moment of its end. If that was one in which the kernel removed a probe, it stays until the
/// process is recorded again (docs/attach.md).
#[test]
fn root_kernel_killed_while_detaching() {
    let scene = Scene::default();
    let target = Running::ringing(&scene);
    for method in METHODS.into_iter().filter(|method| has(method)) {
        for round in 0..times(3) {
            let (mut roctap, held) = recording(&scene, &target, method);
            send_signal(roctap.id(), Signal::INT);
            std::thread::sleep(Duration::from_millis((round as u64 * 37 + 5) % 300));
            // It may have ended: it is not reaped yet.
            roctap.kill().expect("killed");
            roctap.wait().expect("status");
            wait_until("the kernel has removed all", || held.left().is_empty());
            if !changed_code(target.pid()).is_empty() {
                println!("{method}: a probe was being removed");
                let pid = format!("-p{}", target.pid());
                let again = ["--gpu=off", "--force", "--probes", method, &pid];
                record_a_call(&scene, scene.record(&again).args(FUNCTIONS));
            }
            expect_nothing_left(&scene, &target, &held);
        }
    }
    assert!(target.end().expect(0).stdout.contains("result ok"));
}

/// Definitions of events outlive who made them, until the next one comes.
#[test]
fn root_kernel_definitions_of_the_killed_are_deleted() {
    let (scene, tracefs) = (Scene::default(), Tracefs::default());
    let target = Running::ringing(&scene);
    let (mut roctap, held) = recording(&scene, &target, "event");
    roctap.kill().expect("killed");
    roctap.wait().expect("status");
    expect_nothing_left(&scene, &target, &held);
    assert_ne!(tracefs.definitions_of(roctap.id()), Vec::<String>::new());
    let options = ["--api=hsa", "--gpu=off", "--probes=event", "--force"];
    record_a_call(&scene, scene.record(&options).arg(format!("-p{}", target.pid())));
    assert_eq!(tracefs.definitions_of(roctap.id()), Vec::<String>::new());
    assert!(target.end().expect(0).stdout.contains("result ok"));
}
