//! Comparing a trace with what the emulated GPU did.

use std::collections::BTreeMap;

use emulated_gpu::truth::Operation;
use tracer_common::shim::Complete;

use super::Outcome;
use super::memory::Trace;

/// Largest error of a time, ns.
pub const NEAR_NS: u64 = 1000;

fn near(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= NEAR_NS
}

/// Every operation of the ground truth was recorded exactly once, with its times, and nothing else.
pub fn complete(what: &str, outcome: &Outcome) {
    let Outcome { trace, truth, errors, .. } = outcome;
    assert_eq!((trace.dropped, trace.lost()), (0, 0), "{what}: {:?} {errors}", trace.losses);
    packets(what, trace, truth);
    copies(what, trace, truth);
    assert_eq!(
        trace.completes.len(),
        trace.dispatches.len() + trace.barriers.len() + trace.copies.len(),
        "{what}: completions of nothing"
    );
    assert!(!errors.contains("leak"), "{what}: {errors}");
}

type Packet = (&'static str, u64, u64);

fn packets(what: &str, trace: &Trace, truth: &[Operation]) {
    let names: BTreeMap<u64, Vec<&str>> = trace.symbols.iter().fold(BTreeMap::new(), |mut m, s| {
        m.entry(s.0.kernel_object).or_insert_with(Vec::new).push(s.1.as_str());
        m
    });
    let mut expected: BTreeMap<Packet, &Operation> = BTreeMap::new();
    for o in truth {
        // Queues of the runtime itself, which no table function sees, are those that were never
        // announced; see below.
        let kind = match o.kind.as_str() {
            "dispatch" => "dispatch",
            "barrier_and" | "barrier_or" if o.signal != 0 => "barrier",
            _ => continue,
        };
        let queue = o.hsa_queue.expect("an AQL queue");
        if trace.queues.iter().any(|q| q.queue_id == queue) {
            assert!(expected.insert((kind, queue, o.index), o).is_none(), "{what}: {o:?} twice");
        }
    }
    let mut found = 0;
    let mut check = |key: Packet, sequence: u64, kernel: u64, enqueue_ns: u64| {
        let o = expected.remove(&key).unwrap_or_else(|| panic!("{what}: {key:?} never ran"));
        times(what, o, trace.completes.get(&sequence));
        assert!(enqueue_ns <= o.start_ns + NEAR_NS, "{what}: {o:?} ran before {enqueue_ns}");
        assert_eq!(kernel, o.kernel_object, "{what}: {o:?}");
        if kernel != 0 {
            let known = names.get(&kernel).is_some_and(|n| n.contains(&o.name.as_str()));
            assert!(known, "{what}: no symbol for {o:?}: {:?}", names.get(&kernel));
        }
        found += 1;
    };
    for r in trace.dispatches.values() {
        let key = ("dispatch", r.queue_id, r.packet_index);
        check(key, r.sequence, r.kernel_object, r.enqueue_ns);
    }
    for r in trace.barriers.values() {
        check(("barrier", r.queue_id, r.packet_index), r.sequence, 0, r.enqueue_ns);
    }
    let missing: Vec<_> = expected.values().take(5).collect();
    assert!(
        missing.is_empty(),
        "{what}: {} found, {} not recorded, such as {missing:#?}",
        found,
        expected.len()
    );
}

fn times(what: &str, o: &Operation, complete: Option<&Complete>) {
    let c = complete.unwrap_or_else(|| panic!("{what}: no completion of {o:?}"));
    assert!(
        near(c.start_ns, o.start_ns) && near(c.end_ns, o.end_ns),
        "{what}: {o:?} but {c:?}: off by {} and {}",
        c.start_ns as i64 - o.start_ns as i64,
        c.end_ns as i64 - o.end_ns as i64
    );
}

/// Copies by the SDMA engines, matched by size and time. The engine's time stamps bracket the copy,
/// the truth is the copy.
fn copies(what: &str, trace: &Trace, truth: &[Operation]) {
    let mut expected: Vec<&Operation> = truth.iter().filter(|o| o.kind == "copy").collect();
    for r in trace.copies.values() {
        let c = trace
            .completes
            .get(&r.sequence)
            .unwrap_or_else(|| panic!("{what}: no completion of {r:?}"));
        assert!(c.start_ns <= c.end_ns && r.enqueue_ns <= c.start_ns + NEAR_NS, "{what}: {r:?} {c:?}");
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
