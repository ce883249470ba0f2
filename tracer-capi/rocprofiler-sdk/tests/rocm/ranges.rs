//! Ranges of roctx from their begin to their end: records and callbacks of the 1.0 interface.

use std::collections::BTreeMap;

use crate::kinds::{RANGES, RETIREMENTS, ROCTX};
use crate::outcome::Call;
use crate::scene::{LOADERS, scene};

/// A push and its pop are one operation, and so are a start and its stop, on whichever threads.
#[test]
fn rocm_ranges_from_their_begin_to_their_end() {
    let Some(scene) = scene() else { return };
    let [records, callbacks] = RANGES;
    for loader in LOADERS {
        let mut command = scene.ranges(loader, "20");
        command.env("WATCH_KINDS", format!("{records},{RETIREMENTS}"));
        command.env("WATCH_CALLBACKS", callbacks);
        let outcome = scene.run_command(command);
        let of = |name: &str| {
            outcome.calls.iter().filter(|call| call.name == name).collect::<Vec<&Call>>()
        };
        for (name, function) in [
            ("roctxMarkA", "roctxMarkA"),
            ("roctxThreadRangeA", "roctxRangePushA"),
            ("roctxThreadRangeA", "roctxRangePop"),
            ("roctxProcessRangeA", "roctxRangeStartA"),
            ("roctxProcessRangeA", "roctxRangeStop"),
        ] {
            assert_eq!(of(name).len() as u64, outcome.counts[function], "{function}");
        }
        outcome.expect_callbacks_of_all();
        outcome.expect_retirements();
        // What they were begun with is told at their end, too.
        let messages: BTreeMap<u64, &str> = outcome
            .called_back
            .values()
            .map(|call| (call.correlation_id, &*call.arguments["message"]))
            .collect();
        let mut pushed =
            ["inner 0", "inner 1", "outer 0", "outer 1"].map(|name| [name; 20]).concat();
        pushed.sort_unstable();
        assert_eq!(outcome.arguments("roctxThreadRangeA", "message"), pushed);
        let mut started = outcome.arguments("roctxProcessRangeA", "message");
        started.dedup();
        assert_eq!(started, ["handed", "whole"]);
        // An inner range is within the outer one of its thread; the whole is around all of them.
        let message = |call: &&&Call| messages[&call.correlation_id];
        let ranges = of("roctxThreadRangeA");
        for inner in ranges.iter().filter(|call| message(call).starts_with("inner")) {
            let outer = message(&inner).replace("inner", "outer");
            let is_around = |outer: &Call| {
                outer.thread == inner.thread
                    && outer.begin_ns <= inner.begin_ns
                    && inner.end_ns <= outer.end_ns
            };
            let mut outers = ranges.iter().filter(|call| message(call) == outer);
            assert!(outers.any(|outer| is_around(outer)), "{inner:?}");
        }
        let started = of("roctxProcessRangeA");
        let whole = started.iter().find(|call| message(call) == "whole").expect("it");
        assert!(
            ranges.iter().all(|one| whole.begin_ns <= one.begin_ns && one.end_ns <= whole.end_ns)
        );
    }
}

/// Beside the calls themselves, which have ids of their own.
#[test]
fn rocm_ranges_beside_calls_of_roctx() {
    let Some(scene) = scene() else { return };
    let mut command = scene.ranges("LD_PRELOAD", "5");
    command.env("WATCH_KINDS", format!("{},{ROCTX},{RETIREMENTS}", RANGES[0]));
    let mut outcome = scene.run_command(command);
    let (ranges, calls): (Vec<_>, Vec<_>) = std::mem::take(&mut outcome.calls)
        .into_iter()
        .partition(|call| call.name.contains("Thread") || call.name.contains("Process"));
    assert_eq!(
        ranges.len() as u64,
        outcome.counts["roctxRangePop"] + outcome.counts["roctxRangeStop"]
    );
    assert_eq!(outcome.ids.len(), ranges.len() + calls.len());
    outcome.expect_retirements();
}
