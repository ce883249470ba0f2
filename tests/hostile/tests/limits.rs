//! Programs that describe themselves without end.

mod common;

use common::compile;
use e2e::{Scene, app, run};
use hostile::NOBODY;

/// Becomes nobody, and executes a program with three mebibytes of control bytes behind its arguments.
const LAUNCHER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#define LONG (128 * 1024 - 1)
int main(int argc, char** argv) {
  struct rlimit stack = {64 << 20, 64 << 20};
  if (setrlimit(RLIMIT_STACK, &stack)) return perror("setrlimit"), 1;
  if (setgid(65534) || setuid(65534)) return perror("setuid"), 1;
  char* more = malloc(LONG + 1);
  memset(more, 1, LONG);
  more[LONG] = 0;
  char* arguments[64] = {0};
  int count = 0;
  for (int i = 1; i < argc; i++) arguments[count++] = argv[i];
  for (int i = 0; i < 24; i++) arguments[count++] = more;
  execv(argv[1], arguments);
  return perror("execv"), 1;
}
"#;

/// What it calls is recorded and can be read, and so is what came before and after.
#[test]
fn hostile_arguments_without_end_leave_a_trace_that_can_be_read() {
    let scene = Scene::default();
    scene.give_to(NOBODY);
    let launcher = scene.path("launcher");
    compile(&scene, LAUNCHER, &["-O1"], &launcher);
    let mut record = scene.record(&["--api=hsa", "--gpu=off", "--include=hsa_init"]);
    let ran = run(record.arg("--").arg(&launcher).arg(app("hsa_direct")).args(["s", "20"]));
    let ran = ran.expect(0);
    assert!(ran.stdout.contains("result ok"), "{ran:#?}");
    let trace = scene.trace();
    assert!(trace.reading.damage.is_none(), "{:?}", trace.reading.damage);
    trace.expect_complete();
    assert_eq!(trace.calls.len(), 1);
    let mut commands = trace.tables().processes.values().map(|process| &process.command);
    let long = commands.find(|command| command.contains('\u{1}')).expect("its arguments");
    assert!(long.len() <= 16 << 10 && long.ends_with('…'), "{} bytes", long.len());
    let report = run(scene.roctap(&["report"]).arg(scene.trace_path())).expect(0);
    common::assert_harmless(&report.stdout);
}

/// The same program, found by its process id while it runs.
#[test]
fn hostile_arguments_without_end_are_listed_in_a_line() {
    let scene = Scene::default();
    scene.give_to(NOBODY);
    let (launcher, library) = (scene.path("launcher"), scene.path("libhsa-runtime64.so.1"));
    compile(&scene, LAUNCHER, &["-O1"], &launcher);
    compile(&scene, "int hsa_nothing;", &["-shared", "-fPIC"], &library);
    let sleeper = scene.path("sleeper");
    compile(
        &scene,
        "#include <unistd.h>\nint main() { puts(\"ready\"); fflush(0); for (;;) pause(); }",
        &["-include", "stdio.h", "-Wl,--no-as-needed", &library.to_string_lossy()],
        &sleeper,
    );
    let target = e2e::Running::start(scene.command(&launcher).arg(&sleeper));
    let ps = run(&mut scene.roctap(&["ps"])).expect(0);
    let pid = format!("{}  ", target.pid());
    let row =
        ps.stdout.lines().find(|row| row.trim_start().starts_with(&pid)).expect("it is listed");
    assert!(row.len() < 8 << 10, "{} bytes", row.len());
}
