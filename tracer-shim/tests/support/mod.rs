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
pub use memory::DEADLINE;
use memory::Recording;

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

/// What `cargo xtask test` has built and says in the environment; none without that.
pub fn setup() -> Option<&'static Setup> {
    static SETUP: OnceLock<Option<Setup>> = OnceLock::new();
    SETUP.get_or_init(prepare).as_ref()
}

fn prepare() -> Option<Setup> {
    let built = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(apps), Some(library_dir)) = (built("ROCTAP_TEST_APPS"), built("ROCTAP_TEST_GPU"))
    else {
        eprintln!("skipped: `cargo xtask test` builds the programs and the emulated GPU");
        return None;
    };
    let exe = std::env::current_exe().expect("own path");
    let shim = exe.with_file_name("libroctap_shim.so");
    assert!(shim.exists(), "{} is missing", shim.display());
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shim");
    std::fs::create_dir_all(&logs).expect("log directory");
    let agent = logs.join("agent.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/agent.c");
    // Under another name until it is whole: somebody may have the one of before mapped.
    let new = agent.with_extension(std::process::id().to_string());
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-pthread", "-o"])
        .args([&new, &source])
        .arg("-ldl")
        .status()
        .expect("cc");
    assert!(compiled.success(), "the agent does not build");
    std::fs::rename(&new, &agent).expect("renamed");
    Some(Setup { apps, library_dir, shim, agent, logs })
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
    /// A log file for `name`, empty: tests that run at once have other names.
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

/// Asks a program to end well, as `hsa_direct s` and `loop` do.
pub fn terminate(child: &Child) {
    // SAFETY: a signal to a child that was not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
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
