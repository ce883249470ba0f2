//! The shim in real ROCm programs that run already: what is recorded, what is left behind.
//!
//! Every test is named `rocm_…`. Where ROCm is not installed they have nothing to run, and say so.

mod support;

use std::time::Duration;

use support::live::{Seen, Window, verify};
use support::{finish, setup};

/// Attaches again and again until the program ends.
#[test]
fn rocm_attached_again_and_again() {
    let Some(s) = setup() else { return };
    const SLOW: (&str, &str) = ("EMUGPU_KERNEL_NS", "*=20000");
    const SLOWER: (&str, &str) = ("EMUGPU_KERNEL_NS", "*=100000");
    for (program, env) in [
        ("storm 1 1 60000 100", &[SLOW][..]),
        ("storm 8 4 2500 100", &[SLOWER]),
        ("storm 4 2 10000 200", &[SLOW, ("GPU_MAX_HW_QUEUES", "1")]),
        ("graph 8000", &[SLOW]),
        ("callbacks 3000", &[SLOW]),
        ("module 400 20", &[SLOW]),
        ("hsa_direct psrab 30000", &[]),
    ] {
        if std::env::var("ONLY").is_ok_and(|only| !program.starts_with(&only)) {
            continue;
        }
        let mut running = s.start("again", program, env);
        running.wait_until_busy();
        let mut windows: Vec<Window> = Vec::new();
        while let Some(window) = running.record(30)
            && windows.len() < 40
        {
            windows.push(window);
            std::thread::sleep(Duration::from_millis(10));
        }
        let log = running.log.clone();
        let (_, errors) = finish(running.child, program);
        // The runtime warns of something that HIP does in graphs.
        let native = program.starts_with("graph").then(|| {
            let log = s.log("native");
            finish(s.command(program, env, &log).spawn().expect("start"), program).1
        });
        assert_eq!(errors, native.unwrap_or_default(), "{program}");
        let truth = emulated_gpu::truth::read(&log).expect("log");
        let mut sum = Seen::default();
        for window in &windows {
            let seen = verify(program, window, &truth);
            sum.recorded += seen.recorded;
            sum.before += seen.before;
            sum.unseen += seen.unseen;
        }
        let Seen { recorded, before, unseen } = sum;
        eprintln!(
            "{program}: {} times, {recorded} of {} recorded, {before} before the first, {unseen} unseen",
            windows.len(),
            truth.len()
        );
        assert!(recorded > 100 && recorded > before + unseen && windows.len() > 3, "{program}");
    }
}
