//! Threads that are scheduled as no others are: before everybody else, or not at all.

use std::process::{Command, Stdio};

use e2e::{
    Recorded, Running, Scene, Signal, app,
    compare::{expect_joined, expect_no_holes},
    interrupt, run, send_signal, wait_until,
};
use hostile::{NOBODY, as_nobody, compile};

/// A program whose launching thread is real time on one CPU, and waits for its kernels without sleeping.
fn realtime(scene: &Scene, seconds: &str) -> Command {
    let library = scene.path("realtime.so");
    compile("realtime.c", &["-shared", "-fPIC", "-ldl"], &library);
    let mut program = scene.command(app("loop"));
    program.args([seconds, "1", "1000"]).env("LD_PRELOAD", library);
    program
}

/// What was recorded: beside such a thread whoever reads may come late, which is counted.
fn expect_recorded_or_counted(trace: &Recorded) {
    assert!(trace.reading.status.complete, "{:?}", trace.reading.damage);
    assert!(!trace.dispatches.is_empty(), "{:?}", trace.losses());
}

/// From its start: the shim's thread is there before.
#[test]
fn hostile_a_real_time_thread_is_recorded_and_ends() {
    let scene = Scene::default();
    let program = realtime(&scene, "1");
    let mut record = scene.record(&[]);
    record.arg("--").arg("env");
    for (name, value) in program.get_envs().filter(|(name, _)| *name == "LD_PRELOAD") {
        let setting = format!("{}={}", name.display(), value.expect("set").display());
        record.arg(setting);
    }
    let ran = run(record.arg(program.get_program()).args(program.get_args())).expect(0);
    assert!(ran.stdout.contains("result ok"), "{ran:#?}");
    let trace = scene.trace();
    expect_recorded_or_counted(&trace);
    let (seen, counted) = (trace.dispatches.len() as u64, trace.losses().values().sum::<u64>());
    let all = scene.true_dispatches().len() as u64;
    assert!(seen <= all && all <= seen + counted, "{seen} of {all}; lost: {:?}", trace.losses());
    if counted == 0 {
        trace.expect_counts(&ran);
    }
}

/// While it runs: what is put into it comes from one of its threads.
#[test]
fn hostile_a_real_time_thread_is_attached_to_and_ends() {
    let scene = Scene::default();
    let mut target = Running::start(&mut realtime(&scene, "0"));
    let pid = target.pid();
    let recording = scene.record(&["-p", &pid.to_string()]).spawn().expect("roctap");
    wait_until("it is recorded", || {
        scene.trace_so_far().is_some_and(|trace| trace.dispatches.len() > 100)
    });
    interrupt(recording).expect(0);
    send_signal(pid, Signal::TERM);
    wait_until("it ends", || target.child.try_wait().expect("status").is_some());
    let ran = target.ended().expect(0);
    assert!(ran.stdout.contains("result ok"), "{ran:#?}");
    let trace = scene.trace();
    expect_recorded_or_counted(&trace);
    expect_no_holes(&trace, &scene.true_dispatches());
    if trace.losses().is_empty() {
        expect_joined(&trace, pid);
    }
}

/// A process of one thread, which waits for its child in `vfork`: neither can be stopped, and the memory of
/// both is one.
#[test]
fn hostile_who_waits_in_vfork_is_not_waited_for() {
    let scene = Scene::default();
    scene.give_to(NOBODY);
    let library = scene.path("libhsa-runtime64.so.1");
    let directory = format!("-DDIRECTORY=\"{}\"", library.parent().expect("in it").display());
    compile("runtime.c", &["-shared", "-fPIC", &directory, "-DKNOWN_TABLES"], &library);
    compile("vforks.c", &[], &scene.path("target"));
    let mut program = Command::new(scene.path("target"));
    program.env("LD_PRELOAD", &library).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut target = Running::start(as_nobody(&mut program));
    let child = target.ready.trim_start_matches("ready").trim().to_owned();
    let reasons = [
        (target.pid().to_string(), "none of its threads can be stopped"),
        (child, "it shares its memory with process"),
    ];
    for (pid, reason) in reasons {
        let mut record = scene.record(&["-p", &pid, "--api", "hsa", "-d", "0.1", "--force"]);
        run(&mut record).complains(&[&format!("process {pid}"), reason]);
    }
    assert_eq!(target.child.try_wait().expect("status"), None, "it waits as before");
    // Its child has the other end of the pipe as well, and ends when it has: nothing is read from it here.
}
