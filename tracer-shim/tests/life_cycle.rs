//! Runtimes that are shut down, begun anew and left to the exit of the process, with the shim in them.
//!
//! Every test is named `rocm_…`. Where ROCm is not installed they have nothing to run, and say so.

mod support;

use support::live::verify;
use support::memory::Recording;
use support::{finish, setup, start};
use tracer_common::loss::ShimLoss;
use tracer_common::shim::{attach_status, control, state};

/// A library that pairs `hsa_init` with `hsa_shut_down` takes nothing from whoever else uses the runtime:
/// no kernel is waited for, none is forgotten, and recording goes on.
#[test]
fn rocm_a_shut_down_that_is_not_the_last() {
    let Some(s) = setup() else { return };
    // Longer than anybody would wait for it.
    let long = [("EMUGPU_KERNEL_NS", "*=1500000000"), ("ROCTAP_TEST_WAIT", "1")];
    let mut running = s.start("long-pairs", "hsa_direct i 3", &long);
    let (recording, began_ns) = running.attach().expect("it waits");
    running.go_on();
    let log = running.log.clone();
    let (_, errors) = finish(running.child, "long-pairs");
    assert_eq!(errors, "");
    let trace = recording.stop();
    assert_eq!((trace.dispatches.len(), trace.completes.len()), (6, 6), "{:?}", trace.losses);
    let truth = emulated_gpu::truth::read(&log).expect("log");
    let ended_ns = u64::MAX;
    verify("long-pairs", &support::live::Window { trace, began_ns, ended_ns }, &truth);

    let short = [("EMUGPU_KERNEL_NS", "*=100000")];
    let mut running = s.start("pairs", "hsa_direct i 1000000", &short);
    running.wait_until_busy();
    let windows = [500, 500].map(|least| running.record_some(least));
    running.terminate();
    let log = running.log.clone();
    let (_, errors) = finish(running.child, "pairs");
    assert_eq!(errors, "");
    let truth = emulated_gpu::truth::read(&log).expect("log");
    for window in &windows {
        assert!(verify("pairs", window, &truth).recorded >= 500);
        assert_eq!(window.trace.losses[ShimLoss::UNFINISHED.0 as usize], 0);
    }
}

/// The last shut-down ends a recording that was begun in the running process, and the runtime that is
/// initialized after it can be attached to again.
#[test]
fn rocm_shut_down_for_good_and_begun_anew() {
    let Some(s) = setup() else { return };
    let mut running = s.start("anew", "hsa_direct sosos 3000", &[]);
    let mut recorded = 0;
    for _ in 0..3 {
        let Some((recording, _)) = running.attach() else { break };
        // Attached behind the last shut-down, it records to the end of the program.
        if !running.wait_for_state(&recording, state::DORMANT) {
            break;
        }
        recording.set(control::RECORD, 0);
        let trace = recording.stop();
        recorded += trace.dispatches.len();
        assert_eq!(trace.dispatches.len(), trace.completes.len(), "{:?}", trace.losses);
    }
    assert!(recorded > 0);
    let (_, errors) = finish(running.child, "anew");
    assert_eq!(errors, "");
}

/// The same from the start, where the runtime tells when it goes.
#[test]
fn rocm_from_the_start_of_each_runtime() {
    let Some(s) = setup() else { return };
    let tool = s.apps.join("libhsa_tool.so");
    let (tool, shim) = (tool.display(), s.shim.display());
    for tools in [format!("{shim}"), format!("{tool} {shim}"), format!("{shim} {tool}")] {
        let recording = Recording::new(32, 1 << 20);
        let log = s.log("from-the-start");
        let mut command = s.traced("hsa_direct soso 200", &[], &log, &recording);
        command.env("HSA_TOOLS_LIB", &tools);
        let (_, errors) = finish(start(&mut command), &tools);
        assert_eq!(errors, "");
        let trace = recording.stop();
        assert_eq!((trace.dispatches.len(), trace.completes.len()), (400, 400), "{tools}");
    }
}

/// A destructor that runs after ours waits for what the program launched.
#[test]
fn rocm_destructors_wait_for_kernels() {
    let Some(s) = setup() else { return };
    let slow = ("EMUGPU_KERNEL_NS", "*=300000000");
    let outcome = s.run("destructor", "hsa_direct e 4", &[slow]);
    assert_eq!((outcome.errors.as_str(), outcome.trace.dispatches.len()), ("", 4));
    let mut running = s.start("destructor", "hsa_direct e 4", &[slow, ("ROCTAP_TEST_WAIT", "1")]);
    let (recording, _) = running.attach().expect("it waits");
    running.go_on();
    let (_, errors) = finish(running.child, "destructor");
    assert_eq!((errors.as_str(), recording.stop().dispatches.len()), ("", 4));
}

/// Of several runtimes in a process one is hooked, and stays it.
#[test]
fn rocm_a_second_runtime_is_refused() {
    let Some(s) = setup() else { return };
    let mut running = s.start("second", "hsa_direct s 1000000", &[]);
    running.wait_until_busy();
    let window = running.record_some(100);
    running.use_another_runtime(true);
    let second = Recording::new(8, 1 << 16);
    let status = running.status(&second.path(), "");
    assert_eq!(status, attach_status::SECOND_RUNTIME);
    running.use_another_runtime(false);
    let again = running.record_some(100);
    running.terminate();
    let log = running.log.clone();
    let (_, errors) = finish(running.child, "second");
    assert_eq!(errors, "");
    let truth = emulated_gpu::truth::read(&log).expect("log");
    for window in [window, again] {
        assert!(verify("second", &window, &truth).recorded >= 100);
    }
}
