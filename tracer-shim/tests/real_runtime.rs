//! The shim in the real ROCm runtimes on the emulated GPU: what is recorded.
//!
//! Every test is named `rocm_…`. Where ROCm is not installed they have nothing to run, and say so.

mod support;

use emulated_gpu::truth::Operation;
use support::memory::{Recording, Trace};
use support::{Outcome, setup, verify};
use tracer_common::loss::ShimLoss;
use tracer_common::shim::state;

/// Ends as the ground truth says, but for what the emulator took before its doorbell.
fn verify_nearly(what: &str, outcome: &Outcome) {
    let imperfect = verify::counted(what, outcome);
    let all = outcome.trace.dispatches.len() + outcome.trace.barriers.len();
    assert!(imperfect * 500 <= all + 500, "{what}: {imperfect} of {all}");
    assert_eq!(outcome.errors, "", "{what}: nothing on stderr");
}

/// Whether a queue of the application ran it; the runtime has queues of its own.
fn announced(trace: &Trace, operation: &Operation) -> bool {
    trace.queues.iter().any(|q| Some(q.queue_id) == operation.hsa_queue)
}

#[test]
fn rocm_every_operation_of_every_program_is_recorded_once() {
    let Some(s) = setup() else { return };
    for (program, ended) in [
        ("basic", state::ACTIVE),
        ("graph 50", state::ACTIVE),
        ("module 8 20", state::ACTIVE),
        ("copies 2000", state::ACTIVE),
        ("storm 2 2 200 10", state::ACTIVE),
        // Shuts the runtime down.
        ("hsa_direct", state::DORMANT),
        // Does not use the runtime.
        ("nogpu", state::NONE),
    ] {
        let outcome = s.run("programs", program, &[]);
        verify_nearly(program, &outcome);
        assert_eq!(outcome.trace.state, ended, "{program}");
    }
}

#[test]
fn rocm_other_settings() {
    let Some(s) = setup() else { return };
    let settings: [&[(&str, &str)]; 6] = [
        &[("HSA_ENABLE_SDMA", "0")],
        &[("HSA_ENABLE_INTERRUPT", "0")],
        &[("EMUGPU_COUNT", "2"), ("EMUGPU_ARCH", "gfx90a")],
        &[("EMUGPU_CLOCK_OFFSET_NS", "123456789012345"), ("EMUGPU_CLOCK_PPM", "250")],
        &[("EMUGPU_KERNEL_NS", "storm_t1=50000,*=0"), ("EMUGPU_OVERLAP", "1")],
        &[("EMUGPU_KERNEL_NS", "direct_one=300000,*=1000"), ("EMUGPU_OVERLAP", "16")],
    ];
    for env in settings {
        for program in ["basic", "copies 500", "hsa_direct", "storm 2 2 100 10"] {
            let what = format!("{program} {env:?}");
            verify_nearly(&what, &s.run("settings", program, env));
        }
    }
}

/// Whichever readings of both clocks are interrupted between these: the error that is told holds, and is
/// less than for how long they were.
#[test]
fn rocm_times_are_as_exact_as_is_told_whichever_clock_reading_is_interrupted() {
    let Some(s) = setup() else { return };
    // The runtime's first one; those after it; and some of later.
    let every_seventh = (3..3000).step_by(7).map(|number| number.to_string());
    let some = ["1".to_owned(), "2".to_owned(), every_seventh.collect::<Vec<_>>().join(",")];
    for interrupted in some {
        let env = [
            ("EMUGPU_CLOCK_INTERRUPTED", &interrupted[..]),
            ("EMUGPU_CLOCK_INTERRUPTED_NS", "2000000"),
        ];
        for program in ["basic", "storm 2 2 200 10", "copies 500"] {
            let what = format!("{program}, interrupted {interrupted:.8}");
            let outcome = s.run("interrupted", program, &env);
            verify_nearly(&what, &outcome);
            let stated_ns = outcome.trace.clock_error_ns;
            assert!((1..2_000_000).contains(&stated_ns), "{what}: {stated_ns} ns are stated");
        }
    }
}

/// A packet processor that takes what is published, whoever has rung for it: what it takes before we
/// have seen it is counted, and the program does not notice.
#[test]
fn rocm_a_gpu_that_waits_for_no_doorbell() {
    let Some(s) = setup() else { return };
    for program in ["basic", "graph 50", "copies 500", "hsa_direct", "storm 4 2 2000 10"] {
        let outcome = s.run("taken", program, &[("EMUGPU_BEYOND_DOORBELL_MS", "0")]);
        let imperfect = verify::missing(program, &outcome);
        eprintln!("{program}: {imperfect} imperfect of {}", outcome.truth.len());
    }
}

#[test]
fn rocm_a_storm_of_threads() {
    let Some(s) = setup() else { return };
    let outcome = s.run_in("storm", "storm 8 4 2000", &[], Recording::new(64, 1 << 22));
    let imperfect = verify::counted("storm", &outcome);
    eprintln!("storm: {imperfect} imperfect of 64000, {:?}", outcome.took);
    assert!(imperfect < 64, "{imperfect}");
    let named = outcome.truth.iter().filter(|o| o.name.starts_with("storm_t")).count();
    assert_eq!(named, 64_000);
    assert_eq!(outcome.trace.losses[ShimLoss::SIGNAL_POOL.0 as usize], 0);
    assert!(outcome.trace.threads >= 9, "one ring for each thread, and the shim's");
}

/// What the application reads through the runtime is what it would have read without us.
#[test]
fn rocm_the_applications_own_times_are_right() {
    let Some(s) = setup() else { return };
    let outcome = s.run("times", "hsa_direct sc 300 times", &[]);
    verify_nearly("times", &outcome);
    let mut lines = 0;
    for line in outcome.report.lines() {
        let ["time", kind, start, end] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            continue;
        };
        let (start, end): (u64, u64) = (start.parse().expect("ns"), end.parse().expect("ns"));
        let found = outcome.truth.iter().any(|o| {
            o.kind == kind
                && o.start_ns.abs_diff(start) <= verify::NEAR_NS
                && o.end_ns.abs_diff(end) <= verify::NEAR_NS
        });
        assert!(found, "no operation at {line}");
        lines += 1;
    }
    assert_eq!(lines, 331);
}

#[test]
fn rocm_symbols_agents_and_queues_are_described() {
    let Some(s) = setup() else { return };
    let outcome = s.run("described", "basic", &[("EMUGPU_COUNT", "2"), ("EMUGPU_ARCH", "gfx90a")]);
    let trace = &outcome.trace;
    let gpus: Vec<_> = trace.agents.iter().filter(|a| a.device_type == 1).collect();
    assert_eq!(gpus.iter().map(|a| a.index).collect::<Vec<_>>(), [0, 1]);
    for gpu in &gpus {
        assert!(gpu.name.starts_with(b"gfx90a\0"), "{gpu:?}");
        assert!(outcome.truth.iter().any(|o| o.node == gpus[0].node_id));
    }
    assert!(trace.agents.iter().any(|a| a.device_type == 0));
    let (symbol, _) = trace.symbols.iter().find(|s| s.1 == "add_one").expect("the kernel");
    assert!(symbol.vgpr_count > 0 && symbol.sgpr_count > 0, "{symbol:?}");
    let dispatch =
        trace.dispatches.values().find(|d| d.kernel_object == symbol.kernel_object).expect("ran");
    assert_eq!((dispatch.grid, dispatch.workgroup), ([391 * 256, 1, 1], [256, 1, 1]));
    assert_eq!(dispatch.agent, gpus[0].handle);
    assert!(trace.queues.iter().any(|q| q.queue_id == dispatch.queue_id && q.created == 1));
    let copy = trace.copies.values().find(|c| c.size_bytes == 400_000).expect("a copy");
    assert!(copy.dst_agent == gpus[0].handle || copy.src_agent == gpus[0].handle);
}

#[test]
fn rocm_a_full_ring_drops_and_counts_exactly() {
    let Some(s) = setup() else { return };
    let recording = Recording::new(32, 4096);
    let outcome = s.run_in("full", "hsa_direct nb 20000", &[], recording);
    let trace = &outcome.trace;
    let ran = outcome.truth.iter().filter(|o| o.kind == "dispatch" && announced(trace, o)).count();
    let ran = ran as u64;
    let seen = (trace.dispatches.len() + trace.completes.len()) as u64;
    // A dispatch that was dropped has no completion to drop.
    let dispatches_dropped = ran - trace.dispatches.len() as u64;
    let completes_dropped = (trace.dispatches.len() - trace.completes.len()) as u64;
    let passed = trace.losses[ShimLoss::PACKET_PASSED.0 as usize];
    assert!(seen > 0 && trace.dropped > 0);
    let lost = dispatches_dropped + completes_dropped;
    let loss = |cause: ShimLoss| trace.losses[cause.0 as usize];
    let counted = loss(ShimLoss::OPERATION_RING_FULL) + loss(ShimLoss::COMPLETION_RING_FULL);
    assert_eq!(counted, trace.dropped);
    assert!(
        lost >= trace.dropped && lost <= trace.dropped + passed,
        "{lost} lost, {} dropped, {:?}",
        trace.dropped,
        trace.losses
    );
}

#[test]
fn rocm_threads_without_a_ring_are_counted() {
    let Some(s) = setup() else { return };
    let outcome = s.run_in("rings", "storm 8 1 500 50", &[], Recording::new(3, 1 << 20));
    let trace = &outcome.trace;
    let packets = outcome
        .truth
        .iter()
        .filter(|o| o.kind == "dispatch" || (o.kind == "barrier_and" && o.signal != 0))
        .filter(|o| announced(trace, o))
        .count();
    let seen = trace.dispatches.len() + trace.barriers.len();
    let no_ring = trace.losses[ShimLoss::NO_RING.0 as usize];
    let passed = trace.losses[ShimLoss::PACKET_PASSED.0 as usize];
    assert!(no_ring > 0 && trace.completes.len() <= seen + trace.copies.len());
    let copies = outcome.truth.iter().filter(|o| o.kind == "copy").count() - trace.copies.len();
    let missing = (packets - seen + copies) as u64;
    assert!(
        no_ring <= missing && missing <= no_ring + passed,
        "{missing} missing, {no_ring} without a ring, {passed} passed"
    );
}
