//! Memory of a target that whoever reads it waits for, without an end or again and again.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use e2e::{Running, Scene, Signal, app, compare::expect_no_holes, run, send_signal, wait_until};
use hostile::{
    NOBODY, as_nobody, compile,
    fuse::{SILENT, Silent},
};

/// What root is told.
const REFUSAL: &str = "its memory does not answer";

/// A program that maps a library which calls itself the HSA runtime, and is compiled with `options`.
fn program(scene: &Scene, options: &[&str]) -> Command {
    let library = scene.path("libhsa-runtime64.so.1");
    let directory = format!("-DDIRECTORY=\"{}\"", library.parent().expect("in it").display());
    compile("runtime.c", &[&["-shared", "-fPIC", &*directory], options].concat(), &library);
    compile("maps.c", &[], &scene.path("target"));
    let mut command = Command::new(scene.path("target"));
    command.env("LD_PRELOAD", &library).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Has roctap look at the process in every way. `touched`: it has read what it waits for.
fn look_at(scene: &Scene, mut target: Running, touched: impl Fn() -> bool) {
    let pid = target.pid().to_string();
    let healthy = Running::start(scene.command(app("loop")).args(["0", "1", "200"]));
    let mut recording = scene.record(&["-p", &pid, "-p", &healthy.pid().to_string()]);
    let roctap = Running::spawn(&mut recording);
    // What is declared last is dropped first, also where a test fails: whoever is held up goes on by that,
    // and can be waited for.
    let touched = touched;
    wait_until("the other one is recorded", || {
        let trace = scene.trace_so_far();
        trace.is_some_and(|trace| !trace.only(healthy.pid()).dispatches.is_empty())
    });
    send_signal(roctap.pid(), Signal::INT);
    let ran = roctap.ended().expect(0);
    ran.complains(&[&format!("process {pid}"), REFUSAL]);
    assert!(touched(), "nothing was read of what is in the way: {ran:#?}");
    let ran = run(&mut scene.roctap(&["probes", "-p", &pid])).expect(0);
    ran.complains(&[REFUSAL]);
    run(&mut scene.roctap(&["doctor", "-p", &pid])).complains(&[REFUSAL]);
    // It goes on, and can change what it has mapped.
    let mut line = String::new();
    let input = target.child.stdin.as_mut().expect("piped");
    input.write_all(b"map\n").expect("it lives");
    target.output.read_line(&mut line).expect("it lives");
    assert_eq!(line, "mapped\n");
}

#[test]
fn hostile_memory_from_a_file_system_that_does_not_answer_is_given_up() {
    let scene = Scene::default();
    scene.give_to(NOBODY);
    let directory = scene.path("mounted");
    std::fs::create_dir(&directory).expect("directory");
    let file = format!("-DSILENT=\"{}\"", directory.join(SILENT).display());
    let mut program = program(&scene, &[&file]);
    // It is there for a time only.
    let silent = Silent::mount(&directory, NOBODY);
    let target = Running::start(as_nobody(&mut program));
    look_at(&scene, target, move || silent.reads() > 0);
}

#[test]
fn hostile_page_faults_that_nobody_serves_are_given_up() {
    assert!(Path::new("/proc/sys/vm/unprivileged_userfaultfd").exists(), "no userfaultfd here");
    let scene = Scene::default();
    // Only root can have the kernel's own accesses wait.
    let target = Running::start(&mut program(&scene, &["-DUNSERVED"]));
    let pid = target.pid().to_string();
    run(&mut scene.roctap(&["probes", "-p", &pid])).expect(0).complains(&[REFUSAL]);
}

/// Each answer comes in time.
#[test]
fn hostile_memory_that_is_slow_again_and_again_is_given_up() {
    let scene = Scene::default();
    let target = Running::start(&mut program(&scene, &["-DSLOW"]));
    let slow = target.pid().to_string();
    let healthy = Running::start(scene.command(app("loop")).args(["0", "1", "200"]));
    let pid = healthy.pid();
    // It ends by itself where nothing is told.
    let options = ["-d", "170", "--api", "hip,hsa", "-p", &pid.to_string(), "-p", &slow];
    let mut roctap = Running::spawn(&mut scene.record(&options));
    // What is told comes at once.
    let mut errors = BufReader::new(roctap.child.stderr.take().expect("piped"));
    let mut said = String::new();
    while !said.contains(REFUSAL) {
        assert_ne!(errors.read_line(&mut said).expect("text"), 0, "it is not given up: {said}");
    }
    // The other one's work from here on is recorded as well.
    let recorded = || scene.trace_so_far().map_or(0, |trace| trace.only(pid).dispatches.len());
    let before = recorded();
    wait_until("the other one is recorded", || recorded() > before);
    send_signal(roctap.pid(), Signal::INT);
    errors.read_to_string(&mut said).expect("text");
    roctap.ended().expect(0);
    assert!(said.contains(&format!("process {slow}: {REFUSAL}")), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let trace = scene.trace();
    trace.expect_complete();
    healthy.end().expect(0);
    expect_no_holes(&trace.only(pid), &scene.true_dispatches());
}
