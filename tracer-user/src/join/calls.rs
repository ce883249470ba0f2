//! Recent API calls, to look up by correlation id or by time.

use std::collections::{HashMap, VecDeque};

use tracer_common::{
    activity::Domain,
    bpf::{ApiRecord, flag},
    calls::FIRST_ID,
};

/// Calls that are kept for each thread.
const KEPT_PER_THREAD: usize = 4096;
/// A generation of streams is given up after this, ns.
const GENERATION_NS: u64 = 10_000_000_000;
/// How much later than its doorbell's a call's entry can be seen: another probe at the same place.
const NEAR_NS: u64 = 2_000;
/// Calls that are remembered without a stream; a power of two.
const KNOWN: usize = 1 << 16;

/// The call that launched an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// Its correlation id, 0 for none.
    pub correlation_id: u64,
    /// Its domain and operation, as in `Header::operation`.
    pub operation: u32,
}

impl Caller {
    /// Whether it is a HIP call.
    pub fn is_hip(self) -> bool {
        self.correlation_id != 0 && self.operation >> 16 == Domain::HIP_API.0
    }
}

#[derive(Clone, Copy)]
struct Interval {
    begin_ns: u64,
    end_ns: u64,
    caller: Caller,
}

/// Recent HIP calls that named no stream, or the null stream: nearly all calls are such, so this must
/// be cheap and small. A newer call takes the place of an older one.
struct Known(Box<[u64]>);

impl Default for Known {
    fn default() -> Self {
        Self(vec![0; KNOWN].into())
    }
}

impl Known {
    /// Spreads ids that are far apart by the number of CPUs (Fibonacci hashing).
    fn place(id: u64) -> usize {
        (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - KNOWN.ilog2())) as usize
    }

    fn insert(&mut self, id: u64) {
        self.0[Self::place(id)] = id;
    }

    fn contains(&self, id: u64) -> bool {
        id != 0 && self.0[Self::place(id)] == id
    }
}

/// Recent calls.
#[derive(Default)]
pub struct Calls {
    /// HIP calls without a stream. When one is forgotten, its operation waits in vain, and is then
    /// written without a stream all the same.
    known: Known,
    /// HIP streams by the correlation id of the call that named one: two generations.
    streams: [HashMap<u64, u64>; 2],
    generation_began_ns: u64,
    threads: HashMap<u32, VecDeque<Interval>>,
}

impl Calls {
    /// Remembers a call and the stream that it named.
    pub fn add(&mut self, call: &ApiRecord, stream: Option<u64>) {
        let caller =
            Caller { correlation_id: call.correlation_id, operation: call.header.operation };
        match stream {
            _ if !caller.is_hip() => {}
            Some(stream) if stream != 0 => {
                self.streams[0].insert(call.correlation_id, stream);
            }
            _ => self.known.insert(call.correlation_id),
        }
        if call.header.flags & (flag::OPEN_AT_START | flag::OPEN_AT_END | flag::ENTRY_ONLY) != 0 {
            return;
        }
        let thread = self.threads.entry(call.header.tid).or_default();
        if thread.len() >= KEPT_PER_THREAD {
            thread.pop_front();
        }
        // In the order in which they returned. They mostly come in it, but not when the thread has
        // moved to another CPU, whose ring is read at another time.
        let interval = Interval { begin_ns: call.begin_ns, end_ns: call.end_ns, caller };
        if thread.back().is_some_and(|last| last.end_ns > call.end_ns) {
            let place = thread.partition_point(|c| c.end_ns <= call.end_ns);
            thread.insert(place, interval);
        } else {
            thread.push_back(interval);
        }
    }

    /// Forgets calls that nothing can refer to any more.
    pub fn age(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.generation_began_ns) > GENERATION_NS {
            self.generation_began_ns = now_ns;
            self.streams.swap(0, 1);
            self.streams[0] = HashMap::new();
            self.threads.retain(|_, calls| {
                calls.back().is_some_and(|c| c.end_ns.saturating_add(GENERATION_NS) > now_ns)
            });
        }
    }

    /// The stream that a HIP call named, 0 if it named none; none when the call is not known (yet).
    pub fn stream(&self, correlation_id: u64) -> Option<u64> {
        let known = || self.known.contains(correlation_id).then_some(0);
        let named = |streams: &HashMap<u64, u64>| streams.get(&correlation_id).copied();
        self.streams.iter().find_map(named).or_else(known)
    }

    /// The innermost call that probes saw of thread `tid` from before `begin_ns` to after `end_ns`:
    /// its correlation id and begin.
    pub fn probed_around(&self, tid: u32, begin_ns: u64, end_ns: u64) -> Option<(u64, u64)> {
        let calls = self.threads.get(&tid)?;
        if calls.back()?.end_ns < end_ns {
            return None;
        }
        let around = |c: &&Interval| c.begin_ns <= begin_ns && c.caller.correlation_id < FIRST_ID;
        let first_after = calls.partition_point(|c| c.end_ns < end_ns);
        let innermost = calls.range(first_after..).filter(around).max_by_key(|c| c.begin_ns)?;
        Some((innermost.caller.correlation_id, innermost.begin_ns))
    }

    /// The call of thread `tid` that was open at `time_ns`: the innermost HIP call, else the
    /// innermost HSA call.
    pub fn at(&self, tid: u32, time_ns: u64) -> Option<Caller> {
        // Calls are kept in the order in which they return, so an inner one comes before those
        // around it.
        let open = |c: &&Interval| c.begin_ns <= time_ns && time_ns <= c.end_ns;
        let calls = self.threads.get(&tid)?;
        let first_after = calls.partition_point(|c| c.end_ns < time_ns);
        let mut open = calls.range(first_after..).filter(open);
        let innermost = open.clone().next()?;
        Some(open.find(|c| c.caller.is_hip()).unwrap_or(innermost).caller)
    }

    /// As [`Calls::at`], or the HSA call that began just after.
    pub fn near(&self, tid: u32, time_ns: u64) -> Option<Caller> {
        self.at(tid, time_ns).or_else(|| self.at(tid, time_ns.saturating_add(NEAR_NS)))
    }

    /// Whether HSA calls of thread `tid` are known.
    pub fn has_hsa(&self, tid: u32) -> bool {
        let last = self.threads.get(&tid).and_then(VecDeque::back);
        last.is_some_and(|last| last.caller.operation >> 16 == Domain::HSA_API.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracer_common::bpf::Header;

    fn call(domain: Domain, id: u64, begin_ns: u64, end_ns: u64) -> ApiRecord {
        let header = Header { operation: domain.0 << 16 | 1, tid: 7, ..Default::default() };
        ApiRecord { header, correlation_id: id, begin_ns, end_ns, ..Default::default() }
    }

    #[test]
    fn the_innermost_hip_call_around_the_time_is_found() {
        let mut calls = Calls::default();
        // Not in order: the thread moved between CPUs.
        calls.add(&call(Domain::HSA_API, 4, 35, 37), None);
        calls.add(&call(Domain::HIP_API, 2, 30, 50), None);
        calls.add(&call(Domain::HSA_API, 5, 60, 70), None);
        calls.add(&call(Domain::HIP_API, 3, 32, 38), None);
        calls.add(&call(Domain::HIP_API, 1, 10, 20), Some(5));
        let at = |time| calls.at(7, time).map(|c| c.correlation_id);
        assert_eq!([at(15), at(36), at(33), at(45), at(65)], [1, 3, 3, 2, 5].map(Some));
        assert_eq!([at(25), at(80), calls.at(8, 15).map(|c| c.correlation_id)], [None; 3]);
        assert_eq!([calls.stream(1), calls.stream(2), calls.stream(4)], [Some(5), Some(0), None]);
    }
}
