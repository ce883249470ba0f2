//! Callbacks of code objects.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};

use crate::kinds::{CODE_OBJECTS, HSA, KERNELS};
use crate::scene::{LOADERS, scene, send, wait_until};

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
    let go = scene.file("go");
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("loop"));
    command.args(["0", "2", "300"]).env("WATCH_GO", &go).env("WATCH_BYTES", "4096");
    command.env("WATCH_KINDS", KERNELS).env("WATCH_CALLBACKS", CODE_OBJECTS);
    let mut running = scene.there(command).spawn().expect("it begins");
    let mut said = BufReader::new(running.stdout.take().expect("its output"));
    let mut ready = String::new();
    said.read_line(&mut ready).expect("text");
    let told = || -> String {
        let texts = scene.told().into_iter().map(std::fs::read_to_string);
        texts.map(|text| text.expect("what was told")).collect()
    };
    for round in 1..=2 {
        let before = told().matches("\nkernel ").count();
        std::fs::write(&go, "").expect("written");
        wait_until("kernels are recorded", || told().matches("\nkernel ").count() > before + 100);
        std::fs::remove_file(&go).expect("removed");
        wait_until("the context is stopped", || told().matches("stopped").count() == round);
    }
    send(running.id());
    assert!(running.wait().expect("it ends").success());
    let outcome = scene.outcome();
    let ran: BTreeSet<u64> = outcome.kernels.iter().map(|kernel| kernel.kernel).collect();
    let did = outcome.did("dispatch");
    let did: BTreeSet<&str> = did.iter().map(|operation| operation.name.as_str()).collect();
    for kernel in ran {
        assert!(did.contains(outcome.symbols[&kernel].name.as_str()), "{:?}", outcome.symbols);
    }
}
