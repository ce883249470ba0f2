//! Contexts that start and stop while the program runs.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};

use emulated_gpu::truth::{self, Operation};

use crate::expectations::is_near;
use crate::kinds::{HIP, HSA, KERNELS, RETIREMENTS};
use crate::scene::{scene, send, wait_until};

/// "rocprofiler_start_context": what is enqueued while it is active is recorded, and nothing else.
#[test]
fn rocm_contexts_that_start_and_stop() {
    let Some(scene) = scene() else { return };
    let go = scene.file("go");
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("loop"));
    command.args(["0", "2", "300"]).env("WATCH_GO", &go).env("WATCH_BYTES", "4096");
    command.env("WATCH_KINDS", format!("{HIP},{HSA},{KERNELS},{RETIREMENTS}"));
    let mut running = scene.there(command).spawn().expect("it begins");
    let mut said = BufReader::new(running.stdout.take().expect("its output"));
    let mut ready = String::new();
    said.read_line(&mut ready).expect("text");
    let told = || -> String {
        let texts = scene.told().into_iter().map(std::fs::read_to_string);
        texts.map(|text| text.expect("what was told")).collect()
    };
    for round in 1..=3 {
        let before = told().matches("kernel ").count();
        std::fs::write(&go, "").expect("written");
        wait_until("kernels are recorded", || told().matches("kernel ").count() > before + 100);
        std::fs::remove_file(&go).expect("removed");
        wait_until("the context is stopped", || told().matches("stopped").count() == round);
        let count = || ["kernel ", "call "].map(|word| told().matches(word).count());
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
    send(running.id());
    assert!(running.wait().expect("it ends").success());
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
