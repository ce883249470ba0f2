//! Kernels and copies.

use std::collections::{BTreeMap, BTreeSet};

use crate::kinds::{COPIES, EXTENSIONS, KERNELS};
use crate::outcome::{CalledBack, Kernel};
use crate::scene::{LOADERS, PROGRAMS, scene};

#[test]
fn rocm_every_kernel_and_copy_of_programs() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        for (program, arguments) in PROGRAMS {
            let mut outcome = scene.run(loader, program, arguments, &[]);
            outcome.expect_all_kernels();
            outcome.expect_all_copies();
            assert_eq!(outcome.dropped, 0);
        }
    }
}

/// Each thread of `storm` launches a kernel of its own, of one workgroup of 64.
#[test]
fn rocm_kernels_are_those_of_their_threads() {
    let Some(scene) = scene() else { return };
    let mut outcome =
        scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &[("WATCH_KINDS", KERNELS)]);
    let names = outcome.expect_all_kernels();
    assert_eq!(outcome.copies.len(), 0);
    let mut threads = BTreeMap::<u64, BTreeSet<u64>>::new();
    let own: Vec<&Kernel> =
        outcome.kernels.iter().filter(|kernel| kernel.workgroup[0] == 64).collect();
    for kernel in own {
        assert_eq!((kernel.workgroup, kernel.grid), ([64, 1, 1], [64, 1, 1]), "{kernel:?}");
        assert_eq!((kernel.private_bytes, kernel.group_bytes), (0, 0), "{kernel:?}");
        threads.entry(kernel.kernel).or_default().insert(kernel.thread);
    }
    let storm = names.iter().filter(|(name, _)| name.starts_with("storm_t"));
    let threads_of_storm = crate::scene::threads(8);
    let each = 8 * 1200 / threads_of_storm;
    assert_eq!(storm.clone().count(), threads_of_storm, "{names:?}");
    assert!(storm.clone().all(|(_, &count)| count == each), "{names:?}");
    let launchers: BTreeSet<&BTreeSet<u64>> = threads.values().collect();
    assert!(launchers.iter().all(|threads| threads.len() == 1), "{threads:?}");
}

/// `dst_address`, `src_address`: those that the call of HSA was given. The 0.5 interface has none.
#[test]
fn rocm_copies_have_their_addresses() {
    let Some(scene) = scene() else { return };
    let kinds = format!("{COPIES},{EXTENSIONS}");
    let words = [("WATCH_KINDS", &*kinds), ("WATCH_CALLBACKS", EXTENSIONS)];
    for (program, arguments) in [("basic", &[][..]), ("copies", &["512"])] {
        let outcome = scene.run("LD_PRELOAD", program, arguments, &words);
        let calls = outcome.called_back.values().map(|call| (call.correlation_id, call));
        let calls: BTreeMap<u64, &CalledBack> = calls.collect();
        let mut compared = 0;
        for copy in &outcome.copies {
            let call = calls[&copy.correlation_id];
            let given = |name: &str| call.arguments.get(name).cloned().unwrap_or_default();
            let is_linear =
                call.name.starts_with("hsa_amd_memory_async_copy") && !call.name.contains("rect");
            if is_linear && cfg!(feature = "v1") {
                let addresses = [copy.to_address, copy.from_address].map(|at| format!("{at:#x}"));
                assert_eq!(addresses, ["dst", "src"].map(given), "{copy:?}");
                compared += 1;
            } else if cfg!(not(feature = "v1")) {
                assert_eq!((copy.to_address, copy.from_address), (0, 0), "{copy:?}");
            }
        }
        assert_eq!(compared > 0, cfg!(feature = "v1"), "{program}");
    }
}

/// "an array of operations": others are not recorded.
#[test]
fn rocm_operations_that_are_not_asked_for() {
    let Some(scene) = scene() else { return };
    let only = |operation| {
        let words = [("WATCH_KINDS", COPIES), ("WATCH_OPERATION", operation)];
        scene.run("LD_PRELOAD", "copies", &["512"], &words)
    };
    for (operation, name) in [("2", "H2D"), ("3", "D2H")] {
        let outcome = only(operation);
        let did = outcome.did("copy").iter().filter(|copy| copy.name == name).count();
        assert!(
            did > 0 && outcome.copies.len() == did && outcome.kernels.is_empty(),
            "{outcome:#?}"
        );
        assert!(outcome.copies.iter().all(|copy| copy.operation.to_string() == operation));
    }
}
