//! `roctap record --plugin`: what is recorded is exported at once.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use e2e::{Running, app, run};

use crate::{by_sudo, expect_one_line, expect_the_users_rights, lines_of, scene, tells};

#[test]
fn root_plugins_recorded_traces_are_exported_as_the_user() {
    let scene = scene();
    let plugin = tells(&scene);
    let arguments = ["--plugin", plugin.to_str().expect("text"), "--api", "hip,roctx"];
    let mut command = scene.recording(&arguments, "ranges", &["2"]);
    let ran = run(by_sudo(&mut command).env("SECRET", "root's")).expect(0);
    expect_the_users_rights(&ran);
    assert!(!lines_of(&ran, "variable ").iter().any(|variable| variable.starts_with("SECRET")));
    let trace = scene.trace();
    trace.expect_complete();
    assert_eq!(lines_of(&ran, "call ").len(), trace.calls.len());
    assert_eq!(lines_of(&ran, "end").len(), 1);
    // The program's own report comes before.
    assert!(ran.stdout.find("result ok") < ran.stdout.find("begin 4.1"), "{}", ran.stdout);
}

/// The first Ctrl-C ends the recording, and not what is to be done with it.
#[test]
fn root_plugins_are_fed_what_ctrl_c_has_ended() {
    let scene = scene();
    let target = Running::start(scene.command(app("loop")).args(["0", "1", "100"]));
    let plugin = tells(&scene);
    let pid = target.pid().to_string();
    let arguments = ["--plugin", plugin.to_str().expect("text"), "-p", &pid];
    let mut command = scene.record(&arguments);
    let ran = scene.record_kernels(by_sudo(&mut command), &[target.pid()], 10).expect(0);
    let trace = scene.trace();
    trace.expect_complete();
    assert_eq!(lines_of(&ran, "call ").len(), trace.calls.len());
    assert_eq!(lines_of(&ran, "end").len(), 1);
    target.end().expect(0);
}

#[test]
fn root_plugins_mistakes_are_told_before_a_recording() {
    let scene = scene();
    let marker = scene.path("ran");
    let touch = |plugin: &Path| {
        let mut command = scene.record(&["--plugin", plugin.to_str().expect("text")]);
        command.args(["--", "touch"]).arg(&marker);
        command
    };
    let plugin = tells(&scene);
    let ran = run(touch(&plugin).env_remove("SUDO_UID")).expect(1);
    expect_one_line(&ran, &["plugins never run as root"]);
    let ran = run(by_sudo(&mut touch(&scene.path("missing.so")))).expect(1);
    expect_one_line(&ran, &["cannot load the plugin", "missing.so", "No such file"]);
    assert!(!marker.exists() && !scene.trace_path().exists());
    // A place where its user could not read the trace.
    let mut command = scene.roctap(&["record", "-o"]);
    let hidden = scene.path("hidden");
    fs::create_dir(&hidden).expect("a directory");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).expect("chmod");
    command.arg(hidden.join("t.rtrace")).arg("--plugin").arg(&plugin).args(["--", "touch"]);
    let ran = run(by_sudo(command.arg(&marker))).expect(1);
    expect_one_line(&ran, &["could not read the trace in", "hidden", "Permission denied"]);
    assert!(!marker.exists());
    // What fails behind the recording leaves the trace.
    let failing = ["--plugin", plugin.to_str().expect("text")];
    let mut command = scene.recording(&failing, "basic", &[]);
    command.env("ROCP_TEST_WHERE", "write_callback_record").env("ROCP_TEST_WHAT", "crash");
    let ran = run(by_sudo(&mut command)).expect(1);
    ran.complains(&["libtells.so", "ended its process (signal: 11"]);
    scene.trace().expect_complete();
    // So is a directory in which the plugin cannot write, though this one does not want to.
    fs::remove_file(scene.trace_path()).expect("removed");
    let mut command = scene.recording(&failing, "basic", &[]);
    let ran = run(by_sudo(&mut command).env("ROCP_OUTPUT_DIR", "/nowhere")).expect(0);
    let said = |text| ran.stderr.find(text).unwrap_or_else(|| panic!("{ran:#?}"));
    assert!(said("ROCP_OUTPUT_DIR is /nowhere, where") < said("nothing was lost"), "{ran:#?}");
    // A recording that fails ends the export that waits for it.
    fs::write(scene.trace_path(), "in the way").expect("a file");
    let ran = run(by_sudo(&mut scene.recording(&failing, "basic", &[]))).expect(1);
    ran.complains(&["exists already"]);
    assert_eq!(lines_of(&ran, "begin ").len(), 0, "{ran:#?}");
}
