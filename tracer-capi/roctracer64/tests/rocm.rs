//! Clients in real HIP programs, on the emulated GPU: what they are told is what the programs say that they called.
//!
//! Every test is named `rocm_…`. Where `cargo xtask test` has not built the programs they have nothing to run, and
//! say so. On another release of ROCm, whose root is not this machine's, `ROCTAP_TEST_INSIDE` runs them there.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use capi_build::{
    ROCTRACER,
    clients::{self, Clients, by_env, succeed},
    layouts::Language,
};
use emulated_gpu::truth::{self, Operation};

/// What `cargo xtask test` has built, and a client to be loaded into it.
struct Scene {
    apps: PathBuf,
    gpu: PathBuf,
    /// A program that runs a command where another release is.
    inside: Option<PathBuf>,
    clients: Clients,
    watcher: PathBuf,
}

/// How often a function was told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct CallCounts {
    entered: u64,
    exited: u64,
    recorded: u64,
}

/// What a GPU did, as it was recorded.
#[derive(Clone, Debug)]
struct Work {
    domain: u64,
    op: u64,
    kind: u64,
    device: u64,
    queue: u64,
    begin_ns: u64,
    end_ns: u64,
    /// The function of HIP that has the same correlation id.
    call: String,
    /// The name of a kernel, the bytes of a copy.
    what: String,
}

/// What a program said of itself, and the client of it.
#[derive(Debug, Default)]
struct Outcome {
    counts: BTreeMap<String, u64>,
    launches: BTreeMap<String, u64>,
    call_counts: BTreeMap<String, CallCounts>,
    recorded_launches: BTreeMap<String, u64>,
    /// Calls that callbacks made.
    own: u64,
    /// Calls of callbacks and records while they were exchanged.
    while_changing: (u64, u64),
    /// Events of HSA: memory allocated and given back, devices that may use it, code objects loaded and unloaded.
    events: [u64; 5],
    /// What the client was told that GPUs did, and what they did.
    work: Vec<Work>,
    truth: Vec<Operation>,
}

fn scene() -> Option<Scene> {
    let built = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(apps), Some(gpu)) = (built("ROCTAP_TEST_APPS"), built("ROCTAP_TEST_GPU")) else {
        eprintln!("skipped: `cargo xtask test` builds the programs and the emulated GPU");
        return None;
    };
    let inside = built("ROCTAP_TEST_INSIDE");
    let clients = Clients::new(&ROCTRACER, env!("CARGO_MANIFEST_DIR")).expect("the library");
    let watcher = clients.directory().join("watcher.so");
    let scene = Scene { apps, gpu, inside, clients, watcher };
    let mut compiler = scene.compiler(Language::Cpp, &scene.watcher);
    compiler.args(["-shared", "-fPIC"]).arg(scene.clients.source("watcher.cpp"));
    compiler.arg("-L").arg(scene.clients.directory()).args(["-lroctracer64", "-lamdhip64"]);
    succeed(&mut compiler).expect("the client");
    Some(scene)
}

/// Programs with one thread.
const PROGRAMS: [(&str, &[&str]); 4] =
    [("basic", &[]), ("copies", &["512"]), ("graph", &["20"]), ("module", &[])];
/// Arguments of `storm`: threads, streams, launches.
const STORM: &[&str] = &["8", "4", "300"];

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

impl Scene {
    /// Where programs find the emulated GPU and the library.
    fn libraries(&self) -> String {
        format!("{}:{}", self.gpu.display(), self.clients.directory().display())
    }

    /// A command as it runs where the release is. Its variables are not those of what runs it there.
    fn there(&self, command: Command) -> Command {
        clients::there(self.inside.as_deref(), command)
    }

    /// A compiler that makes something of what is a client of HIP's.
    fn compiler(&self, language: Language, out: &Path) -> Command {
        let mut compiler = language.compiler().expect("a compiler");
        compiler.args(["-D__HIP_PLATFORM_AMD__", "-o"]).arg(out);
        compiler.arg("-I").arg(capi_build::include_directory().expect("headers").join("roctracer"));
        clients::compiler_there(self.inside.as_deref(), language, compiler)
    }

    /// Compiles and runs a program of HIP's in C++, which must succeed and say nothing.
    fn run_client(&self, name: &str, environment: &[(&str, &str)]) {
        let program = self.clients.directory().join(name);
        let mut compiler = self.compiler(Language::Cpp, &program);
        compiler.arg(self.clients.source(&format!("{name}.cpp")));
        if self.inside.is_some() {
            compiler.arg("-L").arg(&self.gpu).arg("-lemulated_gpu_driver");
        }
        compiler.arg("-L").arg(self.clients.directory()).args(["-lroctracer64", "-lamdhip64"]);
        succeed(compiler.arg("-lhsa-runtime64")).expect("the client");
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.libraries()).env("WORK_MODULES", &self.apps);
        command.envs(clients::environment(self.inside.as_deref()));
        command.envs(environment.iter().copied());
        let output = self.there(command).output().expect("it runs");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let is_quiet = clients::is_quiet(&said);
        assert!(output.status.success() && is_quiet, "{name}: {}\n{said}", output.status);
    }

    /// Every call of a program is told, by each way and by all at once.
    fn expect_every_call(&self, program: &str, arguments: &[&str]) -> Outcome {
        self.run("callbacks", program, arguments).expect_every_call(true, false);
        self.run("activities", program, arguments).expect_every_call(false, true);
        let both = self.run("both", program, arguments);
        both.expect_every_call(true, true);
        both
    }

    /// What GPUs did for a program, and by which calls.
    fn expect_work(&self, program: &str, arguments: &[&str]) {
        let outcome = self.run("gpu", program, arguments);
        outcome.expect_every_call(false, true);
        assert!(outcome.expect_all_work(HIP_OPS) > 5);
        for work in &outcome.work {
            let by_name = match work.op {
                0 => work.call.contains("Launch"),
                _ => work.call != "-",
            };
            assert!(by_name, "{program}: {work:?}");
        }
        self.run("hsa", program, arguments).expect_all_work(HSA_OPS);
    }

    fn run(&self, mode: &str, program: &str, arguments: &[&str]) -> Outcome {
        self.run_with(mode, program, arguments, &[])
    }

    fn run_with(
        &self,
        mode: &str,
        program: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Outcome {
        let mut command = self.watched(mode, &self.apps.join(program));
        command.args(arguments).envs(environment.iter().copied());
        let mut command = self.there(command);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {}\n{said}{errors}", output.status);
        self.outcome(&said)
    }

    /// A program with the client in it.
    fn watched(&self, mode: &str, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.libraries()).env("LD_PRELOAD", &self.watcher);
        command.env("WATCH", mode).env("WATCH_OUT", self.file("told"));
        command.env("WATCH_GO", self.file("go")).env("EMUGPU_LOG", self.file("truth"));
        command.envs(clients::environment(self.inside.as_deref()));
        command
    }

    fn file(&self, name: &str) -> PathBuf {
        self.clients.directory().join(name)
    }

    /// What a program that has ended said, its client, and the GPU.
    fn outcome(&self, said: &str) -> Outcome {
        let read = |name: &str| std::fs::read_to_string(self.file(name)).expect(name);
        let written = read("told");
        let truth = truth::read(&self.file("truth")).expect("what the GPU did");
        for file in ["told", "truth"] {
            std::fs::remove_file(self.file(file)).expect("removed");
        }
        assert!(written.ends_with("end\n") && !written.contains("wrong: "), "{written}");
        let mut outcome = Outcome { truth, ..Outcome::default() };
        for line in said.lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["count", function, count] => {
                    *outcome.counts.entry(function.to_owned()).or_default() += number(count);
                }
                ["launches", kernel, count] => {
                    *outcome.launches.entry(kernel.to_owned()).or_default() += number(count);
                }
                _ => {}
            }
        }
        for line in written.lines() {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["launches", kernel, count] => {
                    outcome.recorded_launches.insert(kernel.to_owned(), number(count));
                }
                ["changing", calls, records] => {
                    outcome.while_changing = (number(calls), number(records));
                }
                ["own", calls] => outcome.own = number(calls),
                ["events", ref counts @ ..] => {
                    let counts: Vec<u64> = counts.iter().map(|&count| number(count)).collect();
                    outcome.events = counts.try_into().expect("five");
                }
                ["op", domain, op, kind, device, queue, begin, end, call, what] => {
                    let [domain, op, kind] = [domain, op, kind].map(number);
                    let [device, queue] = [device, queue].map(number);
                    let [begin_ns, end_ns] = [begin, end].map(number);
                    let (call, what) = (call.to_owned(), what.to_owned());
                    outcome.work.push(Work {
                        domain,
                        op,
                        kind,
                        device,
                        queue,
                        begin_ns,
                        end_ns,
                        call,
                        what,
                    });
                }
                [function, entered, exited, recorded] => {
                    let [entered, exited, recorded] = [entered, exited, recorded].map(number);
                    let counts = CallCounts { entered, exited, recorded };
                    outcome.call_counts.insert(function.to_owned(), counts);
                }
                _ => {}
            }
        }
        outcome
    }
}

impl Outcome {
    /// Each call of HIP was told of once by callbacks, recorded once, or both.
    fn expect_every_call(&self, callbacks: bool, activities: bool) {
        self.expect_every_call_of("hip", callbacks, activities);
    }

    /// The same of the functions whose names have this in them.
    fn expect_every_call_of(&self, runtime: &str, callbacks: bool, activities: bool) {
        let mut compared = 0;
        for (function, &count) in self.counts.iter().filter(|(name, _)| name.contains(runtime)) {
            let called = if callbacks { count } else { 0 };
            let recorded = if activities { count } else { 0 };
            let expected = CallCounts { entered: called, exited: called, recorded };
            let counts = self.call_counts.get(function).copied().unwrap_or_default();
            assert_eq!(counts, expected, "{function}: {self:#?}");
            compared += 1;
        }
        assert!(compared > 2, "{self:#?}");
    }
}

/// `ACTIVITY_DOMAIN_HSA_OPS` and `ACTIVITY_DOMAIN_HIP_OPS`.
const HSA_OPS: u64 = 1;
const HIP_OPS: u64 = 2;

/// What a record of an operation of the GPU says of it: operation, kind, and name or size. None of what nobody sees: what
/// the runtime does for itself, and barriers without a signal.
fn expected(operation: &Operation, domain: u64) -> Option<(u64, u64, String)> {
    const OF_THE_RUNTIME: [&str; 3] = ["CopyAligned", "CopyMisaligned", "Fill"];
    const FILL: u64 = 0x1207;
    const DEVICE_TO_DEVICE: u64 = 0x11F5;
    const RECTANGLE: u64 = 0x1203;
    let hip = |kind| if domain == HIP_OPS { kind } else { 0 };
    let name = &operation.name[..];
    Some(match &operation.kind[..] {
        "dispatch" if OF_THE_RUNTIME.contains(&name) => return None,
        "dispatch" if domain == HIP_OPS && name.starts_with("__amd_rocclr_") => {
            let kind = match name {
                _ if name.contains("fillBuffer") => FILL,
                _ if name.contains("copyBufferRect") => RECTANGLE,
                _ => DEVICE_TO_DEVICE,
            };
            (1, kind, "0".to_owned())
        }
        "dispatch" => (0, hip(0x11F0), name.to_owned()),
        "copy" => {
            let kind = match name {
                "H2D" => 0x11F4,
                "D2H" => 0x11F3,
                _ => DEVICE_TO_DEVICE,
            };
            (1, hip(kind), operation.bytes.to_string())
        }
        "barrier_and" | "barrier_or" if operation.signal != 0 => (2, hip(0x11FE), "0".to_owned()),
        _ => return None,
    })
}

/// A queue, and what was done there: operation, kind, name or size.
type Key = (u64, (u64, u64, String));
/// Begin and end of each operation.
type Times = BTreeMap<Key, Vec<(u64, u64)>>;
type Count = (Key, usize);

impl Outcome {
    /// Everything that the GPU did is recorded once, when it was done. Returns how many of them there are.
    fn expect_all_work(&self, domain: u64) -> usize {
        self.expect_work(domain, |recorded_work, truth| assert_eq!(recorded_work, truth));
        self.work.len()
    }

    /// The same of the last that it did, of each kind on each queue: something was recorded from some time on.
    fn expect_last_work(&self, domain: u64) {
        self.expect_work(domain, |recorded_work, truth| {
            for (key, count) in recorded_work {
                let did = truth.iter().find(|(of, _)| of == key).map_or(0, |(_, count)| *count);
                assert!(*count <= did, "{key:?}: {count} of {did}");
            }
        });
    }

    /// What is recorded of each kind on each queue is the last of what the GPU did, when it did it, if the numbers are
    /// as they should be.
    fn expect_work(&self, domain: u64, expect: impl FnOnce(&[Count], &[Count])) {
        const NEAR_NS: u64 = 2_000_000;
        let mut truth = Times::new();
        for operation in &self.truth {
            if let Some(expected) = expected(operation, domain) {
                let queue = operation.hsa_queue.unwrap_or(0);
                let times = (operation.start_ns, operation.end_ns);
                truth.entry((queue, expected)).or_default().push(times);
            }
        }
        let mut recorded_work = Times::new();
        for work in &self.work {
            assert_eq!((work.domain, work.device), (domain, 0), "{work:?}");
            let key = (work.queue, (work.op, work.kind, work.what.clone()));
            recorded_work.entry(key).or_default().push((work.begin_ns, work.end_ns));
        }
        let count = |all: &Times| -> Vec<Count> {
            all.iter().map(|(key, times)| (key.clone(), times.len())).collect()
        };
        expect(&count(&recorded_work), &count(&truth));
        for (key, recorded_work) in &mut recorded_work {
            let truth = truth.get_mut(key).expect("compared");
            truth.sort_unstable();
            recorded_work.sort_unstable();
            let last = truth.len() - recorded_work.len();
            for ((begin, end), (true_begin, true_end)) in recorded_work.iter().zip(&truth[last..]) {
                let off = begin.abs_diff(*true_begin).max(end.abs_diff(*true_end));
                assert!(off < NEAR_NS, "{key:?}: off by {off} ns");
            }
        }
    }
}

/// Not of `callbacks`: with a tracer, any tracer, HIP 5.2.3 never runs functions of `hipStreamAddCallback`
/// (docs/decisions/0033).
#[test]
fn rocm_every_call_of_programs() {
    let Some(scene) = scene() else { return };
    for (program, arguments) in PROGRAMS {
        scene.expect_every_call(program, arguments);
    }
}

/// The same of one with 8 threads.
#[test]
fn rocm_every_call_of_threads() {
    let Some(scene) = scene() else { return };
    let both = scene.expect_every_call("storm", STORM);
    assert_eq!(both.recorded_launches, both.launches);
}

/// Calls that a callback makes are recorded, and call no callback.
#[test]
fn rocm_callbacks_that_call_hip() {
    let Some(scene) = scene() else { return };
    let outcome = scene.run("nested", "storm", &["4", "2", "200"]);
    assert!(outcome.own > 800, "{outcome:?}");
    let counts = outcome.call_counts["hipGetDevice"];
    let called = outcome.counts.get("hipGetDevice").copied().unwrap_or(0);
    let expected = CallCounts { entered: called, exited: called, recorded: called + outcome.own };
    assert_eq!(counts, expected);
}

/// Callbacks, arguments and pools are exchanged while 8 threads call HIP.
#[test]
fn rocm_callbacks_and_pools_that_change() {
    let Some(scene) = scene() else { return };
    let outcome = scene.run("changing", "storm", &["8", "4", "2000"]);
    let (calls, records) = outcome.while_changing;
    assert!(calls > 1000 && records > 1000, "{outcome:?}");
}

/// Callbacks that disable and replace themselves, throw, end their thread, close the pool; 64 threads; a forked
/// child.
#[test]
fn rocm_callbacks_that_do_as_they_like() {
    let Some(scene) = scene() else { return };
    scene.run_client("callbacks", &[]);
}

/// A program ends without closing its pools.
#[test]
fn rocm_records_at_the_end_of_a_program() {
    let Some(scene) = scene() else { return };
    scene.run_client("exits", &[]);
}

#[test]
fn rocm_headers_in_c99() {
    let Some(scene) = scene() else { return };
    let program = scene.clients.directory().join("headers");
    let mut compiler = scene.compiler(Language::C, &program);
    succeed(compiler.arg(scene.clients.source("headers.c"))).expect("it compiles");
    succeed(&mut scene.there(Command::new(program))).expect("it runs");
}

/// Each kernel, copy and barrier is recorded, with the call that it was done for.
#[test]
fn rocm_work_of_gpus() {
    let Some(scene) = scene() else { return };
    for (program, arguments) in PROGRAMS {
        scene.expect_work(program, arguments);
    }
    // A program of HSA's, which shuts the runtime down.
    assert!(scene.run("hsa", "hsa_direct", &[]).expect_all_work(HSA_OPS) > 5);
    // The runtime loads the library as a tool, too.
    let tool = [("HSA_TOOLS_LIB", "libroctracer64.so.4")];
    for (program, domain) in [("basic", HIP_OPS), ("hsa_direct", HSA_OPS)] {
        let mode = if domain == HIP_OPS { "gpu" } else { "hsa" };
        assert!(scene.run_with(mode, program, &[], &tool).expect_all_work(domain) > 5);
    }
}

/// The same of a program with 8 threads.
#[test]
fn rocm_work_of_threads() {
    let Some(scene) = scene() else { return };
    scene.expect_work("storm", STORM);
}

/// Pools and operations that are enabled, disabled, flushed and closed while the GPU works; a kernel that does not end.
#[test]
fn rocm_work_while_clients_do_as_they_like() {
    let Some(scene) = scene() else { return };
    let environment =
        [("EMUGPU_KERNEL_NS", "module_shift=20000000000"), ("ROCTRACER_DRAIN_MS", "500")];
    scene.run_client("work", &environment);
}

/// Each call of HSA is told of once, with its arguments, and recorded once; and work has the call that enqueued it.
#[test]
fn rocm_calls_of_hsa() {
    let Some(scene) = scene() else { return };
    let mut direct = scene.run("hsa_calls", "hsa_direct", &[]);
    // The tables are made inside of it; and a callback has called it.
    direct.counts.remove("hsa_init");
    direct.counts.remove("hsa_iterate_agents");
    direct.expect_every_call_of("hsa", true, true);
    let [allocated, freed, devices, loaded, unloaded] = direct.events;
    let called = |function: &str| direct.counts[function];
    assert_eq!(allocated, called("hsa_amd_memory_pool_allocate"));
    assert_eq!(freed, called("hsa_amd_memory_pool_free"));
    // Both agents each time; and those that need not be allowed to.
    assert!(devices >= 2 * called("hsa_amd_agents_allow_access"), "{devices}");
    assert_eq!((loaded, unloaded), (1, 0));
    // Enabled by another tool in its OnLoad, inside of hsa_init.
    let tool = [("HSA_TOOLS_LIB", scene.watcher.to_str().expect("text"))];
    let mut enabled = scene.run_with("tool", "hsa_direct", &[], &tool);
    enabled.counts.remove("hsa_init");
    enabled.counts.remove("hsa_iterate_agents");
    enabled.expect_every_call_of("hsa", true, true);
    enabled.expect_all_work(HSA_OPS);
    for (program, arguments) in [("basic", &[][..]), ("storm", STORM)] {
        let outcome = scene.run("hsa_calls", program, arguments);
        let counts = outcome.call_counts["hsa_signal_store_screlease"];
        assert!(counts.entered > 5, "{counts:?}");
        for (function, &CallCounts { entered, exited, recorded }) in &outcome.call_counts {
            let of_callbacks = if function == "hsa_iterate_agents" { outcome.own } else { 0 };
            assert_eq!((entered, recorded), (exited, entered + of_callbacks), "{function}");
        }
        outcome.expect_all_work(HSA_OPS);
    }
    for work in &direct.work {
        let expected = if work.op == 1 { "hsa_amd_memory_async_copy" } else { "hsa_signal_store" };
        assert!(work.call.starts_with(expected), "{work:?}");
    }
}

/// Callbacks of HSA's functions, in a program without HIP.
#[test]
fn rocm_callbacks_of_hsa_that_do_as_they_like() {
    let Some(scene) = scene() else { return };
    scene.run_client("hsa", &[]);
}

/// As PyTorch's Kineto and as HPCToolkit use roctracer.
#[test]
fn rocm_clients_like_profilers() {
    let Some(scene) = scene() else { return };
    scene.run_client("profilers", &[]);
}

/// How long anything is waited for.
const DEADLINE: Duration = Duration::from_secs(180);

/// A program that is killed with this.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, output }
    }

    /// Ends it by a signal; it must succeed. What it said.
    fn end(mut self, signal: &str) -> String {
        send(signal, self.child.id());
        self.ended()
    }

    fn ended(&mut self) -> String {
        let mut said = String::new();
        self.output.read_to_string(&mut said).expect("text");
        let status = self.child.wait().expect("its status");
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(signal: &str, pid: u32) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.expect("kill").success());
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// roctap records a program that traces itself by roctracer: it comes first, second, or starts it.
#[test]
fn rocm_beside_roctap() {
    let Some(scene) = scene() else { return };
    let Some(roctap) = std::env::var_os("ROCTAP_BIN") else {
        eprintln!("skipped: `cargo xtask test` builds roctap");
        return;
    };
    let roctap = || Command::new(&roctap);
    let trace = scene.file("test.rtrace");
    let recorded = |more: usize| {
        let mut export = roctap();
        export.args(["export", "-f", "text"]).arg(&trace);
        let text = scene.there(export).output().expect("roctap").stdout;
        // Of work, not of calls, which have it behind `kernel=`.
        String::from_utf8_lossy(&text).matches(" loop_t").count() >= more
    };
    let target = |mode: &str| {
        let mut command = scene.watched(mode, &scene.apps.join("loop"));
        command.args(["0", "2", "300"]);
        let mut target = Running::start(scene.there(command));
        let mut ready = String::new();
        target.output.read_line(&mut ready).expect("text");
        assert!(ready.starts_with("ready"), "{ready}");
        target
    };
    let attached = |pid: u32| {
        let mut command = roctap();
        command.args(["record", "-p", &pid.to_string(), "-o"]).arg(&trace);
        Running::start(scene.there(command))
    };

    // roctracer first.
    let program = target("gpu");
    let recording = attached(program.child.id());
    wait_until("kernels are recorded", || recorded(200));
    recording.end("-INT");
    let outcome = scene.outcome(&program.end("-TERM"));
    assert!(outcome.expect_all_work(HIP_OPS) > 200);

    // roctap first, and it leaves first.
    std::fs::remove_file(&trace).expect("a trace");
    let program = target("gpu_late");
    let recording = attached(program.child.id());
    wait_until("kernels are recorded", || recorded(100));
    std::fs::write(scene.file("go"), "").expect("written");
    wait_until("roctracer records", || !scene.file("go").exists());
    let before = truth::read(&scene.file("truth")).expect("what the GPU did").len();
    wait_until("kernels are recorded by both", || recorded(before + 100));
    recording.end("-INT");
    let outcome = scene.outcome(&program.end("-TERM"));
    assert!(outcome.work.len() > 100, "{}", outcome.work.len());
    outcome.expect_last_work(HIP_OPS);

    // From the start.
    std::fs::remove_file(&trace).expect("a trace");
    let program = scene.watched("gpu", &scene.apps.join("loop"));
    let mut command = roctap();
    command.env("LD_LIBRARY_PATH", scene.libraries());
    command.args(["record", "-o"]).arg(&trace).arg("--").args(by_env(&program));
    command.args(["0", "2", "300"]);
    let mut recording = Running::start(scene.there(command));
    wait_until("kernels are recorded", || recorded(200));
    let did = truth::read(&scene.file("truth")).expect("what the GPU did");
    send("-TERM", did.first().expect("something").pid);
    let said = recording.ended();
    assert!(scene.outcome(&said).expect_all_work(HIP_OPS) > 200);
}

/// A runtime whose tables are not known: the program works, and what is missing is said once.
#[test]
fn rocm_a_runtime_that_is_not_known_is_told_of() {
    let Some(scene) = scene() else { return };
    let mut command = scene.watched("gpu_late", &scene.apps.join("loop"));
    command.env("HSA_TOOLS_LIB", scene.apps.join("libhsa_tool.so")).env("HSA_TOOL_UNKNOWN", "1");
    let errors = scene.file("errors");
    command.args(["0", "1", "1000"]);
    let mut command = scene.there(command);
    command.stderr(std::fs::File::create(&errors).expect("a file"));
    let program = Running::start(command);
    wait_until("it launches", || {
        truth::read(&scene.file("truth")).is_ok_and(|did| !did.is_empty())
    });
    std::fs::write(scene.file("go"), "").expect("written");
    wait_until("roctracer was asked", || !scene.file("go").exists());
    program.end("-TERM");
    let errors = std::fs::read_to_string(errors).expect("a file");
    let said = "work of GPUs are not recorded: the tables of this HSA runtime are not known";
    assert_eq!(errors.matches(said).count(), 1, "{errors}");
}
