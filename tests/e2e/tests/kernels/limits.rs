//! What is out of bounds, and what is plainly wrong: one clear message, and nothing is placed.

use e2e::{Scene, app, roctap_bin, run};

/// Whoever may raise it, by CAP_SYS_RESOURCE, is not kept by it; others are told.
#[test]
fn root_kernel_a_low_limit_of_descriptors() {
    let scene = Scene::default();
    let mut shell = scene.command("sh");
    shell.args(["-c", "ulimit -n 16; exec \"$@\"", "sh"]).arg(roctap_bin());
    shell.args(["record", "--gpu=off", "--api=hsa", "-o"]).arg(scene.trace_path());
    let ran = run(shell.arg("--").arg(app("hsa_direct")).args(["s", "2"]));
    if ran.code == Some(1) {
        let raised = run(scene.command("sh").args(["-c", "ulimit -n 16; ulimit -Hn 17"]));
        assert_ne!(raised.code, Some(0), "root may raise it");
        ran.complains(&["may open 16 descriptors", "ulimit -Hn"]);
        assert!(!scene.trace_path().exists());
        return;
    }
    ran.expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    assert!(!trace.calls.is_empty());
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
