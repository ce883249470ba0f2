//! Correlation ids that are retired.

use std::io::{BufRead as _, BufReader};

use crate::kinds::{COPIES, HIP, HSA, KERNELS, RETIREMENTS};
use crate::scene::{LOADERS, scene, send, wait_until};

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
                assert!(outcome.told.len() > 10, "{:#?}", outcome.told);
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
    let go = scene.file("go");
    let mut command = scene.command("LD_PRELOAD", &scene.apps.join("loop"));
    command.args(["0", "2", "300"]).env("WATCH_GO", &go);
    command.env("WATCH_KINDS", format!("{RETIREMENTS},{KERNELS}"));
    let mut running = scene.there(command).spawn().expect("it begins");
    let mut said = BufReader::new(running.stdout.take().expect("its output"));
    said.read_line(&mut String::new()).expect("text");
    let told = || -> String {
        let texts = scene.told().into_iter().map(std::fs::read_to_string);
        texts.map(|text| text.expect("what was told")).collect()
    };
    for round in 1..=5 {
        let before = told().matches("kernel ").count();
        std::fs::write(&go, "").expect("written");
        wait_until("kernels are recorded", || told().matches("kernel ").count() > before + 100);
        std::fs::remove_file(&go).expect("removed");
        wait_until("the context is stopped", || told().matches("stopped").count() == round);
        let told = told();
        let count = |word| told.lines().filter(|line| line.starts_with(word)).count();
        assert_eq!(count("kernel "), count("retired "), "{told}");
    }
    send(running.id());
    assert!(running.wait().expect("it ends").success());
    scene.outcome().expect_retirements();
}
