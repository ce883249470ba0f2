//! Programs that fork.

use std::collections::BTreeSet;

use emulated_gpu::truth::Operation;

use crate::expectations::is_near;
use crate::scene::scene;

/// A forked child is not traced; the program that it executes is, by itself.
#[test]
fn rocm_programs_that_fork() {
    let Some(scene) = scene() else { return };
    let basic = scene.apps.join("basic").display().to_string();
    let outcome = scene.run("LD_PRELOAD", "fork_exec", &[&basic], &[]);
    let did = outcome.did("dispatch");
    let pids: BTreeSet<u32> = did.iter().map(|operation| operation.pid).collect();
    assert_eq!((pids.len(), outcome.kernels.len()), (2, did.len()));
    for kernel in &outcome.kernels {
        let is_it = |operation: &&Operation| is_near((kernel.begin_ns, kernel.end_ns), operation);
        assert!(did.iter().any(is_it), "nobody ran {kernel:?}");
    }
}
