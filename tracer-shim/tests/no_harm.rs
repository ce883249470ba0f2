//! The shim in the real ROCm runtimes on the emulated GPU: what it must not do to the program.
//!
//! Every test is named `rocm_…`. Where ROCm is not installed they have nothing to run, and say so.

mod support;

use std::time::{Duration, Instant};

use support::memory::Recording;
use support::{finish, setup, start, terminate, verify};
use tracer_common::loss::ShimLoss;
use tracer_common::shim::{HEARTBEAT_TIMEOUT_NS, MAGIC, control, state};
use tracer_hooks::sys::now_ns;

#[test]
fn rocm_programs_that_test_callbacks_and_exceptions() {
    let Some(s) = setup() else { return };
    for program in ["callbacks 40", "throwing"] {
        let log = s.log("native");
        let (native, native_errors) = finish(start(&mut s.command(program, &[], &log)), program);
        let outcome = s.run("through", program, &[]);
        // Which the runtime says at its end now and then, untraced too.
        let known = "Resource leak detected by SharedSignalPool";
        let others = |errors: &str| -> Vec<String> {
            errors.lines().filter(|line| !line.contains(known)).map(str::to_owned).collect()
        };
        assert_eq!(others(&outcome.errors), others(&native_errors), "{program}");
        assert_eq!(
            outcome.report.lines().count(),
            native.lines().count(),
            "{program}: {}",
            outcome.report
        );
    }
}

#[test]
fn rocm_without_a_usable_memory_nothing_happens() {
    let Some(s) = setup() else { return };
    let strange = Recording::unread(4, 4096);
    strange.set(control::MAGIC, MAGIC + 1);
    let taken = Recording::unread(4, 4096);
    taken.set(control::PID, 1);
    taken.set(control::RECORD, 1);
    for path in ["", "/nowhere", "/dev/zero", &strange.path(), &taken.path()] {
        let log = s.log("inert");
        let mut command = s.command("storm 2 2 100 10", &[], &log);
        command.env("HSA_TOOLS_LIB", &s.shim).env("ROCTAP_SHIM_MEMORY", path);
        let (_, errors) = finish(start(&mut command), path);
        assert_eq!(errors, "", "{path}");
    }
    assert_eq!(taken.get(control::STATE), state::NONE);
    assert_eq!(strange.get(control::PID), 0);
}

#[test]
fn rocm_nobody_ever_reads() {
    let Some(s) = setup() else { return };
    let recording = Recording::unread(8, 1 << 16);
    let log = s.log("unread");
    for program in ["hsa_direct", "storm 4 2 500"] {
        recording.set(control::PID, 0);
        let child = start(&mut s.traced(program, &[], &log, &recording));
        let (_, errors) = finish(child, program);
        assert_eq!(errors, "");
        assert_eq!(recording.get(control::STATE), state::DORMANT);
    }
    let trace = recording.stop();
    assert!(trace.dispatches.is_empty() && trace.completes.is_empty());
}

/// More dispatches than two rings of 64 KiB hold.
const FULL: u64 = 4096;

/// The reader stops in the middle: the rings run full, then the shim goes dormant; when the reader
/// comes back it records again.
#[test]
fn rocm_the_reader_stalls_and_returns() {
    let Some(s) = setup() else { return };
    let recording = Recording::new(16, 1 << 16);
    let log = s.log("stall");
    let child = start(&mut s.traced("loop 0 2 0", &[], &log, &recording));
    recording.wait_until_recorded(100);
    recording.stall(true);
    recording.wait_for_state(state::DORMANT);
    let without_a_beat_ns = now_ns() - recording.get(control::HEARTBEAT_NS);
    assert!(without_a_beat_ns >= HEARTBEAT_TIMEOUT_NS, "{without_a_beat_ns}");
    let returned_ns = now_ns();
    let before = recording.recorded();
    recording.stall(false);
    recording.wait_for_state(state::ACTIVE);
    recording.wait_until_recorded(before + FULL);
    terminate(&child);
    let (_, errors) = finish(child, "loop");
    assert_eq!(errors, "");
    let trace = recording.stop();
    assert!(trace.dropped > 0, "the rings ran full");
    assert_eq!(trace.losses[ShimLoss::UNREAD.0 as usize], 1, "told");
    let last = trace.dispatches.values().map(|d| d.enqueue_ns).max().expect("some");
    assert!(last > returned_ns, "it records again");
    assert!(trace.agents.len() >= 4, "told again after waking");
}

#[test]
fn rocm_forks_and_children() {
    let Some(s) = setup() else { return };
    for child in ["$APPS/plain", "$APPS/basic", "$APPS/hsa_direct"] {
        let line = format!("fork_exec {child}");
        let outcome = s.run("fork", &line, &[]);
        assert_eq!(outcome.errors, "");
        let parent = outcome.trace.dispatches.len();
        assert!(parent >= 200, "{parent} dispatches of the parent");
        // The child's own are not recorded: the memory is the parent's.
        let kernels = outcome.truth.iter().filter(|o| o.name == "parent_kernel").count();
        assert_eq!(kernels, 200);
    }
}

/// Parent and child each take one of the memories that are listed.
#[test]
fn rocm_a_child_has_a_memory_of_its_own() {
    let Some(s) = setup() else { return };
    let both = [Recording::new(16, 1 << 20), Recording::new(16, 1 << 20)];
    let log = s.log("children");
    let mut command = s.traced("fork_exec $APPS/basic", &[], &log, &both[0]);
    command.env("ROCTAP_SHIM_MEMORY", format!("{}:{}", both[0].path(), both[1].path()));
    finish(start(&mut command), "fork_exec");
    let ran = |name: &str, trace: &support::memory::Trace| {
        let named = |d: &tracer_common::shim::Dispatch| {
            let of = |s: &&(tracer_common::shim::Symbol, String)| {
                s.0.kernel_object == d.kernel_object && s.1 == name
            };
            trace.symbols.iter().any(|s| of(&s))
        };
        trace.dispatches.values().filter(|d| named(d)).count()
    };
    let [parent, child] = both.map(Recording::stop);
    assert_eq!((ran("parent_kernel", &parent), ran("add_one", &parent)), (200, 0));
    assert_eq!((ran("parent_kernel", &child), ran("add_one", &child)), (0, 3));
}

#[test]
fn rocm_a_killed_program_leaves_a_readable_memory() {
    let Some(s) = setup() else { return };
    let recording = Recording::new(16, 1 << 20);
    let log = s.log("killed");
    let mut child = start(&mut s.traced("loop 0 4 0", &[], &log, &recording));
    let deadline = Instant::now() + support::DEADLINE;
    while recording.written_words() < 20_000 {
        assert!(Instant::now() < deadline, "nothing is recorded");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("kill");
    child.wait().expect("wait");
    let trace = recording.stop();
    assert!(trace.dispatches.len() > 100);
}

/// Another tool in the same process, before and after us in the list.
#[test]
fn rocm_the_list_of_tools_may_be_long() {
    let Some(s) = setup() else { return };
    let shim = s.shim.display();
    for list in [format!("libmissing.so {shim}"), format!("{shim} {shim}")] {
        let recording = Recording::new(32, 1 << 20);
        let log = s.log("list");
        let mut command = s.traced("hsa_direct", &[], &log, &recording);
        command.env("HSA_TOOLS_LIB", &list);
        let (report, errors) = finish(start(&mut command), &list);
        let trace = recording.stop();
        let truth = emulated_gpu::truth::read(&log).expect("log");
        let outcome = support::Outcome { report, errors, trace, truth, took: Duration::ZERO };
        assert!(verify::counted(&list, &outcome) < 100);
    }
}
