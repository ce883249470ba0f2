//! A virtual machine: boots a kernel, shows what the tests in it print, and judges it.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::packages::Kernel;
use crate::run::{passed, root};

/// The longest that a machine may run.
const DEADLINE: Duration = Duration::from_secs(15 * 60);

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
/// followed by another start.
const COMMAND_LINE: &str = "root=/dev/nvme0n1 rw init=/init console=ttyS0 loglevel=3 log_buf_len=4M \
    mitigations=off tsc=reliable panic=-1";

/// What a run must show to be right.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Tests that pass.
    Tests,
    /// Programs that end well.
    Success,
}

/// Boots `kernel` on a disk that stays as it is, and returns how many tests passed.
pub fn run(kernel: &Kernel, image: &Path, expect: Expect) -> anyhow::Result<u64> {
    let log = root().join("target/kernels").join(format!("{}.log", kernel.release));
    let mut file = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
    let began = Instant::now();
    let mut machine = Machine::start(kernel, image)?;
    let lines = machine.lines()?;
    let mut console = Console::default();
    let in_time = loop {
        match lines.recv_timeout(DEADLINE.saturating_sub(began.elapsed())) {
            Ok(line) => {
                writeln!(file, "{line}")?;
                if let Some(line) = console.take(&line) {
                    let seconds = began.elapsed().as_secs_f32();
                    println!("{} {seconds:6.1} s | {line}", kernel.release);
                }
                if console.status.is_some() {
                    break true;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    drop(machine);
    let judged = if in_time {
        console.judge(expect)
    } else {
        Err(anyhow::anyhow!("it did not end within {} min", DEADLINE.as_secs() / 60))
    };
    judged.with_context(|| format!("all that it printed is in {}", log.display()))
}

/// QEMU, killed when dropped: nobody shuts the machine down, whose disk is not kept.
struct Machine(Child);

impl Machine {
    fn start(kernel: &Kernel, image: &Path) -> anyhow::Result<Self> {
        // With the program that started it, whichever way that ends. One thread for both CPUs: with one
        // for each, a CPU was seen to run into a breakpoint that the kernel had removed already from its
        // own code, which ends in a panic ("Oops: int3" where perf events were opened and closed).
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-nodefaults", "-no-reboot"])
            .args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "3072"])
            .args(["-display", "none", "-nic", "none", "-serial", "stdio", "-drive"])
            .arg(format!("file={},format=raw,if=none,id=disk,snapshot=on", image.display()))
            .args(["-device", "nvme,drive=disk,serial=roctap", "-append", COMMAND_LINE, "-kernel"])
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
#[derive(Default)]
struct Console {
    release: Option<String>,
    /// What the tests printed.
    tests: String,
    kernel_log: Option<Vec<String>>,
    status: Option<String>,
    /// The lines before the tests and those of no test, for when it goes wrong.
    boot: Vec<String>,
}

impl Console {
    /// Takes a line, and returns what of it to show.
    fn take(&mut self, line: &str) -> Option<String> {
        if let Some(release) = line.strip_prefix(BOOTED) {
            self.release = Some(release.trim().to_owned());
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
            self.tests.push_str(line);
            self.tests.push('\n');
            return (!line.is_empty()).then(|| line.to_owned());
        }
        None
    }

    /// How many tests passed, if that is all that is to say.
    fn judge(&self, expect: Expect) -> anyhow::Result<u64> {
        if self.release.is_none() {
            bail!("it did not boot; its last words: {}", self.boot.join("\n"));
        }
        let mut faults = Vec::new();
        match (self.status.as_deref(), passed(&self.tests)) {
            (Some("0"), 0) if expect == Expect::Tests => faults.push("no test ran".to_owned()),
            (Some("0"), _) => {}
            (Some(status), _) => faults.push(format!("the tests ended with status {status}")),
            (None, _) => faults.push("it stopped before the tests had ended".to_owned()),
        }
        // Of what ends a machine at once, the console tells and not the log.
        let log = self.kernel_log.iter().flatten().map(String::as_str);
        let complaints: Vec<&str> = log.chain(self.tests.lines()).filter(complains).collect();
        if !complaints.is_empty() {
            faults.push(format!("its kernel complained:\n{}", complaints.join("\n")));
        }
        if !faults.is_empty() {
            bail!("{}", faults.join("; "));
        }
        Ok(passed(&self.tests))
    }
}

/// Whether a line of the kernel's tells of a fault.
fn complains(line: &&str) -> bool {
    line.starts_with('[') && COMPLAINTS.iter().any(|complaint| line.contains(complaint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lines: &[&str]) -> Result<u64, String> {
        let mut console = Console::default();
        for line in lines {
            console.take(line);
        }
        console.judge(Expect::Tests).map_err(|error| error.to_string())
    }

    const GOOD: [&str; 5] = [
        "@@ booted: 6.1.0-56-cloud-amd64",
        "test result: ok. 3 passed; 0 failed",
        "@@ kernel log:",
        "[    0.000000] Linux version 6.1.0-56-cloud-amd64",
        "@@ ended: 0",
    ];

    #[test]
    fn a_machine_is_judged_by_what_it_prints() {
        assert_eq!(judged(&GOOD), Ok(3));
        let with = |at: usize, line| {
            let mut lines = GOOD;
            lines[at] = line;
            judged(&lines).expect_err("it fails")
        };
        assert!(with(0, "SeaBIOS").contains("did not boot"));
        assert_eq!(with(1, "test result: ok. 0 passed; 9 filtered out"), "no test ran");
        assert!(with(3, "[   12.3] BUG: unable to handle").contains("[   12.3] BUG: unable"));
        assert!(with(4, "@@ ended: 101").contains("status 101"));
        assert!(with(4, "").contains("before the tests had ended"));
    }

    #[test]
    fn lines_of_tests_are_shown() {
        let mut console = Console::default();
        assert_eq!(console.take("SeaBIOS"), None);
        assert!(console.take(GOOD[0]).is_some());
        assert_eq!(console.take("test a ... ok").as_deref(), Some("test a ... ok"));
        assert_eq!(console.take(GOOD[2]), None);
        assert_eq!(console.take(GOOD[3]), None);
    }
}
