//! How probes are placed, from the library's side. Small: `cargo xtask test --kernels` runs these as well.

use e2e::{Running, Scene};
use roctap::{
    probe::{Follow, Placing, Programs, Settings},
    trial,
};

/// Whether a way works, a call being recorded through it; else why not.
fn tried(placing: Placing, preallocate: Option<bool>) -> Result<(), String> {
    match trial::run(Some(placing), preallocate) {
        Ok(works) => {
            assert_eq!(works.placing, placing);
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn root_kernel_events_and_single_probes_work_on_every_kernel() {
    assert_eq!(tried(Placing::Event, None), Ok(()));
    assert_eq!(tried(Placing::Single, None), Ok(()));
}

/// Maps as kernels before 6.1 have them, which no machine here runs.
#[test]
fn root_kernel_maps_that_have_all_their_memory_work() {
    assert_eq!(tried(Placing::Event, Some(true)), Ok(()));
}

/// What is taken where nothing is said is the best that works: `uprobe_multi`, or events where it is
/// refused, with the reason.
#[test]
fn root_kernel_the_best_method_is_taken() {
    let settings = Settings::new(4096, Follow::Nobody);
    let taken = Programs::load(settings).expect("it loads").placing();
    match tried(Placing::Multi, None) {
        Ok(()) => assert_eq!(taken, Placing::Multi),
        Err(why) => {
            assert!(why.contains("no uprobe_multi"), "{why}");
            assert_eq!(taken, Placing::Event);
        }
    }
}

/// Two programs at one place: a store into a signal is a call, and perhaps a doorbell. In a running process
/// the second comes when the first is there.
#[test]
fn root_kernel_a_function_that_is_probed_twice() {
    let scene = Scene::default();
    let target = Running::ringing(&scene);
    for method in ["event", "single"] {
        let pid = target.pid().to_string();
        let mut record = scene.record(&["--probes", method, "--gpu", "uprobes", "--api", "hsa"]);
        record.args(["--include", "hsa_signal_store_*", "--include", "hsa_signal_destroy"]);
        scene.record_kernels(record.args(["-p", &pid]), &[target.pid()], 6).expect(0);
        let trace = scene.trace();
        trace.expect_complete();
        let counts = trace.call_counts();
        let dispatched = trace.dispatches.len() as u64;
        for function in ["hsa_signal_store_screlease", "hsa_signal_destroy"] {
            // When the recording ended, one may have been rung and not destroyed.
            assert!(counts[function] + 1 >= dispatched, "{method}: {dispatched}, {counts:?}");
        }
        assert_eq!(counts.len(), 2, "{counts:?}");
    }
    target.end().expect(0);
}
