//! The shim in the real ROCm runtimes on the emulated GPU.
//!
//! Every test is named `rocm_…`. Where ROCm is not installed they have nothing to run, and say so.

mod support;

use support::memory::Recording;
use support::{setup, verify};
use tracer_common::shim::{Loss, state};

const PROGRAMS: [&str; 8] = [
    "basic",
    "graph 50",
    "module 8 20",
    "copies 2000",
    "hsa_direct",
    "storm 2 2 200 10",
    "nogpu",
    "fork_exec $APPS/plain",
];

#[test]
fn rocm_every_operation_of_every_program_is_recorded_once() {
    let Some(s) = setup() else { return };
    for program in PROGRAMS {
        let outcome = s.run("programs", program, &[]);
        verify::complete(program, &outcome);
        assert_eq!(outcome.trace.state, state::ACTIVE, "{program}");
    }
}

#[test]
fn rocm_a_storm_of_threads() {
    let Some(s) = setup() else { return };
    let outcome = s.run_in("storm", "storm 8 4 2000", &[], Recording::new(64, 1 << 22));
    verify::complete("storm", &outcome);
    let named = outcome.truth.iter().filter(|o| o.name.starts_with("storm_t")).count();
    assert_eq!(named, 64_000);
    assert_eq!(outcome.trace.losses[Loss::SIGNAL_POOL.0 as usize], 0);
}

/// For trying things: `ROCTAP_TEST_LINE="hsa_direct s 100" cargo test … -- --ignored one_line`.
#[test]
#[ignore = "a tool, not a test"]
fn rocm_one_line() {
    let Some(s) = setup() else { return };
    let line = std::env::var("ROCTAP_TEST_LINE").expect("ROCTAP_TEST_LINE is set");
    let outcome = s.run("line", &line, &[]);
    eprintln!("{:?} took {:?}: {}", line, outcome.took, outcome.report);
    eprintln!(
        "{} dispatches, {} barriers, {} copies, {} completed, losses {:?}, dropped {}",
        outcome.trace.dispatches.len(),
        outcome.trace.barriers.len(),
        outcome.trace.copies.len(),
        outcome.trace.completes.len(),
        outcome.trace.losses,
        outcome.trace.dropped
    );
    verify::complete(&line, &outcome);
}
