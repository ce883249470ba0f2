//! External correlation ids that the tool is asked for.

use crate::kinds::{COPIES, HIP, HSA, KERNELS, WORK_TOLD};
use crate::scene::scene;

/// It answers 1000 times the kind.
#[test]
fn rocm_external_ids_are_those_that_a_tool_answers_with() {
    let Some(scene) = scene() else { return };
    let kinds = format!("{HIP},{HSA},{KERNELS},{COPIES}");
    let calls = format!("{HIP},{HSA}");
    for (callbacks, of_work) in [("", 1), (&*calls, 1), (WORK_TOLD, 2)] {
        let words =
            [("WATCH_KINDS", &*kinds), ("WATCH_CALLBACKS", callbacks), ("WATCH_ASKED", "yes")];
        let outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
        let of_call = |name: &str| match name {
            name if name.starts_with("__hip") => 6000,
            name if name.starts_with("hip") => 5000,
            name if name.starts_with("hsa_amd") => 2000,
            _ => 1000,
        };
        assert!(outcome.calls.len() > 50);
        for call in &outcome.calls {
            assert_eq!(call.external_id, of_call(call.name), "{call:?}");
        }
        for call in outcome.called_back.values() {
            assert_eq!(call.external_id, of_call(call.name), "{call:?}");
        }
        assert_eq!(outcome.kernels.len(), of_work * outcome.did("dispatch").len());
        assert_eq!(outcome.copies.len(), of_work * outcome.did("copy").len());
        assert!(outcome.kernels.iter().all(|kernel| kernel.external_id == 11000), "{outcome:#?}");
        assert!(outcome.copies.iter().all(|copy| copy.external_id == 10000), "{outcome:#?}");
    }
}

/// It has none: those that were pushed count.
#[test]
fn rocm_external_ids_where_a_tool_has_no_answer() {
    let Some(scene) = scene() else { return };
    let words = [("WATCH_CALLBACKS", ""), ("WATCH_ASKED", "no")];
    let mut outcome = scene.run("HSA_TOOLS_LIB", "storm", &["4", "2", "100"], &words);
    outcome.expect_all_kernels();
    outcome.expect_all_copies();
}
