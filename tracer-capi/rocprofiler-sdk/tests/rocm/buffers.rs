//! Buffers that are full, and callbacks of buffers that are slow or never return.

use crate::kinds::{HIP, KERNELS, RETIREMENTS};
use crate::scene::{arguments, scene};

/// A slow callback: LOSSLESS loses nothing, and with DISCARD what was delivered and what was dropped is all.
#[test]
fn rocm_policies_of_buffers() {
    let Some(scene) = scene() else { return };
    let slow = [("WATCH_KINDS", KERNELS), ("WATCH_BYTES", "4096"), ("WATCH_SLOW_US", "2000")];
    let mut outcome = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &slow);
    outcome.expect_all_kernels();
    assert_eq!(outcome.dropped, 0);
    let words = [&slow[..], &[("WATCH_DISCARD", "1")]].concat();
    let outcome = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &words);
    let (delivered, did) = (outcome.kernels.len() as u64, outcome.did("dispatch").len() as u64);
    assert!(outcome.dropped > 0, "the buffer was never full");
    assert_eq!(delivered + outcome.dropped, did);
}

/// From eight threads, with a slow callback: as of kernels.
#[test]
fn rocm_policies_of_buffers_of_calls() {
    let Some(scene) = scene() else { return };
    let slow = [("WATCH_KINDS", HIP), ("WATCH_BYTES", "4096"), ("WATCH_SLOW_US", "500")];
    let mut outcome = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &slow);
    outcome.expect_every_call("hip", &[]);
    assert_eq!(outcome.dropped, 0);
    let words = [&slow[..], &[("WATCH_DISCARD", "1")]].concat();
    let discarded = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &words);
    assert!(discarded.dropped > 0, "the buffer was never full");
    assert_eq!(discarded.calls.len() as u64 + discarded.dropped, outcome.calls.len() as u64);
}

/// What was launched before a flush is delivered by it, though callbacks take longer than GPUs are waited for.
#[test]
fn rocm_a_flush_waits_for_slow_callbacks_of_its_buffer() {
    if let Some(scene) = scene() {
        scene.run_client("flushes");
    }
}

/// A process that exits waits for a callback, but not for ever.
#[test]
fn rocm_a_callback_that_does_not_return() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("basic"));
    command.env("WATCH_SLOW_US", "999999999");
    let output = scene.there(command).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("the callback of a buffer has not returned for 10 s"), "{errors}");
}

/// Work that is under way is waited for, and its records are delivered by another thread.
#[test]
fn rocm_a_tool_that_finalizes_itself_in_a_callback() {
    if let Some(scene) = scene() {
        scene.run_client("finalizes");
    }
}

/// A tool whose callback never returns holds up no other one's.
#[test]
fn rocm_a_tool_that_is_stuck_beside_one_that_is_not() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.apps.join("storm"));
    let tools = ["libstuck.so", "libwatches.so"].map(|name| scene.file(name).display().to_string());
    command
        .args(arguments("storm", &["2", "2", "2000"]))
        .env("ROCP_TOOL_LIBRARIES", tools.join(":"));
    let kinds = format!("{KERNELS},{RETIREMENTS}");
    command.envs([("WATCH_THREAD", "1"), ("WATCH_KINDS", &*kinds)]);
    let output = scene.there(command).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors.matches("the callback of a buffer has not returned").count(), 1, "{errors}");
    let mut outcome = scene.outcome();
    outcome.expect_all_kernels();
    outcome.expect_retirements();
    assert_eq!(outcome.dropped, 0);
}
