//! The real ROCm runtimes and the programs of `tests/apps` on the emulated GPU.
//!
//! Every test is named `rocm_…`. `cargo xtask test` builds what they run; otherwise they say so and run
//! nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use emulated_gpu::child::Child;
use emulated_gpu::truth::{self, Operation};

const DEADLINE: Duration = Duration::from_secs(120);

/// Where the programs and the library are.
struct Setup {
    apps: PathBuf,
    library_dir: PathBuf,
    logs: PathBuf,
}

/// What `cargo xtask test` has built and says in the environment; none without that.
fn setup() -> Option<&'static Setup> {
    static SETUP: OnceLock<Option<Setup>> = OnceLock::new();
    SETUP.get_or_init(prepare).as_ref()
}

fn prepare() -> Option<Setup> {
    let built = |variable| std::env::var_os(variable).map(PathBuf::from);
    let (Some(apps), Some(library_dir)) = (built("ROCTAP_TEST_APPS"), built("ROCTAP_TEST_GPU"))
    else {
        eprintln!("skipped: `cargo xtask test` builds the programs and the library");
        return None;
    };
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulated-gpu");
    std::fs::create_dir_all(&logs).expect("log directory");
    Some(Setup { apps, library_dir, logs })
}

impl Setup {
    fn command(&self, program: &str, args: &[&str], env: &[(&str, &str)], log: &Path) -> Command {
        let mut c = Command::new(self.apps.join(program));
        c.args(args).env("LD_LIBRARY_PATH", &self.library_dir).env("EMUGPU_LOG", log);
        c.envs(env.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        c
    }

    /// A log of its own for each run.
    fn log(&self, test: &str) -> PathBuf {
        let log = self.logs.join(test);
        let _ = std::fs::remove_file(&log);
        log
    }

    /// Runs a program and checks its verdict and its counts against the log.
    fn check(&self, test: &str, line: &str, env: &[(&str, &str)]) -> (String, Vec<Operation>) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let log = self.log(test);
        let child = start(&mut self.command(words[0], &words[1..], env, &log));
        let out = finish(child, line);
        let operations = if log.exists() { truth::read(&log).expect("log") } else { Vec::new() };
        check_times(&operations);
        assert_eq!(launched(&out), dispatched(&operations), "{line} {env:?}");
        (out, operations)
    }
}

/// Starts a program.
fn start(command: &mut Command) -> Child {
    Child::start(command).expect("start")
}

/// Waits for a program that must end well; its output.
fn finish(mut child: Child, what: &str) -> String {
    let deadline = Instant::now() + DEADLINE;
    // Reports are far smaller than a pipe's buffer, so that nobody has to read meanwhile.
    while child.try_wait().expect("wait").is_none() {
        assert!(Instant::now() < deadline, "{what} hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
    let out = child.output().expect("output");
    let (text, errors) =
        (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(
        out.status.success() && text.contains("result ok"),
        "{what}: {}\n{text}{errors}",
        out.status
    );
    text.into_owned()
}

/// Kernels that the programs say they launched.
fn launched(report: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in report.lines() {
        if let ["launches", name, n] = line.split_whitespace().collect::<Vec<_>>()[..] {
            *sums.entry(name.to_owned()).or_default() += n.parse::<u64>().expect("count");
        }
    }
    sums
}

/// Kernels that the emulated GPU ran, without those that the runtimes bring.
fn dispatched(operations: &[Operation]) -> BTreeMap<String, u64> {
    let own = ["CopyAligned", "CopyMisaligned", "Fill"];
    let mut sums = BTreeMap::new();
    for o in operations.iter().filter(|o| o.kind == "dispatch") {
        if !o.name.starts_with("__amd_rocclr_") && !own.contains(&o.name.as_str()) {
            *sums.entry(o.name.clone()).or_default() += 1;
        }
    }
    sums
}

fn check_times(operations: &[Operation]) {
    let mut last = BTreeMap::new();
    for o in operations {
        assert!(o.start_ns <= o.end_ns && o.start_ticks <= o.end_ticks, "{o:?}");
        if o.kind == "copy" {
            let before = last.insert((o.pid, o.queue), o.end_ns).unwrap_or(0);
            assert!(before <= o.start_ns, "copies of a queue overlap: {o:?}");
        }
    }
}

fn bytes_of(operations: &[Operation], name: &str) -> u64 {
    operations.iter().filter(|o| o.name == name).map(|o| o.bytes).sum()
}

fn reported_bytes(report: &str, direction: &str) -> u64 {
    let words = report.lines().find_map(|l| l.strip_prefix(&format!("copies {direction} ")));
    words.and_then(|w| w.split(' ').nth(1)).map_or(0, |n| n.parse().expect("bytes"))
}

const PROGRAMS: [&str; 9] = [
    "basic",
    "graph 50",
    "module 8 20",
    "copies",
    "callbacks 40",
    "throwing",
    "hsa_direct",
    "storm 2 2 200 10",
    "nogpu",
];

#[test]
fn rocm_every_program_runs() {
    let Some(s) = setup() else { return };
    for program in PROGRAMS {
        s.check("programs", program, &[]);
    }
}

#[test]
fn rocm_every_target_runs() {
    let Some(s) = setup() else { return };
    for arch in ["gfx906", "gfx90a", "gfx1030"] {
        for program in ["basic", "graph 20", "module", "copies 5000", "hsa_direct"] {
            s.check("targets", program, &[("EMUGPU_ARCH", arch)]);
        }
    }
}

#[test]
fn rocm_other_settings_run() {
    let Some(s) = setup() else { return };
    let settings: [&[(&str, &str)]; 7] = [
        &[("HSA_ENABLE_SDMA", "0")],
        &[("HSA_ENABLE_INTERRUPT", "0")],
        &[("EMUGPU_LARGE_BAR", "1")],
        &[("EMUGPU_COUNT", "4"), ("EMUGPU_ARCH", "gfx900,gfx906,gfx90a,gfx1030")],
        &[("EMUGPU_COUNT", "2"), ("EMUGPU_LARGE_BAR", "1")],
        &[
            ("EMUGPU_FIFO", "0"),
            ("EMUGPU_KERNEL_NS", "storm_t1=50000,*=0"),
            ("EMUGPU_OVERLAP", "1"),
        ],
        &[("EMUGPU_ARCH", "gfx1030"), ("HSA_ENABLE_SDMA", "0"), ("HSA_ENABLE_INTERRUPT", "0")],
    ];
    for env in settings {
        for program in ["basic", "copies 2000", "callbacks 20", "hsa_direct", "storm 2 2 100 10"] {
            s.check("settings", program, env);
        }
    }
}

#[test]
fn rocm_a_storm_is_counted_to_the_last_launch() {
    let Some(s) = setup() else { return };
    let (_, operations) = s.check("storm", "storm 8 4 2000", &[]);
    assert_eq!(operations.iter().filter(|o| o.name.starts_with("storm_t")).count(), 64_000);
}

#[test]
fn rocm_bytes_are_accounted_for() {
    let Some(s) = setup() else { return };
    let (report, operations) = s.check("bytes", "basic", &[]);
    for (direction, name) in [
        ("H2D", "H2D"),
        ("D2H", "D2H"),
        ("D2D", "__amd_rocclr_copyBuffer"),
        ("fill", "__amd_rocclr_fillBufferAligned"),
    ] {
        assert_eq!(bytes_of(&operations, name), reported_bytes(&report, direction), "{direction}");
    }
}

#[test]
fn rocm_the_runtime_reads_the_times_of_the_log() {
    let Some(s) = setup() else { return };
    let settings: [&[(&str, &str)]; 4] = [
        &[],
        &[("EMUGPU_CLOCK_OFFSET_NS", "123456789012345"), ("EMUGPU_CLOCK_PPM", "250")],
        &[
            ("EMUGPU_CLOCK_OFFSET_NS", "0"),
            ("EMUGPU_CLOCK_PPM", "-90"),
            ("EMUGPU_CLOCK_HZ", "25000000"),
        ],
        &[("EMUGPU_KERNEL_NS", "*=150000"), ("EMUGPU_CLOCK_HZ", "1000000000")],
    ];
    for env in settings {
        let (report, operations) = s.check("times", "hsa_direct sc 300 times", env);
        let mut n = 0;
        for line in report.lines() {
            let ["time", kind, start, end] = line.split_whitespace().collect::<Vec<_>>()[..] else {
                continue;
            };
            let (start, end): (i64, i64) = (start.parse().expect("ns"), end.parse().expect("ns"));
            let near = |a: u64, b: i64| (a as i64 - b).abs() <= 1000;
            let found = operations
                .iter()
                .any(|o| o.kind == kind && near(o.start_ns, start) && near(o.end_ns, end));
            assert!(found, "{env:?}: no operation at {line}");
            n += 1;
        }
        assert_eq!(n, 331);
    }
}

#[test]
fn rocm_processes_share_a_log() {
    let Some(s) = setup() else { return };
    let log = s.log("shared");
    let children: Vec<Child> =
        (0..3).map(|_| start(&mut s.command("storm", &["2", "2", "500"], &[], &log))).collect();
    let pids: Vec<u32> = children.iter().map(|child| child.id()).collect();
    let reports: Vec<String> = children.into_iter().map(|c| finish(c, "storm")).collect();
    let operations = truth::read(&log).expect("log");
    for (pid, report) in pids.into_iter().zip(reports) {
        let own: Vec<_> = operations.iter().filter(|o| o.pid == pid).cloned().collect();
        assert_eq!(launched(&report), dispatched(&own));
    }
}

#[test]
fn rocm_a_fork_that_executes_another_program() {
    let Some(s) = setup() else { return };
    let child = s.apps.join("basic").display().to_string();
    s.check("fork", &format!("fork_exec {child}"), &[]);
}

/// Starts `loop` and waits until it has launched.
fn start_loop(s: &Setup, args: &[&str], log: &Path) -> Child {
    let mut child = start(&mut s.command("loop", args, &[], log));
    let mut out = std::io::BufReader::new(child.stdout.take().expect("pipe"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).expect("line");
    assert_eq!(line.trim(), format!("ready {}", child.id()));
    child.stdout = Some(out.into_inner());
    child
}

#[test]
fn rocm_a_killed_process_leaves_its_log() {
    let Some(s) = setup() else { return };
    let log = s.log("killed");
    let mut child = start_loop(s, &["0", "2", "0"], &log);
    let deadline = Instant::now() + DEADLINE;
    while std::fs::metadata(&log).map_or(0, |m| m.len()) < 100_000 {
        assert!(Instant::now() < deadline, "nothing is logged");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("kill");
    child.wait().expect("wait");
    let operations = truth::read(&log).expect("log");
    assert!(dispatched(&operations).values().sum::<u64>() > 500);
}

#[test]
fn rocm_idling_costs_little() {
    let Some(s) = setup() else { return };
    let log = s.log("idle");
    // One launch in ten seconds.
    let mut child = start_loop(s, &["0", "1", "0.1"], &log);
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).expect("tasks");
    let engine = tasks
        .map(|t| t.expect("task").path())
        .find(|t| std::fs::read_to_string(t.join("comm")).is_ok_and(|c| c.trim() == "emulated-gpu"))
        .expect("the emulator's thread");
    let sleeps = || -> u64 {
        let text = std::fs::read_to_string(engine.join("status")).expect("status");
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).expect("a count")
    };
    // Let the last launch's ramp end, then count for a second: each look is behind a sleep of a millisecond.
    std::thread::sleep(Duration::from_millis(300));
    let (before, from) = (sleeps(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let looks = (sleeps() - before) as f64 / from.elapsed().as_secs_f64();
    child.kill().expect("kill");
    child.wait().expect("wait");
    eprintln!("idle: {looks:.0} looks a second");
    assert!(looks > 1.0 && looks < 1100.0, "{looks} looks a second");
}
