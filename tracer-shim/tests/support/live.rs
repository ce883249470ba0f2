//! Programs that run already when the shim comes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emulated_gpu::child::Child;
use emulated_gpu::truth::Operation;
use tracer_common::loss::ShimLoss;
use tracer_common::shim::control::{ATTACH_STATUS, RECORD, STATE};
use tracer_common::shim::{attach_status, state};
use tracer_hooks::sys::now_ns;

use super::memory::{Recording, Trace};
use super::{Setup, start, verify};

/// A program with the agent in it.
pub struct Program {
    pub child: Child,
    pub log: PathBuf,
    shim: PathBuf,
    agent: BufReader<UnixStream>,
}

/// What one attachment recorded, and when everything was to be recorded.
pub struct Window {
    pub trace: Trace,
    pub began_ns: u64,
    pub ended_ns: u64,
}

impl Setup {
    /// Starts a program without the shim, ready to be attached to.
    pub fn start(&self, name: &str, line: &str, env: &[(&str, &str)]) -> Program {
        let log = self.log(name);
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        ours.set_read_timeout(Some(super::DEADLINE)).expect("a timeout");
        let mut command = self.command(line, env, &log);
        command.env("LD_PRELOAD", &self.agent).env("ROCTAP_TEST_AGENT", "1");
        let child = start(command.stdin(OwnedFd::from(theirs)));
        Program { child, log, shim: self.shim.clone(), agent: BufReader::new(ours) }
    }

    /// The same with `tools` in HSA_TOOLS_LIB, recorded from its start into `recording`.
    pub fn start_with_tools(
        &self,
        name: &str,
        line: &str,
        env: &[(&str, &str)],
        tools: &str,
        recording: &Recording,
    ) -> Program {
        let path = recording.path();
        let ours = [("HSA_TOOLS_LIB", tools), ("ROCTAP_SHIM_MEMORY", path.as_str())];
        self.start(name, line, &[env, &ours].concat())
    }
}

/// Dispatches that [`Program::record`] waits for.
const FEW: u64 = 20;

impl Program {
    /// Has the shim attached to `memory`; what the agent answers, if the program has not ended.
    fn ask(&mut self, memory: &str, rest: &str) -> Option<String> {
        self.command(&format!("attach {} {memory} {rest}\n", self.shim.display()))
    }

    /// Attaches with another copy of the shim from now on: as another version of roctap does.
    pub fn use_shim(&mut self, shim: PathBuf) {
        self.shim = shim;
    }

    /// Attaches to the HSA runtime of another namespace from now on, or to the program's own.
    pub fn use_another_runtime(&mut self, another: bool) {
        let answer = self.command(&format!("runtime {}\n", u8::from(another)));
        assert_eq!(answer.as_deref(), Some("-"));
    }

    /// Has everything that is mapped from now on locked into memory: see `lock` there.
    pub fn lock_memory(&mut self, limit: i64) {
        assert_eq!(self.command(&format!("lock {limit}\n")).as_deref(), Some("-"));
    }

    /// How often the shim was refused memory, if the program runs; see `ROCTAP_TEST_NO_MEMORY` there.
    pub fn refused_memory(&mut self) -> Option<u64> {
        Some(self.command("refused\n")?.parse().expect("a number"))
    }

    /// How much of its memory is locked, KiB.
    pub fn locked_kib(&self) -> u64 {
        let path = PathBuf::from(format!("/proc/{}/smaps", self.child.id()));
        let text = std::fs::read_to_string(path).expect("smaps");
        let locked = text.lines().filter_map(|line| line.strip_prefix("Locked:"));
        locked.filter_map(|of| of.split_whitespace().next()?.parse::<u64>().ok()).sum()
    }

    /// A field of its `/proc/PID/status` in KiB.
    pub fn status_kib(&self, field: &str) -> u64 {
        let path = PathBuf::from(format!("/proc/{}/status", self.child.id()));
        let text = std::fs::read_to_string(path).expect("status");
        let line = text.lines().find(|l| l.starts_with(field)).expect("the field");
        line.split_whitespace().nth(1).expect("a value").parse().expect("a number")
    }

    fn command(&mut self, line: &str) -> Option<String> {
        self.agent.get_mut().write_all(line.as_bytes()).ok()?;
        let mut answer = String::new();
        let read = self.agent.read_line(&mut answer);
        let answered = matches!(read, Ok(1..));
        assert!(answered || self.ends(), "the agent does not answer");
        answered.then(|| answer.trim().to_owned())
    }

    /// Whether the program has ended, or does.
    fn ends(&mut self) -> bool {
        let deadline = Instant::now() + super::DEADLINE;
        while self.child.try_wait().expect("wait").is_none() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Waits until the shim is in a state; false if the program ends before that.
    pub fn wait_for_state(&mut self, recording: &Recording, state: u64) -> bool {
        self.wait_for(recording, STATE, state)
    }

    /// Waits until a control word is `value`; false if the program ends before that.
    fn wait_for(&mut self, recording: &Recording, word: usize, value: u64) -> bool {
        let deadline = Instant::now() + super::DEADLINE;
        while recording.get(word) != value {
            if self.child.try_wait().expect("wait").is_some() {
                return false;
            }
            if Instant::now() > deadline {
                let is = recording.get(word);
                panic!("word {word} stays {is}, not {value}; {}", self.activity());
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        true
    }

    /// The status of an attachment.
    pub fn status(&mut self, memory: &str, rest: &str) -> u64 {
        let answer = self.ask(memory, &format!("own {rest}")).expect("it runs");
        answer.parse().expect("a status")
    }

    /// Attaches to a new memory; since when it records. None when the program ends meanwhile, as
    /// below.
    pub fn attach(&mut self) -> Option<(Recording, u64)> {
        self.attach_to(Recording::new(64, 1 << 22))
    }

    /// The same to `recording`.
    pub fn attach_to(&mut self, recording: Recording) -> Option<(Recording, u64)> {
        assert_eq!(self.ask(&recording.path(), "block")?, "-");
        let recording = (self.wait_for(&recording, ATTACH_STATUS, attach_status::RECORDING)
            && self.wait_for(&recording, STATE, state::ACTIVE))
        .then_some(recording)?;
        Some((recording, now_ns()))
    }

    /// Has the shim try to attach to `recording`, whatever comes of it; false when the program has ended.
    pub fn try_to_attach(&mut self, recording: &Recording) -> bool {
        self.ask(&recording.path(), "block").is_some()
    }

    /// Ends a recording in good order.
    pub fn detach(&mut self, (recording, began_ns): (Recording, u64)) -> Option<Window> {
        let ended_ns = now_ns();
        recording.set(RECORD, 0);
        self.wait_for(&recording, STATE, state::DORMANT).then(|| Window {
            trace: recording.stop(),
            began_ns,
            ended_ns,
        })
    }

    /// Records for a while, and [`FEW`] dispatches at least.
    pub fn record(&mut self, for_ms: u64) -> Option<Window> {
        let recording = self.attach()?;
        std::thread::sleep(Duration::from_millis(for_ms));
        while recording.0.recorded() < FEW && self.child.try_wait().expect("wait").is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.detach(recording)
    }

    /// The same until `least` dispatches are recorded of a program that goes on launching.
    pub fn record_some(&mut self, least: u64) -> Window {
        let recording = self.attach().expect("it runs");
        self.wait_until_recorded(&recording.0, least);
        self.detach(recording).expect("it runs")
    }

    /// Waits until `least` dispatches are recorded.
    pub fn wait_until_recorded(&self, recording: &Recording, least: u64) {
        let deadline = Instant::now() + super::DEADLINE;
        let stat = format!("/proc/{}/stat", self.child.id());
        while recording.recorded() < least {
            let ended = std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "));
            assert!(!ended, "it ended with {} recorded", recording.recorded());
            assert!(Instant::now() < deadline, "too little is recorded; {}", self.activity());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks the program to end well, as `hsa_direct s` and `loop` do.
    pub fn terminate(&self) {
        super::terminate(&self.child);
    }

    /// Waits until the program has printed the line `ready`.
    pub fn wait_until_ready(&mut self) {
        let out = self.child.stdout.as_mut().expect("a pipe");
        // No more than the line: the rest is for whoever reads the report.
        let (mut line, mut byte) = (Vec::new(), [0]);
        while line.last() != Some(&b'\n') {
            out.read_exact(&mut byte).expect("a line");
            line.extend(byte);
        }
        assert!(line.starts_with(b"ready"), "{}", String::from_utf8_lossy(&line));
    }

    /// Waits until the program has launched something.
    pub fn wait_until_busy(&mut self) {
        let deadline = Instant::now() + super::DEADLINE;
        while std::fs::metadata(&self.log).map_or(0, |m| m.len()) < 20_000 {
            assert!(Instant::now() < deadline, "it launches nothing");
            assert!(self.child.try_wait().expect("wait").is_none(), "it ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What may not grow: mappings, shared memories of roctap among them, descriptors, threads.
    pub fn holdings(&self) -> Holdings {
        let proc = PathBuf::from(format!("/proc/{}", self.child.id()));
        let maps = std::fs::read_to_string(proc.join("maps")).expect("maps");
        let count = |of: &str| std::fs::read_dir(proc.join(of)).expect(of).count();
        Holdings {
            mappings: maps.lines().count(),
            memories: maps.lines().filter(|l| l.contains("memfd:roctap-test")).count(),
            descriptors: count("fd"),
            threads: count("task"),
        }
    }

    /// What it holds once it holds the same for a while, and no memory of ours.
    pub fn settled(&self) -> Holdings {
        let deadline = Instant::now() + super::DEADLINE;
        let mut last = self.holdings();
        let mut same = 0;
        while same < 20 || last.memories > 0 {
            assert!(Instant::now() < deadline, "{last:?}");
            std::thread::sleep(Duration::from_millis(5));
            let now = self.holdings();
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        last
    }

    /// Reads its standard output to the end, for a program that prints more than a pipe holds.
    pub fn read_report(&mut self) -> std::thread::JoinHandle<String> {
        let mut out = self.child.stdout.take().expect("a pipe");
        std::thread::spawn(move || {
            let mut report = String::new();
            out.read_to_string(&mut report).expect("text");
            report
        })
    }

    /// Lets a program begin that was started with `ROCTAP_TEST_WAIT`.
    pub fn go_on(&mut self) {
        self.agent.get_mut().write_all(b"go\n").expect("the agent lives");
    }

    fn tasks(&self) -> impl Iterator<Item = PathBuf> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("tasks");
        tasks.map(|task| task.expect("a task").path())
    }

    /// Its threads named `name`.
    pub fn threads(&self, name: &str) -> Vec<PathBuf> {
        let named = |task: &PathBuf| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        self.tasks().filter(named).collect()
    }

    /// What its threads do: name, place in the kernel, and state and CPU time twice, a second apart.
    fn activity(&self) -> String {
        let looks = [0, 1].map(|after_s| {
            std::thread::sleep(Duration::from_secs(after_s));
            let read = |task: &Path, file| std::fs::read_to_string(task.join(file));
            let of = |task: PathBuf| {
                let [comm, place, stat] =
                    ["comm", "wchan", "stat"].map(|f| read(&task, f).unwrap_or_default());
                let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
                let state = fields.get(1).copied().unwrap_or("");
                let ticks = fields.get(12..14).unwrap_or_default();
                format!("{} {place} {state} {ticks:?}", comm.trim())
            };
            self.tasks().map(of).collect::<Vec<_>>()
        });
        format!("{looks:#?}")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holdings {
    pub mappings: usize,
    pub memories: usize,
    pub descriptors: usize,
    pub threads: usize,
}

/// A field of `/proc/…/status`.
pub fn status_field(task: &Path, field: &str) -> String {
    let text = std::fs::read_to_string(task.join("status")).expect("status");
    let line = text.lines().find(|l| l.starts_with(field)).expect("the field");
    line.split_whitespace().last().expect("a value").to_owned()
}

/// How much of what ran in a window was recorded, was not because it had been enqueued before the
/// first doorbell of its queue, and because no doorbell rang.
#[derive(Default)]
pub struct Seen {
    pub recorded: usize,
    pub before: usize,
    pub unseen: usize,
}

/// The runtime's own queues are not recorded: their kernels are its shaders.
pub fn is_the_runtimes(operation: &Operation) -> bool {
    operation.name.is_empty()
        || operation.name.starts_with("hsa_")
        || operation.name.starts_with("Copy")
        || operation.name.starts_with("Fill")
}

/// Everything of the ground truth that lies in the window was recorded once, with its times and
/// without a hole, but for what was counted as lost.
pub fn verify(what: &str, window: &Window, truth: &[Operation]) -> Seen {
    let Window { trace, began_ns, ended_ns } = window;
    let lost = |cause: ShimLoss| trace.losses[cause.0 as usize];
    // A packet that the GPU took just before our signal was in it never completes ours; one that was
    // reserved, and not published when the recording ended, is nobody's.
    let gone = [ShimLoss::PACKET_PASSED, ShimLoss::UNFINISHED, ShimLoss::UNPUBLISHED];
    let passed = gone.map(lost).into_iter().sum::<u64>();
    let before = lost(ShimLoss::BEFORE_ATTACH);
    assert_eq!(
        (trace.dropped, trace.lost() - passed - before),
        (0, 0),
        "{what}: {:?}",
        trace.losses
    );
    let recorded: BTreeSet<(u64, u64)> = trace
        .dispatches
        .values()
        .map(|r| (r.queue_id, r.packet_index))
        .chain(trace.barriers.values().map(|r| (r.queue_id, r.packet_index)))
        .collect();
    assert_eq!(recorded.len(), trace.dispatches.len() + trace.barriers.len(), "{what}: twice");
    let names: BTreeMap<u64, Vec<&str>> = trace.symbols.iter().fold(BTreeMap::new(), |mut m, s| {
        m.entry(s.0.kernel_object).or_insert_with(Vec::new).push(s.1.as_str());
        m
    });
    let nodes: BTreeMap<u64, u32> = trace.agents.iter().map(|a| (a.handle, a.node_id)).collect();
    let first_of: BTreeMap<u64, u64> =
        recorded.iter().rev().map(|&(queue, index)| (queue, index)).collect();
    let last_of: BTreeMap<u64, u64> = recorded.iter().copied().collect();
    // When the first doorbell of each queue rang: what had begun by then was enqueued before the
    // shim came, and nobody can know how much it was; what had not is counted.
    let of_dispatches = trace.dispatches.values().map(|r| (r.queue_id, r.enqueue_ns));
    let of_barriers = trace.barriers.values().map(|r| (r.queue_id, r.enqueue_ns));
    let mut first_ring: BTreeMap<u64, u64> = BTreeMap::new();
    for (queue, ns) in of_dispatches.chain(of_barriers) {
        let first = first_ring.entry(queue).or_insert(ns);
        *first = ns.min(*first);
    }
    let (mut missing_before, mut holes, mut unseen) = (0, 0, 0);
    let mut found = 0;
    for o in truth {
        let is_operation = match o.kind.as_str() {
            "dispatch" => true,
            "barrier_and" | "barrier_or" => o.signal != 0,
            _ => false,
        };
        let Some(queue) = o.hsa_queue.filter(|_| is_operation) else { continue };
        if recorded.contains(&(queue, o.index)) {
            found += 1;
            continue;
        }
        let rang_ns = first_ring.get(&queue).copied().unwrap_or(0).max(*began_ns);
        let inside = o.start_ns > rang_ns + verify::NEAR_NS && o.end_ns < *ended_ns;
        match (first_of.get(&queue), last_of.get(&queue)) {
            (Some(first), Some(last)) if (first..last).contains(&&o.index) => holes += 1,
            (Some(first), _) if inside && o.index < *first => missing_before += 1,
            // No doorbell rang: all of it was enqueued before.
            (None, None) if inside && !is_the_runtimes(o) => unseen += 1,
            (Some(_), Some(last)) => assert!(!inside || o.index < *last, "{what}: not seen: {o:?}"),
            _ => {}
        }
    }
    assert_eq!(found, recorded.len(), "{what}: something recorded never ran");
    assert!(holes as u64 <= passed, "{what}: {holes} holes, {passed} counted");
    assert!(
        missing_before as u64 <= before + passed,
        "{what}: {missing_before} missing before the first, {before} counted, {passed} passed"
    );
    let by_place: BTreeMap<(u64, u64), &Operation> =
        truth.iter().filter_map(|o| Some(((o.hsa_queue?, o.index), o))).collect();
    for d in trace.dispatches.values() {
        let o = by_place[&(d.queue_id, d.packet_index)];
        assert_eq!(d.kernel_object, o.kernel_object, "{what}: {o:?}");
        assert_eq!(nodes.get(&d.agent), Some(&o.node), "{what}: on another GPU: {o:?} {d:?}");
        let named = names.get(&d.kernel_object).is_some_and(|n| n.contains(&o.name.as_str()));
        assert!(named, "{what}: no symbol for {o:?}");
    }
    let outcome = (trace, truth);
    let whole = verify::subset_of(what, outcome.0, outcome.1);
    assert_eq!(whole, recorded.len());
    let unfinished = recorded.len() + trace.copies.len() - trace.completes.len();
    assert!(unfinished as u64 <= passed, "{what}: {unfinished} without an end");
    Seen { recorded: recorded.len(), before: missing_before, unseen }
}
