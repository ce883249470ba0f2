//! Callbacks of calls.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::kinds::{HIP, HSA};
use crate::scene::{LOADERS, scene};

/// Callbacks are told of each call that is recorded, with the same ids, at its begin and at its end.
#[test]
fn rocm_callbacks_of_every_call() {
    let Some(scene) = scene() else { return };
    let words = [("WATCH_KINDS", HIP), ("WATCH_CALLBACKS", HIP)];
    for loader in LOADERS {
        for (program, arguments) in
            [("basic", &[][..]), ("copies", &["512"]), ("module", &[]), ("graph", &["20"])]
        {
            let mut outcome = scene.run(loader, program, arguments, &words);
            outcome.expect_every_call("hip", &[]);
            outcome.expect_callbacks_of_all();
        }
        let words = [("WATCH_KINDS", HSA), ("WATCH_CALLBACKS", HSA)];
        let mut outcome = scene.run(loader, "hsa_direct", &[], &words);
        outcome.expect_every_call("hsa", &["hsa_init"]);
        outcome.expect_callbacks_of_all();
    }
    // Threads, and calls of HSA inside of those of HIP.
    let both = format!("{HIP},{HSA}");
    let words = [("WATCH_KINDS", &*both), ("WATCH_CALLBACKS", &both)];
    let mut outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
    outcome.expect_every_call("hip", &[]);
    outcome.expect_callbacks_of_all();
    let words = [("WATCH_CALLBACKS", HIP)];
    let outcome = scene.run("LD_PRELOAD", "storm", &["8", "4", "300"], &words);
    let launches =
        outcome.called_back.values().filter(|call| call.name == "hipLaunchKernel").count();
    assert!(
        launches >= 8 * 4 * 300 && outcome.called_back.values().all(|call| call.exits),
        "{launches}"
    );
    assert_eq!(outcome.kernels.len(), outcome.did("dispatch").len());
}

/// Arguments and results are those by which the GPU worked.
#[test]
fn rocm_arguments_of_calls() {
    let Some(scene) = scene() else { return };
    let both = format!("{HIP},{HSA}");
    let words = [("WATCH_CALLBACKS", &*both)];
    let outcome = scene.run("LD_PRELOAD", "copies", &["512"], &words);
    let mut sizes: Vec<String> = outcome.copies.iter().map(|copy| copy.bytes.to_string()).collect();
    let of = |name| outcome.called_back.values().filter(move |call| call.name == name);
    for name in ["hsa_amd_memory_async_copy", "hsa_amd_memory_async_copy_on_engine"] {
        for call in of(name) {
            let size = &call.arguments["size"];
            let at = sizes.iter().position(|one| one == size);
            sizes.remove(at.unwrap_or_else(|| panic!("{call:?}: {sizes:?}")));
            assert_eq!(call.result, 0, "{call:?}");
        }
    }
    assert_eq!(sizes.len(), of("hsa_amd_memory_async_copy_rect").count(), "{sizes:?}");
    // What HIP allocates, and the program's size: 512 KiB and 5 bytes.
    assert_eq!(outcome.arguments("hipMalloc", "size"), ["524293", "524293"]);
    let pinned = outcome.arguments("hipHostMalloc", "size");
    assert_eq!(pinned, ["524293", "524293"]);
    let outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
    let grid = 100_000_u32.div_ceil(256);
    let numbers = format!("{{z=1, y=1, x={grid}}}");
    assert_eq!(outcome.arguments("hipLaunchKernel", "numBlocks"), [&*numbers; 3]);
    assert_eq!(outcome.arguments("hipLaunchKernel", "dimBlocks"), ["{z=1, y=1, x=256}"; 3]);
    assert_eq!(outcome.arguments("__hipPushCallConfiguration", "gridDim"), [&*numbers; 3]);
    assert_eq!(outcome.arguments("hipMemcpy", "sizeBytes"), ["400000"; 4]);
    assert_eq!(outcome.arguments("hipMemcpy", "kind"), ["1", "2", "2", "3"]);
    assert_eq!(outcome.arguments("hipMemset", "value"), ["90"]);
    let files = scene.run("LD_PRELOAD", "module", &[], &words);
    let modules = files.arguments("hipModuleLoad", "fname");
    assert!(modules.iter().all(|file| file.contains("module_")), "{modules:?}");
}

/// A callback that calls HIP is not called for that; the call is recorded.
#[test]
fn rocm_callbacks_that_call_hip() {
    let Some(scene) = scene() else { return };
    let words = [("WATCH_KINDS", "5"), ("WATCH_CALLBACKS", "5"), ("WATCH_CALLS", "1")];
    let outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
    let of = |name: &str| outcome.called_back.values().filter(|call| call.name == name).count();
    let recorded = outcome.calls.iter().filter(|call| call.name == "hipGetDevice").count();
    assert_eq!(recorded, of("hipGetDevice") + 2 * outcome.called_back.len());
    assert_eq!(of("hipMemcpy"), 4);
}

/// A context that is stopped in a callback: the program goes on, and no other callback is called.
#[test]
fn rocm_a_callback_that_stops_its_context() {
    let Some(scene) = scene() else { return };
    for kinds in [HIP, HSA] {
        let words = [("WATCH_KINDS", kinds), ("WATCH_CALLBACKS", kinds), ("WATCH_STOPS", "5")];
        let outcome = scene.run("LD_PRELOAD", "basic", &[], &words);
        let begun: Vec<u64> = outcome.called_back.keys().copied().collect();
        assert_eq!(begun, [1, 2, 3, 4, 5], "{:#?}", outcome.called_back);
        assert!(outcome.calls.len() <= 5, "{:#?}", outcome.calls);
    }
}

/// Callbacks that throw, end their thread, stop contexts, give ids; several contexts at once; types of the headers.
#[test]
fn rocm_callbacks_that_do_as_they_like() {
    let Some(scene) = scene() else { return };
    scene.run_client("callbacks");
}

/// Both are told of every call, with the same ids.
#[test]
fn rocm_two_tools_with_callbacks() {
    let Some(scene) = scene() else { return };
    let mut command = scene.command("HSA_TOOLS_LIB", &scene.apps.join("basic"));
    let tools =
        ["libwatches.so", "libsecond.so"].map(|name| scene.file(name).display().to_string());
    command.env("ROCP_TOOL_LIBRARIES", tools.join(":"));
    command.envs([("WATCH_KINDS", HIP), ("WATCH_CALLBACKS", HIP)]);
    let output = scene.there(command).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files = std::fs::read_dir(scene.clients.directory()).expect("a directory");
    let mut paths = files.map(|file| file.expect("a file").path());
    let is_of_second = |path: &PathBuf| path.file_stem() == Some("output-second".as_ref());
    let second = paths.find(is_of_second).expect("the other one's");
    let second = std::fs::read_to_string(second).expect("what was told");
    let first = scene.outcome();
    first.expect_callbacks_of_all();
    assert!(second.ends_with("end\n"), "{second}");
    for word in ["enter ", "exit "] {
        let lines = second.lines().filter_map(|line| line.strip_prefix(word));
        let ids = lines.map(|line| line.split(' ').nth(2).expect("an id").parse().expect("one"));
        let ids: BTreeSet<u64> = ids.collect();
        assert!(
            ids.into_iter().eq(first.called_back.values().map(|call| call.correlation_id)),
            "{second}"
        );
    }
}
