//! `roctap export --plugin` and `roctap record --plugin`: plugins of roctracer's are told what the text export
//! writes, and are never root.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use capi_build::{FILE_PLUGIN, include_directory, link::Profile};
use e2e::{Ran, Running, Scene, app, run};
use rustix::process::Signal;
use tracer_common::activity::{Domain, op};
use tracer_records::api;

/// Debian's `nobody`.
const USER: u32 = 65534;

/// A scene whose directory is the user's.
fn scene() -> Scene {
    let scene = Scene::default();
    scene.give_to(USER);
    scene
}

/// Has a command be called by the user through `sudo`, in a directory that all may enter.
fn by_sudo(command: &mut Command) -> &mut Command {
    command.current_dir("/").env("SUDO_UID", USER.to_string()).env("SUDO_GID", USER.to_string())
}

/// Records a program, as root by `sudo`.
fn record(scene: &Scene, api: &str, name: &str, arguments: &[&str]) {
    run(by_sudo(&mut scene.recording(&["--api", api], name, arguments))).expect(0);
    scene.trace().expect_complete();
}

/// `roctap export TRACE --plugin LIB`, by `sudo`.
fn export(scene: &Scene, plugin: &Path) -> Command {
    let mut command = scene.roctap(&["export", "--plugin"]);
    by_sudo(command.arg(plugin).arg(scene.trace_path()));
    command
}

/// What is said in the text format.
fn text(scene: &Scene) -> String {
    run(scene.roctap(&["export", "-f", "text"]).arg(scene.trace_path())).expect(0).stdout
}

/// Our own plugin.
fn file_plugin(scene: &Scene) -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    FILE_PLUGIN.build(&target, Profile::Release, &scene.path("lib")).expect("the plugin")
}

/// The plugin `tells.cpp`.
fn tells(scene: &Scene) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins/tells.cpp");
    let library = scene.path("libtells.so");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-shared", "-fPIC", "-w", "-D__HIP_PLATFORM_AMD__", "-I"]);
    compiler.arg(include_directory().expect("headers").join("roctracer"));
    let status = compiler.arg("-o").args([&library, &source]).status();
    assert!(status.expect("c++").success());
    library
}

/// A plugin in C.
fn compiled(scene: &Scene, source: &str) -> PathBuf {
    let (file, library) = (scene.path("plugin.c"), scene.path("libplugin.so"));
    fs::write(&file, source).expect("source");
    let mut compiler = Command::new("cc");
    let status = compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &file]).status();
    assert!(status.expect("cc").success());
    library
}

/// Whether roctracer has a number for a function: others are not handed over.
fn is_numbered(op: u32) -> bool {
    /// From here on numbers are roctap's own.
    const OWN: u32 = 1024;
    op < OWN
}

/// The same of the function in a line of the text format.
fn has_number(line: &str) -> bool {
    let function = line.split(['(', ' ']).nth(2).expect("a function");
    api::by_name(function).is_some_and(|function| is_numbered(function.id.into()))
}

/// Lines of the text format without what differs in them: arguments are not written in the same way, results of
/// HIP have a place in ours alone, and `hsa_shut_down` lasts 0 ns for plugins, as it does for AMD's.
fn without_arguments(line: &str) -> String {
    let Some((call, rest)) = line.split_once('(') else { return line.to_owned() };
    let (begin, others) = call.split_once(':').expect("times");
    let (end, function) = others.split_once(' ').expect("a function");
    let end = if function.ends_with(" hsa_shut_down") { begin } else { end };
    let kernel = rest.rsplit_once(" kernel=").map(|(_, kernel)| kernel);
    let id = kernel.or_else(|| rest.rsplit_once(" :").map(|(_, id)| id)).unwrap_or(rest);
    let kernel = if kernel.is_some() { " kernel=" } else { "" };
    format!("{begin}:{end} {function}{kernel} {id}")
}

/// Files of a directory, with their lines.
fn files(directory: &Path) -> BTreeMap<String, Vec<String>> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().expect("a name");
        let text = fs::read_to_string(entry.path()).expect("text");
        (name, text.lines().map(str::to_owned).collect())
    };
    entries.map(read).collect()
}

/// Asserts that our plugin writes the files of the text format, with the same lines in the same order.
fn expect_the_files_of_the_text_format(scene: &Scene, kinds: &[&str]) {
    let (written, told) = (scene.path("text"), scene.path("plugin"));
    let arguments = ["export", "-f", "text", "-o"];
    run(scene.roctap(&arguments).args([&written, &scene.trace_path()])).expect(0);
    fs::create_dir(&told).expect("directory");
    std::os::unix::fs::chown(&told, Some(USER), Some(USER)).expect("chown");
    let mut command = export(scene, &file_plugin(scene));
    let ran = run(command.env("ROCP_OUTPUT_DIR", &told)).expect(0);
    assert_eq!(ran.stdout, "");
    let (written, mut told) = (files(&written), files(&told));
    told.retain(|name, _| !name.ends_with("_begin_ts_file.txt"));
    assert_eq!(told.keys().collect::<Vec<_>>(), written.keys().collect::<Vec<_>>());
    for kind in kinds {
        assert!(written.keys().any(|name| name.ends_with(kind)), "no {kind}: {written:?}");
    }
    for (name, lines) in &written {
        let of_calls = name.ends_with("api_trace.txt");
        let shown = |lines: &[String]| -> Vec<String> {
            let numbered = lines.iter().filter(|line| !of_calls || has_number(line));
            let shown = numbered.map(|line| match of_calls {
                true => without_arguments(line),
                false => line.clone(),
            });
            shown.collect()
        };
        assert_eq!(shown(&told[name]), shown(lines), "{name}");
    }
}

#[test]
fn root_plugins_our_own_writes_what_the_text_export_writes() {
    let scene = scene();
    record(&scene, "hip,hsa,roctx", "ranges", &["3"]);
    expect_the_files_of_the_text_format(
        &scene,
        &["hip_api_trace.txt", "hsa_api_trace.txt", "hcc_ops_trace.txt", "roctx_trace.txt"],
    );
}

#[test]
fn root_plugins_are_told_of_copies() {
    let scene = scene();
    record(&scene, "hip", "copies", &["64"]);
    expect_the_files_of_the_text_format(&scene, &["hip_api_trace.txt", "hcc_ops_trace.txt"]);
}

#[test]
fn root_plugins_are_told_of_the_work_of_hsa_as_by_the_tool() {
    let scene = scene();
    record(&scene, "hsa", "hsa_direct", &[]);
    expect_the_files_of_the_text_format(&scene, &["hsa_api_trace.txt", "async_copy_trace.txt"]);
}

#[test]
fn root_plugins_have_a_process_for_each_traced_one() {
    let scene = scene();
    record(&scene, "hip", "workers", &["3", "10"]);
    expect_the_files_of_the_text_format(&scene, &["hip_api_trace.txt", "hcc_ops_trace.txt"]);
    let processes = files(&scene.path("plugin"));
    assert_eq!(processes.keys().filter(|name| name.ends_with("_hip_api_trace.txt")).count(), 3);
}

/// The rest of the lines that begin so.
fn told<'a>(ran: &'a Ran, beginning: &str) -> Vec<&'a str> {
    ran.stdout.lines().filter_map(|line| line.strip_prefix(beginning)).collect()
}

#[test]
fn root_plugins_that_are_built_with_hips_header_understand_all_calls() {
    let scene = scene();
    record(&scene, "hip,hip-compiler,hsa,roctx", "ranges", &["3"]);
    let trace = scene.trace();
    let ran = run(&mut export(&scene, &tells(&scene))).expect(0);
    assert_eq!((told(&ran, "begin "), told(&ran, "end").len()), (vec!["4.1"], 1));
    let pid = *trace.tables().processes.keys().next().expect("a process");
    let variable = format!("ROCTAP_TRACED_PROCESS={pid}");
    assert!(told(&ran, "variable ").contains(&&*variable), "{}", ran.stdout);

    // Calls: each once, in their order, with kernels as the linker knows them.
    let calls = told(&ran, "call ");
    let numbered = || trace.calls.iter().filter(|call| is_numbered(call.record.op));
    assert_eq!(calls.len(), numbered().count());
    let left_out = trace.calls.len() - calls.len();
    ran.complains(&[&format!(
        "calls left out, roctracer has no number for their functions: {left_out}"
    )]);
    for (call, line) in numbered().zip(&calls) {
        let record = &call.record;
        let (begin, end) = (record.begin_ns, record.end_ns);
        let head = format!("{} {} ", record.domain.0, record.op);
        assert!(line.starts_with(&head), "{line}: not {record:?}");
        let times = if record.domain == Domain::ROCTX {
            format!(" {begin}:0 {pid}:{} :0 ", record.thread_id)
        } else {
            format!(" {begin}:{end} {pid}:{} :{} ", record.thread_id, record.correlation_id)
        };
        assert!(line.contains(&times), "{line}: not {record:?}");
    }
    let launches: Vec<&&str> = calls.iter().filter(|l| l.contains(" hipLaunchKernel(")).collect();
    assert_eq!(launches.len() as u64, trace.call_counts()["hipLaunchKernel"]);
    for launch in &launches {
        assert!(launch.contains("numBlocks={") && !launch.contains("kernel=\n"), "{launch}");
        let kernel = launch.rsplit_once(" kernel=").expect("a name").1;
        let is_known = |dispatch: &&tracer_records::model::Dispatch| {
            let name = dispatch.record.bytes_or_name as u32;
            trace.tables().strings.get(&name).is_some_and(|name| name == kernel)
        };
        assert!(trace.dispatches.iter().any(|dispatch| is_known(&dispatch)), "{launch}");
    }
    // What `hipMalloc` allocated is what `hipFree` is given.
    let value_of = |function: &str| -> Vec<&str> {
        let beginning = format!(" {function}(ptr=");
        let values = calls.iter().filter_map(|line| line.split_once(&*beginning));
        values.map(|(_, rest)| rest.split([',', ')']).next().expect("a value")).collect()
    };
    let (allocated, freed) = (value_of("hipMalloc"), value_of("hipFree"));
    assert!(!allocated.is_empty() && allocated.iter().all(|at| at.starts_with("0x")), "{calls:?}");
    assert!(
        freed.iter().filter(|at| allocated.contains(at)).count() > 0,
        "{freed:?} {allocated:?}"
    );
    assert!(calls.iter().any(|line| line.starts_with("6 1 ") && line.contains(" 0:outer ")));

    // Work: each once.
    let work = told(&ran, "work ");
    let hip = Domain::HIP_OPS.0;
    let of = |op: u32| work.iter().filter(|line| line.starts_with(&format!("{hip} {op} "))).count();
    assert_eq!(of(op::DISPATCH), trace.dispatches.len());
    assert_eq!(of(op::COPY), trace.copies.len());
    for dispatch in &trace.dispatches {
        let record = &dispatch.record;
        let name = &trace.tables().strings[&(record.bytes_or_name as u32)];
        let line = format!(
            "{hip} 0 {} {}:{} {}:{} :{} {name}",
            record.kind,
            record.begin_ns,
            record.end_ns,
            record.process_or_device,
            record.queue_id,
            record.correlation_id
        );
        assert!(work.contains(&&*line), "no {line}: {work:?}");
    }
    let told = calls.len() + left_out + work.len();
    assert_eq!(text(&scene).lines().count(), told, "{}", ran.stderr);
}

/// Asserts what a plugin may do that was told `tells.cpp`'s rights.
fn expect_the_users_rights(ran: &Ran) {
    assert_eq!(told(ran, "users "), ["65534 65534 65534"]);
    assert!(told(ran, "groups ")[0].split(' ').all(|group| group == "65534"), "{ran:#?}");
    assert_eq!(told(ran, "root "), ["-1 -1"]);
    assert_eq!(told(ran, "no new rights "), ["1"]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        let rights = told(ran, set)[0].trim();
        assert!(rights.bytes().all(|digit| digit == b'0'), "{set} {rights}");
    }
    assert_eq!(told(ran, "terminal "), ["0"]);
}

#[test]
fn root_plugins_are_the_users_and_have_nothing_of_roots() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    // Root has a file open that is nobody else's business, groups and secrets in the environment.
    let mut command = Command::new("setpriv");
    command.args([
        "--groups",
        "0,4,27",
        "sh",
        "-c",
        r#"exec 9</etc/shadow </etc/shadow; exec "$0" "$@""#,
    ]);
    let export = export(&scene, &plugin);
    command.arg(export.get_program()).args(export.get_args());
    command.envs(export.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("SECRET", "root's").env("ROCP_OUTPUT_DIR", "out").env("HOME", "/root");
    // The environment's word; the user's group is that of the account.
    command.env("SUDO_GID", "0").current_dir("/");
    let ran = run(command.stdout(Stdio::piped()).stderr(Stdio::piped())).expect(0);
    expect_the_users_rights(&ran);
    let descriptors = told(&ran, "descriptor ");
    let of = |descriptor: &&str| descriptor.split_once(' ').expect("two words").1.to_owned();
    let trace = scene.trace_path().display().to_string();
    let others = |of: &String| *of != trace && *of != "/dev/null" && !of.starts_with("pipe:");
    // Nor has the process that the plugin can trace.
    let parents = told(&ran, "parents descriptor ");
    assert!(parents.len() >= 3, "{parents:?}");
    let all = descriptors.iter().chain(&parents);
    let others: Vec<String> = all.map(of).filter(others).collect();
    assert!(others.is_empty(), "{descriptors:?} {parents:?}");
    assert!(descriptors[0] == "0 /dev/null" && descriptors.len() == 5, "{descriptors:?}");
    let variables = told(&ran, "variable ");
    assert!(variables.contains(&"ROCP_OUTPUT_DIR=out"), "{variables:?}");
    for secret in ["SECRET", "SUDO_UID", "EMUGPU_LOG"] {
        assert!(!variables.iter().any(|variable| variable.starts_with(secret)), "{variables:?}");
    }
    assert!(!variables.contains(&"HOME=/root"), "{variables:?}");
}

/// `roctap` for a user who may not look into the directory of the tests, with these bits.
fn roctap_for_all(scene: &Scene, mode: u32) -> PathBuf {
    let roctap = scene.path("roctap");
    fs::copy(e2e::roctap_bin(), &roctap).expect("copy");
    fs::set_permissions(&roctap, fs::Permissions::from_mode(mode)).expect("chmod");
    roctap
}

/// Nobody can type at the terminal that roctap was called from.
#[test]
fn root_plugins_have_no_terminal() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let export = export(&scene, &tells(&scene));
    let words = std::iter::once(export.get_program()).chain(export.get_args());
    let line: Vec<&str> = words.map(|word| word.to_str().expect("text")).collect();
    let mut terminal = scene.command("script");
    terminal.args(["-qec", &format!("tty && {}", line.join(" ")), "/dev/null"]);
    let ran = run(by_sudo(&mut terminal)).expect(0);
    let said: Vec<&str> = ran.stdout.lines().map(str::trim_end).collect();
    assert!(said[0].starts_with("/dev/pts/") && said.contains(&"terminal 0"), "{said:?}");
    assert!(said.contains(&"users 65534 65534 65534"), "{said:?}");
    // By the process that started it, which it can trace, it can not type either.
    assert!(said.contains(&"parents terminal 0"), "{said:?}");
    assert!(!said[1..].iter().any(|line| line.contains("/dev/pts/")), "{said:?}");
}

/// What root has in its session's keyring must not come along.
#[test]
fn root_plugins_have_no_keys_of_roots() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    // Gives itself a session, and a user as many keys as he can have; then executes its arguments. Another user than
    // that of other tests: the kernel takes its time to count less again.
    fs::write(
        scene.path("keys.c"),
        r#"
        #include <stdio.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int main(int count, char** arguments) {
            enum { JOIN = 1, PROCESS = -2 };
            if (syscall(SYS_keyctl, JOIN, 0) < 0) return 77;
            int ready[2];
            pipe(ready);
            if (!fork()) {
                setresgid(1, 1, 1);
                setresuid(1, 1, 1);
                prctl(PR_SET_PDEATHSIG, 9);
                char name[32];
                for (int i = 0; i < 100000; i++) {
                    sprintf(name, "roctap:%d", i);
                    if (syscall(SYS_add_key, "user", name, "k", 1, PROCESS) < 0) break;
                }
                write(ready[1], "", 1);
                close(1);
                close(2);
                pause();
            }
            read(ready[0], arguments[0], 1);
            execv(arguments[1], arguments + 1);
            return 78;
        }
        "#,
    )
    .expect("source");
    let keys = scene.path("keys");
    let compiled =
        Command::new("cc").arg("-w").arg("-o").arg(&keys).arg(scene.path("keys.c")).status();
    assert!(compiled.expect("cc").success());
    let export = export(&scene, &plugin);
    let mut command = scene.command(&keys);
    command.arg(export.get_program()).args(export.get_args());
    let ran = run(by_sudo(&mut command).env("SUDO_UID", "1"));
    if ran.code == Some(77) {
        assert!(!Path::new("/proc/keys").exists(), "keys there are, and no session for them");
        return;
    }
    expect_one_line(&ran.expect(1), &["a session of its own for its keys", "quota exceeded"]);
}

#[test]
fn root_plugins_have_no_directory_of_roots() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let secret = scene.path("secret");
    fs::create_dir_all(secret.join("inner")).expect("directory");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).expect("chmod");
    let mut command = export(&scene, &tells(&scene));
    let ran = run(command.current_dir(secret.join("inner"))).expect(1);
    expect_one_line(&ran, &["its working directory", "may enter", "Permission denied"]);
}

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

/// Rights by a bit of the file that are not root's.
#[test]
fn root_plugins_have_no_rights_of_another_user_or_group() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    for (owner, group, mode) in [(0, 0, 0o2755), (1, 1, 0o4755), (1, 1, 0o6755)] {
        let roctap = roctap_for_all(&scene, 0o755);
        std::os::unix::fs::chown(&roctap, Some(owner), Some(group)).expect("chown");
        fs::set_permissions(&roctap, fs::Permissions::from_mode(mode)).expect("chmod");
        let mut command = scene.command(&roctap);
        command.args(["export", "--plugin"]).args([&plugin, &scene.trace_path()]);
        let ran = run(command.current_dir("/").uid(USER).gid(USER)).expect(0);
        expect_the_users_rights_without_bounds(&ran);
        assert!(told(&ran, "groups ")[0].split(' ').all(|group| group == "65534"), "{ran:#?}");
        // Nor by roctap's own subcommand.
        let mut host = scene.command(&roctap);
        host.args(["__plugin", "1", "1", "1"]).args([&plugin, &scene.trace_path()]);
        let ran = run(host.current_dir("/").uid(USER).gid(USER));
        ran.expect(127).complains(&["other rights than a user's"]);
    }
}

/// A program of root's that every user may run.
#[test]
fn root_plugins_of_a_user_who_calls_roctap_with_a_set_user_id_bit() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    let mut command = scene.command(roctap_for_all(&scene, 0o4755));
    command.args(["export", "--plugin"]).args([&plugin, &scene.trace_path()]);
    // It is the caller's word.
    command.env("SUDO_UID", "1").env("SUDO_GID", "1").current_dir("/").uid(USER).gid(USER);
    let ran = run(&mut command).expect(0);
    expect_the_users_rights(&ran);
    assert!(!told(&ran, "variable ").iter().any(|variable| variable.starts_with("SUDO_UID")));
}

/// Who has no root to give up has its environment.
#[test]
fn root_plugins_of_a_user() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    let mut command = scene.command(roctap_for_all(&scene, 0o755));
    command.args(["export", "--plugin"]).args([&plugin, &scene.trace_path()]);
    command.env_remove("SUDO_UID").env("SECRET", "mine").uid(USER).gid(USER);
    let ran = run(&mut command).expect(0);
    expect_the_users_rights_without_bounds(&ran);
    assert!(told(&ran, "variable ").contains(&"SECRET=mine"), "{ran:#?}");
    assert_eq!(told(&ran, "call ").len(), scene.trace().calls.len());
    // `sudo -u nobody`, by another user.
    let ran = run(command.env("SUDO_UID", "1")).expect(1);
    expect_one_line(&ran, &["the rights of user 65534", "`sudo` was called by user 1"]);
    // `sudo -g nogroup`, by the same.
    let ran = run(by_sudo(&mut command).env("SUDO_GID", "1")).expect(1);
    expect_one_line(&ran, &["the rights of group 65534", "called by a user of group 1"]);
}

fn expect_the_users_rights_without_bounds(ran: &Ran) {
    assert_eq!(told(ran, "users "), ["65534 65534 65534"]);
    assert_eq!(told(ran, "root "), ["-1 -1"]);
    assert_eq!(told(ran, "CapEff:")[0].trim(), "0000000000000000");
    assert_eq!(told(ran, "CapPrm:")[0].trim(), "0000000000000000");
}

#[test]
fn root_plugins_are_not_even_loaded_without_a_user() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = tells(&scene);
    let loaded = scene.path("loaded");
    for user in [None, Some("0"), Some("nobody"), Some("4294967295")] {
        let mut command = export(&scene, &plugin);
        command.env_remove("SUDO_UID").env("ROCP_TEST_LOADED", &loaded);
        if let Some(user) = user {
            command.env("SUDO_UID", user);
        }
        let ran = run(&mut command).expect(1);
        expect_one_line(
            &ran,
            &["plugins never run as root", "run `roctap export --plugin` as a user"],
        );
        assert!(ran.stdout.is_empty() && !loaded.exists());
    }
    // Who is no user here.
    let mut command = export(&scene, &plugin);
    let ran = run(command.env("SUDO_UID", "54321").env("ROCP_TEST_LOADED", &loaded)).expect(1);
    expect_one_line(&ran, &["plugins never run as root", "no account of user 54321"]);
    assert!(ran.stdout.is_empty() && !loaded.exists());
    // Nor by whoever starts the process that has it.
    let mut host = scene.roctap(&["__plugin", "1", "1", "1"]);
    let ran = run(host.args([&plugin, &scene.trace_path()]).env("ROCP_TEST_LOADED", &loaded));
    ran.expect(127).complains(&["plugins never run as root"]);
    assert!(!loaded.exists());
}

/// Asserts that roctap said one thing.
fn expect_one_line(ran: &Ran, parts: &[&str]) {
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{ran:#?}");
    ran.complains(parts);
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

/// The runtime of this machine, which has the numbers and layouts of the headers.
#[test]
fn root_plugins_that_bring_hip_along_have_its_numbers() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let plugin = file_plugin(&scene);
    let lines = |command: &mut Command| -> Vec<String> {
        let ran = run(command).expect(0);
        let lines = ran.stdout.lines().filter(|line| line.contains(':'));
        lines.map(str::to_owned).collect()
    };
    let without = lines(&mut export(&scene, &plugin));
    let with = lines(export(&scene, &plugin).env("LD_PRELOAD", "libamdhip64.so.5"));
    assert!(without.iter().any(|line| line.contains("hipMalloc(ptr=0x")), "{without:?}");
    assert_eq!(with, without);
}

#[test]
fn root_plugins_of_a_damaged_trace_are_told_what_can_be_read() {
    let scene = scene();
    record(&scene, "hip", "basic", &[]);
    let calls = scene.trace().calls.len();
    let mut bytes = fs::read(scene.trace_path()).expect("the trace");
    bytes.truncate(bytes.len() - 4);
    fs::write(scene.trace_path(), bytes).expect("cut");
    let ran = run(&mut export(&scene, &tells(&scene))).expect(1);
    ran.complains(&["test.rtrace"]);
    assert!(told(&ran, "call ").len() <= calls && told(&ran, "end").len() <= 1, "{ran:#?}");
}

#[test]
fn root_plugins_recorded_traces_are_exported_as_the_user() {
    let scene = scene();
    let plugin = tells(&scene);
    let arguments = ["--plugin", plugin.to_str().expect("text"), "--api", "hip,roctx"];
    let mut command = scene.recording(&arguments, "ranges", &["2"]);
    let ran = run(by_sudo(&mut command).env("SECRET", "root's")).expect(0);
    expect_the_users_rights(&ran);
    assert!(!told(&ran, "variable ").iter().any(|variable| variable.starts_with("SECRET")));
    let trace = scene.trace();
    trace.expect_complete();
    assert_eq!(told(&ran, "call ").len(), trace.calls.len());
    assert_eq!(told(&ran, "end").len(), 1);
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
    assert_eq!(told(&ran, "call ").len(), trace.calls.len());
    assert_eq!(told(&ran, "end").len(), 1);
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
    assert_eq!(told(&ran, "begin ").len(), 0, "{ran:#?}");
}
