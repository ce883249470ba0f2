//! Recent API calls of one process, to look up by correlation id or by time.

use std::collections::{BTreeSet, HashMap, VecDeque, hash_map::Entry};

use tracer_common::{
    activity::Domain,
    bpf::{ApiRecord, flag},
    calls::FIRST_ID,
};

use super::counts::PATIENCE_NS;

/// Most calls that are kept for each thread, of probes and of the shim, to be found by time: those of 100 ms of the
/// fastest thread, since one ring is read before the other, and a reader may be late.
pub(super) const KEPT_OF_A_THREAD: usize = 1 << 16;
/// This many are kept whatever their age, and the others for so long, ns.
const KEPT_OF_ANY_AGE: usize = 1 << 12;
const KEPT_NS: u64 = 500_000_000;
/// For a call that a shim sends late, at most this many others are moved: a shim sends those of a thread in their
/// order.
const MOST_MOVED: usize = 1 << 12;
/// The most calls that are kept for all threads: a process may claim to have any number of threads.
const KEPT_IN_ALL: usize = 4 * KEPT_OF_A_THREAD;
/// After this time a new generation of calls begins and the older one is forgotten, with the threads that have made no
/// call since, ns.
const GENERATION_NS: u64 = 10_000_000_000;
/// The most streams that a generation remembers; then a new one begins. For a process that launches a million kernels a
/// second, the streams of two seconds are still known, and no operation waits for them that long.
const MOST_STREAMS: usize = 1 << 21;
/// Bytes that count for a kept call, and for a thread that has any, with the spare room of the lists.
const CALL_BYTES: usize = 2 * size_of::<Interval>();
const THREAD_BYTES: usize = 256;
/// Bytes that count for a remembered stream.
const STREAM_BYTES: usize = 40;
/// Two probes are at the function that rings a doorbell: the probe of the call's entry can read the clock by this much
/// later than the probe of the doorbell.
const NEAR_NS: u64 = 2_000;
/// Calls without a stream that a generation remembers; a power of two.
const STREAMLESS: usize = 1 << 14;

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

/// Calls of a thread, in the order in which they returned.
#[derive(Default)]
struct ThreadCalls {
    calls: VecDeque<Interval>,
    /// When the last of the calls returned that are not kept any more.
    forgotten_ns: u64,
}

impl ThreadCalls {
    /// Forgets calls that are too many or too old when a call has returned at `now_ns`; returns how many.
    fn make_room(&mut self, now_ns: u64) -> usize {
        let before = self.calls.len();
        let is_old = |call: &Interval| call.end_ns.saturating_add(KEPT_NS) < now_ns;
        while self.calls.len() >= KEPT_OF_A_THREAD
            || self.calls.len() >= KEPT_OF_ANY_AGE && self.calls.front().is_some_and(is_old)
        {
            self.forget(1);
        }
        // The room that a faster thread has needed is given back, which takes as many calls as are forgotten.
        let needed = 2 * self.calls.len().max(KEPT_OF_ANY_AGE);
        if self.calls.capacity() > 2 * needed {
            self.calls.shrink_to(needed);
        }
        before - self.calls.len()
    }

    /// Adds a call, unless more than `most_moved` others would have to be moved for it; returns whether it is kept.
    fn insert(&mut self, call: Interval, most_moved: usize) -> bool {
        let is_last = self.calls.back().is_none_or(|last| last.end_ns <= call.end_ns);
        let place = match is_last {
            true => self.calls.len(),
            false => self.calls.partition_point(|c| c.end_ns <= call.end_ns),
        };
        let is_kept = place.min(self.calls.len() - place) <= most_moved;
        match is_kept {
            true => self.calls.insert(place, call),
            false => self.forgotten_ns = self.forgotten_ns.max(call.end_ns),
        }
        is_kept
    }

    fn forget(&mut self, count: usize) {
        if let Some(last) = self.calls.drain(..count).next_back() {
            self.forgotten_ns = self.forgotten_ns.max(last.end_ns);
        }
    }

    /// The calls that returned at `time_ns` or later. An inner call comes before those around it.
    fn returned_since(&self, time_ns: u64) -> impl Iterator<Item = &Interval> {
        let first = self.calls.partition_point(|c| c.end_ns < time_ns);
        self.calls.range(first..)
    }
}

/// The calls of a thread. Those of probes and those of the shim are read from different rings, at different times: each
/// kind in order, but one kind behind the other.
#[derive(Default)]
struct Thread {
    of_probes: ThreadCalls,
    of_shim: ThreadCalls,
}

impl Thread {
    fn both(&self) -> [&ThreadCalls; 2] {
        [&self.of_probes, &self.of_shim]
    }

    fn len(&self) -> usize {
        self.both().map(|kept| kept.calls.len()).iter().sum()
    }
}

/// HIP calls that named no stream, or the null stream: nearly all calls are like that, so this must be cheap and
/// small. A newer call takes the place of an older one.
#[derive(Default)]
struct Streamless(Box<[u64]>);

impl Streamless {
    /// Spreads ids that are far apart by the number of CPUs (Fibonacci hashing).
    fn place(id: u64) -> usize {
        (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - STREAMLESS.ilog2())) as usize
    }

    fn insert(&mut self, id: u64) {
        if self.0.is_empty() {
            self.0 = vec![0; STREAMLESS].into();
        }
        self.0[Self::place(id)] = id;
    }

    fn contains(&self, id: u64) -> bool {
        id != 0 && self.0.get(Self::place(id)) == Some(&id)
    }
}

/// The streams of HIP calls that returned at about the same time.
#[derive(Default)]
struct Generation {
    /// Streams by correlation id, of calls that named one.
    named: HashMap<u64, u64>,
    streamless: Streamless,
}

impl Generation {
    fn stream(&self, id: u64) -> Option<u64> {
        let none = || self.streamless.contains(id).then_some(0);
        self.named.get(&id).copied().or_else(none)
    }
}

/// A HIP call that launched operations which are not written yet.
#[derive(Default)]
struct Launching {
    /// The stream that it named, 0 for none; not known before its record has come.
    stream: Option<u64>,
    operations: u32,
}

/// Recent calls of a process.
///
/// The process's shim sends HSA calls, with any times and threads: they are kept within bounds, and no lookup for
/// another process finds them.
#[derive(Default)]
pub struct RecentCalls {
    /// Calls that launched operations which are not written yet, however long these take.
    launching: HashMap<u64, Launching>,
    /// Streams of HIP calls whose operations may not be known yet: the newer generation first.
    generations: [Generation; 2],
    generation_began_ns: u64,
    threads: HashMap<u32, Thread>,
    /// The number of calls that all threads have.
    kept: usize,
    /// Whether HSA calls were seen.
    has_hsa: bool,
    /// Calls and streams that were forgotten earlier than they would have been by their age.
    pub forgotten: u64,
    /// By thread, doorbells that were seen to ring before the call that rang them was seen: the time, and the
    /// operation that each announced.
    rung: HashMap<u32, BTreeSet<(u64, u64)>>,
}

impl RecentCalls {
    /// Remembers a call and the stream that it named.
    pub fn add(&mut self, call: &ApiRecord, stream: Option<u64>) {
        let caller =
            Caller { correlation_id: call.correlation_id, operation: call.header.operation };
        self.has_hsa |= call.header.operation >> 16 == Domain::HSA_API.0;
        if caller.is_hip() {
            self.add_stream(
                call.correlation_id,
                stream.unwrap_or(0),
                call.begin_ns.max(call.end_ns),
            );
        }
        if call.header.flags & (flag::OPEN_AT_START | flag::OPEN_AT_END | flag::ENTRY_ONLY) != 0 {
            return;
        }
        if self.kept >= KEPT_IN_ALL {
            self.forget_half();
        }
        let thread = self.threads.entry(call.header.tid).or_default();
        // Calls of probes mostly come in order, but not after the thread has moved to another CPU, whose ring is read
        // at another time.
        let (kept, most_moved) = match call.correlation_id < FIRST_ID {
            true => (&mut thread.of_probes, usize::MAX),
            false => (&mut thread.of_shim, MOST_MOVED),
        };
        self.kept -= kept.make_room(call.end_ns);
        let interval = Interval { begin_ns: call.begin_ns, end_ns: call.end_ns, caller };
        match kept.insert(interval, most_moved) {
            true => self.kept += 1,
            false => self.forgotten += 1,
        }
    }

    fn add_stream(&mut self, id: u64, stream: u64, now_ns: u64) {
        if let Some(launching) = self.launching.get_mut(&id) {
            launching.stream = Some(stream);
        }
        match stream {
            0 => self.generations[0].streamless.insert(id),
            _ => {
                if self.generations[0].named.len() >= MOST_STREAMS {
                    self.begin_generation(now_ns);
                }
                self.generations[0].named.insert(id, stream);
            }
        }
    }

    /// Forgets the streams of the older generation and begins a new one. Counts them as forgotten if an
    /// operation can still wait for them.
    fn begin_generation(&mut self, now_ns: u64) {
        self.generations.swap(0, 1);
        let old = std::mem::take(&mut self.generations[0]);
        if now_ns.saturating_sub(self.generation_began_ns) <= PATIENCE_NS {
            self.forgotten += old.named.len() as u64;
        }
        self.generation_began_ns = now_ns;
    }

    /// Bytes of the calls that are kept.
    pub fn bytes(&self) -> usize {
        self.kept * CALL_BYTES + self.threads.len() * THREAD_BYTES
    }

    /// Bytes of the streams that are remembered.
    pub fn stream_bytes(&self) -> usize {
        self.generations.iter().map(|generation| generation.named.len() * STREAM_BYTES).sum()
    }

    /// Gives up the older half of the calls.
    pub fn give_up_calls(&mut self) {
        let before = self.kept;
        self.forget_half();
        self.forgotten += (before - self.kept) as u64;
    }

    /// Gives up the streams of the older generation, or of the newer one if the older has none.
    pub fn give_up_streams(&mut self) {
        let [newer, older] = &mut self.generations;
        let given_up = if older.named.is_empty() { newer } else { older };
        self.forgotten += std::mem::take(&mut given_up.named).len() as u64;
    }

    /// Forgets the older half of each thread's calls.
    fn forget_half(&mut self) {
        self.threads.retain(|_, thread| {
            for kept in [&mut thread.of_probes, &mut thread.of_shim] {
                kept.forget(kept.calls.len().div_ceil(2));
                kept.calls.shrink_to_fit();
            }
            thread.len() > 0
        });
        self.count_kept();
    }

    fn count_kept(&mut self) {
        self.kept = self.threads.values().map(Thread::len).sum();
    }

    /// Thread `tid` rang the doorbell of operation `sequence` at `time_ns`, inside of no call that was known
    /// then. When the call's record comes, [`RecentCalls::rung_by`] finds the operation. At the next tick it may
    /// be too late: a thread makes thousands of calls meanwhile, and the oldest are forgotten.
    pub fn rang(&mut self, tid: u32, time_ns: u64, sequence: u64) {
        self.rung.entry(tid).or_default().insert((time_ns, sequence));
    }

    /// Takes out the operations whose doorbells `call` rang: they were seen to ring just before it began.
    pub fn rung_by(&mut self, call: &ApiRecord) -> Vec<u64> {
        let Some(rung) = self.rung.get_mut(&call.header.tid) else { return Vec::new() };
        let just_before = (call.begin_ns.saturating_sub(NEAR_NS), 0)..=(call.begin_ns, u64::MAX);
        let by_it: Vec<(u64, u64)> = rung.range(just_before).copied().collect();
        for known in &by_it {
            rung.remove(known);
        }
        by_it.into_iter().map(|(_, sequence)| sequence).collect()
    }

    /// The operation of [`RecentCalls::rang`] waits for its call no longer.
    pub fn forget_doorbell(&mut self, tid: u32, time_ns: u64, sequence: u64) {
        if let Entry::Occupied(mut rung) = self.rung.entry(tid) {
            rung.get_mut().remove(&(time_ns, sequence));
            if rung.get().is_empty() {
                rung.remove();
            }
        }
    }

    /// Forgets calls that are too old for an operation to wait for them.
    pub fn age(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.generation_began_ns) > GENERATION_NS {
            self.begin_generation(now_ns);
            let is_young = |c: &Interval| c.end_ns.saturating_add(GENERATION_NS) > now_ns;
            self.threads.retain(|_, thread| {
                thread.both().iter().any(|kept| kept.calls.back().is_some_and(is_young))
            });
            self.count_kept();
        }
    }

    /// An operation was launched by this HIP call: its stream stays known until [`RecentCalls::release`],
    /// whether the call's record has come or will.
    pub fn hold(&mut self, caller: Caller) {
        if caller.is_hip() {
            let stream = self.stream(caller.correlation_id);
            let launching = self.launching.entry(caller.correlation_id).or_default();
            launching.stream = stream;
            launching.operations += 1;
        }
    }

    /// An operation for which [`RecentCalls::hold`] was called is written.
    pub fn release(&mut self, caller: Caller) {
        if let Entry::Occupied(mut launching) = self.launching.entry(caller.correlation_id) {
            launching.get_mut().operations -= 1;
            if launching.get().operations == 0 {
                launching.remove();
            }
        }
    }

    /// The stream that a HIP call named, 0 if it named none; `None` if the call is not known (yet).
    pub fn stream(&self, correlation_id: u64) -> Option<u64> {
        match self.launching.get(&correlation_id) {
            Some(Launching { stream: Some(stream), .. }) => Some(*stream),
            _ => self.generations.iter().find_map(|generation| generation.stream(correlation_id)),
        }
    }

    /// The innermost call that probes saw of thread `tid` from before `begin_ns` to after `end_ns`:
    /// its correlation id and begin.
    pub fn probed_around(&self, tid: u32, begin_ns: u64, end_ns: u64) -> Option<(u64, u64)> {
        let around = |c: &&Interval| c.begin_ns <= begin_ns;
        let probed = &self.threads.get(&tid)?.of_probes;
        let innermost = probed.returned_since(end_ns).filter(around).max_by_key(|c| c.begin_ns)?;
        Some((innermost.caller.correlation_id, innermost.begin_ns))
    }

    /// Whether calls of thread `tid` that returned at `end_ns` or later are not kept any more.
    pub fn has_forgotten(&self, tid: u32, end_ns: u64) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| thread.both().iter().any(|kept| kept.forgotten_ns >= end_ns))
    }

    /// The call of thread `tid` that was open at `time_ns`: the innermost HIP call, else the
    /// innermost HSA call.
    pub fn at(&self, tid: u32, time_ns: u64) -> Option<Caller> {
        let thread = self.threads.get(&tid)?;
        let open = |kept: &ThreadCalls, is_meant: fn(&Interval) -> bool| {
            let mut calls = kept.returned_since(time_ns).filter(|c| c.begin_ns <= time_ns);
            calls.find(|c| is_meant(c)).copied()
        };
        let innermost = |is_meant: fn(&Interval) -> bool| {
            let open = thread.both().into_iter().filter_map(|kept| open(kept, is_meant));
            open.min_by_key(|c| c.end_ns)
        };
        innermost(|c| c.caller.is_hip()).or_else(|| innermost(|_| true)).map(|c| c.caller)
    }

    /// As [`RecentCalls::at`]; if no call was open then, the call that was open just after.
    pub fn near(&self, tid: u32, time_ns: u64) -> Option<Caller> {
        self.at(tid, time_ns).or_else(|| self.at(tid, time_ns.saturating_add(NEAR_NS)))
    }

    /// Whether any HSA call was seen.
    pub fn has_hsa(&self) -> bool {
        self.has_hsa
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
        let mut calls = RecentCalls::default();
        // Not in order: the thread moved to another CPU.
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

    #[test]
    fn the_room_of_a_thread_that_was_fast_is_given_back() {
        let mut calls = RecentCalls::default();
        for id in 1..=KEPT_OF_A_THREAD as u64 {
            calls.add(&call(Domain::HIP_API, id, 10 * id, 10 * id + 9), None);
        }
        assert_eq!(calls.kept, KEPT_OF_A_THREAD);
        calls.add(&call(Domain::HIP_API, 1, 10 * KEPT_NS, 10 * KEPT_NS + 1), None);
        let kept = &calls.threads[&7].of_probes.calls;
        assert_eq!((kept.len(), calls.kept), (KEPT_OF_ANY_AGE, KEPT_OF_ANY_AGE));
        assert!(kept.capacity() <= 4 * KEPT_OF_ANY_AGE, "{}", kept.capacity());
    }

    /// Calls of both kinds are read one kind after the other.
    #[test]
    fn calls_of_probes_and_of_the_shim_stand_beside_each_other() {
        let mut calls = RecentCalls::default();
        let count = 2 * MOST_MOVED as u64 + 10;
        let time = |number: u64| 100 * number;
        for id in 1..=count {
            calls.add(&call(Domain::HIP_API, id, time(id), time(id) + 90), None);
        }
        for id in 1..=count {
            let begin_ns = time(id) + 10;
            calls.add(&call(Domain::HSA_API, FIRST_ID + id, begin_ns, begin_ns + 20), None);
        }
        assert_eq!((calls.kept as u64, calls.forgotten), (2 * count, 0));
        for id in [1, count / 2, count] {
            let inside = (time(id) + 10, time(id) + 30);
            assert_eq!(calls.probed_around(7, inside.0, inside.1), Some((id, time(id))));
            assert_eq!(calls.at(7, time(id) + 15).map(|c| c.correlation_id), Some(id));
        }
        // A shim sends its calls in order, or they are forgotten.
        let late = call(Domain::HSA_API, FIRST_ID, time(count / 2) + 40, time(count / 2) + 41);
        calls.add(&late, None);
        assert_eq!((calls.kept as u64, calls.forgotten), (2 * count, 1));
    }

    /// Between two looks, a process makes more calls on streams than any real one.
    #[test]
    fn streams_of_calls_are_bounded() {
        let mut calls = RecentCalls::default();
        let last = 3 * MOST_STREAMS as u64;
        (1..=last).for_each(|id| calls.add_stream(id, 5, id));
        assert!(calls.stream_bytes() <= 2 * MOST_STREAMS * STREAM_BYTES);
        assert_eq!(calls.forgotten, MOST_STREAMS as u64);
        let recent = last - MOST_STREAMS as u64 + 1;
        assert_eq!([calls.stream(1), calls.stream(recent)], [None, Some(5)]);
    }
}
