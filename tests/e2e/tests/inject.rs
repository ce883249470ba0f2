//! Puts a library into real processes, in every state that a process can be in. The tests need to be
//! allowed to trace: `root_…`, run by `cargo xtask test`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::{
        fd::AsRawFd as _,
        unix::{fs::FileExt as _, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use roctap::inject::{Entry, Handed, InjectError, Injected, PROGRAM, Request, check, inject};
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

    fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("status");
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

/// Mappings, descriptors and threads.
fn census(pid: u32) -> [usize; 3] {
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).expect("alive").count();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let ours = maps.lines().filter(|line| !line.contains("[heap]")).count();
    [ours, count("fd"), count("task")]
}

#[test]
fn root_every_kind_of_target() {
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
