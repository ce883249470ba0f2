//! Puts a library into real processes, in every state that a process can be in. The tests need to be
//! allowed to trace: `root_…`, run by `cargo xtask test`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::{fs::FileExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use roctap::{
    PROGRAM,
    inject::{Entry, Handed, InjectError, Injected, Request, check, inject},
};
use tracer_common::shim::{ATTACH_FUNCTION, Attach, attach_status};

/// The directory of what is built for the tests.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        PROGRAM.get_or_init(|| {
            PathBuf::from(std::env::var_os("ROCTAP_BIN").expect("run by `cargo xtask test`"))
        });
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inject");
        fs::create_dir_all(&directory).expect("directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("inject");
        let compile = |arguments: &[&str], from: &str, to: &str| {
            let mut cc = Command::new("cc");
            cc.args(["-O2", "-Wall", "-Werror", "-pthread"]).args(arguments);
            cc.arg(source.join(from)).arg("-o").arg(directory.join(to));
            assert!(cc.status().expect("cc").success(), "{from}");
        };
        compile(&["-shared", "-fPIC"], "payload.c", "payload.so");
        compile(&[], "target.c", "target");
        directory
    })
}

struct Target {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Target {
    fn start(mode: &str) -> Self {
        Self::spawn(Command::new(built().join("target")).arg(mode))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("target");
        let mut output = BufReader::new(child.stdout.take().expect("stdout"));
        let mut line = String::new();
        output.read_line(&mut line).expect("first line");
        assert_eq!(line, "ready\n");
        Self { child, output }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it; its own checks must have held.
    fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("output");
        let status = self.child.wait().expect("status");
        assert!(status.success() && rest.starts_with("ok "), "{status}: {rest}");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Not of a test that went well: it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the payload wrote.
struct Answer {
    pid: u64,
    initialised: u64,
    calls: u64,
    libc_works: bool,
}

fn put_in(
    pid: u32,
    entry: Entry<'_>,
) -> Result<Injected<(fs::File, Option<PathBuf>)>, InjectError> {
    let attach = Attach { version: 1, ..Attach::default() };
    inject(&Request { pid, entry, attach }, |Handed { memory, library }| {
        rustix::fs::ftruncate(&memory, 4096)?;
        Ok((memory.into(), library))
    })
}

fn library() -> Vec<u8> {
    fs::read(built().join("payload.so")).expect("payload")
}

fn load(pid: u32) -> Result<Injected<(fs::File, Option<PathBuf>)>, InjectError> {
    put_in(pid, Entry::Library { bytes: &library(), name: "payload.so" })
}

fn answer(injected: &Injected<(fs::File, Option<PathBuf>)>) -> Answer {
    assert_eq!(injected.status, attach_status::RECORDING);
    let mut words = [0; 64];
    injected.prepared.0.read_exact_at(&mut words, 0).expect("answer");
    let word = |i: usize| u64::from_le_bytes(words[i * 8..i * 8 + 8].try_into().expect("8 bytes"));
    assert_eq!(word(0), 0x70617463);
    Answer { pid: word(1), initialised: word(3), calls: word(4), libc_works: word(5) == 1 }
}

fn loads(pid: u32) -> Injected<(fs::File, Option<PathBuf>)> {
    let injected = load(pid).unwrap_or_else(|error| panic!("process {pid}: {error}"));
    let told = answer(&injected);
    assert_eq!(told.initialised, 0x0123456789abcdef, "thread-local variables have their values");
    assert!(told.libc_works);
    injected
}

/// Mappings, descriptors and threads: the least of many looks, since the target opens and maps files
/// of its own.
fn census(pid: u32) -> [usize; 3] {
    let look = || {
        let count =
            |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).expect("alive").count();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
        [maps.lines().count(), count("fd"), count("task")]
    };
    let looks = (0..40).map(|_| {
        std::thread::sleep(Duration::from_millis(2));
        look()
    });
    looks.fold([usize::MAX; 3], |least, now| std::array::from_fn(|i| least[i].min(now[i])))
}

#[test]
fn root_inject_into_every_kind_of_target() {
    for mode in ["threads", "single", "signals", "epoll", "sleep", "futex", "read"] {
        let target = Target::start(mode);
        for _ in 0..5 {
            let injected = loads(target.pid());
            assert_eq!(answer(&injected).pid, u64::from(target.pid()));
            assert!(injected.stopped < Duration::from_secs(1), "{:?}", injected.stopped);
        }
        std::thread::sleep(Duration::from_millis(50));
        target.end();
    }
}

#[test]
fn root_inject_leaves_nothing_behind() {
    let target = Target::start("threads");
    loads(target.pid());
    let [maps, descriptors, threads] = census(target.pid());
    for _ in 0..10 {
        loads(target.pid());
    }
    let after = census(target.pid());
    assert_eq!(after[1..], [descriptors, threads]);
    // Each loads another library of five segments; memory that malloc maps comes and goes.
    assert!(after[0] <= maps + 10 * 6 + 24, "{maps} → {after:?}");
    target.end();
}

#[test]
fn root_inject_calls_what_is_loaded_already() {
    let target = Target::start("threads");
    loads(target.pid());
    let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).expect("maps");
    let base = maps.lines().find(|line| line.contains("/memfd:payload.so")).expect("mapped");
    let base = u64::from_str_radix(base.split('-').next().expect("range"), 16).expect("address");
    let image = roctap::discover::Image::open(&built().join("payload.so")).expect("payload");
    let functions = image.functions(|name| name == ATTACH_FUNCTION).expect("functions");
    let entry = Entry::Loaded { address: base + functions[0].address };
    for calls in 2..5 {
        let injected = put_in(target.pid(), entry).expect("called");
        assert_eq!(answer(&injected).calls, calls, "the same library");
        assert!(injected.prepared.1.is_none());
    }
    target.end();
}

#[test]
fn root_inject_under_other_allocators() {
    for library in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        for mode in ["threads", "single"] {
            let mut command = Command::new(built().join("target"));
            let target = Target::spawn(command.arg(mode).env("LD_PRELOAD", library));
            let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).expect("maps");
            assert!(maps.contains(library), "install it: cargo xtask setup");
            for _ in 0..5 {
                loads(target.pid());
            }
            target.end();
        }
    }
}

#[test]
fn root_inject_in_other_namespaces() {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--user", "--map-root-user", "--mount-proc"]);
    let target = Target::spawn(command.arg(built().join("target")).arg("threads"));
    // The child of `unshare`, which is process 1 in there.
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let children = fs::read_to_string(children).expect("children");
    let inside = children.trim().parse().expect("one child");
    for _ in 0..5 {
        assert_eq!(answer(&loads(inside)).pid, 1, "as it sees itself");
    }
    let pid = rustix::process::Pid::from_raw(inside as i32).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
    let mut rest = String::new();
    let mut target = target;
    target.output.read_to_string(&mut rest).expect("output");
    assert!(rest.starts_with("ok "), "{rest}");
    target.child.wait().expect("status");
}

#[test]
fn root_inject_asks_seccomp_before() {
    let target = Target::start("confined");
    let error = load(target.pid()).expect_err("memfd_create is forbidden").to_string();
    assert!(error.contains("seccomp") && error.contains("memfd_create"), "{error}");
    target.end();
    // As in a container: what is not known is answered with an error, and clone3 is not known.
    let target = Target::start("contained");
    loads(target.pid());
    target.end();
}

#[test]
fn root_inject_refuses_what_it_must_not_touch() {
    built();
    let why = |pid: u32| check(pid).expect_err("refused").to_string();
    // Traced.
    let target = Target::start("sleep");
    let mut tracer = Command::new("strace");
    let pid = target.pid().to_string();
    let mut tracer = tracer.args(["-qq", "-o", "/dev/null", "-p", &pid]).spawn().expect("strace");
    until(|| check(target.pid()).is_err());
    let reason = why(target.pid());
    assert!(reason.contains(&tracer.id().to_string()) && reason.contains("strace"), "{reason}");
    let error = load(target.pid()).expect_err("traced").to_string();
    assert!(error.contains("traces it already"), "{error}");
    tracer.kill().expect("killed");
    tracer.wait().expect("status");
    // Stopped.
    let signal = |signal| {
        let pid = rustix::process::Pid::from_child(&target.child);
        rustix::process::kill_process(pid, signal).expect("it lives");
    };
    signal(rustix::process::Signal::STOP);
    until(|| check(target.pid()).is_err());
    assert!(why(target.pid()).contains("stopped"));
    signal(rustix::process::Signal::CONT);
    until(|| check(target.pid()).is_ok());
    target.end();
    // Dead, and never there.
    let mut child = Command::new("true").spawn().expect("true");
    until(|| why(child.id()).contains("zombie"));
    child.wait().expect("status");
    assert!(why(4_000_000).contains("no such process"));
    // Another C library, and none.
    for (compiler, arguments, reason) in [
        ("musl-gcc", &[][..], "musl"),
        ("cc", &["-static"], "no libc.so.6"),
        ("cc", &["-m32", "-nostdlib", "-static", "-DBARE"], "32-bit"),
    ] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("inject/other.c");
        let program = built().join("other");
        let mut compile = Command::new(compiler);
        compile.args(arguments).arg(source).arg("-o").arg(&program);
        assert!(compile.status().expect(compiler).success(), "{compiler} {arguments:?}");
        let mut child = Command::new(&program).spawn().expect("other");
        until(|| {
            fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|exe| exe == program)
        });
        std::thread::sleep(Duration::from_millis(20));
        let said = why(child.id());
        assert!(said.contains(reason), "{compiler} {arguments:?}: {said}");
        child.kill().expect("killed");
        child.wait().expect("status");
    }
}

#[test]
fn root_inject_fails_cleanly() {
    let target = Target::start("threads");
    let before = census(target.pid());
    for _ in 0..5 {
        let nonsense = Entry::Library { bytes: b"not a library", name: "nonsense" };
        let error = put_in(target.pid(), nonsense).expect_err("not a library").to_string();
        assert!(error.contains("could not load the shim"), "{error}");
        let attach = Attach { version: 1, ..Attach::default() };
        let entry = Entry::Library { bytes: &library(), name: "payload.so" };
        let request = Request { pid: target.pid(), entry, attach };
        let error = inject(&request, |_| -> anyhow::Result<()> { anyhow::bail!("no room") });
        assert!(error.expect_err("prepare failed").to_string().contains("no room"));
    }
    let after = census(target.pid());
    assert_eq!(after[1..], before[1..], "descriptors and threads");
    assert!(after[0] <= before[0] + 24, "{before:?} → {after:?}");
    target.end();
}

#[test]
fn root_inject_survives_a_killed_roctap() {
    let target = Target::start("threads");
    let pid = target.pid().to_string();
    let program = std::env::var_os("ROCTAP_BIN").expect("run by `cargo xtask test`");
    for round in 0..times(20) {
        // The guardian is what stops the process; whoever started it is killed at some moment.
        let mut parent = Command::new("sh");
        let script = "\"$0\" __inject \"$1\" load payload.so '' & wait";
        let mut parent = parent
            .args(["-c", script])
            .arg(&program)
            .arg(&pid)
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh");
        std::thread::sleep(Duration::from_micros(round as u64 * 331 % 6000));
        let group = rustix::process::Pid::from_child(&parent);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        parent.wait().expect("status");
    }
    until(|| check(target.pid()).is_ok());
    loads(target.pid());
    target.end();
}

#[test]
fn root_inject_into_fresh_processes() {
    let mut stopped = Vec::new();
    for round in 0..times(20) {
        let target = Target::start(if round % 4 == 0 { "single" } else { "threads" });
        stopped.push(loads(target.pid()).stopped);
        target.end();
    }
    stopped.sort();
    let at = |part: usize| stopped[(stopped.len() - 1) * part / 100];
    println!("stopped: median {:?}, 90 % {:?}, most {:?}", at(50), at(90), at(100));
}

/// How often what is tried many times is tried: `ROCTAP_STRESS` says otherwise.
fn times(few: usize) -> usize {
    std::env::var("ROCTAP_STRESS").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out");
        std::thread::sleep(Duration::from_millis(2));
    }
}
