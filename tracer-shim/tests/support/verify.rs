//! Comparing a trace with what the emulated GPU did.

use std::collections::BTreeMap;

use emulated_gpu::truth::Operation;
use tracer_common::loss::ShimLoss;
use tracer_common::shim::{Complete, UNKNOWN_CLOCK_ERROR_NS};

use super::Outcome;
use super::memory::Trace;

/// Largest error of a time where none is told, and what is between two events that are nearly one, ns.
pub const NEAR_NS: u64 = 1000;

/// Largest error of a kernel's time, ns.
fn stated_error_ns(trace: &Trace) -> u64 {
    match trace.clock_error_ns {
        0 => NEAR_NS,
        UNKNOWN_CLOCK_ERROR_NS => panic!("the error of times is not known"),
        name => name,
    }
}

/// Every operation of the ground truth was recorded exactly once, with its times, and nothing else.
pub fn complete(what: &str, outcome: &Outcome) {
    assert_eq!(counted(what, outcome), 0, "{what}: {:?}", outcome.trace.losses);
}

/// The same, except that operations may be missing that the shim counted as passed, or may have
/// been taken before their doorbell was rung; how many of both.
///
/// The emulated packet processor takes, 20 µs after a doorbell, whatever valid packet there is up
/// to the write index of that time, also when its own doorbell was not rung yet. A thread that is
/// preempted between publishing and ringing finds its packet consumed, or half so.
pub fn counted(what: &str, outcome: &Outcome) -> usize {
    let Outcome { trace, truth, errors, .. } = outcome;
    let passed = trace.losses[ShimLoss::PACKET_PASSED.0 as usize];
    assert_eq!(
        (trace.dropped, trace.lost() - passed),
        (0, 0),
        "{what}: {:?} {errors}",
        trace.losses
    );
    let (missing, early) = packets(what, trace, truth);
    assert_eq!(missing as u64, passed, "{what}: losses are counted exactly");
    copies(what, trace, truth);
    assert!(!errors.contains("leak") && !errors.contains("invalid"), "{what}: {errors}");
    missing + early
}

/// The same for a packet processor that waits for no doorbell: no packet is missing that is not
/// counted, and nothing is counted but packets that are missing or that are not recorded anyway.
pub fn missing(what: &str, outcome: &Outcome) -> usize {
    let Outcome { trace, truth, errors, .. } = outcome;
    assert_eq!(trace.dropped, 0, "{what}");
    let (missing, early) = packets(what, trace, truth);
    let unrecorded = |o: &&Operation| match o.kind.as_str() {
        "barrier_and" | "barrier_or" => o.signal == 0,
        kind => kind == "pm4" || kind == "barrier_value",
    };
    let most = missing + truth.iter().filter(unrecorded).count();
    let lost = trace.lost() as usize;
    assert!((missing..=most).contains(&lost), "{what}: {missing}..={most} {:?}", trace.losses);
    copies(what, trace, truth);
    assert_eq!(errors, "", "{what}: nothing on stderr");
    missing + early
}

type Packet = (&'static str, u64, u64);

/// Whatever was recorded is in the ground truth, with its times; how many packets.
pub fn subset_of(what: &str, trace: &Trace, truth: &[Operation]) -> usize {
    let by_place: BTreeMap<(u64, u64), &Operation> =
        truth.iter().filter_map(|o| Some(((o.hsa_queue?, o.index), o))).collect();
    let dispatches = trace.dispatches.values().map(|r| (r.queue_id, r.packet_index, r.sequence));
    let barriers = trace.barriers.values().map(|r| (r.queue_id, r.packet_index, r.sequence));
    let mut incomplete = 0;
    for (queue, index, sequence) in dispatches.chain(barriers) {
        let o =
            by_place.get(&(queue, index)).unwrap_or_else(|| panic!("{what}: {index} on {queue}"));
        match trace.completes.get(&sequence) {
            Some(complete) => times(what, o, complete, stated_error_ns(trace)),
            None => incomplete += 1,
        }
    }
    assert!(incomplete <= trace.lost() + trace.dropped, "{what}: {incomplete} {:?}", trace.losses);
    trace.dispatches.len() + trace.barriers.len()
}

/// Matches packets; how many have no record, or a record without a completion, and how many ran
/// before they were seen.
fn packets(what: &str, trace: &Trace, truth: &[Operation]) -> (usize, usize) {
    let names: BTreeMap<u64, Vec<&str>> = trace.symbols.iter().fold(BTreeMap::new(), |mut m, s| {
        m.entry(s.0.kernel_object).or_insert_with(Vec::new).push(s.1.as_str());
        m
    });
    let mut expected: BTreeMap<Packet, &Operation> = BTreeMap::new();
    for o in truth {
        let kind = match o.kind.as_str() {
            "dispatch" => "dispatch",
            "barrier_and" | "barrier_or" if o.signal != 0 => "barrier",
            _ => continue,
        };
        let queue = o.hsa_queue.expect("an AQL queue");
        // Queues of the runtime's own pass no table function; they are never announced.
        if trace.queues.iter().any(|q| q.queue_id == queue) {
            assert!(expected.insert((kind, queue, o.index), o).is_none(), "{what}: {o:?} twice");
        }
    }
    let (mut incomplete, mut early) = (0, 0);
    let mut check = |key: Packet, sequence: u64, kernel: u64, enqueue_ns: u64| {
        let o = expected.remove(&key).unwrap_or_else(|| panic!("{what}: {key:?} never ran"));
        assert_eq!(kernel, o.kernel_object, "{what}: {o:?}");
        if kernel != 0 {
            let known = names.get(&kernel).is_some_and(|n| n.contains(&o.name.as_str()));
            assert!(known, "{what}: no symbol for {o:?}: {:?}", names.get(&kernel));
        }
        match trace.completes.get(&sequence) {
            Some(complete) => {
                times(what, o, complete, stated_error_ns(trace));
                early += usize::from(enqueue_ns > o.start_ns + NEAR_NS);
            }
            None => incomplete += 1,
        }
    };
    for r in trace.dispatches.values() {
        let key = ("dispatch", r.queue_id, r.packet_index);
        check(key, r.sequence, r.kernel_object, r.enqueue_ns);
    }
    for r in trace.barriers.values() {
        check(("barrier", r.queue_id, r.packet_index), r.sequence, 0, r.enqueue_ns);
    }
    let recorded = trace.dispatches.len() + trace.barriers.len() + trace.copies.len();
    assert!(trace.completes.len() <= recorded, "{what}: completions of nothing");
    (expected.len() + incomplete, early)
}

fn times(what: &str, o: &Operation, c: &Complete, error_ns: u64) {
    let near = |a: u64, b: u64| a.abs_diff(b) <= error_ns;
    assert!(
        near(c.start_ns, o.start_ns) && near(c.end_ns, o.end_ns),
        "{what}: {o:?} but {c:?}: off by {} and {}, told are {error_ns}",
        c.start_ns as i64 - o.start_ns as i64,
        c.end_ns as i64 - o.end_ns as i64
    );
}

/// Copies by the SDMA engines, matched by size and time. The engine's time stamps bracket the copy,
/// the truth is the copy.
fn copies(what: &str, trace: &Trace, truth: &[Operation]) {
    let near_ns = NEAR_NS + stated_error_ns(trace);
    let near = |a: u64, b: u64| a.abs_diff(b) <= near_ns;
    let mut expected: Vec<&Operation> = truth.iter().filter(|o| o.kind == "copy").collect();
    for r in trace.copies.values() {
        let c = trace
            .completes
            .get(&r.sequence)
            .unwrap_or_else(|| panic!("{what}: no completion of {r:?}"));
        assert!(
            c.start_ns <= c.end_ns && r.enqueue_ns <= c.start_ns + near_ns,
            "{what}: {r:?} {c:?}"
        );
        let at = expected.iter().position(|o| {
            o.bytes == r.size_bytes && near(o.start_ns, c.start_ns) && near(o.end_ns, c.end_ns)
        });
        match at {
            Some(at) => drop(expected.remove(at)),
            // By a kernel on a queue of the runtime's own, or by the host.
            None => assert!(
                truth.iter().any(|o| o.kind == "dispatch" && near(o.end_ns, c.end_ns))
                    || truth.iter().all(|o| o.bytes != r.size_bytes),
                "{what}: {r:?} {c:?} is nowhere: {:?}",
                expected.iter().find(|o| o.bytes == r.size_bytes)
            ),
        }
    }
    assert!(expected.is_empty(), "{what}: not recorded: {:?}", expected.first());
}
