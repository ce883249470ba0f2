//! Threads that the library creates.

use crate::kinds::{COPIES, HIP, HSA, KERNELS, RETIREMENTS, WORK_TOLD};
use crate::scene::{LOADERS, scene};

/// A tool is told of each, before and after.
#[test]
fn rocm_tools_are_told_of_every_thread() {
    let Some(scene) = scene() else { return };
    let work = format!("{KERNELS},{COPIES}");
    let calls = format!("{HIP},{HSA},{RETIREMENTS}");
    for loader in LOADERS {
        for (kinds, told, of_its_own) in
            [(&*work, "", ""), (&calls, HIP, "1"), (&work, WORK_TOLD, "1"), (HIP, HSA, "")]
        {
            let words = [
                ("WATCH_INTERNAL", "1"),
                ("WATCH_KINDS", kinds),
                ("WATCH_CALLBACKS", told),
                ("WATCH_THREAD", of_its_own),
            ];
            let words = words.into_iter().filter(|(_, value)| !value.is_empty());
            let outcome = scene.run(loader, "basic", &[], &words.collect::<Vec<_>>());
            let [before, after, there] = outcome.threads;
            assert!(
                before > 0 && [after, there] == [before; 2],
                "{kinds} {told}: {:?}",
                [before, after, there]
            );
        }
    }
}
