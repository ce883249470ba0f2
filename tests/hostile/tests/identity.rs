//! Numbers that become another's: process ids, inodes.

use std::{
    io::{BufRead as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use e2e::{Running, Scene, Signal, interrupt, send_signal, wait_until};
use hostile::{NOBODY, as_nobody, compile};
use roctap::discover::Subject;

/// What the two releases of the library return.
const FIRST: &str = "11111111";
const SECOND: &str = "22222222";

/// The library and the programs, in a scene of `nobody`'s.
fn build(scene: &Scene) {
    scene.give_to(NOBODY);
    let assemble = ["-shared", "-nostdlib", "-Wa,--defsym,FIRST=1"];
    compile("library.s", &assemble, &scene.path("libhsa-runtime64.so.1"));
    compile("library.s", &assemble[..2], &scene.path("second"));
    compile("calls.c", &["-ldl"], &scene.path("calls"));
    compile("takes.c", &[], &scene.path("takes"));
}

/// The arguments of a program that calls the library, which returns what is `expected`.
fn caller<'a>(command: &'a mut Command, scene: &Scene, expected: &str) -> &'a mut Command {
    command
        .arg(scene.path("libhsa-runtime64.so.1"))
        .arg(expected)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
}

/// Calls that are in the trace so far, by process.
fn calls(scene: &Scene, pid: u32) -> usize {
    scene.trace_so_far().map_or(0, |trace| trace.only(pid).calls.len())
}

fn states(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()
}

/// A child is forked and ends, and its number becomes that of a process of another program before roctap
/// hears of the child.
#[test]
fn hostile_a_process_with_the_number_of_a_child_that_ended_is_left_alone() {
    let scene = Scene::default();
    build(&scene);
    let mut parent = Command::new(scene.path("calls"));
    let mut parent = Running::start(as_nobody(caller(&mut parent, &scene, FIRST)));
    let pid = parent.pid().to_string();
    let recording =
        scene.record(&["-p", &pid, "--api", "hsa", "--gpu", "off"]).spawn().expect("roctap");
    wait_until("it is recorded", || calls(&scene, parent.pid()) > 0);

    send_signal(recording.id(), Signal::STOP);
    wait_until("roctap stands still", || states(recording.id()).contains(") T "));
    let mut line = String::new();
    parent.child.stdin.as_mut().expect("piped").write_all(b"f").expect("alive");
    parent.output.read_line(&mut line).expect("a line");
    let number: u32 = line.trim().parse().expect("a number");
    // The kernel tells the start of a process in ticks of 10 ms.
    let ended = Instant::now();
    wait_until("the next tick but one", || ended.elapsed() > Duration::from_millis(20));
    let mut other = Command::new(scene.path("takes"));
    other.arg(number.to_string()).arg(scene.path("calls"));
    let mut other = Running::start(caller(&mut other, &scene, FIRST));
    assert!(Path::new(&format!("/proc/{number}")).exists());
    send_signal(recording.id(), Signal::CONT);

    // Whatever becomes of it, it has become of it when a later child is known.
    let mut later = String::new();
    parent.child.stdin.as_mut().expect("piped").write_all(b"f").expect("alive");
    parent.output.read_line(&mut later).expect("a line");
    let later: u32 = later.trim().parse().expect("a number");
    wait_until("it is followed", || {
        scene.trace_so_far().is_some_and(|trace| trace.tables().processes.contains_key(&later))
    });
    let counted = calls(&scene, parent.pid());
    wait_until("it is recorded on", || calls(&scene, parent.pid()) > counted + 100);
    let ran = interrupt(recording).expect(0);
    let trace = scene.trace();
    assert!(!trace.only(parent.pid()).calls.is_empty());
    assert_eq!(calls(&scene, number), 0, "another process is recorded: {ran:#?}");
    drop(other.child.stdin.take());
    drop(parent.child.stdin.take());
    assert_eq!((other.ended().code, parent.ended().code), (Some(0), Some(0)));
}

/// What is done for a process is not done to the one that has its number since.
#[test]
fn hostile_a_number_that_was_seen_is_not_another_process() {
    let scene = Scene::default();
    build(&scene);
    let mut first = Command::new(scene.path("calls"));
    let mut first = Running::start(as_nobody(caller(&mut first, &scene, FIRST)));
    let subject = Subject::open(first.pid()).expect("it lives");
    drop(first.child.stdin.take());
    let number = first.pid();
    assert_eq!(first.ended().code, Some(0));
    let mut other = Command::new(scene.path("takes"));
    other.arg(number.to_string()).arg(scene.path("calls"));
    let mut other = Running::start(caller(&mut other, &scene, FIRST));
    let libraries = roctap::discover::libraries(number).expect("it lives");
    assert_eq!(libraries.len(), 1, "by its number alone there is a process");
    assert!(subject.by_number(roctap::discover::libraries).is_err());
    roctap::inject::check(&subject).expect_err("that is another one");
    drop(other.child.stdin.take());
    assert_eq!(other.ended().code, Some(0));
}

/// A library is overwritten by another release, under the same inode, after it was planned.
#[test]
fn hostile_a_library_that_is_written_over_is_planned_anew() {
    let scene = Scene::default();
    build(&scene);
    let recording = scene.record(&["-a", "--api", "hsa", "--gpu", "off"]).spawn().expect("roctap");
    let mut first = Command::new(scene.path("calls"));
    let mut first = Running::start(as_nobody(caller(&mut first, &scene, FIRST)));
    wait_until("it is recorded", || calls(&scene, first.pid()) > 0);
    drop(first.child.stdin.take());
    assert_eq!(first.ended().code, Some(0));

    let second = std::fs::read(scene.path("second")).expect("compiled");
    std::fs::write(scene.path("libhsa-runtime64.so.1"), second).expect("written over");
    let mut second = Command::new(scene.path("calls"));
    let mut second = Running::start(as_nobody(caller(&mut second, &scene, SECOND)));
    let pid = second.pid();
    wait_until("it is recorded", || {
        let ended = second.child.try_wait().expect("status");
        assert_eq!(ended, None, "it returns something else, because of us");
        calls(&scene, pid) > 100
    });
    interrupt(recording).expect(0);
    drop(second.child.stdin.take());
    assert_eq!(second.ended().code, Some(0));
}
