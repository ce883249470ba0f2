//! What programs name themselves, wherever roctap shows it.

mod common;

use std::{
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt as _, process::CommandExt as _},
    process::Command,
};

use common::{NAME, assert_harmless, compile, write_trace};
use e2e::{Ran, Running, Scene, run, wait_until};
use hostile::{NOBODY, as_nobody};

/// A process of nobody's whose arguments, name and library are hostile.
fn target(scene: &Scene) -> Running {
    scene.give_to(NOBODY);
    // A path has no slash in its last part.
    let library = scene.path(&format!("libhsa-runtime64.so.1{NAME}"));
    // The loader's list is separated by spaces and colons.
    let library = library.with_file_name(
        library.file_name().expect("a name").to_string_lossy().replace([' ', ':'], "_"),
    );
    compile(scene, "int hsa_nothing;", &["-shared", "-fPIC"], &library);
    let mut command = Command::new("sleep");
    let name = [NAME.as_bytes(), b"\n       1  forged  [hsa 1]\xff\xfe"].concat();
    command.arg0(OsString::from_vec(name)).arg("1000000").env("LD_PRELOAD", library);
    let target = Running::spawn(as_nobody(command.stdout(std::process::Stdio::piped())));
    wait_until("it maps the library", || {
        fs::read_to_string(format!("/proc/{}/maps", target.pid()))
            .is_ok_and(|maps| maps.contains("libhsa-runtime64") && maps.contains("[stack]"))
            && fs::read_to_string(format!("/proc/{}/comm", target.pid()))
                .is_ok_and(|comm| comm.trim() == "sleep")
    });
    target
}

fn assert_all_harmless(ran: &Ran) {
    assert_harmless(&ran.stdout);
    assert_harmless(&ran.stderr);
    assert!(!ran.stderr.contains("panicked"), "{ran:#?}");
}

#[test]
fn hostile_names_of_a_process_do_nothing_to_a_terminal() {
    let scene = Scene::default();
    let target = target(&scene);
    let pid = target.pid().to_string();
    let ps = run(&mut scene.roctap(&["ps"])).expect(0);
    assert_all_harmless(&ps);
    // It cannot hide by bytes that are no text, and has one line.
    let rows = ps.stdout.lines().filter(|row| row.trim_start().starts_with(&format!("{pid}  ")));
    assert_eq!(rows.count(), 1, "{ps:#?}");
    assert!(!ps.stdout.lines().any(|row| row.trim_start().starts_with("1  forged")), "{ps:#?}");
    let doctor = run(&mut scene.roctap(&["doctor", "-p", &pid]));
    assert_all_harmless(&doctor);
    assert!(doctor.stdout.contains(&format!("process {pid}: evil\\u{{1b}}[2J")), "{doctor:#?}");
    assert_all_harmless(&run(&mut scene.roctap(&["-vv", "probes", "-p", &pid])));
    for gpu in ["--gpu=auto", "--gpu=uprobes"] {
        let mut record = scene.roctap(&["-vv", "record", gpu, "--api=hsa", "--force", "-d", "0.3"]);
        assert_all_harmless(&run(record.args(["-p", &pid, "-o"]).arg(scene.trace_path())));
    }
    let all = run(scene.record(&["--force", "-a", "--gpu=off", "-d", "0.3"]).arg("-v"));
    assert_all_harmless(&all);
    assert_all_harmless(&run(scene.roctap(&["report"]).arg(scene.trace_path())));
}

#[test]
fn hostile_names_in_a_trace_do_nothing_to_a_terminal() {
    let scene = Scene::default();
    write_trace(&scene.trace_path(), NAME);
    for arguments in [
        &["report"][..],
        &["report", "--wide"],
        &["report", "--format=json"],
        &["export", "-f", "text"],
    ] {
        let ran = run(scene.roctap(arguments).arg(scene.trace_path())).expect(0);
        assert_all_harmless(&ran);
        assert!(ran.stdout.contains("evil"), "{ran:#?}");
        if arguments.contains(&"--format=json") {
            let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
            assert_eq!(report["processes"][0]["command"], NAME, "nothing is lost");
        }
    }
    for format in ["text", "csv"] {
        let out = scene.path(format);
        let mut export = scene.roctap(&["export", "-f", format, "-o"]);
        assert_all_harmless(&run(export.arg(&out).arg(scene.trace_path())).expect(0));
        for file in fs::read_dir(&out).expect("files") {
            assert_harmless(&fs::read_to_string(file.expect("file").path()).expect("text"));
        }
    }
}

/// The fields of a line of CSV: whether it was quoted, and the text.
fn fields(line: &str) -> Vec<(bool, String)> {
    let mut fields = vec![(false, String::new())];
    let (mut quoted, mut characters) = (false, line.chars().peekable());
    while let Some(c) = characters.next() {
        let field = fields.last_mut().expect("one");
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.1.push('"');
            }
            '"' => (quoted, field.0) = (!quoted, true),
            ',' if !quoted => fields.push((false, String::new())),
            c => field.1.push(c),
        }
    }
    assert!(!quoted, "{line}");
    fields
}

#[test]
fn hostile_names_are_no_formulas_in_a_spreadsheet() {
    let scene = Scene::default();
    let names = [
        "=HYPERLINK(\"http://x\",\"y\")",
        "+1+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(1)",
        "\t=1",
        "\r=1",
    ];
    for name in names {
        write_trace(&scene.trace_path(), name);
        let out = scene.path("csv");
        let mut export = scene.roctap(&["export", "--force", "-f", "csv", "-o"]);
        run(export.arg(&out).arg(scene.trace_path())).expect(0);
        let mut seen = 0;
        for file in fs::read_dir(&out).expect("files") {
            let text = fs::read_to_string(file.expect("file").path()).expect("text");
            let mut lines = text.lines();
            let columns = fields(lines.next().expect("a header")).len();
            for line in lines {
                let fields = fields(line);
                assert_eq!(fields.len(), columns, "{line}");
                for (quoted, field) in fields {
                    let number = field.parse::<u64>().is_ok();
                    assert_eq!(quoted, !number, "{line}");
                    assert!(!field.starts_with(['=', '+', '-', '@', '\t', '\r']), "{line}");
                    seen += usize::from(field.starts_with('\'') || field.starts_with('\\'));
                }
            }
        }
        // Two kernels, a call of each API, a mark and a range.
        assert_eq!(seen, 6, "{name}");
    }
}
