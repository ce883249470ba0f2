//! The shim beside other tools and other copies of itself, in the real HSA runtime.
//!
//! Every test is named `rocm_…`. Where ROCm is not installed they have nothing to run, and say so.

mod support;

use support::live::{Program, verify};
use support::memory::{Recording, Trace};
use support::{finish, setup};
use tracer_common::hsa_functions::slot_of;
use tracer_common::shim::{control, state};

/// Slow enough for the rings, wherever their reader is kept waiting.
const SLOW: [(&str, &str); 1] = [("EMUGPU_KERNEL_NS", "*=100000")];

/// When the program called `function`, as the trace says.
fn calls<'a>(trace: &'a Trace, function: &str) -> &'a [u64] {
    let slot = slot_of(function).expect("a slot");
    trace.calls.get(&slot).map_or(&[], Vec::as_slice)
}

fn wanting_calls() -> Recording {
    let mut recording = Recording::unread(64, 1 << 22);
    recording.want_calls();
    recording.read();
    recording
}

/// Records for some dispatches, with all HSA calls.
fn record_calls(running: &mut Program) -> Trace {
    let (recording, began_ns) = running.attach_to(wanting_calls()).expect("it runs");
    running.wait_until_recorded(&recording, 300);
    running.detach((recording, began_ns)).expect("it runs").trace
}

/// A tool that put its functions over ours calls them. Ours over its once more would never end.
#[test]
fn rocm_attached_again_below_another_tool() {
    let Some(s) = setup() else { return };
    let tool = s.apps.join("libhsa_tool.so");
    for (name, tools) in [
        ("above", format!("{} {}", s.shim.display(), tool.display())),
        ("below", format!("{} {}", tool.display(), s.shim.display())),
    ] {
        let first = wanting_calls();
        let mut running = s.start_with_tools(name, "hsa_direct s 1000000", &SLOW, &tools, &first);
        running.wait_until_busy();
        first.wait_for_state(state::ACTIVE);
        first.set(control::RECORD, 0);
        first.wait_for_state(state::DORMANT);
        let first = first.stop();
        assert!(!calls(&first, "hsa_signal_create").is_empty(), "{name}");
        for _ in 0..3 {
            let trace = record_calls(&mut running);
            // One by the program for each dispatch, none by us. Calls are recorded a little later than
            // dispatches, and until the last kernel has ended.
            let enqueued: Vec<u64> = trace.dispatches.values().map(|d| d.enqueue_ns).collect();
            let last = *enqueued.iter().max().expect("some");
            for function in ["hsa_signal_create", "hsa_signal_destroy"] {
                let calls = calls(&trace, function);
                let both = calls[0]..last;
                let within = |times: &[u64]| times.iter().filter(|ns| both.contains(ns)).count();
                let (calls, dispatches) = (within(calls), within(&enqueued));
                assert!(
                    dispatches > 100 && calls.abs_diff(dispatches) <= 1,
                    "{name}: {calls} {function}, {dispatches}"
                );
            }
        }
        running.terminate();
        let (_, errors) = finish(running.child, name);
        assert_eq!(errors, "", "{name}");
    }
}

/// Two versions of the shim take turns in one process; each leaves the tables as the other needs them.
#[test]
fn rocm_two_versions_take_turns() {
    let Some(s) = setup() else { return };
    let copy = s.log("another_shim.so");
    std::fs::copy(&s.shim, &copy).expect("copied");
    let mut running = s.start("turns", "hsa_direct s 1000000", &SLOW);
    running.wait_until_busy();
    let mut windows = Vec::new();
    for turn in 0..6 {
        running.use_shim(if turn % 2 == 0 { s.shim.clone() } else { copy.clone() });
        let attached = running.attach_to(wanting_calls()).expect("it runs");
        running.wait_until_recorded(&attached.0, 300);
        windows.push(running.detach(attached).expect("it runs"));
    }
    running.terminate();
    let log = running.log.clone();
    let (_, errors) = finish(running.child, "turns");
    assert_eq!(errors, "");
    let truth = emulated_gpu::truth::read(&log).expect("log");
    for window in &windows {
        assert!(verify("turns", window, &truth).recorded >= 300);
        assert!(calls(&window.trace, "hsa_signal_create").len() > 200);
    }
}
