//! A small `roctap`: makes the shared memory, runs a program of `tests/apps` under the shim on the
//! emulated GPU, drains the rings, and compares with the emulator's ground truth.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(unsafe_code, reason = "maps memory")]

pub mod live;
pub mod memory;
pub mod verify;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use emulated_gpu::child::Child;
use memory::Recording;

const LIBRARY_DIRS: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/opt/rocm/lib", "/usr/lib64"];
/// What is built of `tests/apps`.
const FILES: [&str; 18] = [
    "bench_target",
    "basic",
    "storm",
    "graph",
    "module",
    "module_a.co",
    "module_b.co",
    "copies",
    "callbacks",
    "throwing",
    "fork_exec",
    "loop",
    "nogpu",
    "hsa_direct",
    "libhsa_late.so",
    "libhsa_tool.so",
    "hsa_schedules",
    "plain",
];
/// Longest that a program may run.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Where everything is.
pub struct Setup {
    /// The programs.
    pub apps: PathBuf,
    /// The emulator's `libhsakmt.so.1`.
    pub library_dir: PathBuf,
    /// The shim.
    pub shim: PathBuf,
    /// What attaches the shim from inside of a program; see `agent.c`.
    pub agent: PathBuf,
    logs: PathBuf,
}

/// Builds the programs and places the libraries, once; none without ROCm.
pub fn setup() -> Option<&'static Setup> {
    static SETUP: OnceLock<Option<Setup>> = OnceLock::new();
    SETUP.get_or_init(prepare).as_ref()
}

fn prepare() -> Option<Setup> {
    let installed = |file: &str| LIBRARY_DIRS.iter().any(|d| Path::new(d).join(file).exists());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let hipcc = std::env::split_paths(&path).any(|d| d.join("hipcc").exists());
    if !hipcc || !installed("libamdhip64.so.5") {
        // Only the absence of ROCm is a reason to skip.
        assert!(!hipcc || !installed("libamdhip64.so.5"));
        eprintln!("skipped: hipcc or libamdhip64.so.5 is not installed");
        return None;
    }
    let exe = std::env::current_exe().expect("own path");
    let deps = exe.parent().expect("deps");
    let profile = deps.parent().expect("profile");
    let library = |name: &str| {
        let file = deps.join(name);
        assert!(file.exists(), "{} is missing", file.display());
        file
    };
    let library_dir = profile.join("shim-test-lib");
    std::fs::create_dir_all(&library_dir).expect("library directory");
    let link = library_dir.join("libhsakmt.so.1");
    let _ = std::fs::remove_file(&link);
    // Test programs of this crate run side by side: whoever comes second finds the link.
    let emulator = std::env::var_os("ROCTAP_TEST_HSAKMT")
        .map_or_else(|| library("libemulated_gpu.so"), PathBuf::from);
    let _ = std::os::unix::fs::symlink(emulator, &link);
    let apps = profile.join("shim-test-apps");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/apps");
    let make = Command::new("make")
        .args(["-j2", "-s", "ARCHS=gfx900 gfx90a", "-C"])
        .arg(&source)
        .arg(format!("OUT={}", apps.display()))
        .args(FILES.map(|file| format!("{}/{file}", apps.display())))
        .args(["gfx900", "gfx90a"].map(|a| format!("{}/hsa_kernels.{a}.co", apps.display())))
        .env_remove("LD_LIBRARY_PATH")
        .status()
        .expect("make");
    assert!(make.success(), "the programs do not build");
    let logs = profile.join(format!("shim-test-logs-{}", std::process::id()));
    std::fs::create_dir_all(&logs).expect("log directory");
    let agent = logs.join("agent.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/agent.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-pthread", "-o"])
        .args([&agent, &source])
        .arg("-ldl")
        .status()
        .expect("cc");
    assert!(built.success(), "the agent does not build");
    Some(Setup { apps, library_dir, shim: library("libroctap_shim.so"), agent, logs })
}

/// What a program left behind.
pub struct Outcome {
    /// Its stdout.
    pub report: String,
    /// Its stderr.
    pub errors: String,
    /// What the shim recorded.
    pub trace: memory::Trace,
    /// What the emulated GPU did.
    pub truth: Vec<emulated_gpu::truth::Operation>,
    /// Wall clock of the program.
    pub took: Duration,
}

impl Setup {
    /// A log file for `name`, empty.
    pub fn log(&self, name: &str) -> PathBuf {
        let log = self.logs.join(name);
        let _ = std::fs::remove_file(&log);
        log
    }

    /// The command line `line`, without the shim.
    pub fn command(&self, line: &str, env: &[(&str, &str)], log: &Path) -> Command {
        let mut words = line.split_whitespace();
        let mut command = Command::new(self.apps.join(words.next().expect("a program")));
        command.args(words.map(|word| word.replace("$APPS", &self.apps.display().to_string())));
        command.env("LD_LIBRARY_PATH", &self.library_dir).env("EMUGPU_LOG", log);
        command.envs(env.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The same with the shim, recording into `recording`.
    pub fn traced(
        &self,
        line: &str,
        env: &[(&str, &str)],
        log: &Path,
        recording: &Recording,
    ) -> Command {
        let mut command = self.command(line, env, log);
        command.env("HSA_TOOLS_LIB", &self.shim).env("ROCTAP_SHIM_MEMORY", recording.path());
        command
    }

    /// Runs a program under the shim to its good end.
    pub fn run(&self, name: &str, line: &str, env: &[(&str, &str)]) -> Outcome {
        let recording = Recording::new(64, 1 << 20);
        self.run_in(name, line, env, recording)
    }

    /// The same into a recording of the caller's.
    pub fn run_in(
        &self,
        name: &str,
        line: &str,
        env: &[(&str, &str)],
        recording: Recording,
    ) -> Outcome {
        let log = self.log(name);
        let began = Instant::now();
        let child = start(&mut self.traced(line, env, &log, &recording));
        let (report, errors) = finish(child, line);
        let took = began.elapsed();
        let trace = recording.stop();
        let truth =
            if log.exists() { emulated_gpu::truth::read(&log).expect("log") } else { Vec::new() };
        Outcome { report, errors, trace, truth, took }
    }
}

/// Starts a program.
pub fn start(command: &mut Command) -> Child {
    Child::start(command).expect("start")
}

/// Tries something with kernels `loop_t0` of 3, 12 and 48 seconds until one runs longer than what is done
/// meanwhile, which takes its time where a machine is slow.
pub fn until_it_runs_longer(mut attempt: impl FnMut(&str) -> Option<()>) {
    let mut durations =
        [3, 12, 48].map(|seconds| format!("loop_t0={seconds}000000000")).into_iter();
    assert!(
        durations.any(|durations| attempt(&durations).is_some()),
        "the kernel's end is waited for"
    );
}

/// Waits for a program that must end well; its stdout and stderr.
pub fn finish(mut child: Child, what: &str) -> (String, String) {
    let deadline = Instant::now() + DEADLINE;
    while child.try_wait().expect("wait").is_none() {
        if Instant::now() > deadline {
            let _ = Command::new("sh")
                .args([
                    "-c",
                    &format!("cat /proc/{0}/task/*/stack /proc/{0}/task/*/comm", child.id()),
                ])
                .status();
            if std::env::var_os("ROCTAP_TEST_KEEP").is_some() {
                eprintln!("{what} hangs: pid {}", child.id());
                std::thread::sleep(Duration::from_secs(600));
            }
            panic!("{what} hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let out = child.output().expect("output");
    let report = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        out.status.success() && report.contains("result ok"),
        "{what}: {}\n{report}{errors}",
        out.status
    );
    (report, errors)
}
