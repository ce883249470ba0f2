//! The shim in the real ROCm runtimes on the emulated GPU: programs that do what few do, and machines that
//! have little memory.
//!
//! Every test is named `rocm_…`. Where ROCm is not installed they have nothing to run, and say so.

mod support;

use std::time::Duration;

use support::live::verify;
use support::memory::Recording;
use support::{finish, setup};
use tracer_common::shim::attach_status;

/// Most memory that an attachment may lock into a process which has all of its memory locked, KiB: what
/// docs/architecture.md says.
const LOCKED_KIB: u64 = 16 << 10;
/// The same where that is all that is mapped by then, rings of the threads that there are among it, KiB.
const ALL_KIB: u64 = 128 << 10;

/// A signal handler leaves doorbells by `siglongjmp`, wherever they are: the program goes on.
#[test]
fn rocm_doorbells_that_are_left_by_siglongjmp() {
    let Some(s) = setup() else { return };
    let outcome = s.run("jump", "hsa_schedules jump 2000", &[]);
    // What a lost thread may have is not destroyed, of which Debian's runtime complains.
    let known = "Resource leak detected by SharedSignalPool";
    assert!(outcome.errors.lines().all(|line| line.contains(known)), "{}", outcome.errors);
    assert!(outcome.report.contains("count packets 2000"), "{}", outcome.report);
    eprintln!("{}{:?}", outcome.report, outcome.trace.losses);
}

#[test]
fn rocm_the_write_index_moves_after_the_doorbell() {
    let Some(s) = setup() else { return };
    let outcome = s.run("early", "hsa_schedules early 2000", &[]);
    assert_eq!(outcome.errors, "");
    assert_eq!(outcome.trace.barriers.len(), 2000, "{:?}", outcome.trace.losses);
    assert_eq!(outcome.trace.completes.len(), 2000);
    assert_eq!(outcome.trace.lost(), 0);
}

/// No allocation of ours ends the program; what cannot be recorded is counted.
#[test]
fn rocm_no_memory_for_the_shim() {
    let Some(s) = setup() else { return };
    let mut met = 0;
    for line in ["storm 4 2 3000 100", "module 100 20", "copies", "hsa_direct"] {
        let env = [("ROCTAP_TEST_NO_MEMORY", "1"), ("EMUGPU_KERNEL_NS", "*=20000")];
        let mut running = s.start("no-memory", line, &env);
        running.wait_until_busy();
        let recording = Recording::new(64, 1 << 22);
        let mut refused = running.try_to_attach(&recording).then_some(0);
        while refused == Some(0) {
            std::thread::sleep(Duration::from_millis(1));
            refused = running.refused_memory();
        }
        met += usize::from(refused.is_some());
        let (_, errors) = finish(running.child, line);
        assert_eq!(errors, "", "{line}");
    }
    assert!(met > 0, "each had ended before the shim asked for memory");
}

/// Attaching to a program that has all of its memory locked locks little more.
#[test]
fn rocm_a_program_that_locks_its_memory() {
    let Some(s) = setup() else { return };
    let mut running = s.start("locked", "loop 0 4 2000", &[("EMUGPU_KERNEL_NS", "*=20000")]);
    running.wait_until_busy();
    running.lock_memory(-1);
    let (before, before_kib) = (running.locked_kib(), running.status_kib("VmLck:"));
    let (recording, began_ns) = running.attach().expect("it runs");
    running.wait_until_recorded(&recording, 2000);
    let after = running.locked_kib();
    // This counts address space, of the C library's heaps for threads too.
    let after_kib = running.status_kib("VmLck:");
    eprintln!("locked {before} → {after} KiB of memory, {before_kib} → {after_kib} of addresses");
    assert!(after < before + LOCKED_KIB, "{before} → {after} KiB");
    // All that it has mapped by then, too: rings of threads that there are not are no memory.
    running.lock_memory(-2);
    let shared = running.status_kib("RssShmem:");
    eprintln!("{shared} KiB of shared memory");
    assert!(shared < ALL_KIB, "{shared} KiB");
    let window = running.detach((recording, began_ns)).expect("it runs");
    assert!(window.trace.dispatches.len() >= 2000);
    running.child.kill().expect("kill");
    running.child.wait().expect("wait");
}

/// Where the process's limit is in the way it is refused, and runs on.
#[test]
fn rocm_a_program_that_may_lock_no_more() {
    let Some(s) = setup() else { return };
    let mut running = s.start("limited", "loop 0 2 1000", &[("EMUGPU_KERNEL_NS", "*=20000")]);
    running.wait_until_busy();
    // The library is there, and its thread.
    let window = running.record_some(1);
    running.lock_memory(64 << 10);
    let memory = Recording::new(64, 1 << 22);
    assert_eq!(running.status(&memory.path(), ""), attach_status::MEMORY);
    running.terminate();
    let log = running.log.clone();
    let (_, errors) = finish(running.child, "loop");
    assert_eq!(errors, "");
    verify("limited", &window, &emulated_gpu::truth::read(&log).expect("log"));
}
