//! Marks and ranges of roctx.

use std::collections::BTreeSet;

use capi_build::ROCPROFILER_SDK_ROCTX;
use capi_build::clients::succeed;
use capi_build::layouts::Language;

use crate::kinds::{HIP, KERNELS, RETIREMENTS, ROCTX};
use crate::scene::{LOADERS, scene};

/// The library of roctx, of which a program that uses `libroctx64` calls the functions when it is preloaded.
#[test]
fn rocm_marks_and_ranges_around_kernels() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        let mut command = scene.ranges(loader, "20");
        command.env("WATCH_KINDS", format!("{RETIREMENTS},{ROCTX},{HIP},{KERNELS}"));
        let mut outcome = scene.run_command(command);
        outcome.expect_every_call("roctx", &[]);
        outcome.expect_every_call("hip", &[]);
        outcome.expect_retirements();
        assert_eq!(outcome.kernels.len(), outcome.did("dispatch").len());
        let launches: BTreeSet<u64> = outcome.kernels.iter().map(|k| k.correlation_id).collect();
        let marks = outcome.calls.iter().filter(|call| call.name.starts_with("roctx"));
        assert!(marks.clone().count() > 100);
        for mark in marks {
            assert!(!launches.contains(&mark.correlation_id), "it launches nothing: {mark:?}");
        }
    }
}

/// A runtime loads the library behind the first calls of roctx, which are not recorded: later ones are.
#[test]
fn rocm_calls_of_roctx_before_the_runtime_begins() {
    let Some(scene) = scene() else { return };
    let program = scene.file("marks");
    let mut compiler = scene.clients.compiler(Language::C).expect("a compiler");
    compiler.arg("-DWITH_HSA").arg("-o").args([&program, &scene.clients.source("marks.c")]);
    compiler.arg(scene.file(ROCPROFILER_SDK_ROCTX.soname));
    if scene.inside.is_some() {
        compiler.arg("-Wl,--no-as-needed").arg("-L").arg(&scene.gpu).arg("-lemulated_gpu_driver");
    }
    // The runtime needs libraries that are where it is.
    compiler.args(["-Wl,--allow-shlib-undefined", "-lhsa-runtime64"]);
    succeed(&mut compiler).expect("the program");
    for loader in LOADERS {
        let mut command = scene.command(loader, &program);
        command.env("WATCH_KINDS", format!("{RETIREMENTS},{ROCTX}"));
        let mut outcome = scene.run_command(command);
        if loader == "LD_PRELOAD" {
            for name in ["roctxMarkA", "roctxRangePushA", "roctxRangePop"] {
                *outcome.counts.get_mut(name).expect("counted") += 1;
            }
        }
        outcome.expect_every_call("roctx", &[]);
        outcome.expect_retirements();
        assert_eq!((outcome.dropped, outcome.kernels.len()), (0, 0));
    }
}

/// With what they say.
#[test]
fn rocm_callbacks_of_marks_and_ranges() {
    let Some(scene) = scene() else { return };
    for loader in LOADERS {
        let mut command = scene.ranges(loader, "20");
        command.env("WATCH_KINDS", ROCTX).env("WATCH_CALLBACKS", ROCTX);
        let mut outcome = scene.run_command(command);
        outcome.expect_every_call("roctx", &[]);
        outcome.expect_callbacks_of_all();
        let mut pushed =
            ["inner 0", "inner 1", "outer 0", "outer 1"].map(|name| [name; 20]).concat();
        pushed.sort_unstable();
        assert_eq!(outcome.arguments("roctxRangePushA", "message"), pushed);
        let depths: BTreeSet<u64> = outcome.results("roctxRangePushA");
        assert_eq!(depths, BTreeSet::from([0, 1]));
        // What is started has an id, by which it is stopped.
        let started = outcome.results("roctxRangeStartA").into_iter().map(|id| id.to_string());
        let mut started: Vec<String> = started.collect();
        started.sort_unstable();
        assert_eq!(started.len(), 21);
        assert_eq!(started, outcome.arguments("roctxRangeStop", "id"));
    }
}
