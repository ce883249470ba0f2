//! Puts a library into real processes, in every state that a process can be in. The tests need to be
//! allowed to trace: `root_…`, run by `cargo xtask test`.

use std::{
    fs,
    os::{
        fd::AsFd as _,
        unix::{fs::FileExt as _, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use e2e::{Running, Signal, roctap_bin, send_signal, times, wait_for, wait_until};
use roctap::{
    PROGRAM,
    discover::Subject,
    inject::{Access, Entry, Handed, InjectError, Injected, Request, TargetMemory, check, inject},
};
use tracer_common::shim::{ATTACH_AGAIN_FUNCTION, ATTACH_FUNCTION, Attach, attach_status};

/// The directory of what is built for the tests.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        PROGRAM.get_or_init(roctap_bin);
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inject");
        fs::create_dir_all(&directory).expect("directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("inject");
        let build = |arguments: &[&str], from: &str, to: &str| {
            let mut cc = Command::new("cc");
            cc.args(["-O2", "-Wall", "-Werror", "-pthread"]).args(arguments);
            e2e::compile(cc.arg(source.join(from)), &directory.join(to));
        };
        build(&["-shared", "-fPIC"], "payload.c", "payload.so");
        build(&[], "target.c", "target");
        directory
    })
}

fn start(mode: &str) -> Running {
    spawn(Command::new(built().join("target")).arg(mode))
}

fn spawn(command: &mut Command) -> Running {
    let target = Running::start(command.stdout(Stdio::piped()));
    assert_eq!(target.ready, "ready\n");
    target
}

/// Ends a target; its own checks must have held.
fn end(target: Running) {
    let ran = target.end().expect(0);
    assert!(ran.stdout.starts_with("ok "), "{ran:#?}");
}

/// What the payload wrote.
struct Answer {
    pid: u64,
    initialised: u64,
    calls: u64,
    libc_works: bool,
}

fn subject(pid: u32) -> Subject {
    Subject::open(pid).expect("it lives")
}

fn memory(pid: u32) -> TargetMemory {
    TargetMemory::open(pid, Access::Write).expect("it lives")
}

fn put_in(
    pid: u32,
    entry: Entry<'_>,
) -> Result<Injected<(fs::File, Option<fs::File>)>, InjectError> {
    let attach = Attach { version: 1, ..Attach::default() };
    let (process, memory) = (&subject(pid), &memory(pid));
    let request = Request { process, memory, entry, attach };
    inject(&request, |Handed { memory, library }| {
        rustix::fs::ftruncate(&memory, 4096)?;
        Ok((memory.into(), library))
    })
}

fn library() -> Vec<u8> {
    fs::read(built().join("payload.so")).expect("payload")
}

fn load(pid: u32) -> Result<Injected<(fs::File, Option<fs::File>)>, InjectError> {
    put_in(pid, Entry::Library { bytes: &library(), name: "payload.so", function: ATTACH_FUNCTION })
}

fn answer(injected: &Injected<(fs::File, Option<fs::File>)>) -> Answer {
    assert_eq!(injected.status, attach_status::RECORDING);
    let mut words = [0; 64];
    injected.prepared.0.read_exact_at(&mut words, 0).expect("answer");
    let word = |i: usize| u64::from_le_bytes(words[i * 8..i * 8 + 8].try_into().expect("8 bytes"));
    assert_eq!(word(0), 0x70617463);
    let nice = rustix::process::getpriority_process(None).expect("our own");
    assert_eq!(word(6) as i64, i64::from(nice), "the nice value that the process has from us");
    Answer { pid: word(1), initialised: word(3), calls: word(4), libc_works: word(5) == 1 }
}

fn loads(pid: u32) -> Injected<(fs::File, Option<fs::File>)> {
    let injected = load(pid).unwrap_or_else(|error| panic!("process {pid}: {error}"));
    let answered = answer(&injected);
    assert_eq!(
        answered.initialised, 0x0123456789abcdef,
        "thread-local variables have their values"
    );
    assert!(answered.libc_works);
    injected
}

/// How many mappings, which descriptors, and how many threads.
type Census = (usize, Vec<PathBuf>, usize);

/// But for the files that the target opens itself.
fn census(pid: u32) -> Census {
    let list = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).expect("alive").flatten();
    let its_own = |file: &Path| file.ends_with("libm.so.6") || file.ends_with("ld.so.cache");
    let files = list("fd").filter_map(|fd| fs::read_link(fd.path()).ok());
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let mut descriptors: Vec<PathBuf> = files.filter(|file| !its_own(file)).collect();
    descriptors.sort_unstable();
    (maps.lines().count(), descriptors, list("task").count())
}

/// The same of what stays for a while: the target opens something, too.
fn settled(pid: u32) -> Census {
    let (mut maps, mut descriptors, mut threads) = census(pid);
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(5));
        let now = census(pid);
        descriptors.retain(|descriptor| now.1.contains(descriptor));
        (maps, threads) = (maps.max(now.0), threads.min(now.2));
    }
    (maps, descriptors, threads)
}

/// Waits until the target has at most so many mappings, and exactly the descriptors and as many threads as at the
/// census: those that put the library in end by themselves. Memory that malloc maps comes and goes.
fn expect_left(pid: u32, most_maps: usize, before: &Census) {
    let expected = (most_maps, before.1.clone(), before.2);
    wait_for("mappings at most, descriptors and threads", &expected, || {
        let (maps, descriptors, threads) = census(pid);
        (maps.max(most_maps), descriptors, threads)
    });
}

#[test]
fn root_inject_into_every_kind_of_target() {
    const MODES: [&str; 9] =
        ["threads", "single", "signals", "epoll", "sleep", "futex", "read", "user", "rtmin"];
    for mode in MODES {
        let target = start(mode);
        for _ in 0..5 {
            let injected = loads(target.pid());
            assert_eq!(answer(&injected).pid, u64::from(target.pid()));
        }
        end(target);
    }
}

/// In each of these calls on a socket with a timeout a stop alone is answered with EINTR.
#[test]
fn root_inject_interrupts_no_call() {
    const CALLS: [&str; 6] = ["read", "readv", "recvmsg", "accept", "accept4", "connect"];
    let on_sockets = CALLS.map(|call| format!("timeout:{call}"));
    // 2: nobody may use io_uring.
    let rings = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let ring = (rings.is_ok_and(|disabled| disabled.trim() != "2")).then(|| "ring".to_owned());
    for mode in on_sockets.into_iter().chain(ring) {
        let target = start(&mode);
        for _ in 0..5 {
            wait_until("it waits", || {
                let call = fs::read_to_string(format!("/proc/{}/syscall", target.pid()));
                call.expect("alive").starts_with(|digit: char| digit.is_ascii_digit())
            });
            loads(target.pid());
        }
        end(target);
    }
}

/// In each of these calls a thread may have moved a part of its data, and a stop would have it return how much.
#[test]
fn root_inject_stops_nobody_who_moves_data() {
    let held = |pid| matches!(load(pid), Err(InjectError::Held(why)) if why.contains("move data"));
    for call in ["write", "writev", "sendmsg"] {
        let target = start(&format!("timeout:{call}"));
        wait_until("it waits", || held(target.pid()));
        end(target);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("read");
    let target = start(&format!("transfer:{}", file.display()));
    let is_in = |call: &str| {
        let now = fs::read_to_string(format!("/proc/{}/syscall", target.pid()));
        now.is_ok_and(|now| now.starts_with(call))
    };
    wait_until("it writes", || is_in("1 "));
    assert!(held(target.pid()));
    fs::write(&file, "").expect("written");
    wait_until("it has written all, and sleeps", || is_in("230 "));
    loads(target.pid());
    end(target);
}

/// Its C library was replaced since it began, as by an upgrade.
#[test]
fn root_inject_where_libc_was_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = directory.path().join("libc.so.6");
    fs::copy("/lib/x86_64-linux-gnu/libc.so.6", &own).expect("copied");
    let mut command = Command::new(built().join("target"));
    let target = spawn(command.arg("threads").env("LD_LIBRARY_PATH", directory.path()));
    fs::remove_file(&own).expect("removed");
    let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).expect("maps");
    assert!(maps.contains("libc.so.6 (deleted)"), "{maps}");
    let before = settled(target.pid());
    for _ in 0..5 {
        loads(target.pid());
    }
    // No block stays, as under an allocator that has met the thread.
    expect_left(target.pid(), before.0 + 5 * 6 + 24, &before);
    end(target);
}

/// It is stopped and continued all the time, as by cpulimit: no stop is lost, and the library comes in between.
#[test]
fn root_inject_between_stops() {
    /// Ends the stops, whatever becomes of the test.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    for mode in ["threads", "single"] {
        let target = start(mode);
        let pid = target.pid();
        let ended = AtomicBool::new(false);
        let status = format!("/proc/{pid}/stat");
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    send_signal(pid, Signal::STOP);
                    wait_until("it has stopped", || {
                        fs::read_to_string(&status).is_ok_and(|status| status.contains(") T "))
                    });
                    send_signal(pid, Signal::CONT);
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let _ends = Ends(&ended);
            let mut times = 0;
            wait_until("it got the library ten times", || {
                match load(pid) {
                    Ok(_) => times += 1,
                    Err(InjectError::Held(_) | InjectError::Late { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                times == 10
            });
        });
        end(target);
    }
}

/// Its descriptors are not those that the program has closed, and may still use.
#[test]
fn root_inject_leaves_closed_descriptors_closed() {
    let target = start("closed");
    let shared = load(target.pid()).expect("it comes in").prepared.0;
    for descriptor in [0, 2] {
        assert!(fs::read_link(format!("/proc/{}/fd/{descriptor}", target.pid())).is_err());
    }
    let mut words = [0; 64];
    shared.read_exact_at(&mut words, 0).expect("its answer");
    assert!(!words.windows(4).any(|bytes| bytes == b"lost"));
    end(target);
}

/// What no thread of the process can do is tried once: each try stops one.
#[test]
fn root_inject_tries_a_limit_once() {
    let target = start("crowded");
    let switches = || {
        let status = fs::read_to_string(format!("/proc/{}/status", target.pid())).expect("alive");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).expect("counted")
    };
    let before = switches();
    let error = load(target.pid()).expect_err("no thread more").to_string();
    assert!(error.contains("clone in the process failed"), "{error}");
    let stops = switches() - before;
    // The stop, and one for each system call or less.
    assert!(stops <= 30, "switched {stops} times");
    end(target);
}

#[test]
fn root_inject_leaves_nothing_behind() {
    let target = start("threads");
    let before = settled(target.pid());
    for _ in 0..11 {
        loads(target.pid());
    }
    // Each loads another library of five segments.
    expect_left(target.pid(), before.0 + 11 * 6 + 24, &before);
    end(target);
}

#[test]
fn root_inject_calls_what_is_loaded_already() {
    let target = start("threads");
    loads(target.pid());
    let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).expect("maps");
    let base = maps.lines().find(|line| line.contains("/memfd:payload.so")).expect("mapped");
    let base = u64::from_str_radix(base.split('-').next().expect("range"), 16).expect("address");
    let image = roctap::discover::Image::open(&built().join("payload.so")).expect("payload");
    let functions = image.functions(|name| name == ATTACH_AGAIN_FUNCTION).expect("functions");
    let entry = Entry::Loaded { address: base + functions[0].address };
    for calls in 2..5 {
        let injected = put_in(target.pid(), entry).expect("called");
        let answered = answer(&injected);
        assert_eq!(answered.calls, calls, "the same library");
        assert_eq!(
            answered.initialised, 0x0123456789abcdef,
            "thread-local variables have their values"
        );
        assert!(injected.prepared.1.is_none());
    }
    end(target);
}

#[test]
fn root_inject_under_other_allocators() {
    for library in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        for mode in ["threads", "single"] {
            let mut command = Command::new(built().join("target"));
            let target = spawn(command.arg(mode).env("LD_PRELOAD", library));
            let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).expect("maps");
            assert!(maps.contains(library), "install it: cargo xtask setup");
            for _ in 0..5 {
                loads(target.pid());
            }
            end(target);
        }
    }
}

#[test]
fn root_inject_in_other_namespaces() {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--user",
        "--map-root-user",
        "--mount-proc",
    ]);
    let target = spawn(command.arg(built().join("target")).arg("threads"));
    // The child of `unshare`, which is process 1 in there.
    let children = format!("/proc/{0}/task/{0}/children", target.pid());
    let children = fs::read_to_string(children).expect("children");
    let inside = children.trim().parse().expect("one child");
    for _ in 0..5 {
        assert_eq!(answer(&loads(inside)).pid, 1, "as it sees itself");
    }
    send_signal(inside, Signal::TERM);
    let ran = target.ended();
    assert!(ran.stdout.starts_with("ok "), "{ran:#?}");
}

#[test]
fn root_inject_asks_seccomp_before() {
    let target = start("confined");
    let error = load(target.pid()).expect_err("memfd_create is forbidden").to_string();
    assert!(error.contains("seccomp") && error.contains("memfd_create"), "{error}");
    end(target);
    // As in a container: what is not known is answered with an error, and clone3 is not known.
    let target = start("contained");
    loads(target.pid());
    end(target);
    // One thread alone is, which could be stopped best.
    let target = start("reader");
    wait_until("it is confined", || {
        let mut threads = fs::read_dir(format!("/proc/{}/task", target.pid())).expect("threads");
        threads.any(|thread| {
            let status = thread.expect("a thread").path().join("status");
            fs::read_to_string(status).is_ok_and(|status| status.contains("Seccomp:\t2"))
        })
    });
    for _ in 0..3 {
        loads(target.pid());
    }
    end(target);
}

#[test]
fn root_inject_refuses_what_it_must_not_touch() {
    built();
    let refusal = |pid: u32| {
        let checked = Subject::open(pid).map_err(Into::into).and_then(|process| check(&process));
        checked.err().map(|error| error.to_string())
    };
    let why = |pid: u32| refusal(pid).expect("refused");
    // Traced.
    let target = start("sleep");
    let mut tracer = Command::new("strace");
    let pid = target.pid().to_string();
    let mut tracer = tracer.args(["-qq", "-o", "/dev/null", "-p", &pid]).spawn().expect("strace");
    wait_until("strace traces it", || check(&subject(target.pid())).is_err());
    let reason = why(target.pid());
    assert!(reason.contains(&tracer.id().to_string()) && reason.contains("strace"), "{reason}");
    let error = load(target.pid()).expect_err("traced").to_string();
    assert!(error.contains("traces it already"), "{error}");
    tracer.kill().expect("killed");
    tracer.wait().expect("status");
    // Stopped.
    send_signal(target.pid(), Signal::STOP);
    wait_until("it is stopped", || check(&subject(target.pid())).is_err());
    assert!(why(target.pid()).contains("stopped"));
    send_signal(target.pid(), Signal::CONT);
    wait_until("it goes on", || check(&subject(target.pid())).is_ok());
    end(target);
    // Dead, and never there.
    let mut child = Command::new("true").spawn().expect("true");
    wait_until("it is a zombie", || refusal(child.id()).is_some_and(|why| why.contains("zombie")));
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
        wait_until("it runs", || {
            fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|exe| exe == program)
        });
        // Its libraries come after it.
        wait_until(reason, || why(child.id()).contains(reason));
        child.kill().expect("killed");
        child.wait().expect("status");
    }
}

/// A thread of another origin than the sanitizer's `pthread_create` would fault at its first `mmap`.
#[test]
fn root_inject_leaves_programs_with_sanitizers_alone() {
    let program = built().join("sanitized");
    let mut cc = Command::new("cc");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("inject/target.c");
    e2e::compile(cc.args(["-fsanitize=thread", "-pthread"]).arg(source), &program);
    // Its runtime wants fewer random bits in addresses than some kernels give.
    let mut command = Command::new("setarch");
    let target = spawn(command.arg("--addr-no-randomize").arg(&program).arg("sleep"));
    let error = load(target.pid()).expect_err("refused").to_string();
    assert!(error.contains("ThreadSanitizer"), "{error}");
    end(target);
}

/// System calls of ours would be handed to the program as well: another thread makes them, or none.
#[test]
fn root_inject_where_the_program_handles_its_system_calls() {
    let target = start("dispatches");
    loads(target.pid());
    end(target);
    let target = start("dispatched");
    let error = load(target.pid()).expect_err("refused").to_string();
    assert!(error.contains("Syscall User Dispatch"), "{error}");
    end(target);
}

#[test]
fn root_inject_fails_cleanly() {
    let target = start("threads");
    let before = settled(target.pid());
    for _ in 0..5 {
        let nonsense =
            Entry::Library { bytes: b"not a library", name: "nonsense", function: ATTACH_FUNCTION };
        let error = put_in(target.pid(), nonsense).expect_err("not a library").to_string();
        assert!(error.contains("could not load nonsense"), "{error}");
        let attach = Attach { version: 1, ..Attach::default() };
        let entry =
            Entry::Library { bytes: &library(), name: "payload.so", function: ATTACH_FUNCTION };
        let (process, memory) = (&subject(target.pid()), &memory(target.pid()));
        let request = Request { process, memory, entry, attach };
        let error = inject(&request, |_| -> anyhow::Result<()> { anyhow::bail!("no room") });
        assert!(error.expect_err("prepare failed").to_string().contains("no room"));
    }
    expect_left(target.pid(), before.0 + 24, &before);
    end(target);
}

#[test]
fn root_inject_survives_a_killed_roctap() {
    let target = start("threads");
    let pid = target.pid().to_string();
    for round in 0..times(20) {
        // The helper is what stops the process; whoever started it is killed at some moment.
        let mut parent = Command::new("sh");
        let script = "exec 3<&0; \"$0\" __inject \"$1\" load payload.so '' <&3 & wait";
        let pidfd = subject(target.pid()).as_fd().try_clone_to_owned().expect("pidfd");
        let mut parent = parent
            .args(["-c", script])
            .arg(roctap_bin())
            .arg(&pid)
            .stdin(pidfd)
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh");
        thread::sleep(Duration::from_micros(round as u64 * 331 % 6000));
        let group = rustix::process::Pid::from_child(&parent);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        parent.wait().expect("status");
    }
    // Helpers may still be at work, one after the other: this one waits for its turn.
    loads(target.pid());
    end(target);
}

#[test]
fn root_inject_by_several_at_once() {
    let target = start("threads");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..times(10) {
                    loads(target.pid());
                }
            });
        }
    });
    end(target);
}

#[test]
fn root_inject_into_fresh_processes() {
    let mut stopped = Vec::new();
    for round in 0..times(20) {
        let target = start(if round % 4 == 0 { "single" } else { "threads" });
        stopped.push(loads(target.pid()).stopped);
        end(target);
    }
    stopped.sort();
    let at = |part: usize| stopped[(stopped.len() - 1) * part / 100];
    println!("stopped: median {:?}, 90 % {:?}, most {:?}", at(50), at(90), at(100));
}
