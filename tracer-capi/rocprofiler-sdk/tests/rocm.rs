//! A tool in real HIP programs, on the emulated GPU: what it gets is what the GPU did.
//!
//! Every test is named `rocm_…`. Where `cargo xtask test` has not built the programs they have nothing to run, and say so.
//! On another release of ROCm, whose root is not this machine's, `ROCTAP_TEST_INSIDE` runs them there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use capi_build::clients::{self, Clients, succeed};
use capi_build::layouts::Language;
use capi_build::{ROCPROFILER_SDK, ROCPROFILER_SDK_ROCTX, include_directory};
use emulated_gpu::truth::{self, Operation};
use rocprofiler::kinds::Kind;

/// How the library comes into a program: the HSA runtime loads it, or it comes with a tool that is preloaded.
const LOADERS: [&str; 2] = ["HSA_TOOLS_LIB", "LD_PRELOAD"];
/// How long packets of which no doorbell tells are held back, ms. None that is taken could be recorded.
const BEYOND_DOORBELL: (&str, &str) = ("EMUGPU_BEYOND_DOORBELL_MS", "5000");
/// What the runtime of ROCm 7 says at the end of programs with several threads, untraced too.
const OF_THE_RUNTIME: &str =
    "Warning: Resource leak detected by SharedSignalPool, 2 Signals leaked.";
/// `ROCPROFILER_BUFFER_TRACING_MEMORY_COPY`.
const COPIES: &str = "10";
/// `ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH`.
const KERNELS: &str = "11";
/// `ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT`.
const RETIREMENTS: &str = "14";

/// What `cargo xtask test` has built, and the tool.
struct Scene {
    apps: PathBuf,
    gpu: PathBuf,
    /// A program that runs a command where another release is.
    inside: Option<PathBuf>,
    clients: Clients,
    tool: PathBuf,
}

/// A record of a call.
#[derive(Debug)]
struct Call {
    name: &'static str,
    correlation_id: u64,
    external_id: u64,
    thread: u64,
    begin_ns: u64,
    end_ns: u64,
}

/// A record of a kernel.
#[derive(Debug)]
struct Kernel {
    correlation_id: u64,
    external_id: u64,
    thread: u64,
    begin_ns: u64,
    end_ns: u64,
    agent: u64,
    queue: u64,
    kernel: u64,
    dispatch: u64,
    private_bytes: u64,
    group_bytes: u64,
    workgroup: [u64; 3],
    grid: [u64; 3],
}

/// A record of a copy.
#[derive(Debug)]
struct Copy {
    correlation_id: u64,
    external_id: u64,
    thread: u64,
    begin_ns: u64,
    end_ns: u64,
    operation: u64,
    to: u64,
    from: u64,
    bytes: u64,
}

/// What was told of a correlation id.
#[derive(Debug, Default)]
struct Id {
    /// Records of its call and of work, and callbacks of the call.
    records: usize,
    /// The last end of those, ns.
    end_ns: u64,
    /// When it was retired, ns.
    retired_ns: Option<u64>,
}

/// A call that a callback was told of.
#[derive(Debug)]
struct Told {
    name: &'static str,
    correlation_id: u64,
    external_id: u64,
    thread: u64,
    /// That of HSA's functions.
    result: u64,
    exits: bool,
    /// By name.
    arguments: BTreeMap<String, String>,
}

/// A kernel of a code object.
#[derive(Debug)]
struct Symbol {
    /// Without the ending of a descriptor's.
    name: String,
    object: u64,
    vector_registers: u64,
    is_unloaded: bool,
}

/// What the tool was told, and what the GPU did.
#[derive(Debug, Default)]
struct Outcome {
    /// Code objects: their agents, and whether they were unloaded.
    objects: BTreeMap<u64, (u64, bool)>,
    symbols: BTreeMap<u64, Symbol>,
    /// By what the tool keeps of it.
    told: BTreeMap<u64, Told>,
    /// How often the program says that it has called each function.
    counts: BTreeMap<String, u64>,
    calls: Vec<Call>,
    kernels: Vec<Kernel>,
    copies: Vec<Copy>,
    ids: BTreeMap<u64, Id>,
    dropped: u64,
    truth: Vec<Operation>,
    process: u64,
}

fn scene() -> Option<Scene> {
    let built = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(apps), Some(gpu)) = (built("ROCTAP_TEST_APPS"), built("ROCTAP_TEST_GPU")) else {
        eprintln!("skipped: `cargo xtask test` builds the programs and the emulated GPU");
        return None;
    };
    let clients = Clients::new(&ROCPROFILER_SDK, env!("CARGO_MANIFEST_DIR"))
        .and_then(|clients| clients.beside(&ROCPROFILER_SDK_ROCTX))
        .expect("the libraries");
    let make = |name: &str, options: &[&str]| {
        let tool = clients.directory().join(name);
        let mut compiler = Language::C.compiler().expect("a compiler");
        compiler.args(["-shared", "-fPIC", "-o"]).args([&tool, &clients.source("watches.c")]);
        compiler.arg("-I").arg(include_directory().expect("headers")).args(options);
        succeed(compiler.arg(clients.library())).expect("the tool");
        tool
    };
    let tool = make("libwatches.so", &[]);
    make("libstuck.so", &["-DSTUCK"]);
    make("libsecond.so", &["-DBESIDE=\"-second\""]);
    Some(Scene { apps, gpu, inside: built("ROCTAP_TEST_INSIDE"), clients, tool })
}

impl Scene {
    fn file(&self, name: &str) -> PathBuf {
        self.clients.directory().join(name)
    }

    /// A program with the tool in it.
    fn command(&self, loader: &str, program: &Path) -> Command {
        let mut command = Command::new(program);
        let libraries = format!("{}:{}", self.gpu.display(), self.clients.directory().display());
        command.env("LD_LIBRARY_PATH", libraries);
        match loader {
            "LD_PRELOAD" => command.env(loader, &self.tool),
            _ => command.env(loader, self.clients.library()).env("ROCP_TOOL_LIBRARIES", &self.tool),
        };
        command.env("WATCH_OUT", self.file("told")).env("EMUGPU_LOG", self.file("truth"));
        command.envs([BEYOND_DOORBELL]);
        command
    }

    /// A command as it runs where the release is, whose output is read.
    fn there(&self, command: Command) -> Command {
        let mut there = clients::there(self.inside.as_deref(), command);
        there.stdout(Stdio::piped()).stderr(Stdio::piped());
        there
    }

    /// Compiles and runs a program of HIP's in C++ that is its own tool, which must succeed and say nothing.
    fn run_client(&self, name: &str) {
        let program = self.file(name);
        let mut compiler = Language::Cpp.compiler().expect("a compiler");
        compiler.args(["-D__HIP_PLATFORM_AMD__", "-o"]).arg(&program);
        compiler.arg(self.clients.source(&format!("{name}.cpp")));
        if self.inside.is_some() {
            compiler.arg("-L").arg(&self.gpu).arg("-lemulated_gpu_driver");
        }
        compiler.arg("-L").arg(self.clients.directory()).args(["-lrocprofiler-sdk", "-lamdhip64"]);
        compiler.arg("-lhsa-runtime64");
        if let Some(inside) = &self.inside {
            // The one version that the root has.
            let exec = "exec /usr/bin/clang++-[0-9][0-9] \"$@\"";
            let mut there = Command::new(inside);
            there.args(["sh", "-c", exec, "clang"]).args(compiler.get_args());
            compiler = there;
        }
        succeed(&mut compiler).expect("the client");
        let mut command = Command::new(program);
        let libraries = format!("{}:{}", self.gpu.display(), self.clients.directory().display());
        command.env("LD_LIBRARY_PATH", libraries).envs([BEYOND_DOORBELL]);
        let output = self.there(command).output().expect("it runs");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let is_quiet = said.lines().all(|line| line == OF_THE_RUNTIME);
        assert!(output.status.success() && is_quiet, "{name}: {}\n{said}", output.status);
    }

    /// Runs a program, which must succeed.
    fn run(
        &self,
        loader: &str,
        program: &str,
        arguments: &[&str],
        words: &[(&str, &str)],
    ) -> Outcome {
        let mut command = self.command(loader, &self.apps.join(program));
        command.args(arguments).envs(words.iter().copied());
        self.run_command(command)
    }

    fn run_command(&self, command: Command) -> Outcome {
        let mut command = self.there(command);
        let running = command.spawn().expect("it begins");
        let process = u64::from(running.id());
        let output = running.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {}\n{said}{errors}", output.status);
        let is_quiet = errors.lines().all(|line| line == OF_THE_RUNTIME);
        assert!(is_quiet, "{command:?}: {errors}");
        let count = |line: &str| {
            let (function, count) = line.strip_prefix("count ")?.split_once(' ')?;
            Some((function.to_owned(), count.parse().expect("a number")))
        };
        let counts = said.lines().filter_map(count).collect();
        Outcome { process, counts, ..self.outcome() }
    }

    /// Where the tools of each process have written.
    fn told(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.clients.directory()).expect("a directory");
        let paths = files.map(|file| file.expect("a file").path());
        paths.filter(|path| path.file_stem() == Some("told".as_ref())).collect()
    }

    /// What the tool has written, in one process or in several, and the GPU has done.
    fn outcome(&self) -> Outcome {
        let mut told = String::new();
        for path in self.told() {
            let text = std::fs::read_to_string(&path).expect("what was told");
            assert!(text.ends_with("end\n") && !text.contains("wrong: "), "{text}");
            std::fs::remove_file(path).expect("removed");
            told += &text;
        }
        let did = self.file("truth");
        let truth = did.exists().then(|| truth::read(&did).expect("what the GPU did"));
        let _ = std::fs::remove_file(did);
        let truth = truth.unwrap_or_default();
        let mut outcome = Outcome { truth, ..Outcome::default() };
        for line in told.lines() {
            let (word, numbers) = line.split_once(' ').unwrap_or((line, ""));
            if word.contains("load") {
                outcome.take_load(word, numbers);
                continue;
            }
            if word == "argument" {
                let [kept, _, name, value] = numbers.splitn(4, ' ').collect::<Vec<_>>()[..] else {
                    panic!("{line}")
                };
                let call = outcome.told.get_mut(&kept.parse().expect("a number")).expect("a call");
                assert!(call.exits, "{line}");
                assert_eq!(call.arguments.insert(name.into(), value.into()), None, "{line}");
                continue;
            }
            let numbers = numbers.split_whitespace().map(|n| n.parse().expect("a number"));
            let numbers: Vec<u64> = numbers.collect();
            outcome.note_id(word, &numbers);
            match (word, &numbers[..]) {
                (
                    "kernel",
                    &[
                        correlation_id,
                        external_id,
                        thread,
                        begin_ns,
                        end_ns,
                        agent,
                        queue,
                        kernel,
                        dispatch,
                        private_bytes,
                        group_bytes,
                        ref sizes @ ..,
                    ],
                ) => {
                    let [wide, high, deep, x, y, z] = sizes[..] else { panic!("{line}") };
                    outcome.kernels.push(Kernel {
                        correlation_id,
                        external_id,
                        thread,
                        begin_ns,
                        end_ns,
                        agent,
                        queue,
                        kernel,
                        dispatch,
                        private_bytes,
                        group_bytes,
                        workgroup: [wide, high, deep],
                        grid: [x, y, z],
                    });
                }
                (
                    "copy",
                    &[
                        correlation_id,
                        external_id,
                        thread,
                        begin_ns,
                        end_ns,
                        operation,
                        to,
                        from,
                        bytes,
                    ],
                ) => {
                    outcome.copies.push(Copy {
                        correlation_id,
                        external_id,
                        thread,
                        begin_ns,
                        end_ns,
                        operation,
                        to,
                        from,
                        bytes,
                    });
                }
                ("call", &[kind, number, ref ids @ ..]) => {
                    let [correlation_id, external_id, thread, begin_ns, end_ns] = ids[..] else {
                        panic!("{line}")
                    };
                    outcome.calls.push(Call {
                        name: function(kind, number),
                        correlation_id,
                        external_id,
                        thread,
                        begin_ns,
                        end_ns,
                    });
                }
                ("retired", _) => {}
                ("enter", &[kind, number, correlation_id, external_id, thread, kept, 0]) => {
                    let call = Told {
                        name: function(kind, number),
                        correlation_id,
                        external_id,
                        thread,
                        result: 0,
                        exits: false,
                        arguments: BTreeMap::new(),
                    };
                    assert!(outcome.told.insert(kept, call).is_none(), "{line}");
                }
                ("exit", &[kind, number, correlation_id, external_id, thread, kept, result]) => {
                    let call = outcome.told.get_mut(&kept).unwrap_or_else(|| panic!("{line}"));
                    assert_eq!(call.name, function(kind, number), "{line}");
                    let ids = (call.correlation_id, call.external_id, call.thread);
                    assert_eq!(ids, (correlation_id, external_id, thread), "{line}");
                    assert!(!std::mem::replace(&mut call.exits, true), "{line}");
                    call.result = result;
                }
                ("dropped", &[count]) => outcome.dropped = count.max(outcome.dropped),
                ("stopped" | "end", []) => {}
                _ => panic!("{line}"),
            }
        }
        outcome
    }
}

/// `ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT`.
const CODE_OBJECTS: &str = "10";
/// Kinds of functions of HIP, of HSA, and of roctx.
const HIP: &str = "5,6";
const HSA: &str = "1,2,3";
const ROCTX: &str = "7,8,9";

/// The name of an operation of one of these kinds.
fn function(kind: u64, number: u64) -> &'static str {
    let kind = match kind {
        1 => Kind::HsaCoreApi,
        2 => Kind::HsaAmdExtApi,
        3 => Kind::HsaImageExtApi,
        5 => Kind::HipRuntimeApi,
        6 => Kind::HipCompilerApi,
        7 => Kind::MarkerCoreApi,
        8 => Kind::MarkerControlApi,
        9 => Kind::MarkerNameApi,
        _ => panic!("kind {kind}"),
    };
    let name = &kind.operations().expect("functions")[number as usize];
    name.to_str().expect("UTF-8")
}

/// The number of a function of HIP's runtime API.
fn number(name: &str) -> String {
    let all = Kind::HipRuntimeApi.operations().expect("functions");
    all.iter().position(|one| one.to_str() == Ok(name)).expect(name).to_string()
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < until, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Ends a process.
fn send(process: u32) {
    assert!(Command::new("kill").arg(process.to_string()).status().expect("kill").success());
}

/// Agents are numbered by the driver's nodes.
const FIRST_AGENT: u64 = 0x4_0000;
/// "within 1 µs".
const NEAR_NS: u64 = 1000;

fn is_near(told: (u64, u64), operation: &Operation) -> bool {
    let (begin_ns, end_ns) = told;
    begin_ns.abs_diff(operation.start_ns).max(end_ns.abs_diff(operation.end_ns)) <= NEAR_NS
}

impl Outcome {
    /// A line of the tool's: of an id that was retired nothing follows.
    fn note_id(&mut self, word: &str, numbers: &[u64]) {
        let (id, end_ns) = match (word, numbers) {
            ("kernel" | "copy", &[id, _, _, _, end_ns, ..]) => (id, end_ns),
            ("call", &[_, _, id, _, _, _, end_ns]) => (id, end_ns),
            // When it was told is not said.
            ("enter" | "exit", &[_, _, id, ..]) => (id, 0),
            ("retired", &[id, time_ns]) => {
                let id = self.ids.entry(id).or_default();
                assert_eq!(id.retired_ns.replace(time_ns), None, "twice");
                return;
            }
            _ => return,
        };
        let id = self.ids.entry(id).or_default();
        assert_eq!(id.retired_ns, None, "{word} {numbers:?} of an id that was retired");
        id.records += 1;
        id.end_ns = end_ns.max(id.end_ns);
    }

    /// Each id of a record or of a callback was retired, behind all of these, and no other one.
    fn expect_retirements(&self) {
        assert!(!self.ids.is_empty());
        for (id, told) in &self.ids {
            let retired_ns =
                told.retired_ns.unwrap_or_else(|| panic!("{id} was not retired: {told:?}"));
            assert!(told.records > 0, "nothing was recorded of {id}, which was retired");
            assert!(retired_ns + NEAR_NS >= told.end_ns, "{id}: {told:?}");
        }
    }

    /// What the GPU did of a kind, in the order of its begin. Not what the runtime does for itself, which nobody sees.
    fn did(&self, kind: &str) -> Vec<&Operation> {
        const OF_THE_RUNTIME: [&str; 3] = ["CopyAligned", "CopyMisaligned", "Fill"];
        let is_meant = |operation: &&Operation| {
            operation.kind == kind && !OF_THE_RUNTIME.contains(&operation.name.as_str())
        };
        let mut did: Vec<&Operation> = self.truth.iter().filter(is_meant).collect();
        did.sort_by_key(|operation| (operation.hsa_queue, operation.start_ns));
        did
    }

    /// Each kernel that the GPU ran is told of once, where and when it ran; returns how often each ran, by name.
    fn expect_all_kernels(&mut self) -> BTreeMap<String, usize> {
        self.kernels.sort_by_key(|kernel| (kernel.queue, kernel.begin_ns));
        let did = self.did("dispatch");
        assert_eq!(self.kernels.len(), did.len(), "{self:#?}");
        let (mut numbers, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (kernel, operation) in self.kernels.iter().zip(did) {
            assert_eq!(Some(kernel.queue), operation.hsa_queue, "{kernel:?}: {operation:?}");
            assert!(
                is_near((kernel.begin_ns, kernel.end_ns), operation),
                "{kernel:?}: {operation:?}"
            );
            assert_eq!(kernel.agent, FIRST_AGENT + u64::from(operation.node), "{kernel:?}");
            // One number is of one kernel.
            let name = numbers.entry(kernel.kernel).or_insert_with(|| operation.name.clone());
            assert_eq!(*name, operation.name, "{kernel:?}");
            *names.entry(operation.name.clone()).or_default() += 1;
        }
        let dispatches: BTreeSet<u64> = self.kernels.iter().map(|kernel| kernel.dispatch).collect();
        assert!(dispatches.iter().copied().eq(1..=self.kernels.len() as u64), "{dispatches:?}");
        self.expect_ids();
        names
    }

    fn expect_all_copies(&mut self) {
        self.copies.sort_by_key(|copy| copy.begin_ns);
        let mut did = self.did("copy");
        did.sort_by_key(|operation| operation.start_ns);
        assert_eq!(self.copies.len(), did.len(), "{self:#?}");
        for (copy, operation) in self.copies.iter().zip(did) {
            assert!(is_near((copy.begin_ns, copy.end_ns), operation), "{copy:?}: {operation:?}");
            let kind = match &operation.name[..] {
                "H2D" => 2,
                "D2H" => 3,
                "D2D" => 4,
                other => panic!("{other}"),
            };
            assert_eq!((copy.operation, copy.bytes), (kind, operation.bytes), "{operation:?}");
            // The host is another agent than the GPU.
            assert_eq!(copy.to != copy.from, kind != 4, "{copy:?}");
            assert!(copy.to >= FIRST_AGENT && copy.from >= FIRST_AGENT, "{copy:?}");
        }
        self.expect_ids();
    }

    /// Each call of a runtime's functions that the program says that it has made is recorded once. Others may be: those that
    /// HIP makes of HSA.
    fn expect_every_call(&mut self, of: &str, but: &[&str]) {
        // From ROCm 6 on the runtime copies code inside of it, and waits for that, by functions of its own.
        let is_freeze = |call: &&Call| call.name == "hsa_executable_freeze";
        let freezes: Vec<&Call> = self.calls.iter().filter(is_freeze).collect();
        let is_of_a_freeze = |call: &Call| {
            freezes.iter().any(|freeze| {
                let is_inside = freeze.begin_ns < call.begin_ns && call.end_ns <= freeze.end_ns;
                freeze.thread == call.thread && is_inside
            })
        };
        let mut recorded = BTreeMap::<&str, u64>::new();
        for call in self.calls.iter().filter(|call| !is_of_a_freeze(call)) {
            *recorded.entry(call.name).or_default() += 1;
        }
        let mut compared = 0;
        for (function, count) in self.counts.iter().filter(|(name, _)| name.contains(of)) {
            if !but.contains(&function.as_str()) {
                let times = recorded.get(function.as_str());
                assert_eq!(times, Some(count), "{function}: {recorded:?} {:?}", self.counts);
                compared += 1;
            }
        }
        assert!(compared > 2, "{:?}", self.counts);
        self.expect_nested();
    }

    /// A line of a code object, or of a kernel.
    fn take_load(&mut self, word: &str, rest: &str) {
        let fields: Vec<&str> = rest.splitn(5, ' ').collect();
        let number = |at: usize| fields[at].parse::<u64>().expect("a number");
        match word {
            "load" => {
                let (agent, bytes, uri) = (number(1), number(2), fields[3]);
                let is_named = uri.starts_with("file://") || uri.starts_with("memory://");
                assert!(bytes > 0 && is_named && agent > FIRST_AGENT, "{rest}");
                assert_eq!(self.objects.insert(number(0), (agent, false)), None, "{rest}");
            }
            "unload" => {
                let (_, is_unloaded) = self.objects.get_mut(&number(0)).expect("loaded");
                assert!(!std::mem::replace(is_unloaded, true), "{rest}");
            }
            "load-kernel" => {
                let (object, vector_registers) = (number(1), number(2));
                assert!(!self.objects[&object].1 && number(3) > 0, "{rest}");
                let name = fields[4].strip_suffix(".kd").expect("a descriptor").to_owned();
                let symbol = Symbol { name, object, vector_registers, is_unloaded: false };
                assert!(self.symbols.insert(number(0), symbol).is_none(), "{rest}");
            }
            "unload-kernel" => {
                let symbol = self.symbols.get_mut(&number(0)).expect("loaded");
                assert!(self.objects[&symbol.object].1, "{rest}");
                assert!(!std::mem::replace(&mut symbol.is_unloaded, true), "{rest}");
            }
            _ => panic!("{word} {rest}"),
        }
    }

    /// Each kernel that ran is one of a code object that was loaded, by its id and by its name; all are unloaded at last.
    fn expect_names(&self) {
        let mut names = BTreeMap::<&str, i64>::new();
        for kernel in &self.kernels {
            let symbol = &self.symbols[&kernel.kernel];
            assert_eq!(self.objects[&symbol.object].0, kernel.agent, "{kernel:?}");
            *names.entry(symbol.name.as_str()).or_default() += 1;
        }
        for operation in self.did("dispatch") {
            *names.entry(operation.name.as_str()).or_default() -= 1;
        }
        assert!(names.values().all(|&difference| difference == 0), "{names:?}");
        assert!(self.objects.values().all(|&(_, is_unloaded)| is_unloaded), "{:?}", self.objects);
        assert!(self.symbols.values().all(|symbol| symbol.is_unloaded), "{:?}", self.symbols);
    }

    /// The calls that callbacks were told of are those that were recorded, and have ended.
    fn expect_all_told(&self) {
        assert_eq!(self.told.len(), self.calls.len(), "{self:#?}");
        let told: BTreeMap<u64, &Told> =
            self.told.values().map(|told| (told.correlation_id, told)).collect();
        for call in &self.calls {
            let told = told.get(&call.correlation_id).unwrap_or_else(|| panic!("{call:?}"));
            let of_callback = (told.name, told.external_id, told.thread, told.exits);
            assert_eq!(of_callback, (call.name, call.external_id, call.thread, true), "{call:?}");
        }
    }

    /// The values of an argument of a function's calls, in order.
    fn arguments(&self, function: &str, name: &str) -> Vec<&str> {
        let calls = self.told.values().filter(|told| told.name == function);
        let mut values: Vec<&str> = calls.map(|told| told.arguments[name].as_str()).collect();
        values.sort_unstable();
        values
    }

    /// Calls of a thread come one after the other or one inside of the other, and have ids of their own in that order. The
    /// external id is that of the process.
    fn expect_nested(&mut self) {
        self.calls.sort_by_key(|call| (call.thread, call.correlation_id));
        let (mut ids, mut open) = (BTreeSet::new(), Vec::<&Call>::new());
        for call in &self.calls {
            assert!(call.correlation_id > 0 && ids.insert(call.correlation_id), "twice: {call:?}");
            assert!(call.begin_ns <= call.end_ns && call.external_id == 77, "{call:?}");
            assert!(call.thread >= self.process, "{call:?}");
            while let Some(outer) =
                open.pop_if(|outer| outer.thread != call.thread || outer.end_ns <= call.begin_ns)
            {
                assert!(outer.thread != call.thread || outer.begin_ns <= call.begin_ns);
            }
            if let Some(outer) = open.last() {
                let is_inside = outer.begin_ns <= call.begin_ns && call.end_ns <= outer.end_ns;
                assert!(is_inside, "{call:?}: {outer:?}");
            }
            open.push(call);
        }
    }

    /// No call is traced: each operation has an id of its own. The external id is that of the process.
    fn expect_ids(&self) {
        let kernels = self.kernels.iter().map(|k| (k.correlation_id, k.external_id, k.thread));
        let copies = self.copies.iter().map(|c| (c.correlation_id, c.external_id, c.thread));
        let mut ids = BTreeSet::new();
        for (correlation_id, external_id, thread) in kernels.chain(copies) {
            assert!(correlation_id > 0 && ids.insert(correlation_id), "{correlation_id} twice");
            assert!(external_id == 77 && thread >= self.process, "{external_id}, {thread}");
        }
    }
}

#[test]
fn rocm_every_kernel_and_copy_of_programs() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        for (program, arguments) in [
            ("basic", &[][..]),
            ("copies", &["512"]),
            ("graph", &["20"]),
            ("module", &[]),
            ("storm", &["8", "4", "300"]),
        ] {
            let mut outcome = scene.run(loader, program, arguments, &[]);
            outcome.expect_all_kernels();
            outcome.expect_all_copies();
            assert_eq!(outcome.dropped, 0);
        }
    }
}

/// Each thread of `storm` launches a kernel of its own, of one workgroup of 64.
#[test]
fn rocm_kernels_are_those_of_their_threads() {
    let Some(scene) = scene() else { return };
    let mut outcome =
        scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &[("WATCH_KINDS", KERNELS)]);
    let names = outcome.expect_all_kernels();
    assert_eq!(outcome.copies.len(), 0);
    let mut threads = BTreeMap::<u64, BTreeSet<u64>>::new();
    let own: Vec<&Kernel> =
        outcome.kernels.iter().filter(|kernel| kernel.workgroup[0] == 64).collect();
    for kernel in own {
        assert_eq!((kernel.workgroup, kernel.grid), ([64, 1, 1], [64, 1, 1]), "{kernel:?}");
        assert_eq!((kernel.private_bytes, kernel.group_bytes), (0, 0), "{kernel:?}");
        threads.entry(kernel.kernel).or_default().insert(kernel.thread);
    }
    let storm = names.iter().filter(|(name, _)| name.starts_with("storm_t"));
    assert!(
        storm.clone().count() == 8 && storm.clone().all(|(_, &count)| count == 1200),
        "{names:?}"
    );
    let launchers: BTreeSet<&BTreeSet<u64>> = threads.values().collect();
    assert!(launchers.iter().all(|threads| threads.len() == 1), "{threads:?}");
}

/// "an array of operations": others are not recorded.
#[test]
fn rocm_operations_that_are_not_asked_for() {
    let Some(scene) = scene() else { return };
    let only = |operation| {
        let words = [("WATCH_KINDS", COPIES), ("WATCH_OPERATION", operation)];
        scene.run("LD_PRELOAD", "copies", &["512"], &words)
    };
    for (operation, name) in [("2", "H2D"), ("3", "D2H")] {
        let outcome = only(operation);
        let did = outcome.did("copy").iter().filter(|copy| copy.name == name).count();
        assert!(
            did > 0 && outcome.copies.len() == did && outcome.kernels.is_empty(),
            "{outcome:#?}"
        );
        assert!(outcome.copies.iter().all(|copy| copy.operation.to_string() == operation));
    }
}

/// A slow callback: LOSSLESS loses nothing, and with DISCARD what was delivered and what was dropped is all.
#[test]
fn rocm_policies_of_buffers() {
    let Some(scene) = scene() else { return };
    let slow = [("WATCH_KINDS", KERNELS), ("WATCH_BYTES", "4096"), ("WATCH_SLOW_US", "2000")];
    let mut outcome = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &slow);
    outcome.expect_all_kernels();
    assert_eq!(outcome.dropped, 0);
    let words = [&slow[..], &[("WATCH_DISCARD", "1")]].concat();
    let outcome = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &words);
    let (delivered, did) = (outcome.kernels.len() as u64, outcome.did("dispatch").len() as u64);
    assert!(outcome.dropped > 0, "the buffer was never full");
    assert_eq!(delivered + outcome.dropped, did);
}

/// "rocprofiler_start_context": what is enqueued while it is active is recorded, and nothing else.
#[test]
fn rocm_contexts_that_start_and_stop() {
    let Some(scene) = scene() else { return };
    let go = scene.file("go");
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("loop"));
    command.args(["0", "2", "300"]).env("WATCH_GO", &go).env("WATCH_BYTES", "4096");
    command.env("WATCH_KINDS", format!("{HIP},{HSA},{KERNELS},{RETIREMENTS}"));
    let mut running = scene.there(command).spawn().expect("it begins");
    let mut said = BufReader::new(running.stdout.take().expect("its output"));
    let mut ready = String::new();
    said.read_line(&mut ready).expect("text");
    let told = || -> String {
        let texts = scene.told().into_iter().map(std::fs::read_to_string);
        texts.map(|text| text.expect("what was told")).collect()
    };
    for round in 1..=3 {
        let before = told().matches("kernel ").count();
        std::fs::write(&go, "").expect("written");
        wait_until("kernels are recorded", || told().matches("kernel ").count() > before + 100);
        std::fs::remove_file(&go).expect("removed");
        wait_until("the context is stopped", || told().matches("stopped").count() == round);
        let count = || ["kernel ", "call "].map(|word| told().matches(word).count());
        let [kernels, calls] = count();
        let did = || {
            let truth = truth::read(&scene.file("truth")).expect("what the GPU did");
            truth.iter().filter(|operation| operation.kind == "dispatch").count()
        };
        let done = did();
        wait_until("the GPU goes on", || did() > done + 100);
        let now = count();
        // Each thread may have been in some.
        assert!(now[0] == kernels && now[1] <= calls + 8, "{now:?}: {kernels} and {calls}");
    }
    send(running.id());
    assert!(running.wait().expect("it ends").success());
    let mut outcome = scene.outcome();
    outcome.expect_nested();
    outcome.expect_retirements();
    let did = outcome.did("dispatch");
    assert!(outcome.kernels.len() + 300 < did.len(), "{}: {}", outcome.kernels.len(), did.len());
    let mut seen = BTreeSet::new();
    for kernel in &outcome.kernels {
        let is_it = |operation: &&&Operation| {
            operation.hsa_queue == Some(kernel.queue)
                && is_near((kernel.begin_ns, kernel.end_ns), operation)
        };
        let operation = did.iter().find(is_it).unwrap_or_else(|| panic!("nobody ran {kernel:?}"));
        assert!(seen.insert((kernel.queue, operation.index)), "twice: {kernel:?}");
    }
}

/// A forked child is not traced; the program that it executes is, by itself.
#[test]
fn rocm_programs_that_fork() {
    let Some(scene) = scene() else { return };
    let basic = scene.apps.join("basic").display().to_string();
    let outcome = scene.run("LD_PRELOAD", "fork_exec", &[&basic], &[]);
    let did = outcome.did("dispatch");
    let pids: BTreeSet<u32> = did.iter().map(|operation| operation.pid).collect();
    assert_eq!((pids.len(), outcome.kernels.len()), (2, did.len()));
    for kernel in &outcome.kernels {
        let is_it = |operation: &&Operation| is_near((kernel.begin_ns, kernel.end_ns), operation);
        assert!(did.iter().any(is_it), "nobody ran {kernel:?}");
    }
}

/// A process that exits waits for a callback, but not for ever.
#[test]
fn rocm_a_callback_that_does_not_return() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("basic"));
    command.env("WATCH_SLOW_US", "999999999");
    let output = scene.there(command).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("the callback of a buffer has not returned for 10 s"), "{errors}");
}

#[test]
fn rocm_every_call_of_programs() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        for (program, arguments) in [
            ("basic", &[][..]),
            ("copies", &["512"]),
            ("graph", &["20"]),
            ("module", &[]),
            ("storm", &["8", "4", "300"]),
        ] {
            let mut outcome = scene.run(loader, program, arguments, &[("WATCH_KINDS", HIP)]);
            outcome.expect_every_call("hip", &[]);
            assert!(outcome.calls.iter().all(|call| call.name.contains("hip")));
            assert_eq!((outcome.dropped, outcome.kernels.len(), outcome.copies.len()), (0, 0, 0));
        }
    }
}

/// The first `hsa_init` is not: the tables are made inside of it.
#[test]
fn rocm_every_call_of_hsa() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        let mut outcome = scene.run(loader, "hsa_direct", &[], &[("WATCH_KINDS", HSA)]);
        outcome.expect_every_call("hsa", &["hsa_init"]);
        // In a program of HIP's they are inside of calls of HIP, or of threads of the runtime.
        let both = format!("{HIP},{HSA}");
        let mut outcome = scene.run(loader, "basic", &[], &[("WATCH_KINDS", &both)]);
        outcome.expect_every_call("hip", &[]);
        let of_hsa = outcome.calls.iter().filter(|call| call.name.starts_with("hsa"));
        assert!(of_hsa.count() > 10, "{:#?}", outcome.calls);
    }
}

/// What is done for a call has its id: that of the innermost call that is recorded.
///
/// Not of `storm`, which destroys streams that are at work: HIP 5.2.3 may crash then with any tracer of its calls
/// (docs/decisions/0033).
#[test]
fn rocm_work_has_the_ids_of_calls() {
    let Some(scene) = scene() else { return };
    // HIP fills memory, and copies rectangles, by kernels of its own.
    let of_hip = (&["Launch", "hipMem"][..], "hipMemcpy");
    let of_hsa = (&["hsa_signal_store"][..], "hsa_amd_memory_async_copy");
    for (kinds, (launches, copies)) in [(HIP, of_hip), (&format!("{HIP},{HSA}"), of_hsa)] {
        let words = [("WATCH_KINDS", &*format!("{kinds},{KERNELS},{COPIES}"))];
        for (program, arguments) in
            [("basic", &[][..]), ("copies", &["512"]), ("graph", &["20"]), ("module", &[])]
        {
            let outcome = scene.run("LD_PRELOAD", program, arguments, &words);
            assert_eq!(outcome.kernels.len(), outcome.did("dispatch").len());
            assert_eq!(outcome.copies.len(), outcome.did("copy").len());
            let calls: BTreeMap<u64, &Call> =
                outcome.calls.iter().map(|call| (call.correlation_id, call)).collect();
            let expect = |id, thread, names: &[&str]| {
                let call = calls.get(&id).unwrap_or_else(|| panic!("no call {id}, of {names:?}"));
                let is_one = names.iter().any(|name| call.name.contains(name));
                assert!(is_one && call.thread == thread, "{program}, {names:?}: {call:?}");
            };
            for kernel in &outcome.kernels {
                expect(kernel.correlation_id, kernel.thread, launches);
            }
            for copy in &outcome.copies {
                expect(copy.correlation_id, copy.thread, &[copies]);
            }
        }
    }
}

/// One record for each id, when its call has returned and all work that it enqueued is recorded: for work alone, for calls
/// alone, and for both.
#[test]
fn rocm_ids_are_retired_when_nothing_of_them_is_under_way() {
    let Some(scene) = scene() else { return };
    let work = format!("{KERNELS},{COPIES}");
    let calls = format!("{HIP},{HSA}");
    for loader in LOADERS {
        for kinds in [&*work, &calls, &format!("{HIP},{work}"), &format!("{calls},{work}")] {
            let words = [("WATCH_KINDS", &*format!("{RETIREMENTS},{kinds}"))];
            for (program, arguments) in
                [("basic", &[][..]), ("copies", &["512"]), ("graph", &["20"]), ("module", &[])]
            {
                let outcome = scene.run(loader, program, arguments, &words);
                outcome.expect_retirements();
                assert_eq!(outcome.dropped, 0);
            }
        }
    }
}

/// Also those of calls that callbacks are told of, and of which there is no record: behind the end of the call.
#[test]
fn rocm_ids_of_calls_that_only_callbacks_are_told_of_are_retired() {
    let Some(scene) = scene() else { return };
    let both = format!("{HIP},{HSA}");
    let work = format!("{RETIREMENTS},{KERNELS},{COPIES}");
    for loader in LOADERS {
        for (kinds, callbacks) in [(RETIREMENTS, HIP), (RETIREMENTS, &both), (&work, &both)] {
            let words = [("WATCH_KINDS", kinds), ("WATCH_CALLBACKS", callbacks)];
            for (program, arguments) in [("basic", &[][..]), ("copies", &["512"]), ("module", &[])]
            {
                let outcome = scene.run(loader, program, arguments, &words);
                assert!(outcome.told.len() > 10, "{:#?}", outcome.told);
                outcome.expect_retirements();
                assert_eq!((outcome.dropped, outcome.calls.len()), (0, 0));
            }
        }
    }
}

/// Threads that share queues find each other's packets.
#[test]
fn rocm_ids_of_many_threads_are_retired() {
    let Some(scene) = scene() else { return };
    let slow = [("WATCH_BYTES", "4096"), ("WATCH_SLOW_US", "100")];
    for words in [&[][..], &slow] {
        let kinds = format!("{RETIREMENTS},{KERNELS},{COPIES}");
        let words = [words, &[("WATCH_KINDS", &*kinds)]].concat();
        let mut outcome = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &words);
        outcome.expect_all_kernels();
        outcome.expect_retirements();
        assert_eq!(outcome.dropped, 0);
    }
}

/// "rocprofiler_flush_buffer": with the records of work that was under way come the retirements of their ids.
#[test]
fn rocm_a_flush_has_the_retirements_of_what_was_enqueued() {
    let Some(scene) = scene() else { return };
    let go = scene.file("go");
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("loop"));
    command.args(["0", "2", "300"]).env("WATCH_GO", &go);
    command.env("WATCH_KINDS", format!("{RETIREMENTS},{KERNELS}"));
    let mut running = scene.there(command).spawn().expect("it begins");
    let mut said = BufReader::new(running.stdout.take().expect("its output"));
    said.read_line(&mut String::new()).expect("text");
    let told = || -> String {
        let texts = scene.told().into_iter().map(std::fs::read_to_string);
        texts.map(|text| text.expect("what was told")).collect()
    };
    for round in 1..=5 {
        let before = told().matches("kernel ").count();
        std::fs::write(&go, "").expect("written");
        wait_until("kernels are recorded", || told().matches("kernel ").count() > before + 100);
        std::fs::remove_file(&go).expect("removed");
        wait_until("the context is stopped", || told().matches("stopped").count() == round);
        let told = told();
        let count = |word| told.lines().filter(|line| line.starts_with(word)).count();
        assert_eq!(count("kernel "), count("retired "), "{told}");
    }
    send(running.id());
    assert!(running.wait().expect("it ends").success());
    scene.outcome().expect_retirements();
}

/// Callbacks are told of each call that is recorded, with the same ids, at its begin and at its end.
#[test]
fn rocm_callbacks_of_every_call() {
    let Some(scene) = scene() else { return };
    let words = [("WATCH_KINDS", HIP), ("WATCH_CALLBACKS", HIP)];
    for loader in LOADERS {
        for (program, arguments) in
            [("basic", &[][..]), ("copies", &["512"]), ("module", &[]), ("graph", &["20"])]
        {
            let mut outcome = scene.run(loader, program, arguments, &words);
            outcome.expect_every_call("hip", &[]);
            outcome.expect_all_told();
        }
        let words = [("WATCH_KINDS", HSA), ("WATCH_CALLBACKS", HSA)];
        let mut outcome = scene.run(loader, "hsa_direct", &[], &words);
        outcome.expect_every_call("hsa", &["hsa_init"]);
        outcome.expect_all_told();
    }
    // Threads, and calls of HSA inside of those of HIP.
    let both = format!("{HIP},{HSA}");
    let words = [("WATCH_KINDS", &*both), ("WATCH_CALLBACKS", &both)];
    let mut outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
    outcome.expect_every_call("hip", &[]);
    outcome.expect_all_told();
    let words = [("WATCH_CALLBACKS", HIP)];
    let outcome = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &words);
    let launches = outcome.told.values().filter(|told| told.name == "hipLaunchKernel").count();
    assert!(launches >= 8 * 4 * 300 && outcome.told.values().all(|told| told.exits), "{launches}");
    assert_eq!(outcome.kernels.len(), outcome.did("dispatch").len());
}

/// Arguments and results are those by which the GPU worked.
#[test]
fn rocm_arguments_of_calls() {
    let Some(scene) = scene() else { return };
    let both = format!("{HIP},{HSA}");
    let words = [("WATCH_CALLBACKS", &*both)];
    let outcome = scene.run("LD_PRELOAD", "copies", &["512"], &words);
    let mut sizes: Vec<String> = outcome.copies.iter().map(|copy| copy.bytes.to_string()).collect();
    let of = |name| outcome.told.values().filter(move |told| told.name == name);
    for name in ["hsa_amd_memory_async_copy", "hsa_amd_memory_async_copy_on_engine"] {
        for told in of(name) {
            let size = &told.arguments["size"];
            let at = sizes.iter().position(|one| one == size);
            sizes.remove(at.unwrap_or_else(|| panic!("{told:?}: {sizes:?}")));
            assert_eq!(told.result, 0, "{told:?}");
        }
    }
    assert_eq!(sizes.len(), of("hsa_amd_memory_async_copy_rect").count(), "{sizes:?}");
    // What HIP allocates, and the program's size: 512 KiB and 5 bytes.
    assert_eq!(outcome.arguments("hipMalloc", "size"), ["524293", "524293"]);
    let pinned = outcome.arguments("hipHostMalloc", "size");
    assert_eq!(pinned, ["524293", "524293"]);
    let outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
    let grid = 100_000_u32.div_ceil(256);
    let numbers = format!("{{z=1, y=1, x={grid}}}");
    assert_eq!(outcome.arguments("hipLaunchKernel", "numBlocks"), [&*numbers; 3]);
    assert_eq!(outcome.arguments("hipLaunchKernel", "dimBlocks"), ["{z=1, y=1, x=256}"; 3]);
    assert_eq!(outcome.arguments("__hipPushCallConfiguration", "gridDim"), [&*numbers; 3]);
    assert_eq!(outcome.arguments("hipMemcpy", "sizeBytes"), ["400000"; 4]);
    assert_eq!(outcome.arguments("hipMemcpy", "kind"), ["1", "2", "2", "3"]);
    assert_eq!(outcome.arguments("hipMemset", "value"), ["90"]);
    let files = scene.run("LD_PRELOAD", "module", &[], &words);
    let modules = files.arguments("hipModuleLoad", "fname");
    assert!(modules.iter().all(|file| file.contains("module_")), "{modules:?}");
}

/// A callback that calls HIP is not called for that; the call is recorded.
#[test]
fn rocm_callbacks_that_call_hip() {
    let Some(scene) = scene() else { return };
    let words = [("WATCH_KINDS", "5"), ("WATCH_CALLBACKS", "5"), ("WATCH_CALLS", "1")];
    let outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
    let of = |name: &str| outcome.told.values().filter(|told| told.name == name).count();
    let recorded = outcome.calls.iter().filter(|call| call.name == "hipGetDevice").count();
    assert_eq!(recorded, of("hipGetDevice") + 2 * outcome.told.len());
    assert_eq!(of("hipMemcpy"), 4);
}

/// A context that is stopped in a callback: the program goes on, and no other callback is called.
#[test]
fn rocm_a_callback_that_stops_its_context() {
    let Some(scene) = scene() else { return };
    for kinds in [HIP, HSA] {
        let words = [("WATCH_KINDS", kinds), ("WATCH_CALLBACKS", kinds), ("WATCH_STOPS", "5")];
        let outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
        let begun: Vec<u64> = outcome.told.keys().copied().collect();
        assert_eq!(begun, [1, 2, 3, 4, 5], "{:#?}", outcome.told);
        assert!(outcome.calls.len() <= 5, "{:#?}", outcome.calls);
    }
}

/// "kernel_id": the names of kernels are those of code objects.
#[test]
fn rocm_code_objects_name_kernels() {
    let Some(scene) = scene() else { return };
    let words = [("WATCH_KINDS", KERNELS), ("WATCH_CALLBACKS", CODE_OBJECTS)];
    for loader in LOADERS {
        for (program, arguments) in [
            ("basic", &[][..]),
            ("module", &[]),
            ("graph", &["20"]),
            ("hsa_direct", &[]),
            ("storm", &["8", "4", "300"]),
        ] {
            let mut outcome = scene.run(loader, program, arguments, &words);
            outcome.expect_names();
            // Those of `hsa_direct` come and go with queues of the same number.
            if program != "hsa_direct" {
                // One id is of one kernel, by when it ran.
                outcome.expect_all_kernels();
            }
            let known = outcome.symbols.values().filter(|symbol| symbol.vector_registers > 0);
            assert_eq!(known.count(), outcome.symbols.len(), "{program}: {:#?}", outcome.symbols);
        }
    }
    // With callbacks of the calls that load them.
    let callbacks = format!("{CODE_OBJECTS},{HSA}");
    let words = [("WATCH_KINDS", KERNELS), ("WATCH_CALLBACKS", &*callbacks)];
    scene.run("LD_PRELOAD", "module", &[], &words).expect_names();
}

/// A context that starts when code objects are loaded is told of them then, and once.
#[test]
fn rocm_code_objects_that_are_there() {
    let Some(scene) = scene() else { return };
    let go = scene.file("go");
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("loop"));
    command.args(["0", "2", "300"]).env("WATCH_GO", &go).env("WATCH_BYTES", "4096");
    command.env("WATCH_KINDS", KERNELS).env("WATCH_CALLBACKS", CODE_OBJECTS);
    let mut running = scene.there(command).spawn().expect("it begins");
    let mut said = BufReader::new(running.stdout.take().expect("its output"));
    let mut ready = String::new();
    said.read_line(&mut ready).expect("text");
    let told = || -> String {
        let texts = scene.told().into_iter().map(std::fs::read_to_string);
        texts.map(|text| text.expect("what was told")).collect()
    };
    for round in 1..=2 {
        let before = told().matches("\nkernel ").count();
        std::fs::write(&go, "").expect("written");
        wait_until("kernels are recorded", || told().matches("\nkernel ").count() > before + 100);
        std::fs::remove_file(&go).expect("removed");
        wait_until("the context is stopped", || told().matches("stopped").count() == round);
    }
    send(running.id());
    assert!(running.wait().expect("it ends").success());
    let outcome = scene.outcome();
    let ran: BTreeSet<u64> = outcome.kernels.iter().map(|kernel| kernel.kernel).collect();
    let did = outcome.did("dispatch");
    let did: BTreeSet<&str> = did.iter().map(|operation| operation.name.as_str()).collect();
    for kernel in ran {
        assert!(did.contains(outcome.symbols[&kernel].name.as_str()), "{:?}", outcome.symbols);
    }
}

/// Callbacks that throw, end their thread, stop contexts, give ids; several contexts at once; types of the headers.
#[test]
fn rocm_callbacks_that_do_as_they_like() {
    let Some(scene) = scene() else { return };
    scene.run_client("callbacks");
}

/// Both are told of every call, with the same ids.
#[test]
fn rocm_two_tools_with_callbacks() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.apps.join("basic"));
    let tools =
        ["libwatches.so", "libsecond.so"].map(|name| scene.file(name).display().to_string());
    command.env("ROCP_TOOL_LIBRARIES", tools.join(":"));
    command.envs([("WATCH_KINDS", HIP), ("WATCH_CALLBACKS", HIP)]);
    let output = scene.there(command).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = std::fs::read_dir(scene.clients.directory()).expect("a directory");
    let mut paths = files.map(|file| file.expect("a file").path());
    let is_of_second = |path: &PathBuf| path.file_stem() == Some("told-second".as_ref());
    let second = paths.find(is_of_second).expect("the other one's");
    let second = std::fs::read_to_string(second).expect("what was told");
    let first = scene.outcome();
    first.expect_all_told();
    assert!(second.ends_with("end\n"), "{second}");
    for word in ["enter ", "exit "] {
        let lines = second.lines().filter_map(|line| line.strip_prefix(word));
        let ids = lines.map(|line| line.split(' ').nth(2).expect("an id").parse().expect("one"));
        let ids: BTreeSet<u64> = ids.collect();
        assert!(
            ids.into_iter().eq(first.told.values().map(|told| told.correlation_id)),
            "{second}"
        );
    }
}

#[test]
fn rocm_functions_that_are_not_asked_for() {
    let Some(scene) = scene() else { return };
    let malloc = number("hipMalloc");
    let words = [("WATCH_KINDS", "5"), ("WATCH_CALLBACKS", "5"), ("WATCH_OPERATION", &malloc)];
    let outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
    assert!(outcome.calls.iter().all(|call| call.name == "hipMalloc"), "{:#?}", outcome.calls);
    assert_eq!(outcome.calls.len() as u64, outcome.counts["hipMalloc"]);
    outcome.expect_all_told();
}

/// From eight threads, with a slow callback: as of kernels.
#[test]
fn rocm_policies_of_buffers_of_calls() {
    let Some(scene) = scene() else { return };
    let slow = [("WATCH_KINDS", HIP), ("WATCH_BYTES", "4096"), ("WATCH_SLOW_US", "500")];
    let mut outcome = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &slow);
    outcome.expect_every_call("hip", &[]);
    assert_eq!(outcome.dropped, 0);
    let words = [&slow[..], &[("WATCH_DISCARD", "1")]].concat();
    let discarded = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &words);
    assert!(discarded.dropped > 0, "the buffer was never full");
    assert_eq!(discarded.calls.len() as u64 + discarded.dropped, outcome.calls.len() as u64);
}

/// A tool whose callback never returns holds up no other one's.
#[test]
fn rocm_a_tool_that_is_stuck_beside_one_that_is_not() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.apps.join("storm"));
    let tools = ["libstuck.so", "libwatches.so"].map(|name| scene.file(name).display().to_string());
    command.args(["2", "2", "2000"]).env("ROCP_TOOL_LIBRARIES", tools.join(":"));
    let kinds = format!("{KERNELS},{RETIREMENTS}");
    command.envs([("WATCH_THREAD", "1"), ("WATCH_KINDS", &*kinds)]);
    let output = scene.there(command).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors.matches("the callback of a buffer has not returned").count(), 1, "{errors}");
    let mut outcome = scene.outcome();
    outcome.expect_all_kernels();
    outcome.expect_retirements();
    assert_eq!(outcome.dropped, 0);
}

/// The library of roctx, of which a program that uses `libroctx64` calls the functions when it is preloaded.
#[test]
fn rocm_marks_and_ranges_around_kernels() {
    let Some(scene) = scene() else { return };
    let roctx = scene.file(ROCPROFILER_SDK_ROCTX.soname);
    for loader in LOADERS {
        let mut command = scene.command(loader, &scene.apps.join("ranges"));
        let tool = (loader == "LD_PRELOAD").then(|| format!("{}:", scene.tool.display()));
        let preloaded = format!("{}{}", tool.unwrap_or_default(), roctx.display());
        command.arg("20").env("LD_PRELOAD", preloaded);
        command.env("WATCH_KINDS", format!("{RETIREMENTS},{ROCTX},{HIP},{KERNELS}"));
        let mut outcome = scene.run_command(command);
        outcome.expect_every_call("roctx", &[]);
        outcome.expect_every_call("hip", &[]);
        outcome.expect_retirements();
        assert_eq!(outcome.kernels.len(), outcome.did("dispatch").len());
        let launches: BTreeSet<u64> = outcome.kernels.iter().map(|k| k.correlation_id).collect();
        let marks = outcome.calls.iter().filter(|call| call.name.starts_with("roctx"));
        assert!(marks.clone().count() > 100);
        for mark in marks {
            assert!(!launches.contains(&mark.correlation_id), "it launches nothing: {mark:?}");
        }
    }
}

/// A runtime loads the library behind the first calls of roctx, which are not recorded: later ones are.
#[test]
fn rocm_calls_of_roctx_before_the_runtime_begins() {
    let Some(scene) = scene() else { return };
    let program = scene.file("marks");
    let mut compiler = Language::C.compiler().expect("a compiler");
    compiler.arg("-DWITH_HSA").arg("-o").args([&program, &scene.clients.source("marks.c")]);
    compiler.arg(scene.file(ROCPROFILER_SDK_ROCTX.soname));
    if scene.inside.is_some() {
        compiler.arg("-Wl,--no-as-needed").arg("-L").arg(&scene.gpu).arg("-lemulated_gpu_driver");
    }
    // The runtime needs libraries that are where it is.
    compiler.args(["-Wl,--allow-shlib-undefined", "-lhsa-runtime64"]);
    succeed(&mut compiler).expect("the program");
    for loader in LOADERS {
        let mut command = scene.command(loader, &program);
        command.env("WATCH_KINDS", format!("{RETIREMENTS},{ROCTX}"));
        let mut outcome = scene.run_command(command);
        if loader == "LD_PRELOAD" {
            for name in ["roctxMarkA", "roctxRangePushA", "roctxRangePop"] {
                *outcome.counts.get_mut(name).expect("counted") += 1;
            }
        }
        outcome.expect_every_call("roctx", &[]);
        outcome.expect_retirements();
        assert_eq!((outcome.dropped, outcome.kernels.len()), (0, 0));
    }
}

/// The example of docs/rocprofiler-sdk.md.
#[test]
fn rocm_the_tool_of_the_page() {
    let Some(scene) = scene() else { return };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rocprofiler-sdk.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, source) = page.split_once("```cpp\n").expect("an example");
    let (source, _) = source.split_once("```").expect("its end");
    let (file, tool) = (scene.file("mytool.cpp"), scene.file("libmytool.so"));
    std::fs::write(&file, source).expect("written");
    let mut compiler = Language::Cpp.compiler().expect("a compiler");
    compiler.args(["-shared", "-fPIC", "-o"]).args([&tool, &file]);
    compiler.arg("-I").arg(include_directory().expect("headers"));
    compiler.arg("-L").arg(scene.clients.directory()).arg("-lrocprofiler-sdk");
    succeed(&mut compiler).expect("it compiles");
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("basic"));
    command.env("LD_PRELOAD", &tool);
    let output = scene.there(command).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let did = scene.outcome().did("dispatch").len();
    assert!(did > 0);
    assert_eq!(said.lines().filter(|line| line.starts_with("kernel ")).count(), did, "{said}");
}
