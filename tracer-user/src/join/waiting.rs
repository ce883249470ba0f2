//! Calls that a shim recorded, which wait until the probed call around each is known.
//!
//! The shim knows the calls around a call that it records, but not those that probes see: their records come when they
//! return. So a call waits until all records have been read that had been made when the call was taken; a probed call
//! around it has then either returned or is open.

use std::collections::{HashMap, VecDeque};

use tracer_common::{
    bpf::{ApiRecord, Header, flag, kind},
    calls::Call,
};

use super::{calls::RecentCalls, pending};

struct Waiter {
    call: ApiRecord,
    /// When the call that is the parent by now began; 0 for none, and `u64::MAX` when the shim knows the parent.
    parent_begin_ns: u64,
    /// When the call was over; `u64::MAX` when it never was.
    over_ns: u64,
    /// The request whose answer tells that everything has been read; 0 when there is none yet.
    request: u64,
}

impl Waiter {
    fn is_inside(&self, begin_ns: u64, end_ns: u64) -> bool {
        begin_ns <= self.call.begin_ns && self.over_ns <= end_ns
    }

    /// Makes the call `id` the parent, if it began, at `begin_ns`, before this one and after the present parent.
    fn offer_parent(&mut self, id: u64, begin_ns: u64) {
        if begin_ns <= self.call.begin_ns && begin_ns > self.parent_begin_ns {
            self.parent_begin_ns = begin_ns;
            self.call.parent_id = id;
        }
    }
}

/// The most calls of one process that wait: as many as operations, since the reader brings as many of either at once.
const MOST: usize = pending::MOST;

/// Bytes that count for a call that waits, and for each thread that has any: with the room that lists keep.
const WAITER_BYTES: usize = 2 * size_of::<Waiter>();
const THREAD_BYTES: usize = 4 * size_of::<Waiter>() + 128;
/// The number of calls for which the list of a thread keeps room when it shrinks.
const FEW: usize = 64;

/// The calls of one process that wait, by thread, in the order in which they returned.
#[derive(Default)]
pub struct WaitingCalls {
    threads: HashMap<u32, VecDeque<Waiter>>,
    count: usize,
    /// Calls that came when a call around them may have been forgotten already, since this was last taken.
    pub unplaced: u64,
}

impl WaitingCalls {
    /// Adds a call of thread `tid`, with further `flags`.
    pub fn add(&mut self, pid: u32, tid: u32, call: &Call, flags: u16, known: &RecentCalls) {
        let operation = call.header_operation();
        let header = Header { kind: kind::API, flags: call.flags | flags, operation, pid, tid };
        let returned = header.flags & (flag::ENTRY_ONLY | flag::OPEN_AT_END) == 0;
        let open = header.flags & flag::OPEN_AT_END != 0;
        let mut waiter = Waiter {
            call: ApiRecord {
                header,
                correlation_id: call.correlation_id,
                parent_id: call.parent_id,
                begin_ns: call.begin_ns,
                end_ns: if returned { call.end_ns } else { 0 },
                ret: call.ret,
                args: call.args,
                extra: call.extra,
            },
            parent_begin_ns: if call.parent_id == 0 { 0 } else { u64::MAX },
            over_ns: if open { u64::MAX } else { call.end_ns },
            request: 0,
        };
        // The record of the call around it may have been read before: rings are read in turns.
        match known.probed_around(tid, call.begin_ns, waiter.over_ns) {
            Some((id, begin_ns)) => waiter.offer_parent(id, begin_ns),
            None if call.parent_id == 0 && known.has_forgotten(tid, waiter.over_ns) => {
                self.unplaced += 1;
            }
            None => {}
        }
        self.threads.entry(tid).or_default().push_back(waiter);
        self.count += 1;
    }

    /// Offers a probed call as parent to the waiting calls inside of it: it has returned, or was open when the
    /// recording ended. Other calls are ignored.
    pub fn returned(&mut self, call: &ApiRecord) {
        let end_ns = match call.header.flags {
            _ if self.count == 0 => return,
            flags if flags & (flag::ENTRY_ONLY | flag::OPEN_AT_START) != 0 => return,
            flags if flags & flag::OPEN_AT_END != 0 => u64::MAX,
            _ => call.end_ns,
        };
        let Some(waiters) = self.threads.get_mut(&call.header.tid) else { return };
        let first = waiters.partition_point(|w| w.over_ns < call.begin_ns);
        for waiter in waiters.range_mut(first..) {
            if waiter.over_ns > end_ns {
                break;
            }
            if waiter.is_inside(call.begin_ns, end_ns) {
                waiter.offer_parent(call.correlation_id, call.begin_ns);
            }
        }
    }

    /// Whether [`MOST`] calls wait: then the caller must take all of them, by [`WaitingCalls::settled`].
    pub fn is_full(&self) -> bool {
        self.count >= MOST
    }

    /// Whether any call needs a request.
    pub fn needs_request(&self) -> bool {
        self.count > 0
            && self.threads.values().any(|waiters| waiters.back().is_some_and(|w| w.request == 0))
    }

    /// For each thread that has calls without a request: asks `open` for the thread's open probed calls, and offers
    /// these as parents. A probed call that `open` does not return has returned before the request that is made next.
    pub fn open_around(&mut self, mut open: impl FnMut(u32) -> Vec<ApiRecord>) {
        for (&tid, waiters) in &mut self.threads {
            let first = without_request(waiters);
            let open = if first < waiters.len() { open(tid) } else { Vec::new() };
            for waiter in waiters.range_mut(first..) {
                open.iter().for_each(|f| waiter.offer_parent(f.correlation_id, f.begin_ns));
            }
        }
    }

    /// Gives this request to all calls that have none.
    pub fn requested(&mut self, request: u64) {
        for waiters in self.threads.values_mut() {
            let first = without_request(waiters);
            waiters.range_mut(first..).for_each(|waiter| waiter.request = request);
        }
    }

    /// Removes and returns the calls whose requests are answered, up to `answered`; all calls for `u64::MAX`.
    pub fn settled(&mut self, answered: u64) -> Vec<ApiRecord> {
        let mut settled = Vec::new();
        if self.count == 0 {
            return settled;
        }
        for waiters in self.threads.values_mut() {
            let is_settled =
                |w: &Waiter| answered == u64::MAX || w.request != 0 && w.request <= answered;
            let count = waiters.iter().take_while(|w| is_settled(w)).count();
            settled.extend(waiters.drain(..count).map(|w| w.call));
        }
        self.count -= settled.len();
        settled
    }

    /// The bytes of the calls that wait.
    pub fn bytes(&self) -> usize {
        self.count * WAITER_BYTES + self.threads.len() * THREAD_BYTES
    }

    /// Forgets threads without calls, and gives back the room that others do not need any more.
    pub fn age(&mut self) {
        self.threads.retain(|_, waiters| !waiters.is_empty());
        for waiters in self.threads.values_mut() {
            waiters.shrink_to(FEW.max(4 * waiters.len()));
        }
    }
}

/// The index of the first call without a request.
fn without_request(waiters: &VecDeque<Waiter>) -> usize {
    waiters.len() - waiters.iter().rev().take_while(|w| w.request == 0).count()
}

#[cfg(test)]
mod tests {
    use super::super::calls::KEPT_OF_A_THREAD;
    use super::*;
    use tracer_common::{activity::Domain, calls::FIRST_ID};

    fn hsa(id: u64, begin_ns: u64, end_ns: u64) -> Call {
        Call { correlation_id: FIRST_ID + id, begin_ns, end_ns, ..Call::default() }
    }

    fn hip(id: u64, begin_ns: u64, end_ns: u64) -> ApiRecord {
        let operation = Domain::HIP_API.0 << 16 | 1;
        let header = Header { kind: kind::API, operation, pid: 1, tid: 7, ..Header::default() };
        ApiRecord { header, correlation_id: id, begin_ns, end_ns, ..ApiRecord::default() }
    }

    fn parents(settled: &[ApiRecord]) -> Vec<u64> {
        settled.iter().map(|call| call.parent_id).collect()
    }

    #[test]
    fn the_innermost_call_around_is_the_parent_however_it_comes() {
        let mut known = RecentCalls::default();
        // The outer call's record is read before the calls inside of it.
        known.add(&hip(1, 100, 200), None);
        let mut waiting = WaitingCalls::default();
        for call in [hsa(0, 110, 120), hsa(1, 210, 220), hsa(2, 310, 320), hsa(3, 410, 420)] {
            waiting.add(1, 7, &call, 0, &known);
        }
        let open = |tid| {
            assert_eq!(tid, 7);
            vec![ApiRecord { correlation_id: 4, begin_ns: 400, ..ApiRecord::default() }]
        };
        waiting.open_around(open);
        waiting.requested(1);
        // The inner call first, as they return; a call that another tool's thread made is not theirs.
        waiting.returned(&hip(2, 205, 225));
        waiting.returned(&hip(3, 204, 230));
        waiting.returned(&hip(9, 300, 315));
        assert!(waiting.settled(0).is_empty());
        assert_eq!(parents(&waiting.settled(1)), [1, 2, 0, 4]);
        assert_eq!(waiting.count, 0);
    }

    #[test]
    fn a_call_whose_parent_was_forgotten_is_counted() {
        let mut known = RecentCalls::default();
        for id in 0..=KEPT_OF_A_THREAD as u64 {
            known.add(&hip(1 + id, 10 * id, 10 * id + 9), None);
        }
        let mut waiting = WaitingCalls::default();
        for call in [hsa(0, 2, 3), hsa(1, 12, 13)] {
            waiting.add(1, 7, &call, 0, &known);
        }
        assert_eq!(waiting.unplaced, 1);
        assert_eq!(parents(&waiting.settled(u64::MAX)), [0, 2]);
        // Half a second later the old calls go, as long as there are some thousands.
        let bytes = known.bytes();
        known.add(&hip(1, 1_000_000_000, 1_000_000_001), None);
        assert!(known.bytes() < bytes / 8, "{} of {bytes}", known.bytes());
    }

    #[test]
    fn a_parent_that_the_shim_knows_stays() {
        let mut waiting = WaitingCalls::default();
        let inner = Call { parent_id: FIRST_ID + 1, ..hsa(0, 20, 30) };
        waiting.add(1, 7, &inner, 0, &RecentCalls::default());
        waiting.returned(&hip(5, 1, 50));
        assert_eq!(parents(&waiting.settled(u64::MAX)), [FIRST_ID + 1]);
    }

    #[test]
    fn calls_wait_for_their_own_request() {
        let mut waiting = WaitingCalls::default();
        waiting.add(1, 7, &hsa(0, 10, 20), 0, &RecentCalls::default());
        assert!(waiting.needs_request());
        waiting.requested(1);
        assert!(!waiting.needs_request());
        waiting.add(1, 7, &hsa(1, 30, 40), 0, &RecentCalls::default());
        waiting.requested(2);
        assert_eq!(waiting.settled(1).len(), 1);
        assert_eq!(waiting.settled(1).len(), 0);
        assert_eq!(waiting.settled(2).len(), 1);
    }
}
