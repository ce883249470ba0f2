//! Runtimes that begin: records and callbacks of the 1.0 interface.

use crate::kinds::{HIP, RUNTIMES};
use crate::scene::{LOADERS, scene};

const HSA_RUNTIME: u64 = 1;
const HIP_RUNTIME: u64 = 2;
const MARKERS: u64 = 3;

/// Each of them once, with its version where it hands its tables over.
#[test]
fn rocm_runtimes_are_told_once() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        let mut command = scene.ranges(loader, "5");
        command.env("WATCH_KINDS", format!("{HIP},{RUNTIMES}")).env("WATCH_CALLBACKS", RUNTIMES);
        let runtimes = scene.run_command(command).runtimes;
        for is_callback in [false, true] {
            let versions = [HSA_RUNTIME, HIP_RUNTIME, MARKERS]
                .map(|runtime| runtimes.get(&(is_callback, runtime)).copied());
            assert!(versions.iter().all(Option::is_some), "{runtimes:?}");
            assert_ne!(versions[2], Some(0), "ours tells it");
        }
        assert_eq!(runtimes.len(), 6, "{runtimes:?}");
    }
}

/// An operation that a tool does not ask for.
#[test]
fn rocm_a_runtime_that_is_not_asked_for() {
    let Some(scene) = scene() else { return };
    let operation = HIP_RUNTIME.to_string();
    let words = [("WATCH_CALLBACKS", RUNTIMES), ("WATCH_OPERATION", &*operation)];
    let runtimes = scene.run("HSA_TOOLS_LIB", "basic", &[], &words).runtimes;
    assert_eq!(runtimes.keys().collect::<Vec<_>>(), [&(true, HIP_RUNTIME)]);
}
