//! Callbacks of code objects.

use std::collections::BTreeSet;

use emulated_gpu::truth::{self, Operation};

use crate::expectations::is_near;
use crate::kinds::{CODE_OBJECTS, HSA, KERNELS};
use crate::outcome::FIRST_AGENT;
use crate::scene::{LOADERS, scene, wait_until};

/// "kernel_id": the names of kernels are those of code objects.
#[test]
fn rocm_code_objects_name_kernels() {
    let Some(scene) = scene() else { return };
    let words = [("WATCH_KINDS", KERNELS), ("WATCH_CALLBACKS", CODE_OBJECTS)];
    for loader in LOADERS {
        for (program, arguments) in [
            ("basic", &[][..]),
            ("module", &[]),
            ("graph", &["20"]),
            ("hsa_direct", &[]),
            ("storm", &["8", "4", "300"]),
        ] {
            let mut outcome = scene.run(loader, program, arguments, &words);
            outcome.expect_names();
            // Those of `hsa_direct` come and go with queues of the same number.
            if program != "hsa_direct" {
                // One id is of one kernel, by when it ran.
                outcome.expect_all_kernels();
            }
            let known = outcome.symbols.values().filter(|symbol| symbol.vector_registers > 0);
            assert_eq!(known.count(), outcome.symbols.len(), "{program}: {:#?}", outcome.symbols);
        }
    }
    // With callbacks of the calls that load them.
    let callbacks = format!("{CODE_OBJECTS},{HSA}");
    let words = [("WATCH_KINDS", KERNELS), ("WATCH_CALLBACKS", &*callbacks)];
    scene.run("LD_PRELOAD", "module", &[], &words).expect_names();
}

/// A context that starts when code objects are loaded is told of them then, and once.
#[test]
fn rocm_code_objects_that_are_there() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("loop"));
    command.args(["0", "2", "300"]).env("WATCH_BYTES", "4096");
    command.env("WATCH_KINDS", KERNELS).env("WATCH_CALLBACKS", CODE_OBJECTS);
    let mut periods = scene.in_periods(command);
    for _ in 0..2 {
        periods.next(100);
    }
    periods.end();
    let outcome = scene.outcome();
    let ran: BTreeSet<u64> = outcome.kernels.iter().map(|kernel| kernel.kernel).collect();
    let did = outcome.did("dispatch");
    let did: BTreeSet<&str> = did.iter().map(|operation| operation.name.as_str()).collect();
    for kernel in ran {
        assert!(did.contains(outcome.symbols[&kernel].name.as_str()), "{:?}", outcome.symbols);
    }
}

/// Code objects come and go while a context is stopped: it is told at once of what it knew, and of no other.
#[test]
fn rocm_code_objects_that_come_and_go_while_a_context_is_stopped() {
    const ROUNDS: usize = 6;
    let Some(scene) = scene() else { return };
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("module"));
    command.args(["0", "5"]).env("WATCH_BYTES", "4096");
    command.env("WATCH_KINDS", KERNELS).env("WATCH_CALLBACKS", CODE_OBJECTS);
    let mut periods = scene.in_periods(command);
    let did = || truth::read(&scene.file("truth")).expect("what the GPU did").len();
    for _ in 0..ROUNDS {
        periods.next(30);
        let done = did();
        wait_until("the GPU goes on", || did() > done + 100);
    }
    periods.end();
    let (mut loaded, mut at_stop, mut periods) = (BTreeSet::new(), BTreeSet::new(), 0);
    for line in scene.written().lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["load", id, ..] => assert!(loaded.insert(id.to_owned()), "{line}"),
            ["unload", id, ..] => assert!(loaded.remove(id), "{line}"),
            ["stopped"] => at_stop = loaded.clone(),
            ["started", _] => {
                // The program's own, and one of the runtime.
                assert!(at_stop.intersection(&loaded).count() <= 2, "{at_stop:?} {loaded:?}");
                periods += 1;
            }
            _ => {}
        }
    }
    assert!(loaded.is_empty() && periods == ROUNDS, "{loaded:?} {periods}");
    let outcome = scene.outcome();
    let did = outcome.did("dispatch");
    for kernel in &outcome.kernels {
        let is_it = |operation: &&&Operation| {
            operation.hsa_queue == Some(kernel.queue)
                && is_near((kernel.begin_ns, kernel.end_ns), operation)
        };
        let operation = did.iter().find(is_it).unwrap_or_else(|| panic!("nobody ran {kernel:?}"));
        // Its code object can be gone before the context that starts is told of any.
        match outcome.symbols.get(&kernel.kernel) {
            Some(symbol) => assert_eq!(symbol.name, operation.name, "{kernel:?}"),
            None => assert!(kernel.begin_ns < outcome.starts[0], "{kernel:?}: {operation:?}"),
        }
        assert_eq!(kernel.agent, FIRST_AGENT + u64::from(operation.node), "{kernel:?}");
    }
    let names: BTreeSet<&str> = outcome.symbols.values().map(|symbol| &*symbol.name).collect();
    assert!(names.contains("module_scale") && names.contains("module_shift"), "{names:?}");
}

/// `roctxProfilerResume` as tools use it: a callback starts a context, which knows what is loaded, and is told of calls.
#[test]
fn rocm_a_context_that_a_callback_starts() {
    if let Some(scene) = scene() {
        scene.run_client("resumes");
    }
}
