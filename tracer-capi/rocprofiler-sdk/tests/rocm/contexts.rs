//! Contexts that start and stop while the program runs.

use std::collections::BTreeSet;

use emulated_gpu::truth::{self, Operation};

use crate::expectations::is_near;
use crate::kinds::{HIP, HSA, KERNELS, RETIREMENTS};
use crate::scene::{scene, wait_until};

/// "rocprofiler_start_context": what is enqueued while it is active is recorded, and nothing else.
#[test]
fn rocm_contexts_that_start_and_stop() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("loop"));
    command.args(["0", "2", "300"]).env("WATCH_BYTES", "4096");
    command.env("WATCH_KINDS", format!("{HIP},{HSA},{KERNELS},{RETIREMENTS}"));
    let mut periods = scene.in_periods(command);
    for _ in 0..3 {
        periods.next(100);
        let count = || ["kernel ", "call "].map(|word| scene.written().matches(word).count());
        let [kernels, calls] = count();
        let did = || {
            let truth = truth::read(&scene.file("truth")).expect("what the GPU did");
            truth.iter().filter(|operation| operation.kind == "dispatch").count()
        };
        let done = did();
        wait_until("the GPU goes on", || did() > done + 100);
        let now = count();
        // Each thread may have been in some.
        assert!(now[0] == kernels && now[1] <= calls + 8, "{now:?}: {kernels} and {calls}");
    }
    periods.end();
    let mut outcome = scene.outcome();
    outcome.expect_nested();
    outcome.expect_retirements();
    let did = outcome.did("dispatch");
    assert!(outcome.kernels.len() + 300 < did.len(), "{}: {}", outcome.kernels.len(), did.len());
    let mut seen = BTreeSet::new();
    for kernel in &outcome.kernels {
        let is_it = |operation: &&&Operation| {
            operation.hsa_queue == Some(kernel.queue)
                && is_near((kernel.begin_ns, kernel.end_ns), operation)
        };
        let operation = did.iter().find(is_it).unwrap_or_else(|| panic!("nobody ran {kernel:?}"));
        assert!(seen.insert((kernel.queue, operation.index)), "twice: {kernel:?}");
    }
}
