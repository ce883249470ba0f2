//! What goes wrong gets one clear message and the right exit status.

use std::{fs, os::unix::process::CommandExt as _, process::Command};

use e2e::{
    Running, Scene, Signal, app, compare::expect_no_holes, only_child, roctap_bin, run,
    send_signal, within_deadline,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

#[test]
fn root_a_program_that_never_touches_the_gpu() {
    let scene = Scene::default();
    let ran = scene.record_app(&[], "nogpu", &[]).expect(0);
    ran.complains(&["no kernel was launched"]);
    scene.trace().expect_counts(&ran);
}

#[test]
fn root_a_program_without_rocm() {
    let scene = Scene::default();
    let ran = scene.record_app(&[], "plain", &[]).expect(3);
    ran.complains(&["no call of a ROCm library was seen"]);
    assert_eq!(scene.trace().calls.len(), 0);
}

#[test]
fn root_a_pid_that_does_not_exist() {
    let scene = Scene::default();
    let ran = run(&mut scene.record(&["-p", "4194304"])).expect(1);
    ran.complains(&["4194304", "no such process"]);
    assert!(!scene.trace_path().exists());
}

#[test]
fn root_a_zombie() {
    let scene = Scene::default();
    let mut child = Command::new("true").spawn().expect("true");
    let pid = child.id().to_string();
    e2e::wait_until("it is a zombie", || {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    });
    run(&mut scene.record(&["-p", &pid])).expect(1).complains(&[&pid, "zombie"]);
    child.wait().expect("wait");
}

/// Short-lived processes, attached to at every moment of their lives: always an answer, never a hang.
#[test]
fn root_a_pid_that_exits_while_attaching() {
    let scene = Scene::default();
    for delay in 0..10 {
        let sleep = format!("0.{:02}", delay * 5);
        let mut child = Command::new("sleep").arg(sleep).spawn().expect("sleep");
        let pid = child.id().to_string();
        let ran = run(&mut scene.record(&["--force", "-p", &pid]));
        match ran.code {
            Some(1) if ran.stderr.contains("zombie") => ran.complains(&[&pid, "exited"]),
            Some(1) => ran.complains(&[&pid, "ended before roctap was attached"]),
            Some(3) => ran.complains(&["every traced process has ended"]),
            _ => panic!("{ran:#?}"),
        }
        assert_eq!(scene.trace_path().exists(), ran.code == Some(3));
        let _ = fs::remove_file(scene.trace_path());
        child.wait().expect("wait");
    }
}

#[test]
fn root_no_privileges() {
    let scene = Scene::default();
    let nobody = 65534;
    let directory = tempfile::tempdir().expect("directory");
    std::os::unix::fs::chown(directory.path(), Some(nobody), Some(nobody)).expect("chown");
    // A copy that nobody may execute, wherever the build directory is.
    let roctap = directory.path().join("roctap");
    fs::copy(roctap_bin(), &roctap).expect("copy");
    let mut command = Command::new(&roctap);
    command.args(["record", "--gpu", "off", "-o"]).arg(directory.path().join("t.rtrace"));
    command.args(["--", "true"]).uid(nobody).gid(nobody);
    let ran: e2e::Ran = command.output().expect("roctap").into();
    assert_eq!(ran.code, Some(1), "{ran:#?}");
    ran.complains(&["root", "CAP_BPF", "CAP_PERFMON"]);
    let ran: e2e::Ran = Command::new(&roctap)
        .arg("doctor")
        .uid(nobody)
        .gid(nobody)
        .output()
        .expect("doctor")
        .into();
    assert_eq!(ran.code, Some(1), "{ran:#?}");
    assert!(ran.stdout.contains("MISSING  CAP_BPF"), "{ran:#?}");
    let _ = scene;
}

#[test]
fn root_a_full_disk() {
    let scene = Scene::default();
    let disk = scene.path("disk");
    fs::create_dir(&disk).expect("mkdir");
    let mount = |arguments: &[&str]| {
        let status = Command::new("mount").args(arguments).arg(&disk).status().expect("mount");
        assert!(status.success());
    };
    mount(&["-t", "tmpfs", "-o", "size=256k", "tmpfs"]);
    let trace = disk.join("full.rtrace");
    let mut command = scene.roctap(&["record", "--gpu", "off", "-o"]);
    command.arg(&trace).arg("--").arg(app("storm")).args(["4", "2", "20000"]);
    let ran = run(&mut command);
    let read = roctap::trace::Trace::open(&trace).map(|t| t.tables().status.chunks);
    assert!(Command::new("umount").arg(&disk).status().expect("umount").success());
    assert_eq!(ran.code, Some(1), "{ran:#?}");
    ran.complains(&["full.rtrace", "No space left"]);
    assert!(ran.stdout.contains("result ok") || ran.stdout.is_empty(), "{ran:#?}");
    assert!(read.expect("still readable") > 0);
}

#[test]
fn root_a_limit_of_file_sizes() {
    let scene = Scene::default();
    let mut recording =
        Running::start(&mut scene.recording(&["--gpu", "off"], "loop", &["0", "2"]));
    scene.wait_for_trace("chunks are written", |trace| !trace.calls.is_empty());
    let program = only_child(recording.pid());
    // The next write is one too many.
    let length = fs::metadata(scene.trace_path()).expect("a trace").len();
    let limit = Rlimit { current: Some(length), maximum: Some(length) };
    prlimit(Some(Pid::from_child(&recording.child)), Resource::Fsize, limit).expect("prlimit");
    within_deadline(recording.pid(), || recording.child.wait()).expect("status");
    send_signal(program, Signal::TERM);
    let ran = recording.ended().expect(1);
    ran.complains(&["test.rtrace", "File too large"]);
    let reading = roctap::trace::Trace::open(&scene.trace_path()).expect("a trace").tables();
    assert!(reading.damage.is_none() && reading.status.chunks > 0, "{reading:?}");
    run(scene.roctap(&["report"]).arg(scene.trace_path()))
        .expect(1)
        .complains(&["the end of the recording is missing", "test.rtrace"]);
}

/// One that is smaller than the memory that the shim records into, which is no file of the user's.
#[test]
fn root_a_limit_of_file_sizes_is_for_the_trace() {
    let scene = Scene::default();
    let mut limited = scene.command("sh");
    // 512 MiB.
    let script = r#"ulimit -S -f 1048576; exec "$0" "$@""#;
    limited.args(["-c", script]).arg(roctap_bin()).args(["record", "-o"]).arg(scene.trace_path());
    let ran = run(limited.arg("--").arg(app("storm")).args(["2", "2", "200"])).expect(0);
    scene.trace().expect_counts(&ran);
    expect_no_holes(&scene.trace(), &scene.true_dispatches());
}

#[test]
fn root_an_existing_output_file() {
    let scene = Scene::default();
    scene.record_app(&[], "nogpu", &[]).expect(0);
    let again = scene.record_app(&[], "nogpu", &[]).expect(1);
    again.complains(&["test.rtrace", "--force"]);
    scene.record_app(&["--force"], "nogpu", &[]).expect(0);
    fs::write(scene.trace_path(), "somebody's letter").expect("write");
    scene.record_app(&["--force"], "nogpu", &[]).expect(1).complains(&["test.rtrace"]);
    assert_eq!(fs::read_to_string(scene.trace_path()).expect("read"), "somebody's letter");
}

#[test]
fn root_a_corrupted_trace_file() {
    let scene = Scene::default();
    scene.record_app(&[], "basic", &[]).expect(0);
    let mut bytes = fs::read(scene.trace_path()).expect("read");
    let middle = bytes.len() * 2 / 3;
    bytes[middle] ^= 0xFF;
    fs::write(scene.trace_path(), bytes).expect("write");
    for verb in [&["report"][..], &["export", "-f", "text"]] {
        let ran = run(scene.roctap(verb).arg(scene.trace_path()));
        assert_eq!(ran.code, Some(1), "{ran:#?}");
        ran.complains(&["test.rtrace"]);
    }
    fs::write(scene.trace_path(), "not a trace").expect("write");
    run(scene.roctap(&["report"]).arg(scene.trace_path())).expect(1).complains(&["test.rtrace"]);
}

#[test]
fn root_wrong_usage() {
    let scene = Scene::default();
    run(&mut scene.record(&[])).expect(2).complains(&["-p PID", "-- CMD"]);
    run(&mut scene.record(&["-p", "1", "--gpu", "tools"])).expect(2).complains(&["--gpu tools"]);
    run(&mut scene.record(&["--api", "cuda", "--", "true"])).expect(2).complains(&["cuda"]);
    run(&mut scene.record(&["-d", "-1", "--", "true"])).expect(2);
    run(&mut scene.record(&["--", "no-such-program"])).expect(1).complains(&["no-such-program"]);
}
