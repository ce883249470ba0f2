//! HIP's activity interface in real programs that run already: what is recorded, who has the slot.
//!
//! Every test is named `rocm_…`. Where ROCm is not installed they have nothing to run, and say so.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use emulated_gpu::truth::Operation;
use support::live::{Window, is_the_runtimes};
use support::memory::{Recording, Trace};
use support::verify::NEAR_NS;
use support::{finish, setup};
use tracer_common::shim::{Complete, Loss, attach_status, control, state, tier};

const SLOW: (&str, &str) = ("EMUGPU_KERNEL_NS", "*=20000");

/// HIP's name for any kernel.
const UNNAMED: &str = "KernelExecution";

/// What HIP calls an operation of the ground truth; none when it is none of HIP's commands.
fn command(operation: &Operation) -> Option<String> {
    let name = operation.name.as_str();
    match operation.kind.as_str() {
        "copy" => Some(name.to_owned()),
        "dispatch" if name.starts_with("__amd_rocclr_copy") => Some("D2D".to_owned()),
        "dispatch" if name.starts_with("__amd_rocclr_fill") => Some("FillBuffer".to_owned()),
        "dispatch" if !is_the_runtimes(operation) => Some(name.to_owned()),
        _ => None,
    }
}

/// Whether a command can be of several operations.
fn is_split(name: &str) -> bool {
    ["H2D", "D2H", "D2D", "FillBuffer"].contains(&name)
}

/// Finds the operations of the ground truth that make up each command, by name and times: one for a
/// kernel, some for a copy. Those that belong to none are left.
fn matched<'a>(
    what: &str,
    trace: &Trace,
    truth: &'a [Operation],
    may_be_unnamed: usize,
) -> Vec<&'a Operation> {
    let names: BTreeMap<u64, &str> =
        trace.symbols.iter().map(|(s, name)| (s.kernel_object, name.as_str())).collect();
    assert_eq!(names.len(), trace.symbols.len(), "{what}: a name was told twice");
    let agents: BTreeMap<u64, (u32, u32)> =
        trace.agents.iter().map(|a| (a.handle, (a.device_type, a.node_id))).collect();
    let mut by_start: BTreeMap<(String, u64, u64), Vec<&Operation>> = BTreeMap::new();
    for o in truth {
        if let Some(name) = command(o) {
            by_start.entry((name, o.start_ns, o.index)).or_default().push(o);
        }
    }
    let barriers = truth.iter().filter(|o| o.kind == "barrier_and").map(|o| o.start_ns);
    let barriers: BTreeSet<u64> = barriers.collect();
    // Takes those of a name and a GPU out that lie between two times, on the queue of the one that begins
    // next to the first time: that one, and others if their middle does, since the next command may
    // follow at once.
    let mut take = |name: &str, node: u32, start_ns: u64, end_ns: u64, parts: bool| {
        let from = (name.to_owned(), start_ns.saturating_sub(NEAR_NS), 0);
        let to = (name.to_owned(), end_ns + NEAR_NS, u64::MAX);
        let range = by_start.range_mut(from..to);
        let inside = |o: &&Operation| o.node == node && o.end_ns <= end_ns + NEAR_NS;
        let mut places: Vec<_> = range.map(|(_, there)| there).collect();
        let all = places.iter().flat_map(|there| there.iter().copied().filter(inside));
        let mut found: Vec<&Operation> = Vec::new();
        let Some(next) = all.min_by_key(|o| o.start_ns.abs_diff(start_ns)) else { return found };
        for there in &mut places {
            there.retain(|o| {
                let part = parts
                    && o.queue == next.queue
                    && (start_ns..=end_ns).contains(&o.start_ns.midpoint(o.end_ns));
                let taken = inside(o) && (part || core::ptr::eq(*o, next));
                found.extend(taken.then_some(*o));
                !taken
            });
        }
        found
    };
    let mut find = |name: &str, node: u32, c: &Complete| {
        let mut found = take(name, node, c.start_ns, c.end_ns, is_split(name));
        if found.is_empty() && name == "D2D" {
            // A rectangle of pinned memory, copied row by row: HIP tells when the last one was.
            let row = |c: &Complete, take: &mut dyn FnMut(&str, u64, u64) -> Vec<&'a Operation>| {
                ["H2D", "D2H"].iter().find_map(|name| {
                    let rows = take(name, c.start_ns, c.end_ns);
                    (!rows.is_empty()).then_some((*name, rows))
                })
            };
            let mut of_node = |name: &str, start, end| take(name, node, start, end, true);
            if let Some((name, rows)) = row(c, &mut of_node) {
                // What came before is no other command's: those were looked for already.
                let before = of_node(name, rows[0].start_ns - 100_000_000, rows[0].start_ns);
                let alike = before.iter().all(|o| o.bytes == rows[0].bytes);
                assert!(alike, "{what}: {c:?}: {rows:?} {before:?}");
                found = rows;
            }
        }
        let start = found.iter().map(|o| o.start_ns.abs_diff(c.start_ns)).min();
        let end = found.iter().map(|o| o.end_ns).max();
        let near = |off: Option<u64>| off.is_some_and(|off| off <= NEAR_NS);
        // A copy that waits for a queue begins with the barrier that it waits by.
        let mut waits = barriers.range(c.start_ns - NEAR_NS..=c.start_ns + NEAR_NS);
        let begins = near(start) || is_split(name) && waits.next().is_some();
        let ends = near(end.map(|end| end.abs_diff(c.end_ns)));
        let meanwhile = || -> Vec<&Operation> {
            truth.iter().filter(|o| o.end_ns > c.start_ns && o.start_ns < c.end_ns).collect()
        };
        assert!(begins && ends, "{what}: {name} {c:?}: {found:?} {:?}", meanwhile());
    };
    let mut unnamed = 0;
    let mut commands: Vec<(&Complete, String, u64)> = Vec::new();
    for d in trace.dispatches.values() {
        let c = &trace.completes[&d.sequence];
        assert!(d.enqueue_ns <= c.start_ns + NEAR_NS, "{what}: {d:?} {c:?}");
        let mut name = *names.get(&d.kernel_object).expect("a name");
        if name == UNNAMED {
            // The launch had been entered before the shim came.
            unnamed += 1;
            let off = |o: &&Operation| o.start_ns.abs_diff(c.start_ns);
            let dispatches = truth.iter().filter(|o| o.kind == "dispatch");
            let o = dispatches.min_by_key(off).filter(|o| off(o) <= NEAR_NS);
            name = &o.unwrap_or_else(|| panic!("{what}: never ran: {c:?}")).name;
        }
        commands.push((c, name.to_owned(), d.agent));
    }
    for r in trace.copies.values() {
        let c = &trace.completes[&r.sequence];
        assert!(r.enqueue_ns <= c.start_ns + NEAR_NS, "{what}: {r:?} {c:?}");
        let gpu = |handle| agents[&handle].0 == 1;
        let (name, agent) = match (gpu(r.src_agent), gpu(r.dst_agent)) {
            (true, true) => ("D2D", r.dst_agent),
            (true, false) => ("D2H", r.src_agent),
            (false, true) => ("H2D", r.dst_agent),
            (false, false) => panic!("{what}: between hosts: {r:?}"),
        };
        commands.push((c, name.to_owned(), agent));
    }
    assert!(unnamed <= may_be_unnamed, "{what}: {unnamed} kernels without a name");
    assert_eq!(trace.completes.len(), commands.len(), "{what}: completions of nothing");
    commands.sort_unstable_by_key(|(c, _, _)| c.start_ns);
    for (c, name, agent) in &commands {
        let (_, node) = agents[agent];
        find(name, node, c);
    }
    by_start.into_values().flatten().collect()
}

/// Nothing was lost, but for kernels whose launch had been entered before the shim came.
fn whole(what: &str, trace: &Trace, may_be_without_times: u64) {
    let mut losses = trace.losses;
    let no_times = std::mem::take(&mut losses[Loss::NO_TIMES.0 as usize]);
    assert_eq!((trace.dropped, losses), (0, [0; Loss::COUNT]), "{what}");
    assert!(no_times <= may_be_without_times, "{what}: {no_times} without times");
    assert!(trace.barriers.is_empty(), "{what}: HIP has no times of them");
}

/// Everything that ran in the window was recorded, but for what had been enqueued before: on each queue,
/// what is left comes before what was recorded. `together` threads use a queue, all but one of which may
/// have been about to enqueue a command that was created before, each for as long as it had no CPU. What a
/// thread launches has a name of its own.
fn verify(what: &str, window: &Window, truth: &[Operation], together: usize) -> usize {
    let Window { trace, began_ns, ended_ns } = window;
    whole(what, trace, together as u64);
    // A recording that has ended still waits for what was created, longer on a machine that stands still.
    let near = |o: &&Operation| {
        o.start_ns + 1_000_000_000 > *began_ns && o.start_ns < *ended_ns + 10_000_000_000
    };
    let truth: &[Operation] = &truth.iter().filter(near).cloned().collect::<Vec<_>>();
    let left = matched(what, trace, truth, together);
    let left: BTreeSet<(u64, u64)> =
        left.iter().filter_map(|o| Some((o.hsa_queue?, o.index))).collect();
    let mut begun: BTreeSet<u64> = BTreeSet::new();
    let mut begun_by_name: BTreeSet<(u64, &str)> = BTreeSet::new();
    let mut late: BTreeSet<(u64, &str)> = BTreeSet::new();
    let mut before = 0;
    for o in truth {
        let Some(queue) = o.hsa_queue.filter(|_| command(o).is_some()) else { continue };
        if !left.contains(&(queue, o.index)) {
            begun.insert(queue);
            begun_by_name.insert((queue, &o.name));
        } else if o.end_ns > *began_ns && o.end_ns < *ended_ns {
            let name = (queue, o.name.as_str());
            if !begun.contains(&queue) {
                before += 1;
            } else if begun_by_name.contains(&name) || !late.insert(name) {
                panic!("{what}: not recorded: {o:?}");
            }
        }
    }
    let late = late.len();
    assert!(
        late < together.max(1) || late as u64 <= trace.losses[Loss::NO_TIMES.0 as usize],
        "{what}: {late} are missing"
    );
    assert!(before <= 100 * together.max(1) + 4, "{what}: {before} were there before");
    trace.dispatches.len()
}

/// On before the program begins: every command of it is there, once.
#[test]
fn rocm_whole_programs() {
    let Some(s) = setup() else { return };
    for (program, env, least) in [
        ("basic", &[][..], 3),
        ("copies 300", &[], 15),
        ("module 20 20", &[], 400),
        ("storm 4 2 1000 100", &[], 8000),
        ("storm 3 2 300 100 3", &[("EMUGPU_COUNT", "3"), ("EMUGPU_ARCH", "gfx90a")], 1800),
        (
            "storm 2 1 100 100 2",
            &[("EMUGPU_COUNT", "2"), ("EMUGPU_ARCH", "gfx90a"), ("HIP_VISIBLE_DEVICES", "1,0")],
            200,
        ),
    ] {
        let env = [env, &[("ROCTAP_TEST_WAIT", "1")]].concat();
        let mut running = s.start("whole", program, &env);
        let (recording, _) = running.attach(tier::HIP_ACTIVITY).expect("it waits");
        running.go_on();
        let log = running.log.clone();
        let (_, errors) = finish(running.child, program);
        assert_eq!(errors, "", "{program}");
        let trace = recording.stop();
        whole(program, &trace, 0);
        let truth = emulated_gpu::truth::read(&log).expect("log");
        let left = matched(program, &trace, &truth, 0);
        assert!(left.is_empty(), "{program}: not recorded: {:?}", left[0]);
        assert!(trace.dispatches.len() >= least, "{program}: {}", trace.dispatches.len());
        eprintln!(
            "{program}: {} dispatches, {} copies",
            trace.dispatches.len(),
            trace.copies.len()
        );
    }
}

/// HIP hangs when it is to call the program back while it is watched: such a program is left alone.
#[test]
fn rocm_a_program_that_has_itself_called_back() {
    let Some(s) = setup() else { return };
    let mut running = s.start("called-back", "callbacks 300", &[("ROCTAP_TEST_WAIT", "1")]);
    let memory = Recording::new(8, 1 << 16);
    let status = running.status(&memory.path(), tier::HIP_ACTIVITY, "");
    assert_eq!((status, memory.written_words()), (attach_status::UNSUPPORTED, 0));
    running.go_on();
    let (_, errors) = finish(running.child, "callbacks");
    assert_eq!(errors, "");
}

/// HIP does not say which kernels a graph is of; their times are there.
#[test]
fn rocm_graphs() {
    let Some(s) = setup() else { return };
    let mut running = s.start("graph", "graph 50", &[("ROCTAP_TEST_WAIT", "1")]);
    let (recording, _) = running.attach(tier::HIP_ACTIVITY).expect("it waits");
    running.go_on();
    let log = running.log.clone();
    finish(running.child, "graph");
    let trace = recording.stop();
    whole("graph", &trace, 0);
    let truth = emulated_gpu::truth::read(&log).expect("log");
    let left = matched("graph", &trace, &truth, 300);
    assert!(left.is_empty(), "not recorded: {:?}", left[0]);
}

/// On and off while the program launches: every command that was created in between is there.
#[test]
fn rocm_on_and_off() {
    let Some(s) = setup() else { return };
    for (program, env, together) in [
        ("loop 0 1 0", &[SLOW][..], 1),
        ("loop 0 4 1000", &[SLOW], 4),
        ("loop 0 4 0", &[SLOW, ("GPU_MAX_HW_QUEUES", "1")], 4),
    ] {
        let mut running = s.start("on-and-off", program, env);
        running.wait_until_busy();
        let mut windows = Vec::new();
        for _ in 0..20 {
            windows.push(running.record_by(tier::HIP_ACTIVITY, 20).expect("it runs"));
        }
        let log = running.log.clone();
        // SAFETY: a signal to a child that was not waited for.
        #[expect(unsafe_code, reason = "a system call")]
        unsafe {
            libc::kill(running.child.id() as i32, libc::SIGTERM);
        }
        let (_, errors) = finish(running.child, program);
        assert_eq!(errors, "", "{program}");
        let truth = emulated_gpu::truth::read(&log).expect("log");
        let mut dispatches = 0;
        let mut numbers: BTreeSet<u64> = BTreeSet::new();
        // A program that gets no CPU to synchronise by in time: counted, and nothing can be verified.
        let unfinished = |w: &Window| w.trace.losses[Loss::UNFINISHED.0 as usize] > 0;
        windows.retain(|window| !unfinished(window));
        assert!(windows.len() > 15, "{program}: {} windows have all", windows.len());
        for window in &windows {
            dispatches += verify(program, window, &truth, together);
            numbers.extend(window.trace.dispatches.keys().copied());
        }
        assert_eq!(numbers.len(), dispatches, "{program}: a number given twice");
        assert!(dispatches > 200, "{program}: {dispatches}");
        eprintln!("{program}: {dispatches} dispatches in {} windows", windows.len());
    }
}

/// Each way in turn in one process: never both, and each as if it were alone.
#[test]
fn rocm_both_ways_in_turn() {
    let Some(s) = setup() else { return };
    let mut running = s.start("in-turn", "loop 0 2 2000", &[SLOW]);
    running.wait_until_busy();
    let mut windows = Vec::new();
    for _ in 0..5 {
        for tier in [tier::TABLES, tier::HIP_ACTIVITY, tier::HIP_ACTIVITY, tier::TABLES] {
            windows.push((tier, running.record_some(tier, 5)));
        }
    }
    let first = running.attach(tier::HIP_ACTIVITY).expect("it runs");
    for tier in [tier::TABLES, tier::HIP_ACTIVITY] {
        let status = running.status(&Recording::new(8, 1 << 16).path(), tier, "");
        assert_eq!(status, attach_status::BUSY, "{tier}");
    }
    windows.push((tier::HIP_ACTIVITY, running.detach(first).expect("it runs")));
    assert_eq!(running.settled().memories, 0);
    let log = running.log.clone();
    running.child.kill().expect("kill");
    running.child.wait().expect("wait");
    let truth = emulated_gpu::truth::read(&log).expect("log");
    for (tier, window) in &windows {
        let recorded = match *tier {
            tier::TABLES => {
                assert!(window.trace.dispatches.values().all(|d| d.kernel_object >> 63 == 0));
                support::live::verify("tables", window, &truth).recorded
            }
            _ => verify("hip", window, &truth, 2),
        };
        assert!(recorded > 0, "{tier}");
    }
}

/// Whoever has the slot keeps it, and nothing changes.
#[test]
fn rocm_the_slot_of_another_tool() {
    let Some(s) = setup() else { return };
    let mut running = s.start("taken", "loop 0 1 2000", &[]);
    running.wait_until_busy();
    for what in ["operations", "call"] {
        running.take_slot(what);
        let memory = Recording::new(8, 1 << 16);
        let status = running.status(&memory.path(), tier::HIP_ACTIVITY, "");
        assert_eq!(status, attach_status::SLOT_TAKEN, "{what}");
        assert_eq!(memory.get(control::ATTACH_STATUS), attach_status::SLOT_TAKEN);
        assert_eq!(memory.get(control::STATE), state::NONE);
        assert_eq!(memory.written_words(), 0);
        running.record_some(tier::TABLES, 1);
        running.take_slot("nothing");
    }
    running.record_some(tier::HIP_ACTIVITY, 1);
    running.child.kill().expect("kill");
    running.child.wait().expect("wait");
}

/// What is never reported before the recording ends is counted, and the program is not kept waiting.
#[test]
fn rocm_a_kernel_that_runs_longer_than_the_recording() {
    let Some(s) = setup() else { return };
    support::until_it_runs_longer(|durations| {
        let env = [("EMUGPU_KERNEL_NS", durations), ("ROCTAP_TEST_WAIT", "1")];
        let mut running = s.start("long", "loop 2 1 5", &env);
        let attached = running.attach(tier::HIP_ACTIVITY).expect("it waits");
        running.go_on();
        running.wait_until_ready();
        let window = running.detach(attached)?;
        // The kernel, and a marker.
        let unfinished = window.trace.losses[Loss::UNFINISHED.0 as usize];
        assert!(unfinished <= 2, "{unfinished}");
        (unfinished > 0).then(|| {
            let (_, errors) = finish(running.child, "loop");
            assert_eq!(errors, "");
        })
    });
}
