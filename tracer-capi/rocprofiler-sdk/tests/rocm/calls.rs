//! Records of calls of HIP and of HSA.

use std::collections::BTreeMap;

use crate::kinds::{COPIES, HIP, HSA, KERNELS, number};
use crate::outcome::Call;
use crate::scene::{LOADERS, PROGRAMS, scene};

#[test]
fn rocm_every_call_of_programs() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        for (program, arguments) in PROGRAMS {
            let mut outcome = scene.run(loader, program, arguments, &[("WATCH_KINDS", HIP)]);
            outcome.expect_every_call("hip", &[]);
            assert!(outcome.calls.iter().all(|call| call.name.contains("hip")));
            assert_eq!((outcome.dropped, outcome.kernels.len(), outcome.copies.len()), (0, 0, 0));
        }
    }
}

/// The first `hsa_init` is not: the tables are made inside of it.
#[test]
fn rocm_every_call_of_hsa() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        let mut outcome = scene.run(loader, "hsa_direct", &[], &[("WATCH_KINDS", HSA)]);
        outcome.expect_every_call("hsa", &["hsa_init"]);
        // In a program of HIP's they are inside of calls of HIP, or of threads of the runtime.
        let both = format!("{HIP},{HSA}");
        let mut outcome = scene.run(loader, "basic", &[], &[("WATCH_KINDS", &both)]);
        outcome.expect_every_call("hip", &[]);
        let of_hsa = outcome.calls.iter().filter(|call| call.name.starts_with("hsa"));
        assert!(of_hsa.count() > 10, "{:#?}", outcome.calls);
    }
}

/// What is done for a call has its id: that of the innermost call that is recorded.
///
/// Not of `storm`, which destroys streams that are at work: HIP 5.2.3 may crash then with any tracer of its calls
/// (docs/decisions/0033).
#[test]
fn rocm_work_has_the_ids_of_calls() {
    let Some(scene) = scene() else { return };
    // HIP fills memory, and copies rectangles, by kernels of its own.
    let of_hip = (&["Launch", "hipMem"][..], "hipMemcpy");
    let of_hsa = (&["hsa_signal_store"][..], "hsa_amd_memory_async_copy");
    for (kinds, (launches, copies)) in [(HIP, of_hip), (&format!("{HIP},{HSA}"), of_hsa)] {
        let words = [("WATCH_KINDS", &*format!("{kinds},{KERNELS},{COPIES}"))];
        for (program, arguments) in
            [("basic", &[][..]), ("copies", &["512"]), ("graph", &["20"]), ("module", &[])]
        {
            let outcome = scene.run("LD_PRELOAD", program, arguments, &words);
            assert_eq!(outcome.kernels.len(), outcome.did("dispatch").len());
            assert_eq!(outcome.copies.len(), outcome.did("copy").len());
            let calls: BTreeMap<u64, &Call> =
                outcome.calls.iter().map(|call| (call.correlation_id, call)).collect();
            let expect = |id, thread, names: &[&str]| {
                let call = calls.get(&id).unwrap_or_else(|| panic!("no call {id}, of {names:?}"));
                let is_one = names.iter().any(|name| call.name.contains(name));
                assert!(is_one && call.thread == thread, "{program}, {names:?}: {call:?}");
            };
            for kernel in &outcome.kernels {
                expect(kernel.correlation_id, kernel.thread, launches);
            }
            for copy in &outcome.copies {
                expect(copy.correlation_id, copy.thread, &[copies]);
            }
        }
    }
}

#[test]
fn rocm_functions_that_are_not_asked_for() {
    let Some(scene) = scene() else { return };
    let malloc = number("hipMalloc");
    let words = [("WATCH_KINDS", "5"), ("WATCH_CALLBACKS", "5"), ("WATCH_OPERATION", &malloc)];
    let outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
    assert!(outcome.calls.iter().all(|call| call.name == "hipMalloc"), "{:#?}", outcome.calls);
    assert_eq!(outcome.calls.len() as u64, outcome.counts["hipMalloc"]);
    outcome.expect_callbacks_of_all();
}
