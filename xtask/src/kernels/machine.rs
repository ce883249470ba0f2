//! A virtual machine: boots a kernel, shows what the tests in it print, and judges it.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::packages::Kernel;
use crate::{
    run::root,
    test::outcome::{Outcome, Test},
};

/// A machine that prints nothing for so long has stopped, or gets no CPU.
const SILENCE: Duration = Duration::from_secs(5 * 60);

/// Printed with the kernel's release when the tests are about to begin.
pub const BOOTED: &str = "@@ booted:";
/// Printed before the kernel's log.
pub const KERNEL_LOG: &str = "@@ kernel log:";
/// Printed with the exit status when all has been said.
pub const ENDED: &str = "@@ ended:";

/// What no kernel says while all is well. "leaking uprobe" is not among it: tests kill roctap while the
/// kernel removes its probes, and look at the program's code themselves.
const COMPLAINTS: [&str; 6] =
    ["BUG:", "WARNING:", "Oops", "general protection", "Call Trace:", "UBSAN:"];

/// The kernel's command line: fast rather than safe, silent but for what ends it, and the end is not
/// followed by another start. That a CPU of the machine stood still is no fault of its kernel's where
/// others use this machine's CPUs.
const COMMAND_LINE: &str = "root=/dev/nvme0n1 rw init=/init console=ttyS0 loglevel=3 log_buf_len=4M \
    mitigations=off tsc=reliable nosoftlockup rcupdate.rcu_cpu_stall_suppress=1 panic=-1";
/// All that QEMU emulates, without what kernels and libc use for copies once it is there: QEMU moves a byte at each step of
/// `rep movsb`, and eight at each of `rep movsq`. Tables of five levels take a step more to walk.
const CPU: &str = "max,-erms,-la57";
/// On the command line before the names of tests, with commas between them, that alone are to run.
pub const ONLY: &str = "roctap.only=";

/// The binary that [`Console::outcomes`] names for what the kernel complains of.
pub const KERNEL: &str = "kernel";

/// Boots `kernel` on a disk that stays as it is, and returns what it printed. Of the tests, those in `only`
/// run, or all if there are none.
///
/// # Errors
///
/// When the machine cannot be started or watched, or does not boot.
pub fn run(kernel: &Kernel, image: &Path, only: &[&str]) -> anyhow::Result<Console> {
    let log = root().join("target/kernels").join(format!("{}.log", kernel.release));
    let again = !only.is_empty();
    let mut file =
        File::options().create(true).write(true).append(again).truncate(!again).open(&log);
    let file = file.as_mut().map_err(|e| anyhow::anyhow!("writing {}: {e}", log.display()))?;
    let mut machine = Machine::start(kernel, image, only)?;
    let lines = machine.lines()?;
    let mut console = Console::new();
    while console.status.is_none() {
        match lines.recv_timeout(SILENCE) {
            Ok(line) => {
                writeln!(file, "{line}")?;
                if let Some(line) = console.take(&line) {
                    let seconds = console.began.elapsed().as_secs_f32();
                    println!("{} {seconds:6.1} s | {line}", kernel.release);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                console.starved = true;
                break;
            }
        }
    }
    drop(machine);
    if console.release.is_none() {
        bail!(
            "it did not boot; its last words, all of which are in {}: {}",
            log.display(),
            console.boot.join("\n")
        );
    }
    Ok(console)
}

/// QEMU, killed when dropped: nobody shuts the machine down, whose disk is not kept.
struct Machine(Child);

impl Machine {
    fn start(kernel: &Kernel, image: &Path, only: &[&str]) -> anyhow::Result<Self> {
        let mut command_line = COMMAND_LINE.to_owned();
        if !only.is_empty() {
            command_line += &format!(" {ONLY}{}", only.join(","));
        }
        // With the program that started it, whichever way that ends. One thread for both CPUs: with one
        // for each, a CPU was seen to run into a breakpoint that the kernel had removed already from its
        // own code, which ends in a panic ("Oops: int3" where perf events were opened and closed).
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-nodefaults", "-no-reboot"])
            .args(["-accel", "tcg,thread=single", "-cpu", CPU, "-smp", "2", "-m", "3072"])
            .args(["-display", "none", "-nic", "none", "-serial", "stdio", "-drive"])
            .arg(format!("file={},format=raw,if=none,id=disk,snapshot=on", image.display()))
            .args(["-device", "nvme,drive=disk,serial=roctap", "-append", &command_line, "-kernel"])
            .arg(&kernel.vmlinuz)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        Ok(Self(command.spawn().context("cannot run: setpriv … qemu-system-x86_64")?))
    }

    /// What it prints, until it ends.
    fn lines(&mut self) -> anyhow::Result<mpsc::Receiver<String>> {
        let mut output = BufReader::new(self.0.stdout.take().context("no output")?);
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if send.send(text).is_err() {
                    return;
                }
                line.clear();
            }
        });
        Ok(lines)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads what a machine prints.
pub struct Console {
    began: Instant,
    release: Option<String>,
    /// What the tests printed.
    tests: String,
    /// The test whose end was not printed yet.
    running: Option<String>,
    /// When the tests began or the last one ended: then the next one began.
    since: Duration,
    /// How each test ended, and how long it took.
    ended: HashMap<String, (bool, Duration)>,
    kernel_log: Option<Vec<String>>,
    /// The exit status of what ran.
    status: Option<String>,
    /// It was ended since it printed nothing any more.
    starved: bool,
    /// The lines before the tests and those of no test, for when it goes wrong.
    boot: Vec<String>,
}

impl Console {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            release: None,
            tests: String::new(),
            running: None,
            since: Duration::ZERO,
            ended: HashMap::new(),
            kernel_log: None,
            status: None,
            starved: false,
            boot: Vec::new(),
        }
    }

    /// Takes a line, and returns what of it to show.
    fn take(&mut self, line: &str) -> Option<String> {
        if let Some(release) = line.strip_prefix(BOOTED) {
            self.release = Some(release.trim().to_owned());
            self.since = self.began.elapsed();
            return Some(format!("booted {}", release.trim()));
        }
        if let Some(status) = line.strip_prefix(ENDED) {
            self.status = Some(status.trim().to_owned());
        } else if line == KERNEL_LOG {
            self.kernel_log = Some(Vec::new());
        } else if let Some(log) = &mut self.kernel_log {
            log.push(line.to_owned());
        } else if self.release.is_none() {
            self.boot.push(line.to_owned());
        } else {
            self.take_of_test(line);
            self.tests.push_str(line);
            self.tests.push('\n');
            return (!line.is_empty()).then(|| line.to_owned());
        }
        None
    }

    /// A test's line ends with how it ended, unless the kernel writes meanwhile.
    fn take_of_test(&mut self, line: &str) {
        let mut end = line;
        if let Some((name, rest)) = line.strip_prefix("test ").and_then(|l| l.split_once(" ... ")) {
            self.running = Some(name.to_owned());
            end = rest;
        }
        if matches!(end, "ok" | "FAILED")
            && let Some(name) = self.running.take()
        {
            let now = self.began.elapsed();
            self.ended.insert(name, (end == "ok", now - self.since));
            self.since = now;
        }
    }

    /// How these tests ended, and what the kernel complained of.
    pub fn outcomes(&self, expected: &[Test]) -> Vec<Outcome> {
        let why = match (self.starved, &self.status) {
            (true, _) => "the machine was starved: it printed nothing for 5 minutes".to_owned(),
            (_, None) => "the machine stopped before the tests had ended".to_owned(),
            (_, Some(status)) => format!("it did not run; the tests ended with status {status}"),
        };
        let outcome = |test: &Test| {
            let (took, failure) = match self.ended.get(&test.name) {
                Some((true, took)) => (*took, None),
                Some((false, took)) => (*took, Some(self.printed_by(&test.name))),
                None => (Duration::ZERO, Some(format!("{why}\n{}", self.tests))),
            };
            Outcome { test: test.clone(), took, failure }
        };
        let mut outcomes: Vec<Outcome> = expected.iter().map(outcome).collect();
        let complaints = self.complaints();
        outcomes.push(Outcome {
            test: Test { binary: KERNEL.to_owned(), name: "complains_of_nothing".to_owned() },
            took: Duration::ZERO,
            failure: (!complaints.is_empty()).then(|| complaints.join("\n")),
        });
        outcomes
    }

    /// Whether all ended well.
    ///
    /// # Errors
    ///
    /// When it did not.
    pub fn ended_well(&self) -> anyhow::Result<()> {
        let complaints = self.complaints();
        if !complaints.is_empty() {
            bail!("its kernel complained:\n{}", complaints.join("\n"));
        }
        match &self.status {
            Some(status) if status == "0" => Ok(()),
            Some(status) => bail!("it ended with status {status}"),
            None => bail!("it stopped before its end"),
        }
    }

    /// What the test runner says at the end of a test that failed.
    fn printed_by(&self, test: &str) -> String {
        let begin = format!("---- {test} stdout ----");
        let lines = self.tests.lines().skip_while(|line| *line != begin);
        let lines =
            lines.skip(1).take_while(|line| !line.starts_with("---- ") && *line != "failures:");
        std::iter::once("it failed").chain(lines).collect::<Vec<_>>().join("\n")
    }

    /// Of what ends a machine at once, the console tells and not the log.
    fn complaints(&self) -> Vec<&str> {
        let log = self.kernel_log.iter().flatten().map(String::as_str);
        log.chain(self.tests.lines()).filter(complains).collect()
    }
}

/// Whether a line of the kernel's tells of a fault.
fn complains(line: &&str) -> bool {
    line.starts_with('[') && COMPLAINTS.iter().any(|complaint| line.contains(complaint))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [&str; 9] = [
        "@@ booted: 6.1.0-56-cloud-amd64",
        "running 2 tests",
        "test root_a ... ok",
        "test root_b ... [   11.0] a line of the kernel's",
        "ok",
        "test result: ok. 2 passed; 0 failed",
        "@@ kernel log:",
        "[    0.000000] Linux version 6.1.0-56-cloud-amd64",
        "@@ ended: 0",
    ];

    fn console(lines: &[&str]) -> Console {
        let mut console = Console::new();
        for line in lines {
            console.take(line);
        }
        console
    }

    /// Of a machine that prints these lines: the tests that failed, and why.
    fn failed(lines: &[&str]) -> Vec<(String, String)> {
        let test = |name: &str| Test { binary: "e2e::kernels".into(), name: name.into() };
        let outcomes = console(lines).outcomes(&["root_a", "root_b"].map(test));
        outcomes.into_iter().filter_map(|o| Some((o.test.name, o.failure?))).collect()
    }

    #[test]
    fn a_machine_is_judged_by_what_it_prints() {
        assert_eq!(failed(&GOOD), []);
        assert!(console(&GOOD).ended_well().is_ok());
        let with = |at: usize, line| {
            let mut lines = GOOD;
            lines[at] = line;
            failed(&lines)
        };
        let complained = with(7, "[   12.3] BUG: unable to handle");
        assert_eq!(complained.len(), 1);
        assert_eq!(complained[0].0, "complains_of_nothing");
        assert!(complained[0].1.contains("[   12.3] BUG: unable"));
        let missing = with(2, "");
        assert_eq!(missing[0].0, "root_a");
        assert!(missing[0].1.starts_with("it did not run; the tests ended with status 0"));
        let stopped = failed(&GOOD[..4]);
        assert_eq!(stopped[0].0, "root_b");
        assert!(stopped[0].1.starts_with("the machine stopped before"), "{stopped:?}");
        assert!(console(&GOOD[..4]).ended_well().is_err());
        let text = ["@@ booted: 6.1", "test root_a ... FAILED", "test root_b ... ok", "failures:"];
        let text =
            [&text[..], &["---- root_a stdout ----", "it panicked", "", "failures:"]].concat();
        assert_eq!(failed(&text), [("root_a".to_owned(), "it failed\nit panicked\n".to_owned())]);
    }

    #[test]
    fn lines_of_tests_are_shown() {
        let mut console = Console::new();
        assert_eq!(console.take("SeaBIOS"), None);
        assert!(console.take(GOOD[0]).is_some());
        assert_eq!(console.take("test a ... ok").as_deref(), Some("test a ... ok"));
        assert_eq!(console.take(GOOD[6]), None);
        assert_eq!(console.take(GOOD[7]), None);
    }
}
