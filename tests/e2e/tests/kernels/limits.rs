//! What is out of bounds, and what is plainly wrong: one clear message, and nothing is placed.

use std::process::Command;

use e2e::{Scene, app, remains::changed_code, roctap_bin, run, wait_until};

use crate::{ringing, tell};

const SINGLE: [&str; 5] = ["--probes=single", "--gpu=off", "--api=hsa", "--force", "-o"];

/// `roctap record --probes single` with a hard limit of descriptors.
fn limited(scene: &Scene, descriptors: u64, options: &[&str]) -> Command {
    let mut command = scene.command("sh");
    let script = format!("ulimit -n {descriptors}; exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(roctap_bin()).arg("record").args(SINGLE);
    command.arg(scene.trace_path()).args(options);
    command
}

/// The numbers in the message about descriptors: how many are needed and how many there are.
fn needed_and_free(stderr: &str) -> (u64, u64) {
    let number = |after: &str| {
        let (_, rest) = stderr.split_once(after).unwrap_or_else(|| panic!("{stderr}"));
        let digits = rest.split(' ').next().expect("a word");
        digits.parse::<u64>().unwrap_or_else(|_| panic!("{stderr}"))
    };
    (number("takes "), number("may open "))
}

#[test]
fn root_kernel_too_few_descriptors() {
    let scene = Scene::default();
    let target = ringing(&scene);
    let pid = target.pid().to_string();
    let all = ["--include=*", "-p", &pid];
    let ran = run(&mut limited(&scene, 200, &all)).expect(1);
    ran.complains(&["descriptors", "--include", "ulimit"]);
    let (needed, free) = needed_and_free(&ran.stderr);
    assert!(needed > free && free < 200, "{needed} of {free}");
    assert_eq!(changed_code(target.pid()), Vec::<u64>::new());
    assert!(target.end().expect(0).stdout.contains("result ok"));
}

/// The prompt comes back while another process still removes the probes.
#[test]
fn root_kernel_removal_is_not_waited_for() {
    let scene = Scene::default();
    let target = ringing(&scene);
    let pid = target.pid().to_string();
    let mut record = scene.record(&SINGLE[..4]);
    record.args(["--include=hsa_signal_*", "--exclude=*{wait,cas}*", "-d0.3", "-p", &pid]);
    let ran = run(&mut record).expect(0);
    tell(&ran);
    ran.complains(&["probes are being removed one by one, by process"]);
    let (_, helper) = ran.stderr.split_once("by process ").expect("a process");
    let helper = helper.split(':').next().expect("a number").to_owned();
    let command = || std::fs::read_to_string(format!("/proc/{helper}/cmdline")).unwrap_or_default();
    assert!(command().contains("__remove-probes"), "it has ended before roctap: {ran:#?}");
    let trace = scene.trace();
    trace.expect_complete();
    assert!(!trace.calls.is_empty());
    wait_until("it has ended", || command().is_empty());
    assert_eq!(changed_code(target.pid()), Vec::<u64>::new());
    assert!(target.end().expect(0).stdout.contains("result ok"));
}

/// Children for which there are no descriptors are told of once each, and run.
#[test]
fn root_kernel_children_without_descriptors() {
    let scene = Scene::default();
    let program = app("hsa_direct").display().to_string();
    let command = ["--", "sh", "-c", "\"$0\" s 3; \"$0\" s 3; echo done", &program];
    let record =
        |descriptors, include: &str| run(limited(&scene, descriptors, &[include]).args(command));
    let ran = record(200, "--include=*");
    let (_, free) = needed_and_free(&ran.expect(1).stderr);
    // Enough for the first process: for an entry and a return.
    let enough = 4 + 200 - free;
    let ran = record(enough + 1, "--include=hsa_signal_store_screlease");
    tell(&ran);
    assert!(ran.stdout.contains("done") && !ran.stdout.contains("FAILED"), "{ran:#?}");
    let told = ran.stderr.lines().filter(|line| line.contains("is not traced")).count();
    assert_eq!(told, 2, "one line for each child: {ran:#?}");
    let others = ran.stderr.lines().filter(|line| line.contains("descriptors")).count();
    assert_eq!(others, told, "{ran:#?}");
}

#[test]
fn root_kernel_wrong_inputs() {
    let scene = Scene::default();
    let record = |options: &[&str]| run(scene.record(&["--gpu=off", "--force"]).args(options));
    record(&["-p", "4194304"]).expect(1).complains(&["4194304", "no such process"]);
    assert!(!scene.trace_path().exists());
    record(&["--probes", "kprobes", "--", "true"]).expect(2).complains(&["kprobes"]);
    let program = app("hsa_direct").display().to_string();
    let ran = record(&["--api=hsa", "--include=cuda*", "--", &program, "s", "1"]).expect(3);
    ran.complains(&["--include"]);
    let mut nowhere = scene.roctap(&["record", "--gpu=off", "-o"]);
    nowhere.arg(scene.path("none/t.rtrace")).args(["--", "true"]);
    run(&mut nowhere).expect(1).complains(&["none/t.rtrace", "No such file"]);
}
