//! Records of calls of HIP with their arguments: those of the 1.0 interface.

use crate::kinds::{HIP, HIP_WITH_ARGUMENTS};
use crate::outcome::Outcome;
use crate::scene::{LOADERS, scene};

/// Each call has the arguments that its callback was told of. Of a string the record has the address.
fn expect_arguments_as_called_back(outcome: &Outcome) {
    assert!(!outcome.called_back.is_empty());
    for call in outcome.called_back.values() {
        let recorded = outcome.recorded.get(&call.correlation_id).cloned().unwrap_or_default();
        let names: Vec<_> = recorded.keys().collect();
        assert_eq!(names, call.arguments.keys().collect::<Vec<_>>(), "{call:?}");
        for (name, value) in &call.arguments {
            let recorded = &recorded[name];
            let is_text = recorded.starts_with("0x") && !value.starts_with("0x");
            assert!(recorded == value || is_text, "{name} is {recorded} in {call:?}");
        }
    }
}

#[test]
fn rocm_records_have_the_arguments_of_calls() {
    let Some(scene) = scene() else { return };
    let words = [("WATCH_KINDS", HIP_WITH_ARGUMENTS), ("WATCH_CALLBACKS", HIP)];
    for loader in LOADERS {
        for (program, arguments) in [("basic", &[][..]), ("copies", &["512"]), ("module", &[])] {
            let mut outcome = scene.run(loader, program, arguments, &words);
            expect_arguments_as_called_back(&outcome);
            outcome.expect_every_call("hip", &[]);
            outcome.expect_callbacks_of_all();
        }
    }
}

/// Where nobody is told of calls, and beside records without arguments, of the same context.
#[test]
fn rocm_records_of_calls_with_arguments_and_without() {
    let Some(scene) = scene() else { return };
    let words = [("WATCH_KINDS", HIP_WITH_ARGUMENTS)];
    let mut outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
    outcome.expect_every_call("hip", &[]);
    let ids = outcome.calls.iter().filter(|call| call.name == "hipMemcpy");
    let sizes: Vec<_> =
        ids.map(|call| &outcome.recorded[&call.correlation_id]["sizeBytes"]).collect();
    assert_eq!(sizes, ["400000"; 4]);
    let both = format!("{HIP},{HIP_WITH_ARGUMENTS}");
    let outcome = scene.run("LD_PRELOAD", "storm", &["4", "2", "300"], &[("WATCH_KINDS", &both)]);
    let launches = outcome.calls.iter().filter(|call| call.name == "hipLaunchKernel");
    let mut times: Vec<_> =
        launches.map(|call| (call.correlation_id, call.begin_ns, call.end_ns)).collect();
    times.sort_unstable();
    let (pairs, rest) = times.as_chunks::<2>();
    assert!(pairs.len() >= 4 * 2 * 300 && rest.is_empty(), "{}", times.len());
    assert!(pairs.iter().all(|[one, other]| one == other));
    assert!(pairs.iter().all(|[(id, ..), _]| outcome.recorded[id]["dimBlocks"].contains("x=")));
}
