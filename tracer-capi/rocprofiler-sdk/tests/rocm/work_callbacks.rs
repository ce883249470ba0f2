//! Callbacks of kernels and copies. The tool itself compares what it is told when work is enqueued and when it is done.

use std::fmt::Debug;

use crate::kinds::{COPIES, HIP, KERNELS, KERNELS_TOLD, RETIREMENTS, WORK_TOLD};
use crate::scene::{LOADERS, PROGRAMS, arguments, scene};

#[test]
fn rocm_callbacks_of_every_kernel_and_copy() {
    let Some(scene) = scene() else { return };
    let words = [("WATCH_KINDS", RETIREMENTS), ("WATCH_CALLBACKS", WORK_TOLD)];
    for loader in LOADERS {
        for (program, arguments) in PROGRAMS {
            let mut outcome = scene.run(loader, program, arguments, &words);
            outcome.expect_all_kernels();
            outcome.expect_all_copies();
            outcome.expect_retirements();
            assert_eq!(outcome.enqueued, outcome.kernels.len() + outcome.copies.len());
            // Threads that share a queue find each other's packets.
            assert!(
                outcome.called_back_late == 0
                    || (program == "storm" && outcome.called_back_late < 100)
            );
        }
    }
}

/// Its own variables are gone: of its work tools are told when that is done.
#[test]
fn rocm_callbacks_of_work_of_a_thread_that_ends() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("LD_PRELOAD", &scene.compile_client("last"));
    command.env("WATCH_KINDS", RETIREMENTS).env("WATCH_CALLBACKS", KERNELS_TOLD);
    let outcome = scene.run_command(command);
    assert_eq!((outcome.kernels.len(), outcome.did("dispatch").len()), (2, 2));
    assert_eq!((outcome.enqueued, outcome.called_back_late), (2, 1));
    outcome.expect_retirements();
}

/// Callbacks tell the ids and times that records have.
#[test]
fn rocm_callbacks_and_records_of_work_agree() {
    let Some(scene) = scene() else { return };
    let work = format!("{KERNELS},{COPIES}");
    for kinds in [&*work, &format!("{HIP},{work}")] {
        let words = [("WATCH_KINDS", kinds), ("WATCH_CALLBACKS", WORK_TOLD)];
        for (program, arguments) in [("basic", &[][..]), ("copies", &["512"]), ("module", &[])] {
            let mut outcome = scene.run("LD_PRELOAD", program, arguments, &words);
            outcome.kernels.sort_by_key(|kernel| kernel.dispatch);
            outcome.copies.sort_by_key(|copy| copy.begin_ns);
            assert!(!outcome.kernels.is_empty() || !outcome.copies.is_empty());
            assert_eq!(outcome.kernels.len(), 2 * outcome.did("dispatch").len());
            assert_eq!(outcome.copies.len(), 2 * outcome.did("copy").len());
            expect_pairs(&outcome.kernels);
            expect_pairs(&outcome.copies);
        }
    }
}

fn expect_pairs<T: Debug>(all: &[T]) {
    let texts: Vec<String> = all.iter().map(|one| format!("{one:?}")).collect();
    assert!(texts.chunks(2).all(|pair| pair[0] == pair[1]), "{texts:#?}");
}

/// From the program's threads, and from the one that tells of what is done.
#[test]
fn rocm_callbacks_of_work_that_call_hip() {
    let Some(scene) = scene() else { return };
    let words = [("WATCH_KINDS", HIP), ("WATCH_CALLBACKS", WORK_TOLD), ("WATCH_CALLS", "1")];
    let mut outcome = scene.run("LD_PRELOAD", "storm", &["8", "4", "50"], &words);
    outcome.kernels.sort_by_key(|kernel| kernel.dispatch);
    assert_eq!(outcome.kernels.len(), outcome.did("dispatch").len());
    assert_eq!(outcome.enqueued, outcome.kernels.len() + outcome.copies.len());
}

#[test]
fn rocm_operations_of_work_that_are_not_asked_for() {
    let Some(scene) = scene() else { return };
    let run = |operation| {
        let words = [
            ("WATCH_KINDS", ""),
            ("WATCH_CALLBACKS", KERNELS_TOLD),
            ("WATCH_OPERATION", operation),
        ];
        scene.run("HSA_TOOLS_LIB", "storm", &["4", "2", "100"], &words)
    };
    let enqueued = run("1");
    assert_eq!((enqueued.kernels.len(), enqueued.enqueued), (0, enqueued.did("dispatch").len()));
    let mut done = run("2");
    done.expect_all_kernels();
    assert_eq!(done.enqueued, 0);
}

/// A tool whose callback never returns holds up no other one's, and no program for ever.
#[test]
fn rocm_a_callback_of_work_that_is_stuck() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.apps.join("storm"));
    let tools = ["libstuck.so", "libwatches.so"].map(|name| scene.file(name).display().to_string());
    command
        .args(arguments("storm", &["2", "2", "2000"]))
        .env("ROCP_TOOL_LIBRARIES", tools.join(":"));
    let words = [("WATCH_KINDS", ""), ("WATCH_CALLBACKS", KERNELS_TOLD), ("WATCH_OPERATION", "2")];
    command.envs(words);
    let output = scene.there(command).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let said = "a callback of GPU work has not returned";
    assert_eq!(errors.matches(said).count(), 1, "{errors}");
    scene.outcome().expect_all_kernels();
}
