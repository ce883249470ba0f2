//! Comparing a trace with what the GPU did, and what belongs together in it.

use std::collections::{BTreeMap, HashMap, HashSet};

use tracer_common::loss::ShimLoss;
use tracer_records::model::{ApiCall, Dispatch};

use crate::{Operation, Recorded};

/// What each of 8 threads of `loop` launches before it waits, in all, with the barriers for that: so much can be
/// under way when a recording begins, or a second after it ended.
const BEHIND: u64 = 808;
/// What `hsa_direct s` calls once for each dispatch, and the runtime never.
pub const ASKS_FOR_TIMES: &str = "hsa_amd_profiling_get_dispatch_time";
/// By how much times may differ from those of the GPU, ns, beside what the trace tells.
const TICK_NS: u64 = 1000;
/// Packets between two steps of the program or of the shim, on all queues.
const FEW: u64 = 64;

/// Every launch call has exactly one dispatch, on the call's own thread, and the dispatches of a
/// thread in a queue run in the order of their calls.
pub fn expect_launches_joined(trace: &Recorded) {
    let calls: HashMap<u64, &ApiCall> =
        trace.calls.iter().map(|call| (call.record.correlation_id, call)).collect();
    assert_eq!(calls.len(), trace.calls.len(), "correlation ids are unique");
    let mut by_call: HashMap<u64, u32> = HashMap::new();
    let mut by_thread_and_queue: BTreeMap<(u32, u64), Vec<(&Dispatch, &ApiCall)>> = BTreeMap::new();
    for dispatch in &trace.dispatches {
        if trace.kernel(dispatch).starts_with("__amd_rocclr") {
            continue;
        }
        let id = dispatch.record.correlation_id;
        let call = calls.get(&id).unwrap_or_else(|| panic!("no call for {dispatch:?}"));
        assert_eq!(trace.function(call), "hipLaunchKernel");
        assert_eq!(call.record.thread_id, dispatch.record.thread_id);
        assert!(call.record.begin_ns <= dispatch.enqueue_ns);
        assert!(dispatch.enqueue_ns <= call.record.end_ns);
        *by_call.entry(id).or_default() += 1;
        let key = (dispatch.record.thread_id, dispatch.record.queue_id);
        by_thread_and_queue.entry(key).or_default().push((dispatch, call));
    }
    assert!(by_call.values().all(|&count| count == 1), "one dispatch a launch");
    for pairs in by_thread_and_queue.values_mut() {
        pairs.sort_by_key(|(dispatch, _)| dispatch.record.begin_ns);
        assert!(pairs.is_sorted_by_key(|(_, call)| call.record.begin_ns), "in the order of calls");
    }
}

/// Between the first and the last dispatch of each queue that the trace has, it has all that the GPU
/// ran, each once, under its name and with its times.
pub fn expect_no_holes(trace: &Recorded, truth: &[Operation]) {
    let lost = trace.losses();
    let missing: u64 =
        [ShimLoss::OPERATION_RING_FULL, ShimLoss::PACKET_PASSED, ShimLoss::UNPUBLISHED]
            .iter()
            .filter_map(|cause| lost.get(cause.describe()))
            .sum();
    let timed = trace.dispatches.iter().filter(|dispatch| dispatch.record.begin_ns > 0);
    let pids: HashSet<u32> = timed.map(|dispatch| dispatch.process_id).collect();
    let error_ns = pids.into_iter().map(|pid| trace.stated_error_ns(pid)).max().unwrap_or(0);
    let tolerance_ns = error_ns + TICK_NS;
    let ended_ns = trace.tables().processes.values().map(|process| process.detached_ns).max();
    let ended_ns = ended_ns.unwrap_or(0).saturating_add(tolerance_ns);
    let mut queues: BTreeMap<u64, Vec<&Dispatch>> = BTreeMap::new();
    for dispatch in &trace.dispatches {
        queues.entry(dispatch.record.queue_id).or_default().push(dispatch);
    }
    for (queue, seen) in queues {
        let of_queue: Vec<&Operation> =
            truth.iter().filter(|o| o.hsa_queue == Some(queue)).collect();
        let (timed, untimed): (Vec<&Dispatch>, Vec<&Dispatch>) =
            seen.into_iter().partition(|d| d.record.begin_ns > 0);
        let counted = untimed.len() as u64 + missing;
        let mut by_name: BTreeMap<String, Vec<&Dispatch>> = BTreeMap::new();
        for dispatch in timed {
            by_name.entry(trace.kernel(dispatch)).or_default().push(dispatch);
        }
        let mut found: Vec<u64> = Vec::new();
        for (name, mut seen) in by_name {
            seen.sort_by_key(|d| d.record.begin_ns);
            let mut ran: Vec<&Operation> =
                of_queue.iter().copied().filter(|o| o.name == name).collect();
            ran.sort_by_key(|o| o.index);
            for (dispatch, operation) in aligned(&seen, &ran, counted, ended_ns, tolerance_ns) {
                let (begin, end) = (dispatch.record.begin_ns, dispatch.record.end_ns);
                let what = format!(
                    "{dispatch:?} is not {operation:?}, within {tolerance_ns} ns; \
                     recorded until {ended_ns}, {counted} not seen"
                );
                assert!(begin.abs_diff(operation.start_ns) <= tolerance_ns, "{what}");
                assert!(end.abs_diff(operation.end_ns) <= tolerance_ns, "{what}");
                found.push(operation.index);
            }
        }
        found.sort_unstable();
        let (Some(first), Some(last)) = (found.first(), found.last()) else { continue };
        let mut holes = of_queue.clone();
        holes.retain(|o| (first..=last).contains(&&o.index) && !found.contains(&o.index));
        // A thread may have reserved a packet, and published it behind the end, while another one had rung for a later
        // one before it: that is recorded, and this is left out.
        holes.retain(|o| o.start_ns <= ended_ns);
        let lost = trace.losses();
        assert!(
            holes.len() as u64 <= counted,
            "queue {queue}: {holes:?} are holes; lost: {lost:?}"
        );
    }
}

/// Pairs what was seen of a kernel with what ran of it, each in order. Kernels may begin closer together
/// than times are exact, so it is the whole sequence that is laid where it fits best; but for `lost` of
/// it, and for what ran behind the end, what was seen follows on what was seen before.
fn aligned<'a>(
    seen: &[&'a Dispatch],
    ran: &[&'a Operation],
    lost: u64,
    ended_ns: u64,
    tolerance_ns: u64,
) -> Vec<(&'a Dispatch, &'a Operation)> {
    let off = |d: &Dispatch, o: &Operation| d.record.begin_ns.abs_diff(o.start_ns);
    let Some(first) = seen.first() else { return Vec::new() };
    let begins = ran.partition_point(|o| o.start_ns + tolerance_ns < first.record.begin_ns);
    let candidates = (begins..ran.len()).take_while(|&at| off(first, ran[at]) <= tolerance_ns);
    let laid = candidates.map(|at| {
        let mut at = at;
        let mut pairs = Vec::with_capacity(seen.len());
        let mut skipped = 0;
        for &dispatch in seen {
            while let Some(operation) = ran.get(at)
                && off(dispatch, operation) > tolerance_ns
            {
                // A packet that was published behind the end, where a later one had been rung for before it.
                let behind = operation.start_ns > ended_ns;
                if !behind && skipped == lost {
                    break;
                }
                (at, skipped) = (at + 1, skipped + u64::from(!behind));
            }
            pairs.extend(ran.get(at).map(|&o| (dispatch, o)));
            at += 1;
        }
        pairs
    });
    let sum = |pairs: &Vec<(&Dispatch, &Operation)>| -> u64 {
        pairs.iter().map(|(d, o)| off(d, o)).sum()
    };
    let best = laid.filter(|pairs| pairs.len() == seen.len()).min_by_key(sum);
    best.unwrap_or_else(|| {
        let times = |o: &&Operation| (o.index, o.start_ns, o.end_ns);
        let near: Vec<_> = ran.iter().skip(begins.saturating_sub(2)).take(5).map(times).collect();
        panic!(
            "the GPU ran no such sequence of {} as that from {first:?} on, within {tolerance_ns} ns, {lost} not \
             seen; but, by index and times, {near:?}, {} in all",
            seen.len(),
            ran.len()
        )
    })
}

/// What is lost is what nobody can have: packets that were under way when recording began or ended. They
/// are counted. Those whose doorbells had rung are as many as the program had the GPU be behind; the others
/// are few.
pub fn expect_only_inevitable(trace: &Recorded) -> BTreeMap<String, u64> {
    let lost = trace.losses();
    for (cause, &count) in &lost {
        let most = if cause == ShimLoss::BEFORE_ATTACH.describe()
            || cause == "GPU operations: no completion seen"
        {
            BEHIND
        } else if cause == ShimLoss::PACKET_PASSED.describe()
            || cause == ShimLoss::UNPUBLISHED.describe()
        {
            FEW
        } else {
            0
        };
        assert!(count <= most, "{lost:?}");
    }
    lost
}

/// Every launch between "attached" and "detached" has its one kernel, and every kernel its launch.
pub fn expect_joined(trace: &Recorded, pid: u32) {
    let process = &trace.tables().processes[&pid];
    let whole = process.attached_ns..process.detached_ns;
    let mut kernels: HashMap<u64, u32> = HashMap::new();
    for dispatch in trace.dispatches.iter().filter(|d| d.record.correlation_id != 0) {
        *kernels.entry(dispatch.record.correlation_id).or_default() += 1;
    }
    let (mut launches, mut missed) = (0, Vec::new());
    for call in trace.calls.iter().filter(|call| trace.function(call) == "hipLaunchKernel") {
        let (begin, end) = (call.record.begin_ns, call.record.end_ns);
        if whole.contains(&begin) && whole.contains(&end) {
            launches += 1;
            match kernels.get(&call.record.correlation_id) {
                Some(&count) => assert_eq!(count, 1, "{call:?}"),
                None => missed.push(call),
            }
        }
    }
    assert!(launches > 0);
    let mut counted = expect_only_inevitable(trace);
    // That is of launches which ended after the recording.
    counted.remove(ShimLoss::UNPUBLISHED.describe());
    let counted: u64 = counted.values().sum();
    // A thread that was about to ring its doorbell when the tables were patched rings the old way; if
    // another one's doorbell then finds its packet, whose it is is not known: a launch without a kernel and a
    // kernel without a launch.
    let known = |d: &&Dispatch| d.record.correlation_id != 0;
    let unknown: Vec<_> = trace.dispatches.iter().filter(|d| !known(d)).collect();
    // One of each of 8 threads.
    assert!(
        unknown.len() <= 8,
        "recorded in {whole:?}, {} dispatches without a call, the first and the last: {:?}; launches without a kernel: {missed:?}",
        unknown.len(),
        (unknown.first(), unknown.last())
    );
    assert!(
        missed.len() as u64 <= counted.min(FEW) + unknown.len() as u64,
        "recorded in {whole:?}, launches without a kernel: {missed:?}; lost: {:?}; kernels without a launch: {unknown:?}",
        trace.losses()
    );
    let calls: HashMap<u64, _> = trace.calls.iter().map(|c| (c.record.correlation_id, c)).collect();
    for dispatch in trace.dispatches.iter().filter(known).filter(|d| whole.contains(&d.enqueue_ns))
    {
        let call = calls.get(&dispatch.record.correlation_id);
        let call = call.unwrap_or_else(|| panic!("no call for {dispatch:?}"));
        assert_eq!(call.record.thread_id, dispatch.record.thread_id);
    }
}

/// Every dispatch of process `pid`, which has one thread, since it has its shim has its doorbell's call, on the same
/// thread; no two have the same. The first one's call may have been open when calls began to be recorded.
pub fn expect_doorbells_joined(trace: &Recorded, pid: u32) {
    let attached = trace.tables().processes[&pid].attached_ns;
    let calls: HashMap<u64, _> = trace.calls.iter().map(|c| (c.record.correlation_id, c)).collect();
    let mut dispatches: Vec<_> =
        trace.dispatches.iter().filter(|d| d.enqueue_ns >= attached).collect();
    dispatches.sort_unstable_by_key(|dispatch| dispatch.enqueue_ns);
    let mut rung = HashSet::new();
    for (nth, dispatch) in dispatches.into_iter().enumerate() {
        let id = dispatch.record.correlation_id;
        if nth == 0 && id == 0 {
            continue;
        }
        let call = calls.get(&id).unwrap_or_else(|| panic!("no call for {dispatch:?}"));
        assert_eq!(trace.function(call), "hsa_signal_store_screlease");
        assert_eq!(call.record.thread_id, dispatch.record.thread_id);
        assert!(rung.insert(id), "{call:?} rang once");
    }
    assert!(rung.len() > 5, "{}", rung.len());
}

/// Of a program that asks for the times of each of its dispatches before the next: it asked once for each
/// that the GPU ran, and called the other functions as often while all of them were recorded.
pub fn expect_a_call_for_each_dispatch(trace: &Recorded, truth: &[Operation]) {
    let mut begins: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    // One that was open when recording began has no beginning.
    for call in trace.calls.iter().filter(|call| call.record.begin_ns > 0) {
        begins.entry(trace.function(call)).or_default().push(call.record.begin_ns);
    }
    begins.values_mut().for_each(|begins| begins.sort_unstable());
    let asked = &begins[ASKS_FOR_TIMES];
    let mut starts: Vec<u64> = truth.iter().map(|operation| operation.start_ns).collect();
    starts.sort_unstable();
    let before = |time: u64| starts.partition_point(|&start| start < time);
    for pair in asked.windows(2) {
        let between = before(pair[1]) - before(pair[0]);
        assert_eq!(between, 1, "from {} to {}", pair[0], pair[1]);
    }
    let from = begins.values().filter_map(|begins| begins.first()).max();
    let to = begins.values().filter_map(|begins| begins.last()).min();
    let whole = from.expect("calls")..=to.expect("calls");
    let within = |begins: &[u64]| begins.iter().filter(|begin| whole.contains(begin)).count();
    let rounds = within(asked);
    assert!(rounds > 5, "{rounds}");
    for (function, begins) in &begins {
        let calls = within(begins);
        assert!(calls.abs_diff(rounds) <= 1, "{function}: {calls}, not {rounds}");
    }
}
