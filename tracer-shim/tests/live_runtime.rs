//! The shim in real ROCm programs that run already: what is recorded, what is left behind.
//!
//! Every test is named `rocm_…`. Where ROCm is not installed they have nothing to run, and say so.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use support::live::{Seen, Window, status_field, verify};
use support::memory::{Recording, Trace};
use support::{finish, setup};
use tracer_common::loss::ShimLoss;
use tracer_common::shim::{attach_status, control, state};

/// Attaches again and again until the program ends.
#[test]
fn rocm_attached_again_and_again() {
    let Some(s) = setup() else { return };
    const SLOW: (&str, &str) = ("EMUGPU_KERNEL_NS", "*=20000");
    const SLOWER: (&str, &str) = ("EMUGPU_KERNEL_NS", "*=100000");
    for (program, env) in [
        ("storm 1 1 60000 100", &[SLOW][..]),
        ("storm 8 4 2500 100", &[SLOWER]),
        ("storm 4 2 10000 200", &[SLOW, ("GPU_MAX_HW_QUEUES", "1")]),
        ("graph 20000", &[SLOW]),
        ("callbacks 3000", &[SLOW]),
        ("module 400 20", &[SLOW]),
        // Most of the time a thread is about to freeze an executable by the runtime's own function.
        ("module 150 5", &[SLOW, ("ROCTAP_TEST_LATE_FREEZE", "20000")]),
        ("hsa_direct psrab 30000", &[]),
    ] {
        let mut running = s.start("again", program, env);
        running.wait_until_busy();
        let mut windows: Vec<Window> = Vec::new();
        while let Some(window) = running.record(30)
            && windows.len() < 40
        {
            windows.push(window);
            std::thread::sleep(Duration::from_millis(10));
        }
        let log = running.log.clone();
        let (_, errors) = finish(running.child, program);
        // The runtime warns, now and then and without us too, of something that HIP does in graphs.
        let known = "Use of non-host signal in host signal wait API.";
        let unknown: Vec<&str> = errors.lines().filter(|line| !line.contains(known)).collect();
        assert!(unknown.is_empty(), "{program}: {unknown:?}");
        let truth = emulated_gpu::truth::read(&log).expect("log");
        // A worker or reader that got no CPU for so long that the signals or a ring ran out: counted, and
        // nothing can be verified.
        let causes =
            [ShimLoss::SIGNAL_POOL, ShimLoss::OPERATION_RING_FULL, ShimLoss::COMPLETION_RING_FULL];
        let starved = |w: &Window| causes.iter().any(|cause| w.trace.losses[cause.0 as usize] > 0);
        let all = windows.len();
        windows.retain(|window| !starved(window));
        assert!(windows.len() * 4 >= all * 3, "{program}: {} of {all} windows", windows.len());
        let mut sum = Seen::default();
        for window in &windows {
            let seen = verify(program, window, &truth);
            sum.recorded += seen.recorded;
            sum.before += seen.before;
            sum.unseen += seen.unseen;
        }
        let Seen { recorded, before, unseen } = sum;
        eprintln!(
            "{program}: {} times, {recorded} of {} recorded, {before} before the first, {unseen} unseen",
            windows.len(),
            truth.len()
        );
        // That no doorbell rang while a queue was recorded tells nothing about its kernels.
        assert!(recorded > 100.max(unseen) && windows.len() > 3, "{program}");
    }
}

/// Nothing may be left in a busy process, however often we came: no descriptor or thread more than
/// after the third time, no mapping of ours, and our thread takes no signals.
#[test]
fn rocm_two_hundred_times() {
    let Some(s) = setup() else { return };
    let mut running = s.start("cycles", "loop 0 4 0", &[("EMUGPU_KERNEL_NS", "*=20000")]);
    running.wait_until_busy();
    let mut after_some = None;
    let mut dispatches = 0;
    for cycle in 0..200 {
        dispatches += running.record_some(10).trace.dispatches.len();
        if cycle == 2 {
            after_some = Some(running.settled());
        }
    }
    assert!(dispatches >= 2000, "{dispatches}");
    let (now, before) = (running.settled(), after_some.expect("measured"));
    assert!(now.descriptors <= before.descriptors, "{before:?} {now:?}");
    assert_eq!(now.threads, before.threads);
    // The C library keeps a stack and a heap, each of two mappings, of every thread that ran beside
    // another: of one attachment's that ends and the next one's that begins.
    assert!(now.mappings <= before.mappings + 8, "{before:?} {now:?}");
    let ours = running.threads("roctap-shim");
    assert_eq!(ours.len(), 1);
    assert_eq!(status_field(&ours[0], "SigBlk:"), "fffffffe7ffbfeff");
    let switches = || status_field(&ours[0], "voluntary_ctxt_switches:");
    // A packet that was taken as we came is watched for some seconds.
    let deadline = Instant::now() + support::DEADLINE;
    loop {
        let before = switches();
        std::thread::sleep(Duration::from_secs(2));
        if switches() == before {
            break;
        }
        assert!(Instant::now() < deadline, "it does not come to sleep without polling");
    }
    running.terminate();
    let (_, errors) = finish(running.child, "loop");
    assert_eq!(errors, "");
}

#[test]
fn rocm_what_is_refused() {
    let Some(s) = setup() else { return };
    let mut running = s.start("refused", "loop 0 1 2000", &[]);
    running.wait_until_busy();
    let holdings = running.settled();
    assert_eq!(running.status("/dev/zero", ""), attach_status::MEMORY);
    let memory = Recording::new(8, 1 << 16);
    assert_eq!(running.status(&memory.path(), "16"), attach_status::UNSUPPORTED);
    assert_eq!(running.status(&memory.path(), ""), attach_status::MEMORY, "taken");
    for wrong in [16, 4096, 1_u64 << 44] {
        let memory = Recording::new(8, 1 << 16);
        let status = running.status(&memory.path(), &wrong.to_string());
        assert_eq!(status, attach_status::UNSUPPORTED, "{wrong}");
        assert_eq!(memory.get(control::STATE), state::UNSUPPORTED);
        assert_eq!(memory.get(control::ATTACH_STATUS), attach_status::UNSUPPORTED);
    }
    let Some(first) = running.attach() else { panic!("it ended") };
    let second = Recording::new(8, 1 << 16);
    assert_eq!(running.status(&second.path(), ""), attach_status::BUSY);
    assert_eq!(first.0.get(control::STATE), state::ACTIVE, "nothing changed");
    running.wait_until_recorded(&first.0, 1);
    let window = running.detach(first).expect("it runs");
    let now = running.settled();
    assert_eq!((now.memories, now.descriptors), (0, holdings.descriptors));
    let log = running.log.clone();
    running.child.kill().expect("kill");
    running.child.wait().expect("wait");
    verify("refused", &window, &emulated_gpu::truth::read(&log).expect("log"));
}

/// A roctap that was killed is found out; what it asked for does not stay.
#[test]
fn rocm_after_a_killed_recorder() {
    let Some(s) = setup() else { return };
    let mut running = s.start("killed-recorder", "loop 0 2 5000", &[]);
    running.wait_until_busy();
    let (killed, _) = running.attach().expect("it runs");
    killed.stall(true);
    let window = running.record_some(100);
    assert_eq!(running.settled().memories, 0);
    let before = killed.stop();
    let log = running.log.clone();
    running.child.kill().expect("kill");
    running.child.wait().expect("wait");
    let truth = emulated_gpu::truth::read(&log).expect("log");
    let seen = verify("killed recorder", &window, &truth);
    assert!(seen.recorded >= 100, "{}", seen.recorded);
    let sequences = |trace: &Trace| trace.dispatches.keys().copied().collect::<BTreeSet<u64>>();
    let (old, new) = (sequences(&before), sequences(&window.trace));
    assert!(!old.is_empty() && old.is_disjoint(&new), "a number is given once in a process");
    assert!(window.trace.completes.keys().all(|sequence| !old.contains(sequence)));
}

/// The library is there, `hsa_init` is yet to be called.
#[test]
fn rocm_attached_before_the_runtime_begins() {
    let Some(s) = setup() else { return };
    let mut running = s.start("install", "hsa_direct", &[("ROCTAP_TEST_WAIT", "1")]);
    let (recording, _) = running.attach().expect("it waits");
    running.go_on();
    let log = running.log.clone();
    let (report, errors) = finish(running.child, "hsa_direct");
    let trace = recording.stop();
    let truth = emulated_gpu::truth::read(&log).expect("log");
    let outcome = support::Outcome { report, errors, trace, truth, took: Duration::ZERO };
    assert!(support::verify::counted("install", &outcome) < 100);
    assert!(outcome.trace.dispatches.len() > 1000);
}

/// Several GPUs: whose queue it is follows from what it runs.
#[test]
fn rocm_queues_of_several_gpus_that_were_there_before() {
    let Some(s) = setup() else { return };
    let env = [("EMUGPU_COUNT", "3"), ("EMUGPU_ARCH", "gfx90a"), ("EMUGPU_KERNEL_NS", "*=20000")];
    let mut running = s.start("gpus", "storm 3 2 100000000 100 3", &env);
    running.wait_until_busy();
    let mut windows: Vec<Window> = Vec::new();
    let agents = |windows: &[Window]| -> BTreeSet<u64> {
        windows.iter().flat_map(|w| w.trace.dispatches.values().map(|d| d.agent)).collect()
    };
    let deadline = Instant::now() + support::DEADLINE;
    while windows.len() < 10 || agents(&windows).len() < 3 {
        assert!(Instant::now() < deadline, "{:?} are recorded", agents(&windows));
        windows.push(running.record(40).expect("it runs"));
    }
    let log = running.log.clone();
    running.child.kill().expect("kill");
    let output = running.child.output().expect("output");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let truth = emulated_gpu::truth::read(&log).expect("log");
    for window in &windows {
        verify("several", window, &truth);
    }
}

/// Whoever ends a recording is not kept waiting by a kernel that runs on, and the kernel's end reaches
/// the program all the same.
#[test]
fn rocm_a_kernel_that_runs_longer_than_the_recording() {
    let Some(s) = setup() else { return };
    support::until_it_runs_longer(|durations| {
        let mut running = s.start("long", "loop 0 1 5", &[("EMUGPU_KERNEL_NS", durations)]);
        longer_than_the_recording(&mut running).then(|| {
            running.terminate();
            let (_, errors) = finish(running.child, "loop");
            assert_eq!(errors, "");
        })
    });
}

/// Whether the kernel ran on when the recording had ended.
fn longer_than_the_recording(running: &mut support::live::Program) -> bool {
    let log = running.log.clone();
    while !log.exists() {
        assert!(running.child.try_wait().expect("wait").is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (recording, _) = running.attach().expect("it runs");
    // The program fills its memory before it launches.
    running.wait_until_recorded(&recording, 2);
    let Some(window) = running.detach((recording, 0)) else { return false };
    let unfinished = window.trace.losses[ShimLoss::UNFINISHED.0 as usize];
    let trace = &window.trace;
    let ended = |sequence: &u64| trace.completes.contains_key(sequence);
    let running_on = trace.dispatches.keys().filter(|s| !ended(s)).count();
    let waiting = trace.barriers.keys().filter(|s| !ended(s)).count();
    assert_eq!((running_on + waiting) as u64, unfinished);
    running_on == 1
}

/// What the program reads of its own signals while we come and go is what it would have read without
/// us: the times of its own dispatches and copies.
#[test]
fn rocm_the_programs_own_times_while_we_come_and_go() {
    let Some(s) = setup() else { return };
    let mut running = s.start("own-times", "hsa_direct sc 30000 times", &[]);
    let report = running.read_report();
    running.wait_until_busy();
    let mut windows = 0;
    while running.record(20).is_some() {
        windows += 1;
    }
    let log = running.log.clone();
    let report = report.join().expect("no panic");
    assert!(running.child.wait().expect("wait").success() && report.contains("result ok"));
    let truth = emulated_gpu::truth::read(&log).expect("log");
    let mut starts: BTreeSet<(&str, u64, u64)> = BTreeSet::new();
    starts.extend(truth.iter().map(|o| (o.kind.as_str(), o.start_ns, o.end_ns)));
    let mut lines = 0;
    for line in report.lines() {
        let ["time", kind, start, end] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            continue;
        };
        let (start, end): (u64, u64) = (start.parse().expect("ns"), end.parse().expect("ns"));
        let near = support::verify::NEAR_NS;
        let mut candidates = starts.range((kind, start - near, 0)..(kind, start + near + 1, 0));
        assert!(candidates.any(|o| o.2.abs_diff(end) <= near), "no operation at {line}");
        lines += 1;
    }
    assert!(lines > 30_000 && windows > 3, "{lines} times, {windows} windows");
}
