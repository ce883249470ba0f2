//! What the end-to-end tests share: running programs under `roctap record` on the emulated GPU, and
//! reading what came of it.
//!
//! The tests are named `root_…` and run by `cargo xtask test`, which builds everything and says in
//! the environment where it is. Nothing here skips: without that environment they fail.

pub mod cgroup;
pub mod compare;
pub mod frozen;
pub mod remains;
pub mod stopped;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt::Debug,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::{LazyLock, mpsc::RecvTimeoutError},
    time::{Duration, Instant},
};

pub use emulated_gpu::truth::{self, Operation};
use roctap::trace::{Reading, Trace, lookup::Tables};
pub use rustix::process::Signal;
use rustix::{fs::OFlags, process::Pid};
use tracer_records::{
    api::is_called_by_compiler,
    model::{ApiCall, Copy, Dispatch, Event},
};

/// Longest time that anything here may take.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// Options for targets that call or launch without a pause: they fill rings of the default size, those of the CPUs in
/// half a second, while a machine keeps the reader waiting.
pub const LARGE_RINGS: [&str; 4] = ["--shim-ring-bytes", "33554432", "--ring-bytes", "134217728"];

/// Times of the GPU may not be told to be off by more, ns: a clock whose reading was disturbed is read again. Where the
/// machine is busy the last reading may be disturbed, too, by some slices of time that other threads get: of 3 ms each.
/// An emulated CPU may stand still in each reading, while the machine below serves others.
static MOST_CLOCK_ERROR_NS: LazyLock<u64> = LazyLock::new(|| {
    let cpus = fs::read_to_string("/proc/cpuinfo").expect("cpuinfo");
    if cpus.contains("QEMU TCG") { 1_000_000_000 } else { 20_000_000 }
});

/// A line that the runtime of ROCm 7 writes at the end of a program, untraced too.
const OF_THE_RUNTIME: &str = "Warning: Resource leak detected by SharedSignalPool";

fn built(variable: &str) -> PathBuf {
    std::env::var_os(variable)
        .map(PathBuf::from)
        .unwrap_or_else(|| panic!("{variable} is not set: run these tests with `cargo xtask test`"))
}

/// Compiles to a file that several tests use: under another name until it is whole, since one may be using it just now.
pub fn compile(compiler: &mut Command, to: &Path) {
    let mut new = to.to_owned().into_os_string();
    new.push(format!(".{}", std::process::id()));
    assert!(compiler.arg("-o").arg(&new).status().expect("a compiler").success(), "{compiler:?}");
    std::fs::rename(new, to).expect("renamed");
}

/// A test program of `tests/apps`.
pub fn app(name: &str) -> PathBuf {
    built("ROCTAP_TEST_APPS").join(name)
}

/// The program that is tested.
pub fn roctap_bin() -> PathBuf {
    built("ROCTAP_BIN")
}

/// The release of ROCm that the programs run on, where it is not this machine's own: `6.4`.
pub fn release() -> Option<String> {
    std::env::var("ROCTAP_TEST_ROCM").ok()
}

/// Whether the programs run on ROCm 6 or later. HIP has dispatch tables there, through which the shim records its
/// calls. And the HSA runtime makes its own by code, when it is loaded: before that nobody can tell where its functions
/// are.
pub fn is_rocm_6_or_later() -> bool {
    release().is_some_and(|release| release != "5.7")
}

/// How often the runtime calls a function of itself through its tables, while it is initialized, beside
/// what the program calls.
pub fn calls_of_the_runtime(function: &str) -> u64 {
    let own = ["hsa_signal_create", "hsa_signal_wait_scacquire", "hsa_signal_destroy"];
    u64::from(release().is_some() && own.contains(&function))
}

/// How often what is tried many times is tried: `ROCTAP_STRESS` says otherwise.
pub fn times(few: usize) -> usize {
    std::env::var("ROCTAP_STRESS").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

/// A place for one test's files, and the environment of its programs.
pub struct Scene {
    directory: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

impl Default for Scene {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Scene {
    /// A scene whose emulated GPU has the given settings.
    pub fn new(settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let environment = settings.iter().copied().map(own).collect();
        Self { directory, environment }
    }

    /// Gives the scene's directory to a user, whose programs can then write there.
    pub fn give_to(&self, user: u32) {
        std::os::unix::fs::chown(self.directory.path(), Some(user), Some(user)).expect("chown");
    }

    /// A file of the scene.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The trace file that [`Scene::record`] writes.
    pub fn trace_path(&self) -> PathBuf {
        self.path("test.rtrace")
    }

    /// A program in the scene's environment: the emulated GPU, its log, no standard input.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", built("ROCTAP_TEST_GPU"))
            .env("EMUGPU_LOG", self.path("truth"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        end_with_the_test(&mut command);
        command
    }

    /// `roctap` with arguments.
    pub fn roctap(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(roctap_bin());
        command.args(arguments);
        command
    }

    /// `roctap record OPTIONS -o TRACE`, to which the rest can be added.
    pub fn record(&self, options: &[&str]) -> Command {
        let mut command = self.roctap(&["record"]);
        command.args(options).arg("-o").arg(self.trace_path());
        command
    }

    /// `roctap record OPTIONS -o TRACE -- PROGRAM ARGUMENTS` of a test program.
    pub fn recording(&self, options: &[&str], name: &str, arguments: &[&str]) -> Command {
        let mut command = self.record(options);
        command.arg("--").arg(app(name)).args(arguments);
        command
    }

    /// Records a test program.
    pub fn record_app(&self, options: &[&str], name: &str, arguments: &[&str]) -> Ran {
        run(&mut self.recording(options, name, arguments))
    }

    /// Reads the trace.
    pub fn trace(&self) -> Recorded {
        Recorded::read(&self.trace_path())
    }

    /// Reads the trace while it is being written, up to its last whole chunk. There is none before the
    /// recording has attached to all that it was told to, or its command runs.
    pub fn trace_so_far(&self) -> Option<Recorded> {
        Recorded::read_so_far(&self.trace_path())
    }

    /// Waits until the trace that is being written has enough.
    pub fn wait_for_trace(&self, what: &str, enough: impl Fn(&Recorded) -> bool) {
        wait_until(what, || self.trace_so_far().is_some_and(|trace| enough(&trace)));
    }

    /// Waits until a kernel of process `pid` is in the trace. Calls alone are recorded while the shim is
    /// still being put in.
    pub fn wait_for_a_kernel_of(&self, pid: u32) {
        self.wait_for_trace("a kernel is recorded", |trace| trace.kernels_of(pid) > 0);
    }

    /// Runs a recording until its trace has enough, and ends it as Ctrl-C does; or to its own end, if that
    /// comes first.
    pub fn record_until(
        &self,
        record: &mut Command,
        what: &str,
        enough: impl Fn(&Recorded) -> bool,
    ) -> Ran {
        // That of the recording before.
        let _ = std::fs::remove_file(self.trace_path());
        let mut recording = Running::spawn(record);
        let mut ended = false;
        wait_until(what, || {
            ended = recording.child.try_wait().expect("status").is_some();
            ended || self.trace_so_far().is_some_and(|trace| enough(&trace))
        });
        if !ended {
            send_signal(recording.pid(), Signal::INT);
        }
        recording.ended()
    }

    /// The same, until it has `count` kernels of each of these processes.
    pub fn record_kernels(&self, record: &mut Command, pids: &[u32], count: usize) -> Ran {
        self.record_until(record, "kernels are recorded", |trace| {
            pids.iter().all(|&pid| trace.kernels_of(pid) >= count)
        })
    }

    /// What the emulated GPU did; nothing before it has begun to.
    pub fn truth(&self) -> Vec<Operation> {
        let log = self.path("truth");
        if log.exists() { truth::read(&log).expect("ground truth") } else { Vec::new() }
    }

    /// Waits until the GPU has run so many kernels in all.
    pub fn wait_for_dispatches(&self, count: usize) {
        wait_until("the GPU runs kernels", || self.true_dispatches().len() >= count);
    }

    /// The dispatches that a tracer can see: not those of the runtime's own queues.
    pub fn true_dispatches(&self) -> Vec<Operation> {
        const INTERNAL: [&str; 3] = ["CopyAligned", "CopyMisaligned", "Fill"];
        let mut all = self.truth();
        all.retain(|o| o.kind == "dispatch" && !INTERNAL.contains(&o.name.as_str()));
        all
    }
}

/// Has a program be killed when the thread that starts it has ended: a test that fails leaves no recording
/// behind, which would attach to the programs of the next one.
#[expect(unsafe_code, reason = "a step between fork and exec")]
fn end_with_the_test(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    let step = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: it makes one system call.
    unsafe { command.pre_exec(step) };
}

/// How a program ended.
#[derive(Debug)]
pub struct Ran {
    /// Exit status, none when killed by a signal.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// Asserts the exit status, and that the program found its data right.
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.stdout.contains("FAILED"), "{self:#?}");
        self
    }

    /// Asserts one line on standard error that contains all of `parts`.
    pub fn complains(&self, parts: &[&str]) {
        let found = self.stderr.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line has all of {parts:?}: {self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
    }

    /// Asserts that nothing was written to standard error but what the runtime writes.
    pub fn expect_quiet(&self) {
        let ours = self.stderr.lines().find(|line| !line.starts_with(OF_THE_RUNTIME));
        assert_eq!(ours, None, "{self:#?}");
    }

    /// The `count`s that the program printed, by function, without those of [`Self::by_compiler`].
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts_of(|function| !is_called_by_compiler(function))
    }

    /// The `count`s of calls that the compiler put in, which are not recorded by default.
    pub fn by_compiler(&self) -> BTreeMap<String, u64> {
        self.counts_of(is_called_by_compiler)
    }

    fn counts_of(&self, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, u64> {
        let mut counts = self.table("count");
        counts.retain(|function, _| wanted(function));
        counts
    }

    /// The `launches` that the program printed, by kernel symbol.
    pub fn launches(&self) -> BTreeMap<String, u64> {
        self.table("launches")
    }

    fn table(&self, word: &str) -> BTreeMap<String, u64> {
        let mut table = BTreeMap::new();
        for line in self.stdout.lines() {
            let mut words = line.split_whitespace();
            if words.next() == Some(word)
                && let (Some(name), Some(count)) = (words.next(), words.next())
            {
                *table.entry(name.to_owned()).or_default() += count.parse().unwrap_or(0);
            }
        }
        table
    }
}

/// Runs a command to its end, within the deadline.
pub fn run(command: &mut Command) -> Ran {
    let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    output_of(child)
}

/// Waits until a process and whoever has its output have ended, within the deadline.
fn output_of(child: Child) -> Ran {
    within_deadline(child.id(), || child.wait_with_output()).expect("output").into()
}

/// Waits for what process `pid` does, which is killed with its descendants when it takes too long.
pub fn within_deadline<T>(pid: u32, wait: impl FnOnce() -> T) -> T {
    let (done, deadline) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if deadline.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("process {pid} takes too long, and is killed");
            kill_all_of(pid);
        }
    });
    let result = wait();
    drop(done);
    watch.join().expect("watchdog");
    result
}

/// Kills a process and its descendants.
fn kill_all_of(pid: u32) {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    let children = children.unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).for_each(kill_all_of);
}

/// Waits until `condition` holds. Looking takes no more than half of a CPU.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    loop {
        let look = Instant::now();
        if condition() {
            return;
        }
        assert!(began.elapsed() < DEADLINE, "timed out waiting until {what}");
        std::thread::sleep(look.elapsed().max(Duration::from_millis(5)));
    }
}

/// Waits until `look` sees what is expected.
pub fn wait_for<T: PartialEq + Debug>(what: &str, expected: &T, mut look: impl FnMut() -> T) {
    let (began, mut last) = (Instant::now(), look());
    while last != *expected {
        assert!(began.elapsed() < DEADLINE, "{what}: {last:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(5));
        last = look();
    }
}

/// The child of process `pid`, which has one; beside it roctap has one that reads memory for it.
pub fn only_child(pid: u32) -> u32 {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let reads_memory = |child: &str| {
        let name = std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        name.trim() == "roctap-memory"
    };
    let mut found = None;
    wait_until("it has one child", || {
        let children = std::fs::read_to_string(&path).expect("it lives");
        let mut others = children.split_whitespace().filter(|child| !reads_memory(child));
        found = others.next().filter(|_| others.next().is_none()).map(str::to_owned);
        found.is_some()
    });
    found.and_then(|child| child.parse().ok()).expect("a process id")
}

/// Sends a signal to process `pid`, which lives.
pub fn send_signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("it lives");
}

/// Ends a recording as Ctrl-C does.
pub fn interrupt(recording: Child) -> Ran {
    send_signal(recording.id(), Signal::INT);
    output_of(recording)
}

/// A running test program, killed when dropped.
pub struct Running {
    /// The process.
    pub child: Child,
    /// Its first line, if that was waited for.
    pub ready: String,
    /// Its standard output behind that.
    pub output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a program, whose standard output is a pipe.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("start");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, ready: String::new(), output }
    }

    /// Starts a program, and waits for its first line: `ready`.
    pub fn start(command: &mut Command) -> Self {
        let mut running = Self::spawn(command);
        let Self { child, ready, output } = &mut running;
        within_deadline(child.id(), || output.read_line(ready)).expect("output");
        assert!(running.ready.starts_with("ready"), "{:?} is no readiness", running.ready);
        running
    }

    /// Starts a program without HIP, which starts quickly: one doorbell and one kernel after the other, until
    /// it is told to end. Waits until it does so.
    pub fn ringing(scene: &Scene) -> Self {
        Self::ringing_by(scene, &mut scene.command(app("hsa_direct")))
    }

    /// The same, the program being started by `command`.
    pub fn ringing_by(scene: &Scene, command: &mut Command) -> Self {
        let running = Self::spawn(command.args(["s", "1000000000"]));
        scene.wait_for_dispatches(10);
        running
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it by SIGTERM, which test programs expect.
    pub fn end(self) -> Ran {
        send_signal(self.pid(), Signal::TERM);
        self.ended()
    }

    /// Waits for its end. What it wrote is without that line.
    pub fn ended(mut self) -> Ran {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let Self { child, output, .. } = &mut self;
        let status = within_deadline(child.id(), || {
            output.read_to_string(&mut stdout).expect("output");
            if let Some(mut errors) = child.stderr.take() {
                errors.read_to_string(&mut stderr).expect("errors");
            }
            child.wait().expect("status")
        });
        Ran { code: status.code(), signal: status.signal(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Not of a test that went well: it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking()
            && let Some(mut errors) = self.child.stderr.take()
        {
            // What it said may tell why the test failed. Its children may still have the pipe.
            let mut said = Vec::new();
            let flags = rustix::fs::fcntl_getfl(&errors).unwrap_or(OFlags::empty());
            if rustix::fs::fcntl_setfl(&errors, flags | OFlags::NONBLOCK).is_ok() {
                let _ = errors.read_to_end(&mut said);
            }
            eprintln!("process {} said:\n{}", self.child.id(), String::from_utf8_lossy(&said));
        }
    }
}

/// A trace, read.
pub struct Recorded {
    /// The side tables and how whole the file is.
    pub reading: Reading,
    /// API calls.
    pub calls: Vec<ApiCall>,
    /// Dispatches.
    pub dispatches: Vec<Dispatch>,
    /// Copies.
    pub copies: Vec<Copy>,
    /// Barriers.
    pub barriers: usize,
}

impl Recorded {
    /// Reads the trace at `path`.
    pub fn read(path: &Path) -> Self {
        Self::of(&Trace::open(path).expect("trace"))
    }

    /// Reads the trace at `path` while it is being written, if it has begun.
    pub fn read_so_far(path: &Path) -> Option<Self> {
        let recorded = Self::of(&Trace::open(path).ok()?);
        (recorded.reading.status.chunks > 0).then_some(recorded)
    }

    fn of(trace: &Trace) -> Self {
        let (mut calls, mut dispatches, mut copies, mut barriers) = (vec![], vec![], vec![], 0);
        let reading = trace
            .for_each_event(|event| -> Result<(), std::convert::Infallible> {
                match event {
                    Event::Api(call) => calls.push(*call),
                    Event::Dispatch(dispatch) => dispatches.push(*dispatch),
                    Event::Copy(copy) => copies.push(*copy),
                    Event::Barrier(_) => barriers += 1,
                }
                Ok(())
            })
            .expect("infallible");
        Self { reading, calls, dispatches, copies, barriers }
    }

    /// What process `pid` did.
    pub fn only(mut self, pid: u32) -> Self {
        self.calls.retain(|call| call.record.process_or_device == pid);
        self.dispatches.retain(|dispatch| dispatch.process_id == pid);
        self.copies.retain(|copy| copy.process_id == pid);
        self
    }

    /// How many kernels process `pid` launched.
    pub fn kernels_of(&self, pid: u32) -> usize {
        self.dispatches.iter().filter(|dispatch| dispatch.process_id == pid).count()
    }

    /// By how much times of process `pid` can be off, ns: the trace tells, and it is little.
    pub fn stated_error_ns(&self, pid: u32) -> u64 {
        let error_ns = self.tables().processes[&pid].clock_error_ns;
        let is_bounded = (1..*MOST_CLOCK_ERROR_NS).contains(&error_ns);
        assert!(
            is_bounded,
            "times of process {pid} are told to be off by {error_ns} ns; {} of {} kernels have some",
            self.dispatches.iter().filter(|d| d.process_id == pid && d.record.begin_ns > 0).count(),
            self.kernels_of(pid)
        );
        error_ns
    }

    /// The side tables.
    pub fn tables(&self) -> &Tables {
        &self.reading.tables
    }

    /// A call's function.
    pub fn function(&self, call: &ApiCall) -> String {
        self.tables().operation(call.record.domain.0, call.record.op).into_owned()
    }

    /// A dispatch's raw kernel name.
    pub fn kernel(&self, dispatch: &Dispatch) -> String {
        self.tables().text(dispatch.record.bytes_or_name as u32).into_owned()
    }

    /// Calls by function.
    pub fn call_counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for call in &self.calls {
            *counts.entry(self.function(call)).or_default() += 1;
        }
        counts
    }

    /// What was lost, by cause, zeros left out.
    pub fn losses(&self) -> BTreeMap<String, u64> {
        let mut losses = BTreeMap::new();
        for ((_, cause), &count) in &self.tables().losses {
            if count > 0 {
                *losses.entry(cause.clone()).or_default() += count;
            }
        }
        losses
    }

    /// Asserts that nothing was lost.
    pub fn expect_complete(&self) {
        assert_eq!(self.losses(), BTreeMap::new());
        assert!(self.reading.status.complete && self.reading.damage.is_none());
    }

    /// Asserts that every function that the program counted was called as often as it says, and that each
    /// call was seen from its begin on.
    pub fn expect_counts(&self, ran: &Ran) {
        let without_begin = self.calls.iter().find(|call| call.record.begin_ns == 0);
        assert_eq!(without_begin, None);
        let traced = self.call_counts();
        for (function, count) in ran.counts() {
            if function.starts_with("hip") {
                assert_eq!(traced.get(&function).copied().unwrap_or(0), count, "{function}");
            }
        }
    }

    /// Asserts that the dispatches of the trace are those of the ground truth: each exactly once,
    /// under its name, with start and end within `tolerance_ns` more than the trace tells that they can be off.
    pub fn expect_dispatches(&self, truth: &[Operation], tolerance_ns: u64) {
        // Kernels that overlap can start in the same tick: by name before time.
        let mut expected: Vec<&Operation> = truth.iter().collect();
        expected.sort_by_key(|o| (o.hsa_queue, &o.name, o.start_ns));
        let mut seen: Vec<&Dispatch> = self.dispatches.iter().collect();
        seen.sort_by_cached_key(|d| (d.record.queue_id, self.kernel(d), d.record.begin_ns));
        assert_eq!(seen.len(), expected.len(), "dispatches; lost: {:?}", self.losses());
        for (seen, expected) in seen.into_iter().zip(expected) {
            assert_eq!(Some(seen.record.queue_id), expected.hsa_queue);
            assert_eq!(self.kernel(seen), expected.name);
            let (begin, end) = (seen.record.begin_ns, seen.record.end_ns);
            let tolerance_ns = self.stated_error_ns(seen.process_id) + tolerance_ns;
            let close = begin.abs_diff(expected.start_ns) <= tolerance_ns
                && end.abs_diff(expected.end_ns) <= tolerance_ns;
            assert!(close, "{seen:?} differs from {expected:?} by more than {tolerance_ns} ns");
        }
    }
}
