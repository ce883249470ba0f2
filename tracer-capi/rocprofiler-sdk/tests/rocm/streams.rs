//! Streams of HIP that calls make, destroy and use: callbacks of the 1.0 interface.

use std::collections::{BTreeMap, BTreeSet};

use crate::kinds::{HIP, KERNELS, RETIREMENTS, STREAMS};
use crate::outcome::{Outcome, StreamCallback};
use crate::scene::{LOADERS, scene};

const CREATE: u64 = 1;
const DESTROY: u64 = 2;
const USE: u64 = 3;
const ENTER: u64 = 1;
const EXIT: u64 = 2;

/// Calls that use a stream are told of at their begin and at their end, one within another of a thread, and how many of which
/// stream's id.
fn uses(outcome: &Outcome) -> BTreeMap<u64, usize> {
    let mut open: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    let mut uses = BTreeMap::new();
    for callback in outcome.streams.iter().filter(|callback| callback.operation == USE) {
        let &StreamCallback { thread, id, stream, .. } = callback;
        let open = open.entry(thread).or_default();
        match callback.phase {
            ENTER => open.push((id, stream)),
            EXIT => {
                assert_eq!(open.pop(), Some((id, stream)), "{callback:?}");
                *uses.entry(id).or_default() += 1;
            }
            _ => panic!("{callback:?}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    uses
}

/// Ids of streams that were made, or destroyed.
fn ids(outcome: &Outcome, operation: u64) -> BTreeSet<u64> {
    let of: Vec<_> =
        outcome.streams.iter().filter(|callback| callback.operation == operation).collect();
    let ids: BTreeSet<u64> = of.iter().map(|callback| callback.id).collect();
    assert_eq!(ids.len(), of.len(), "each once");
    ids
}

/// The null stream has the id 0.
#[test]
fn rocm_streams_the_null_stream_is_told() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        let outcome = scene.run(loader, "basic", &[], &[("WATCH_CALLBACKS", STREAMS)]);
        let uses = uses(&outcome);
        assert_eq!(uses.keys().collect::<Vec<_>>(), [&0], "{uses:?}");
        assert!(uses[&0] >= outcome.counts["hipLaunchKernel"] as usize, "{uses:?}");
        assert!(ids(&outcome, CREATE).is_empty() && ids(&outcome, DESTROY).is_empty());
    }
}

/// A stream that has done its work is destroyed.
#[test]
fn rocm_streams_that_are_destroyed_are_told() {
    let Some(scene) = scene() else { return };
    for (program, arguments) in [("copies", &["512"][..]), ("graph", &["20"])] {
        let words = [("WATCH_CALLBACKS", STREAMS)];
        let outcome = scene.run("LD_PRELOAD", program, arguments, &words);
        let (made, destroyed) = (ids(&outcome, CREATE), ids(&outcome, DESTROY));
        assert_eq!(made, destroyed, "{program}");
        assert_eq!(made.len() as u64, outcome.counts["hipStreamCreate"], "{program}");
    }
}

/// Streams of many threads: each has an id of its own from when it is made until it is destroyed. Nobody has the
/// correlation id of a call of which the stream alone is told: kernels have ids of their own.
#[test]
fn rocm_streams_of_threads_are_told() {
    let Some(scene) = scene() else { return };
    for (callbacks, has_calls) in [(STREAMS.to_owned(), false), (format!("{HIP},{STREAMS}"), true)]
    {
        let kinds = format!("{KERNELS},{RETIREMENTS}");
        let words = [("WATCH_KINDS", &*kinds), ("WATCH_CALLBACKS", &callbacks)];
        let outcome = scene.run("LD_PRELOAD", "storm", &["4", "4", "100"], &words);
        let (made, destroyed) = (ids(&outcome, CREATE), ids(&outcome, DESTROY));
        // It keeps them on this machine's release.
        assert_eq!(destroyed, if scene.inside.is_some() { made.clone() } else { BTreeSet::new() });
        assert_eq!(made.len() as u64, outcome.counts["hipStreamCreate"]);
        let uses = uses(&outcome);
        // Its own kernels, and a wait for them.
        assert!(made.iter().all(|id| uses[id] > 100), "{uses:?}");
        let own: BTreeSet<u64> =
            outcome.kernels.iter().map(|kernel| kernel.correlation_id).collect();
        assert_eq!(own.len(), outcome.did("dispatch").len());
        assert!(!own.contains(&0));
        assert!(own.iter().all(|id| outcome.ids[id].retired_ns.is_some()));
        assert_eq!(outcome.called_back.is_empty(), !has_calls);
        assert!(has_calls || outcome.ids.len() == own.len(), "nobody else has an id");
        if has_calls {
            let calls = outcome.called_back.values().map(|callback| callback.correlation_id);
            let calls: BTreeSet<u64> = calls.collect();
            assert!(own.is_subset(&calls), "as where no stream is told");
        }
    }
}
