//! Nothing that a target maps is ever executed by roctap, and what a target hands over is used only if it
//! is what it should be.

use std::{
    fs::Permissions,
    io::{BufRead as _, BufReader},
    os::{fd::AsRawFd as _, unix::fs::PermissionsExt as _},
    process::{Command, Stdio},
};

use e2e::{Running, Scene, Signal, run, send_signal, within_deadline};
use hostile::{NOBODY, as_nobody, compile, give_as_3};
use rustix::fs::{MemfdFlags, Mode, fchmod, fcntl_get_seals, fstat, memfd_create};

/// A program of `nobody` that maps the library, which has noted as whom it was loaded.
fn start(scene: &Scene) -> Running {
    let mut command = program(scene, "waits.c", &[]);
    let target = Running::start(command.stdin(Stdio::piped()));
    assert!(loaded_by(scene, NOBODY), "its constructor notes as whom it runs");
    target
}

/// A program of `nobody` with that library, which is compiled with `options`.
fn program(scene: &Scene, source: &str, options: &[&str]) -> Command {
    scene.give_to(NOBODY);
    let library = scene.path("libhsa-runtime64.so.1");
    let directory = format!("-DDIRECTORY=\"{}\"", library.parent().expect("in it").display());
    compile("runtime.c", &[&["-shared", "-fPIC", &*directory], options].concat(), &library);
    compile(source, &[], &scene.path("target"));
    let mut command = Command::new(scene.path("target"));
    as_nobody(command.env("LD_PRELOAD", &library).stdout(Stdio::piped()));
    command
}

fn loaded_by(scene: &Scene, user: u32) -> bool {
    scene.path(&format!("loaded-by-{user}")).exists()
}

/// What root is told of the process: that functions of its library lead elsewhere.
const REFUSAL: [&str; 2] = ["hsa_init among them, have been redirected", "libc"];

#[test]
fn hostile_a_mapped_library_is_not_executed_for_a_process_that_was_named() {
    let scene = Scene::default();
    let target = start(&scene);
    let pid = target.pid().to_string();
    let ran = run(&mut scene.record(&["-p", &pid, "--api", "hsa", "-d", "0.2"]));
    assert!(!loaded_by(&scene, 0), "root has executed the library of another user");
    ran.complains(&[&[&*format!("process {pid}")], &REFUSAL[..]].concat());
}

#[test]
fn hostile_a_mapped_library_is_not_executed_for_a_process_that_was_found() {
    let scene = Scene::default();
    let target = start(&scene);
    let mut recording = Running::spawn(&mut scene.record(&["-a", "--api", "hsa"]));
    let process = format!("process {}", target.pid());
    let expected = [&[&*process], &REFUSAL[..]].concat();
    let mut errors = BufReader::new(recording.child.stderr.take().expect("piped")).lines();
    let is_it = |line: String| expected.iter().all(|part| line.contains(part));
    let found = within_deadline(recording.pid(), || errors.any(|line| is_it(line.expect("text"))));
    assert!(found, "{expected:?} is not said");
    send_signal(recording.pid(), Signal::INT);
    recording.ended();
    assert!(!loaded_by(&scene, 0), "root has executed the library of another user");
}

#[test]
fn hostile_a_mapped_library_is_not_executed_to_show_probes() {
    let scene = Scene::default();
    let target = start(&scene);
    let pid = target.pid().to_string();
    let ran = run(&mut scene.roctap(&["probes", "-p", &pid])).expect(0);
    assert!(ran.stdout.contains("hsa_init") && ran.stdout.contains("redirected to"), "{ran:#?}");
    let file = scene.path("libhsa-runtime64.so.1");
    run(scene.roctap(&["probes"]).arg(&file)).expect(0);
    assert!(!loaded_by(&scene, 0), "root has executed the library of another user");
}

/// The target puts another memfd under the numbers of those that roctap has it make: one of root's, which it
/// may read and no more. Whoever opens that anew, by its path, can write to it.
#[test]
fn hostile_a_file_under_the_number_of_a_memfd_is_left_alone() {
    let memfd = memfd_create("roots", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let precious = memfd.expect("memfd");
    fchmod(&precious, Mode::RUSR).expect("mode");
    let path = format!("/proc/self/fd/{}", precious.as_raw_fd());
    let to_read = std::fs::File::open(path).expect("opened to be read");
    // It is not always in time.
    for _ in 0..5 {
        let scene = Scene::default();
        let mut command = program(&scene, "swaps.c", &["-DKNOWN_TABLES"]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        give_as_3(&mut command, to_read.try_clone().expect("copy"));
        let mut target = Running::start(&mut command);
        let pid = target.pid().to_string();
        let ran = run(&mut scene.record(&["-p", &pid, "--api", "hsa", "-d", "0.1"]));
        assert_ne!(ran.code, None, "{ran:#?}");
        assert_eq!(target.child.try_wait().expect("status"), None, "it goes on: {ran:#?}");
        let size = fstat(&precious).expect("fstat").st_size;
        assert_eq!(size, 0, "root has written to a file that the target may not: {ran:#?}");
        assert!(fcntl_get_seals(&precious).expect("seals").is_empty(), "{ran:#?}");
    }
}

#[test]
fn hostile_a_program_called_ldconfig_is_not_executed() {
    let scene = Scene::default();
    let (program, mark) = (scene.path("ldconfig"), scene.path("executed"));
    let script = format!("#!/bin/sh\n: > {}\n", mark.display());
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("mode");
    let path = std::env::var("PATH").expect("a path");
    let path = format!("{}:{path}", program.parent().expect("in it").display());
    let ran = run(scene.roctap(&["doctor"]).env("PATH", path));
    assert!(ran.stdout.contains("libhsa-runtime64"), "{ran:#?}");
    assert!(!mark.exists(), "{ran:#?}");
}
