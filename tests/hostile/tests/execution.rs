//! Nothing that a target maps is ever executed by roctap, and what a target hands over is used only if it
//! is what it should be.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use e2e::{Running, Scene, roctap_bin, run};
use hostile::{NOBODY, as_nobody, compile};

/// A program of `nobody` that maps the library, which has noted as whom it was loaded.
fn start(scene: &Scene) -> Running {
    scene.give_to(NOBODY);
    let library = scene.path("libhsa-runtime64.so.1");
    let directory = format!("-DDIRECTORY=\"{}\"", library.parent().expect("in it").display());
    compile("runtime.c", &["-shared", "-fPIC", &directory], &library);
    compile("waits.c", &[], &scene.path("waits"));
    let mut command = Command::new(scene.path("waits"));
    command.env("LD_PRELOAD", &library).stdin(Stdio::piped()).stdout(Stdio::piped());
    let target = Running::start(as_nobody(&mut command));
    assert!(loaded_by(scene, NOBODY), "its constructor notes as whom it runs");
    target
}

fn loaded_by(scene: &Scene, user: u32) -> bool {
    scene.path(&format!("loaded-by-{user}")).exists()
}

/// What root is told of the process: that a function of its library leads elsewhere.
const TOLD: [&str; 2] = ["hsa_init has been redirected", "libc"];

#[test]
fn hostile_a_mapped_library_is_not_executed_for_a_process_that_was_named() {
    let scene = Scene::default();
    let target = start(&scene);
    let pid = target.pid().to_string();
    let ran = run(&mut scene.record(&["-p", &pid, "--api", "hsa", "-d", "0.2"])).expect(0);
    ran.complains(&[&[&*format!("process {pid}")], &TOLD[..]].concat());
    assert!(!loaded_by(&scene, 0), "root has executed the library of another user");
}

#[test]
fn hostile_a_mapped_library_is_not_executed_for_a_process_that_was_found() {
    let scene = Scene::default();
    let target = start(&scene);
    let ran = run(&mut scene.record(&["-a", "--api", "hsa", "-d", "0.2"])).expect(0);
    ran.complains(&[&[&*format!("process {}", target.pid())], &TOLD[..]].concat());
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
