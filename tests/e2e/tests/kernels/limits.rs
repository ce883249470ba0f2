//! What is out of bounds, and what is plainly wrong: one clear message, and nothing is placed.

use e2e::{Scene, app, run};

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
