//! What is out of bounds, and what is plainly wrong: one clear message, and nothing is placed.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Command, Stdio},
};

use e2e::{
    Running, Scene, Signal, app, remains::changed_code, roctap_bin, run, send_signal, wait_until,
    within_deadline,
};

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
    let target = Running::ringing(&scene);
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
    let target = Running::ringing(&scene);
    let pid = target.pid().to_string();
    let mut record = scene.record(&SINGLE[..4]);
    record.args(["--include=hsa_signal_*", "--exclude=*{wait,cas}*", "-p", &pid]);
    // It stops before it begins: so it ends after roctap, whatever the machine does.
    record.env("LD_PRELOAD", app("libstopping.so")).env("STOP_BEFORE", "__remove-probes");
    let mut recording = Running::spawn(&mut record);
    scene.wait_for_trace("calls are recorded", |trace| !trace.calls.is_empty());
    let said = BufReader::new(recording.child.stderr.take().expect("piped")).lines();
    send_signal(recording.pid(), Signal::INT);
    let mut said = said.map(|line| line.expect("a line"));
    let line = within_deadline(recording.pid(), || {
        said.find(|line| line.contains("probes are being removed one by one"))
    });
    let line = line.expect("it is said");
    let (_, helper) = line.split_once("by process ").expect("a process");
    let helper: u32 = helper.split(':').next().and_then(|pid| pid.parse().ok()).expect("a number");
    recording.ended().expect(0);
    let of_helper = |file| std::fs::read_to_string(format!("/proc/{helper}/{file}"));
    let command = || of_helper("cmdline").unwrap_or_default();
    // For a moment behind its `exec` a process has no arguments.
    wait_until("it is the helper", || command().contains("__remove-probes"));
    wait_until("it is stopped", || of_helper("stat").expect("it lives").contains(") T "));
    send_signal(helper, Signal::CONT);
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
    // Each child ends when a line of ours lets it.
    let script = "for child in 1 2; do \"$0\" sz 3 & read -r _; kill $!; wait $!; done; echo done";
    let command = ["--", "sh", "-c", script, &program];
    let record = |descriptors, include: &str| {
        let mut record = limited(&scene, descriptors, &[include]);
        record.args(command).stdin(Stdio::piped());
        Running::spawn(&mut record)
    };
    let ran = record(200, "--include=*").ended();
    let (_, free) = needed_and_free(&ran.expect(1).stderr);
    // Enough for the first process: for an entry and a return.
    let enough = 4 + 200 - free;
    let mut recording = record(enough + 1, "--include=hsa_signal_store_screlease");
    let mut go = recording.child.stdin.take().expect("piped");
    let said = BufReader::new(recording.child.stderr.take().expect("piped")).lines();
    let said = said.map(|line| line.expect("a line"));
    let mut about =
        said.filter(|line| line.contains("descriptors")).inspect(|line| println!("{line}"));
    within_deadline(recording.pid(), || {
        for _ in 0..2 {
            let line = about.next().expect("it is told of");
            assert!(line.contains("is not traced"), "{line}");
            // Behind what the one before has reported.
            let lines = recording.output.by_ref().lines().map(|line| line.expect("output"));
            let reported: Vec<String> =
                lines.take_while(|line| !line.starts_with("ready")).collect();
            assert!(!reported.iter().any(|line| line.contains("FAILED")), "{reported:?}");
            go.write_all(b"go\n").expect("it listens");
        }
        assert_eq!(about.next(), None, "one line for each child");
    });
    let ran = recording.ended();
    assert!(ran.stdout.contains("done") && !ran.stdout.contains("FAILED"), "{ran:#?}");
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
