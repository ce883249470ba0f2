//! Correlation ids that are retired.

use crate::kinds::{COPIES, HIP, HSA, KERNELS, RETIREMENTS};
use crate::scene::{LOADERS, scene};

/// One record for each id, when its call has returned and all work that it enqueued is recorded: for work alone, for calls
/// alone, and for both.
#[test]
fn rocm_ids_are_retired_when_nothing_of_them_is_under_way() {
    let Some(scene) = scene() else { return };
    let work = format!("{KERNELS},{COPIES}");
    let calls = format!("{HIP},{HSA}");
    for loader in LOADERS {
        for kinds in [&*work, &calls, &format!("{HIP},{work}"), &format!("{calls},{work}")] {
            let words = [("WATCH_KINDS", &*format!("{RETIREMENTS},{kinds}"))];
            for (program, arguments) in
                [("basic", &[][..]), ("copies", &["512"]), ("graph", &["20"]), ("module", &[])]
            {
                let outcome = scene.run(loader, program, arguments, &words);
                outcome.expect_retirements();
                assert_eq!(outcome.dropped, 0);
            }
        }
    }
}

/// Threads have regions of their own in a large buffer: retirements are behind the records all the same.
#[test]
fn rocm_ids_are_retired_behind_their_records_in_a_large_buffer() {
    let Some(scene) = scene() else { return };
    let kinds = format!("{RETIREMENTS},{HIP},{HSA},{KERNELS},{COPIES}");
    let words = [("WATCH_KINDS", &*kinds), ("WATCH_BYTES", "4194304")];
    for (program, arguments) in [("basic", &[][..]), ("copies", &["512"])] {
        let outcome = scene.run("LD_PRELOAD", program, arguments, &words);
        outcome.expect_retirements();
        assert_eq!(outcome.dropped, 0);
    }
}

/// Also those of calls that callbacks are told of, and of which there is no record: behind the end of the call.
#[test]
fn rocm_ids_of_calls_that_only_callbacks_are_told_of_are_retired() {
    let Some(scene) = scene() else { return };
    let both = format!("{HIP},{HSA}");
    let work = format!("{RETIREMENTS},{KERNELS},{COPIES}");
    for loader in LOADERS {
        for (kinds, callbacks) in [(RETIREMENTS, HIP), (RETIREMENTS, &both), (&work, &both)] {
            let words = [("WATCH_KINDS", kinds), ("WATCH_CALLBACKS", callbacks)];
            for (program, arguments) in [("basic", &[][..]), ("copies", &["512"]), ("module", &[])]
            {
                let outcome = scene.run(loader, program, arguments, &words);
                assert!(outcome.called_back.len() > 10, "{:#?}", outcome.called_back);
                outcome.expect_retirements();
                assert_eq!((outcome.dropped, outcome.calls.len()), (0, 0));
            }
        }
    }
}

/// Threads that share queues find each other's packets.
#[test]
fn rocm_ids_of_many_threads_are_retired() {
    let Some(scene) = scene() else { return };
    let slow = [("WATCH_BYTES", "4096"), ("WATCH_SLOW_US", "100")];
    for words in [&[][..], &slow] {
        let kinds = format!("{RETIREMENTS},{KERNELS},{COPIES}");
        let words = [words, &[("WATCH_KINDS", &*kinds)]].concat();
        let mut outcome = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &words);
        outcome.expect_all_kernels();
        outcome.expect_retirements();
        assert_eq!(outcome.dropped, 0);
    }
}

/// "rocprofiler_flush_buffer": with the records of work that was under way come the retirements of their ids.
#[test]
fn rocm_a_flush_has_the_retirements_of_what_was_enqueued() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("loop"));
    command.args(["0", "2", "300"]);
    command.env("WATCH_KINDS", format!("{RETIREMENTS},{KERNELS}"));
    let mut periods = scene.in_periods(command);
    for _ in 0..5 {
        periods.next(100);
        let written = scene.written();
        let count = |word| written.lines().filter(|line| line.starts_with(word)).count();
        assert_eq!(count("kernel "), count("retired "), "{written}");
    }
    periods.end();
    scene.outcome().expect_retirements();
}
