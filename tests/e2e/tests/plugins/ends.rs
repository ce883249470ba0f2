//! How plugins end: those that are none, that fail, that crash, or that never come to an end.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use e2e::{Ran, Scene, app, run};
use rustix::process::Signal;

use crate::{by_sudo, compiled, expect_one_line, export, record, scene, tells};

/// A plugin that tells its process and that of its export, and is never done.
fn endless(scene: &Scene) -> PathBuf {
    compiled(
        scene,
        r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        int roctracer_plugin_initialize(unsigned major, unsigned minor) {
            if (chdir(getenv("ROCP_TEST_DIRECTORY"))) return 1;
            FILE* file = fopen("new", "w");
            fprintf(file, "%d %d", getpid(), getppid());
            fclose(file);
            rename("new", "turn");
            for (;;) pause();
        }
        int roctracer_plugin_write_callback_record(void) { return 0; }
        int roctracer_plugin_write_activity_records(void) { return 0; }
        void roctracer_plugin_finalize(void) {}
        "#,
    )
}

/// Sends SIGTERM to roctap while the plugin has its turn, and waits for the end of all its processes.
fn interrupted(scene: &Scene, command: &mut Command, stops_the_export: bool) -> Ran {
    let turn = scene.path("turn");
    let _ = fs::remove_file(&turn);
    let roctap =
        by_sudo(command).env("ROCP_TEST_DIRECTORY", scene.path("")).spawn().expect("roctap");
    e2e::wait_until("the plugin's turn", || turn.exists());
    let text = fs::read_to_string(&turn).expect("processes");
    let (plugin, export) = text.split_once(' ').expect("two processes");
    let export = export.parse().expect("a process");
    if stops_the_export {
        e2e::send_signal(export, Signal::STOP);
    }
    e2e::send_signal(roctap.id(), Signal::TERM);
    let ended = e2e::within_deadline(roctap.id(), || roctap.wait_with_output());
    let ran: Ran = ended.expect("output").into();
    if stops_the_export {
        e2e::send_signal(export, Signal::CONT);
    }
    let plugin = Path::new("/proc").join(plugin);
    e2e::wait_until("the end of the plugin", || !plugin.exists());
    ran
}

#[test]
fn root_plugins_end_with_roctap_at_the_first_signal() {
    let scene = scene();
    let plugin = endless(&scene);
    let option = format!("--plugin={}", plugin.display());
    for stops_the_export in [false, true] {
        let mut command = scene.recording(&[&option, "--force"], "basic", &[]);
        let ran = interrupted(&scene, &mut command, stops_the_export);
        assert_eq!(ran.code, Some(128 + 15), "{ran:#?}");
        scene.trace().expect_complete();
        let ran = interrupted(&scene, &mut export(&scene, &plugin), stops_the_export);
        assert_eq!(ran.code, None, "{ran:#?}");
    }
}

#[test]
fn root_plugins_that_are_none() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let path = |name: &str| scene.path(name);
    let expect = |plugin: &Path, parts: &[&str]| {
        let ran = run(&mut export(&scene, plugin)).expect(1);
        let name = plugin.display().to_string();
        expect_one_line(&ran, &[&[&*name], parts].concat());
    };
    expect(&path("missing.so"), &["cannot load the plugin", "No such file"]);
    expect(&path(""), &["cannot load the plugin", "it is no file"]);
    fs::write(path("text.so"), "text").expect("a file");
    expect(&path("text.so"), &["cannot load the plugin"]);
    fs::write(path("hidden.so"), "").expect("a file");
    fs::set_permissions(path("hidden.so"), fs::Permissions::from_mode(0o600)).expect("chmod");
    expect(&path("hidden.so"), &["cannot load the plugin", "Permission denied"]);
    let functions = ["initialize", "finalize", "write_callback_record", "write_activity_records"];
    for lacks in functions {
        let others = functions.iter().filter(|function| **function != lacks);
        let source =
            others.map(|function| format!("int roctracer_plugin_{function}() {{ return 0; }}\n"));
        let plugin = compiled(&scene, &source.collect::<String>());
        expect(
            &plugin,
            &["is no plugin of roctracer's", &format!("no function roctracer_plugin_{lacks}")],
        );
    }
    let mut command = export(&scene, &tells(&scene));
    let ran = run(command.env("ROCP_TEST_MAJOR", "5")).expect(1);
    expect_one_line(
        &ran,
        &["libtells.so did not begin: roctracer_plugin_initialize(4, 1) returned -1"],
    );
}

#[test]
fn root_plugins_that_fail_crash_or_exit() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    for function in ["initialize", "write_callback_record", "write_activity_records", "finalize"] {
        for what in ["error", "crash", "exit"] {
            let mut command = export(&scene, &plugin);
            command.env("ROCP_TEST_WHERE", function).env("ROCP_TEST_WHAT", what);
            let ran = run(&mut command);
            let name = plugin.display().to_string();
            let ends = |how: &str| expect_one_line(&ran, &[&name, "ended its process", how]);
            match (what, function) {
                // It returns nothing.
                ("error", "finalize") => {
                    assert_eq!(ran.code, Some(0), "{ran:#?}");
                    continue;
                }
                ("error", _) => {
                    let returned = match function {
                        "initialize" => "roctracer_plugin_initialize(4, 1) returned -7".to_owned(),
                        _ => format!("roctracer_plugin_{function} returned -7, for "),
                    };
                    expect_one_line(&ran, &[&name, &returned]);
                    let is_ended = ran.stdout.lines().any(|line| line == "end");
                    assert_eq!(is_ended, function != "initialize", "{ran:#?}");
                }
                ("crash", _) => ends("signal: 11 (SIGSEGV)"),
                _ => ends("exit status: 0"),
            }
            assert_eq!(ran.code, Some(1), "{function} {what}: {ran:#?}");
        }
    }
}

/// A plugin in C whose begin does something.
fn begins(scene: &Scene, what: &str) -> PathBuf {
    let begin = format!(
        "int roctracer_plugin_initialize(unsigned major, unsigned minor) {{ {what}; return 0; }}"
    );
    let others = r#"
        #include <signal.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        static char text[1 << 20];
        int roctracer_plugin_write_callback_record(void* record, void* data) { return 0; }
        int roctracer_plugin_write_activity_records(void* begin, void* end) { return 0; }
        void roctracer_plugin_finalize() {}
    "#;
    compiled(scene, &[others, &begin].concat())
}

#[test]
fn root_plugins_harm_roctap_and_that_is_told() {
    let scene = scene();
    record(&scene, "hip", "fork_exec", &[&app("basic").display().to_string()]);
    let processes = scene.trace().tables().processes.len();
    assert!(processes > 1);
    // Who is between roctap and the plugin.
    let ran = run(&mut export(&scene, &begins(&scene, "kill(getppid(), SIGKILL)"))).expect(1);
    expect_one_line(&ran, &["ended by signal 9", "may be incomplete"]);
    // The process that has it, and what was to come.
    let ran = run(&mut export(&scene, &begins(&scene, "_exit(0)"))).expect(1);
    ran.complains(&["ended its process (exit status: 0)"]);
    ran.complains(&["that are not handed over: 1"]);
    // The trace.
    let path = scene.trace_path().display().to_string();
    let plugin = begins(&scene, &format!(r#"truncate("{path}", 4096)"#));
    let ran = run(&mut export(&scene, &plugin)).expect(1);
    ran.complains(&["events could be read once more"]);
}

/// What the plugin writes goes nowhere: whether all of it would fit into a pipe, or not.
#[test]
fn root_plugins_output_that_cannot_be_written() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    for bytes in ["1", "sizeof text"] {
        let plugin =
            begins(&scene, &format!("memset(text, 'x', sizeof text); write(1, text, {bytes})"));
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
        let ran = run(export(&scene, &plugin).stdout(full)).expect(1);
        ran.complains(&["standard output", "No space left on device"]);
    }
    // Whoever reads it has read enough.
    let plugin = begins(&scene, "write(1, text, 1)");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    run(export(&scene, &plugin).stdout(writer)).expect(0);
}

/// What it leaves behind has the pipe by which roctap is answered.
#[test]
fn root_plugins_that_leave_a_process_behind_do_not_hold_roctap_up() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = compiled(
        &scene,
        r#"
        #include <stdlib.h>
        #include <unistd.h>
        int roctracer_plugin_initialize(unsigned major, unsigned minor) {
            if (fork()) return 0;
            close(1);
            close(2);
            chdir(getenv("ROCP_TEST_DIRECTORY"));
            for (int i = 0; access("ended", F_OK) && i < 6000; i++) {
                if (i == 5999) rmdir("waited_for");
                usleep(10000);
            }
            _exit(0);
        }
        int roctracer_plugin_write_callback_record(void) { return 0; }
        int roctracer_plugin_write_activity_records(void) { return 0; }
        void roctracer_plugin_finalize(void) {}
        "#,
    );
    let directory = scene.path("");
    fs::create_dir(directory.join("waited_for")).expect("directory");
    run(export(&scene, &plugin).env("ROCP_TEST_DIRECTORY", &directory)).expect(0);
    assert!(directory.join("waited_for").exists(), "roctap waited for it");
    fs::write(directory.join("ended"), "").expect("a file");
}
