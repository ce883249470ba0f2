//! Threads that the library and the runtimes create.

use crate::kinds::{COPIES, HIP, HSA, KERNELS, RETIREMENTS, WORK_TOLD};
use crate::scene::{LOADERS, scene, tool_of};

/// A tool is told of each, before and after.
#[test]
fn rocm_tools_are_told_of_every_thread() {
    let Some(scene) = scene() else { return };
    let work = format!("{KERNELS},{COPIES}");
    let calls = format!("{HIP},{HSA},{RETIREMENTS}");
    for loader in LOADERS {
        for (kinds, callbacks, of_its_own) in
            [(&*work, "", ""), (&calls, HIP, "1"), (&work, WORK_TOLD, "1"), (HIP, HSA, "")]
        {
            let words = [
                ("WATCH_INTERNAL", "1"),
                ("WATCH_KINDS", kinds),
                ("WATCH_CALLBACKS", callbacks),
                ("WATCH_THREAD", of_its_own),
            ];
            let words = words.into_iter().filter(|(_, value)| !value.is_empty());
            let outcome = scene.run(loader, "basic", &[], &words.collect::<Vec<_>>());
            let [before, after, there] = outcome.threads;
            assert!(
                before > 0 && [after, there] == [before; 2],
                "{kinds} {callbacks}: {:?}",
                [before, after, there]
            );
        }
    }
}

/// A tool that wraps `pthread_create` is told of each thread around its creation, and which library's it is.
#[test]
fn rocm_threads_of_the_runtimes_are_told() {
    let Some(scene) = scene() else { return };
    let tool = tool_of(&scene.clients, "creates.c", "libcreates.so", &[]);
    for program in ["basic", "callbacks"] {
        let mut command = scene.command("LD_PRELOAD", &scene.apps.join(program));
        command.env("LD_PRELOAD", &tool);
        let output = scene.there(command).output().expect("it runs");
        let said = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{program}: {}\n{said}", output.status);
        let numbers = |line: &str, of: &str| -> Option<Vec<u64>> {
            line.strip_prefix(of)?.split(' ').map(|number| number.parse().ok()).collect()
        };
        let threads = said.lines().filter_map(|line| numbers(line, "threads "));
        let libraries = threads.map(|threads| {
            let [library, before, after, seen] = threads[..] else { panic!("{said}") };
            assert_eq!([after, seen], [before; 2], "{program}: library {library}\n{said}");
            (library, before)
        });
        let libraries = libraries.collect::<Vec<_>>();
        println!("{program}: {libraries:?}");
        let [(1, own), (2, hsa), (4, _)] = libraries[..] else { panic!("{program}\n{said}") };
        assert!(own > 0 && hsa > 0, "{program}: {libraries:?}");
        assert!(said.lines().any(|line| line == "untold 0"), "{program}\n{said}");
    }
}
