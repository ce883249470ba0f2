//! The measured program: `bench_target`, which repeats calls as it is told.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel},
    time::Duration,
};

use anyhow::{Context as _, bail};

use crate::stats::Cost;

/// Longest time that one answer may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// What `bench_target` answers.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Calls made.
    pub calls: u64,
    /// How long they took together, ns.
    pub wall_ns: u64,
    /// CPU time of the calling thread, ns.
    pub cpu_ns: u64,
    /// How long waiting took, where that was asked for.
    pub waits: Option<Waits>,
}

/// Times of the single synchronisations.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// Their median, ns.
    pub median_ns: u64,
    /// Their 99th percentile, ns.
    pub high_ns: u64,
}

impl Answer {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().map(str::parse);
        let mut next = || words.next()?.ok();
        let (calls, wall_ns, cpu_ns) = (next()?, next()?, next()?);
        let waits = next().zip(next()).map(|(median_ns, high_ns)| Waits { median_ns, high_ns });
        Some(Self { calls, wall_ns, cpu_ns, waits })
    }

    /// The cost of one call.
    pub fn cost(&self) -> Cost {
        let calls = self.calls.max(1) as f64;
        Cost { wall_ns: self.wall_ns as f64 / calls, cpu_ns: self.cpu_ns as f64 / calls }
    }
}

/// A running `bench_target`, perhaps started by `roctap record`. It ends when dropped.
pub struct Target {
    child: Child,
    /// Closing it ends the target.
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    pid: u32,
}

impl Target {
    /// Starts `command`, which is `bench_target` or runs it, and waits until it is ready.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let output = child.stdout.take().context("no output")?;
        let (sender, answers) = channel();
        // Ends with the target's output.
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|l| sender.send(l))
        });
        let requests = child.stdin.take();
        let mut target = Self { child, requests, answers, pid: 0 };
        let line = target.answers.recv_timeout(DEADLINE).context("bench_target did not start")?;
        let pid = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
        target.pid = pid.with_context(|| format!("bench_target said {line:?}"))?;
        Ok(target)
    }

    /// Process id of `bench_target`.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Process id of what was started: of `roctap record`, if that runs `bench_target`.
    pub fn child_id(&self) -> u32 {
        self.child.id()
    }

    /// Asks for something; [`Target::answer`] waits for it.
    pub fn request(&mut self, request: &str) -> anyhow::Result<()> {
        let requests = self.requests.as_mut().context("bench_target was told to end")?;
        writeln!(requests, "{request}").context("bench_target is gone")
    }

    /// Has a request carried out.
    pub fn ask(&mut self, request: &str) -> anyhow::Result<Answer> {
        self.request(request)?;
        self.answer(request)
    }

    /// The answer to a request.
    pub fn answer(&mut self, request: &str) -> anyhow::Result<Answer> {
        match self.answers.recv_timeout(DEADLINE) {
            Ok(line) => Answer::parse(&line).with_context(|| format!("{request}: {line:?}")),
            Err(RecvTimeoutError::Timeout) => bail!("{request}: no answer in time"),
            Err(RecvTimeoutError::Disconnected) => bail!("{request}: bench_target ended"),
        }
    }

    /// Has a request carried out, and does something else again and again in the meantime.
    pub fn ask_while(
        &mut self,
        request: &str,
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Answer> {
        self.request(request)?;
        loop {
            meanwhile()?;
            match self.answers.try_recv() {
                Ok(line) => {
                    return Answer::parse(&line).with_context(|| format!("{request}: {line:?}"));
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => bail!("{request}: bench_target ended"),
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.requests = None;
        // It has nothing left to do but to end; so does `roctap record`, once it has.
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_three_numbers_or_five() {
        let answer = Answer::parse("4 400 200").unwrap();
        assert!(answer.waits.is_none());
        let waits = Answer::parse("4 400 200 90 99").and_then(|answer| answer.waits).unwrap();
        assert_eq!((waits.median_ns, waits.high_ns), (90, 99));
        assert_eq!((answer.cost().wall_ns, answer.cost().cpu_ns), (100.0, 50.0));
        assert!(Answer::parse("4 400").is_none() && Answer::parse("ready 1 2").is_none());
    }
}
