//! Recording where something around it is not as usual: what was asked for is recorded all the same, or
//! nothing is left behind.

use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::Path,
    process::{Command, Stdio},
};

use e2e::{
    Recorded, Running, Scene, Signal, app,
    compare::{expect_no_holes, expect_only_inevitable},
    only_child, roctap_bin, run, send_signal, wait_until,
};
use roctap::trace::Trace;

/// A shell that runs `script`; what is added to its arguments is `$@` there.
fn shell(scene: &Scene, script: &str) -> Command {
    let mut shell = scene.command("sh");
    shell.args(["-c", script, "sh"]);
    shell
}

/// The files of a scene.
fn files(scene: &Scene) -> Vec<String> {
    let all = fs::read_dir(scene.path("")).expect("the scene");
    all.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned()).collect()
}

/// roctap, its shim, the program, its argument and the trace, none of them by a name that is text.
#[test]
fn root_names_that_are_no_text() {
    let scene = Scene::default();
    let directory = scene.path("").join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&directory).expect("mkdir");
    let here = |name: &[u8]| directory.join(OsStr::from_bytes(name));
    let roctap = here(b"roctap");
    fs::copy(roctap_bin(), &roctap).expect("copied");
    let shim = "libroctap_shim.so";
    fs::copy(roctap_bin().with_file_name(shim), here(shim.as_bytes())).expect("copied");
    fs::copy(app("loop"), here(b"lo\xffp")).expect("copied");
    let (program, seconds) = (here(b"lo\xffp"), OsStr::from_bytes(b"0\xff"));
    let record = |trace: &[u8], options: &[&OsStr]| {
        let mut record = scene.command(&roctap);
        record.arg("record").args(options).arg("-o").arg(here(trace));
        record
    };
    let expect = |path: &Path, trace: &Recorded, pid: u32| {
        assert!(trace.calls.len() > 10 && !trace.dispatches.is_empty());
        assert!(trace.tables().processes[&pid].command.contains(r"caf\xe9/lo\xffp 0"));
        let command =
            Trace::open(path).expect("trace").metadata().expect("metadata").command.clone();
        assert!(command.contains(r"caf\xe9/roctap record"), "{command}");
    };

    let mut command = record(b"command\xff", &[]);
    let recording = Running::spawn(command.arg("--").arg(&program).arg(seconds));
    let enough = |trace: Recorded| trace.calls.len() > 10 && !trace.dispatches.is_empty();
    let path = here(b"command\xff");
    wait_until("something is recorded", || Recorded::read_so_far(&path).is_some_and(enough));
    send_signal(only_child(recording.pid()), Signal::TERM);
    let ran = recording.ended().expect(0);
    ran.complains(&[r"caf\xe9/command\xff"]);
    let trace = Recorded::read(&path);
    trace.expect_complete();
    expect(&path, &trace, *trace.tables().processes.keys().next().expect("one"));

    // Of a process that runs, from outside too, which reads the names of its kernels in its file.
    let target = Running::start(scene.command(&program).args(["0", "1", "1000"]));
    for gpu in ["--gpu=inject", "--gpu=uprobes"] {
        let pid = target.pid().to_string();
        let path = here(gpu.as_bytes());
        let options = ["-p", &pid, gpu].map(OsStr::new);
        let recording = Running::spawn(&mut record(gpu.as_bytes(), &options));
        wait_until("a kernel is recorded by its name", || {
            let named = |t: &Recorded| {
                t.calls.len() > 10 && t.dispatches.iter().any(|d| t.kernel(d) == "loop_t0")
            };
            Recorded::read_so_far(&path).is_some_and(|trace| named(&trace))
        });
        send_signal(recording.pid(), Signal::INT);
        recording.ended().expect(0);
        expect(&path, &Recorded::read(&path), target.pid());
    }
    target.end().expect(0);
}

/// Nobody at any of the three standard descriptors, and what is said on them is said to nobody.
#[test]
fn root_nobody_listens() {
    for redirected in ["2>&-", ">&-", "<&-", "<&- >&- 2>&-"] {
        let scene = Scene::default();
        let mut roctap = shell(&scene, &format!("exec \"$@\" {redirected}"));
        roctap.arg(roctap_bin()).args(["-vv", "record", "-o"]).arg(scene.trace_path());
        // The command has them closed, too, and would print into what it opens first.
        roctap
            .args(["--", "sh", "-c", r#"exec "$0" </dev/null >/dev/null 2>&1"#])
            .arg(app("basic"));
        run(&mut roctap).expect(0);
        let trace = scene.trace();
        trace.expect_complete();
        trace.expect_dispatches(&scene.true_dispatches(), 1000);
    }
    let scene = Scene::default();
    let mut roctap = scene.roctap(&["-vv", "record", "-o"]);
    roctap.arg(scene.trace_path()).arg("--").arg(app("basic"));
    let mut roctap = roctap.stdout(Stdio::null()).spawn().expect("roctap");
    // The only reading end.
    drop(roctap.stderr.take());
    assert_eq!(roctap.wait().expect("status").code(), Some(0));
    scene.trace().expect_complete();
}

/// A daemon, whose parents have ended before it works: the recording goes on as long as it does.
#[test]
fn root_what_is_left_of_a_command_is_recorded() {
    let scene = Scene::default();
    let go = scene.path("go");
    run(Command::new("mkfifo").arg(&go)).expect(0);
    for round in 0..3 {
        // It tells its number; opening the pipe waits for the other end. One between may end before it is followed.
        let script = r#"( (read own rest < /proc/self/stat; echo $own > "$2"; read go < "$1"; exec "$0" >/dev/null 2>&1) & ) &"#;
        let mut record = scene.record(&["--force"]);
        record.args(["--", "sh", "-c", script]).arg(app("basic")).args([&go, &scene.path("own")]);
        let recording = Running::spawn(&mut record);
        scene.wait_for_trace("it is followed", |trace| {
            let own = fs::read_to_string(scene.path("own")).unwrap_or_default();
            own.trim().parse().is_ok_and(|own: u32| trace.tables().processes.contains_key(&own))
        });
        fs::write(&go, "go\n").expect("it is read");
        recording.ended().expect(0);
        let trace = scene.trace();
        trace.expect_complete();
        assert_eq!(trace.call_counts().get("hipLaunchKernel"), Some(&3), "round {round}");
        trace.expect_dispatches(&scene.true_dispatches(), 1000);
        for file in [scene.path("truth"), scene.path("own"), scene.trace_path()] {
            fs::remove_file(file).expect("removed");
        }
    }
}

/// A command has from its parent what it has without roctap, but for what the shim needs.
#[test]
fn root_a_command_inherits_all() {
    let scene = Scene::default();
    let (set, shows) = (app("inherits"), app("inherits"));
    let started = |command: &mut Command| {
        let ran = run(command.arg(&shows).args(["an argument", ""]));
        ran.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let without = started(scene.command(&set).arg("set"));
    assert!(without.len() > 50, "{without:#?}");
    let shim = ["HSA_TOOLS_LIB=", "HSA_TOOLS_ROCPROFILER_V1_TOOLS=", "ROCTAP_SHIM_MEMORY="];
    for (gpu, needed) in [("off", &[][..]), ("auto", &shim)] {
        let mut record = scene.command(&set);
        record.arg("set").arg(roctap_bin()).args(["record", "--gpu", gpu, "--force", "-o"]);
        let under = started(record.arg(scene.trace_path()).arg("--"));
        let missing = without.iter().filter(|line| !under.contains(line)).collect::<Vec<_>>();
        assert!(missing.is_empty(), "--gpu {gpu}: {missing:#?} are not in {under:#?}");
        let new: Vec<_> = under.iter().filter(|line| !without.contains(line)).collect();
        let is_needed = |line: &&&String| {
            let variable = line.strip_prefix("variable ");
            variable.is_some_and(|it| needed.iter().any(|name| it.starts_with(name)))
        };
        assert_eq!(new.len(), needed.len(), "{new:#?}");
        assert!(new.iter().all(|line| is_needed(&line)), "--gpu {gpu}: {new:#?}");
    }
}

/// A program that confines itself, with the shim from its start; and a confined one that gets it. Neither is
/// killed, and nothing is missing.
#[test]
fn root_confined_programs() {
    for confined in ["confined", "strictly"] {
        let scene = Scene::default();
        let ran = scene.record_app(&[], "module", &["8", "5", confined]).expect(0);
        assert!(ran.stdout.contains("result ok"), "{ran:#?}");
        let trace = scene.trace();
        trace.expect_complete();
        trace.expect_dispatches(&scene.true_dispatches(), 1000);
    }

    let scene = Scene::default();
    let target = Running::start(scene.command(app("module")).args(["0", "5", "confined"]));
    let mut record = scene.record(&[&format!("-p{}", target.pid()), "--gpu", "inject"]);
    scene.record_kernels(&mut record, &[target.pid()], 50).expect(0);
    expect_no_holes(&scene.trace(), &scene.true_dispatches());
    let ran = target.end().expect(0);
    assert!(ran.stdout.contains("result ok"), "{ran:#?}");
}

/// Each ends the recording; the trace is whole. The program goes on.
#[test]
fn root_signals_end_a_recording() {
    for signal in [Signal::HUP, Signal::TERM, Signal::QUIT] {
        let scene = Scene::default();
        let target = Running::start(scene.command(app("loop")).args(["0", "1", "1000"]));
        let pid = target.pid().to_string();
        // These tests may run under `nohup`.
        let mut record = scene.command("env");
        record.arg("--default-signal=HUP").arg(roctap_bin()).args(["record", "-p", &pid, "-o"]);
        let recording = Running::spawn(record.arg(scene.trace_path()));
        scene.wait_for_a_kernel_of(target.pid());
        send_signal(recording.pid(), signal);
        recording.ended().expect(0);
        let trace = scene.trace();
        assert!(trace.reading.status.complete && trace.reading.damage.is_none());
        expect_only_inevitable(&trace);
        target.end().expect(0);
    }
}

/// Two signals while it can do nothing: the second one ends it, wherever it is. The program goes on, and what
/// was written is read.
#[test]
fn root_a_second_signal_ends_roctap_at_once() {
    let scene = Scene::default();
    let target = Running::start(scene.command(app("loop")).args(["0", "1", "1000"]));
    let pid = target.pid().to_string();
    let recording = Running::spawn(&mut scene.record(&["-p", &pid]));
    scene.wait_for_a_kernel_of(target.pid());
    for signal in [Signal::STOP, Signal::INT, Signal::TERM, Signal::CONT] {
        send_signal(recording.pid(), signal);
    }
    let ran = recording.ended();
    // Which of two signals that wait is the second one is the kernel's choice.
    assert!([Some(128 + 2), Some(128 + 15)].contains(&ran.code), "{ran:#?}");
    let trace = scene.trace();
    assert!(!trace.dispatches.is_empty() && !trace.reading.status.complete);
    target.end().expect(0);
}

/// `nohup` is for going on without a terminal. A program that goes on after the recording is named.
#[test]
fn root_nohup_and_a_command_that_goes_on() {
    let scene = Scene::default();
    let mut roctap = shell(&scene, "trap '' HUP; exec \"$@\"");
    roctap.arg(roctap_bin()).arg("record").arg("-o").arg(scene.trace_path());
    let recording = Running::start(roctap.arg("--").arg(app("loop")).args(["0", "1", "1000"]));
    let command = e2e::only_child(recording.pid());
    send_signal(recording.pid(), Signal::HUP);
    let recorded = || scene.trace_so_far().map_or(0, |trace| trace.dispatches.len());
    let before = recorded();
    wait_until("more is recorded", || recorded() > before + 100);
    send_signal(recording.pid(), Signal::TERM);
    // It has our standard output, which ends with it.
    wait_until("the recording has ended", || {
        scene.trace_so_far().is_some_and(|trace| trace.reading.status.complete)
    });
    send_signal(command, Signal::TERM);
    let ran = recording.ended().expect(0);
    ran.complains(&["the command goes on, untraced", &command.to_string()]);
    assert!(ran.stdout.contains("result ok"), "{ran:#?}");
}

#[test]
fn root_a_failed_start_leaves_nothing() {
    let scene = Scene::default();
    let text = scene.path("text");
    fs::write(&text, "#!/nowhere/interpreter\n").expect("written");
    for (mode, why) in [(0o644, "Permission denied"), (0o755, "No such file")] {
        fs::set_permissions(&text, Permissions::from_mode(mode)).expect("chmod");
        let ran = run(scene.record(&[]).arg("--").arg(&text)).expect(1);
        ran.complains(&["cannot run", "text", why]);
        assert_eq!(files(&scene), ["text"], "{ran:#?}");
    }
    // A trace that was there stays.
    let old = scene.trace_path();
    run(scene.record(&[]).arg("--").arg(app("nogpu"))).expect(0);
    let ran = run(scene.record(&["--force"]).arg("--").arg(&text)).expect(1);
    ran.complains(&["cannot run"]);
    assert!(Recorded::read(&old).reading.status.complete, "{ran:#?}");
}

/// As in a container: the kernel's probes tell other numbers than roctap sees.
#[test]
fn root_a_pid_namespace_of_its_own() {
    let scene = Scene::default();
    let mut roctap = scene.command("unshare");
    roctap.args(["--pid", "--fork", "--mount-proc"]).arg(roctap_bin());
    roctap.arg("record").arg("-o").arg(scene.trace_path()).args(["--", "true"]);
    let ran = run(&mut roctap).expect(1);
    ran.complains(&["PID namespace", "--pid=host"]);
    assert_eq!(files(&scene), [""; 0], "{ran:#?}");
}
