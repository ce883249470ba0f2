//! Joins the streams: API calls and dispatch links from BPF, GPU operations from the shims.
//!
//! A GPU operation is complete when four things are known, which arrive in any order from different
//! rings: that it was enqueued, that it ran, which call launched it (the *link*), and the names and
//! agents it refers to. Whatever is still missing [`PATIENCE_NS`] after its end was read has been
//! lost on the way (and counted there): the operation is then written without it, the call being
//! looked for by time on the same thread.

mod calls;
mod operation;
mod process;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tracer_common::{
    activity::{ActivityRecord, Domain},
    bpf::{ApiRecord, LinkRecord, flag},
    calls::Call,
    shim,
    waited::Waited,
};

use crate::{
    api,
    shim::Frame,
    trace::{
        TraceError, Writer,
        model::{ApiCall, Event},
    },
};
pub use calls::Caller;
use calls::Calls;
use operation::Operation;
pub use operation::{Completion, Work};
use process::Process;
use waiting::Waiting;

/// How long an operation that ran waits for what belongs to it, ns.
const PATIENCE_NS: u64 = 1_000_000_000;

/// How operations find the calls that launched them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Mode {
    /// By the dispatch probe; by time where a link was lost.
    #[default]
    Exact,
    /// By time alone.
    Time,
    /// By the dispatch probe, comparing each answer with that by time.
    Check,
}

/// What has been joined so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// API calls.
    pub calls: u64,
    /// HIP calls that launch kernels.
    pub launches: u64,
    /// Kernel dispatches.
    pub dispatches: u64,
    /// Copies.
    pub copies: u64,
    /// Barriers.
    pub barriers: u64,
    /// Operations that were enqueued and never seen to complete.
    pub incomplete: u64,
    /// Dispatches that were seen from outside, where most completions are not seen.
    pub outside: u64,
    /// Of these, without a completion; not in `incomplete`.
    pub untimed: u64,
    /// Completions whose operation is not known: its record was lost.
    pub orphans: u64,
    /// Operations that were joined by time.
    pub by_time: u64,
    /// Operations without a call.
    pub without_call: u64,
    /// Of the mode [`Mode::Check`]: answers that were compared, and those that differed.
    pub compared: u64,
    /// See `compared`.
    pub differing: u64,
}

/// Joins records into events and writes these.
pub struct Joiner {
    mode: Mode,
    counts: Counts,
    calls: Calls,
    waiting_calls: Waiting,
    /// Processes in which probes saw HSA calls.
    hsa_by_probes: BTreeSet<u32>,
    processes: BTreeMap<u32, Process>,
    pending: HashMap<(u32, u64), Operation>,
    /// Operations that ran and wait for something, oldest first, and since when by the clock.
    waiting: Vec<((u32, u64), u64)>,
    clock: Waited,
    /// Operation names that the trace has.
    named: HashSet<u32>,
    next_kernel_id: u32,
    /// Operations that were given a number.
    numbered: u64,
    /// See [`Joiner::gpu_until`].
    gpu_until_ns: u64,
}

impl Joiner {
    /// A joiner.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            counts: Counts::default(),
            calls: Calls::default(),
            waiting_calls: Waiting::default(),
            hsa_by_probes: BTreeSet::new(),
            processes: BTreeMap::new(),
            pending: HashMap::new(),
            waiting: Vec::new(),
            clock: Waited::since(0),
            named: HashSet::new(),
            next_kernel_id: 1,
            numbered: 0,
            gpu_until_ns: u64::MAX,
        }
    }

    /// What has been joined.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// GPU work of process `pid` is recorded from `time_ns` on; calls were before.
    pub fn gpu_from(&mut self, pid: u32, time_ns: u64) {
        let process = self.processes.entry(pid).or_default();
        process.gpu_from_ns = time_ns;
        process.early_launches += core::mem::take(&mut process.launches);
    }

    /// How many kernels process `pid` launched before that.
    pub fn early_launches(&self, pid: u32) -> u64 {
        self.processes.get(&pid).map_or(0, |process| process.early_launches)
    }

    /// No more GPU work is recorded of what is launched from `time_ns` on.
    pub fn gpu_until(&mut self, time_ns: u64) {
        self.gpu_until_ns = time_ns;
    }

    /// How many kernels process `pid` launched while GPU work was recorded, and how many of its
    /// dispatches were.
    pub fn launches(&self, pid: u32) -> (u64, u64) {
        self.processes.get(&pid).map_or((0, 0), |process| (process.launches, process.dispatches))
    }

    /// Process `pid` executed another program, whose shim counts anew: writes what is left of the old
    /// one.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn executed(
        &mut self,
        pid: u32,
        time_ns: u64,
        trace: &mut Writer,
    ) -> Result<(), TraceError> {
        let of_old = |operation: &Operation| operation.enqueue_ns().is_some_and(|ns| ns < time_ns);
        let old = self.pending.iter().filter(|(key, operation)| key.0 == pid && of_old(operation));
        let mut keys: Vec<_> = old.map(|(&key, _)| key).collect();
        keys.sort_unstable();
        keys.into_iter().try_for_each(|key| self.write(key, trace))
    }

    /// Process `pid` has ended, and all of its records have come: writes what is left of it, and forgets it.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn ended(&mut self, pid: u32, trace: &mut Writer) -> Result<(), TraceError> {
        let mut keys: Vec<_> = self.pending.keys().copied().filter(|key| key.0 == pid).collect();
        keys.sort_unstable();
        keys.into_iter().try_for_each(|key| self.write(key, trace))?;
        self.processes.remove(&pid);
        self.hsa_by_probes.remove(&pid);
        Ok(())
    }

    /// An API call from BPF.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn api(&mut self, call: &ApiRecord, trace: &mut Writer) -> Result<(), TraceError> {
        self.waiting_calls.returned(call);
        if call.header.operation >> 16 == Domain::HSA_API.0 {
            self.hsa_by_probes.insert(call.header.pid);
        }
        self.call(call, trace)
    }

    /// Whether probes saw HSA calls of a process.
    pub fn saw_hsa_by_probes(&self, pid: u32) -> bool {
        self.hsa_by_probes.contains(&pid)
    }

    /// A call that a shim recorded, with further flags. It waits until [`Joiner::settle_calls`].
    pub fn shim_call(&mut self, pid: u32, tid: u32, call: &Call, flags: u16) {
        self.waiting_calls.add(pid, tid, call, flags, &self.calls);
    }

    /// To be called when the shims' frames have been taken: makes a request to BPF's records if calls
    /// wait for one. `open` tells the calls that a thread has open as probes saw it.
    pub fn ask_for_calls(
        &mut self,
        open: impl FnMut(u32) -> Vec<ApiRecord>,
        request: impl FnOnce() -> u64,
    ) {
        if self.waiting_calls.needs_request() {
            self.waiting_calls.wait(open, request);
        }
    }

    /// Writes the shims' calls for which all BPF records have been taken, up to request `answered`.
    /// `threads` is told whose they are.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn settle_calls(
        &mut self,
        answered: u64,
        trace: &mut Writer,
        mut threads: impl FnMut(u32, u32, &mut Writer),
    ) -> Result<(), TraceError> {
        for call in self.waiting_calls.settled(answered) {
            threads(call.header.pid, call.header.tid, trace);
            self.call(&call, trace)?;
        }
        Ok(())
    }

    fn call(&mut self, call: &ApiRecord, trace: &mut Writer) -> Result<(), TraceError> {
        let domain = Domain(call.header.operation >> 16);
        let operation_id = call.header.operation as u16;
        let operation = api::by_id(domain, operation_id);
        if let Some(operation) = operation
            && self.named.insert(call.header.operation)
        {
            trace.operation(domain.0, operation_id.into(), operation.name);
        }
        self.counts.calls += 1;
        let mut stream = None;
        if let Some(operation) = operation.filter(|_| call.header.flags & flag::OPEN_AT_START == 0)
        {
            stream = api::stream(operation, &call.args, &call.extra, call.header.flags);
            let launch = api::launch(operation, &call.args, &call.extra, call.header.flags);
            if launch.is_some() {
                self.counts.launches += 1;
                let process = self.processes.entry(call.header.pid).or_default();
                if call.begin_ns < process.gpu_from_ns {
                    process.early_launches += 1;
                } else if call.begin_ns < self.gpu_until_ns {
                    process.launches += 1;
                }
            }
        }
        self.calls.add(call, stream);
        trace.push(Event::Api(ApiCall {
            record: ActivityRecord {
                domain,
                op: operation_id.into(),
                correlation_id: call.correlation_id,
                begin_ns: call.begin_ns,
                end_ns: call.end_ns,
                process_or_device: call.header.pid,
                thread_id: call.header.tid,
                ..Default::default()
            },
            parent_id: call.parent_id,
            ret: call.ret,
            args: call.args,
            extra: call.extra,
            flags: call.header.flags,
        }))
    }

    /// A dispatch link from BPF.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn link(&mut self, link: &LinkRecord, trace: &mut Writer) -> Result<(), TraceError> {
        let key = (link.header.pid, link.sequence);
        let caller =
            Caller { correlation_id: link.correlation_id, operation: link.header.operation };
        let operation = self.pending.entry(key).or_default();
        let owned = link.header.flags & flag::OWN != 0;
        if owned || !operation.owned {
            operation.link = Some((link.header.tid, caller));
            operation.owned = owned;
        }
        self.settle(key, trace)
    }

    /// A frame that thread `tid` of process `pid` wrote.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn frame(
        &mut self,
        pid: u32,
        tid: u32,
        frame: Frame,
        trace: &mut Writer,
    ) -> Result<(), TraceError> {
        let process = self.processes.entry(pid).or_default();
        let key = |sequence| (pid, sequence);
        match frame {
            Frame::Agent(agent) => process.agent(pid, &agent, trace),
            Frame::Symbol(symbol, name) => {
                let id = self.next_kernel_id;
                self.next_kernel_id += 1;
                process.symbol(id, &symbol, &name, trace);
            }
            Frame::Queue(_) => {}
            Frame::Call(call) => self.shim_call(pid, tid, &call, 0),
            Frame::Complete(complete) => {
                let key = key(complete.sequence);
                self.pending.entry(key).or_default().completion = Completion::Seen(complete);
                return self.settle(key, trace);
            }
            Frame::Dispatch(dispatch) => {
                return self.enqueued(key(dispatch.sequence), tid, dispatch.into(), trace);
            }
            Frame::Copy(copy) => {
                return self.enqueued(key(copy.sequence), tid, copy.into(), trace);
            }
            Frame::Barrier(barrier) => {
                return self.enqueued(key(barrier.sequence), tid, barrier.into(), trace);
            }
        }
        Ok(())
    }

    fn enqueued(
        &mut self,
        key: (u32, u64),
        tid: u32,
        work: Work,
        trace: &mut Writer,
    ) -> Result<(), TraceError> {
        if matches!(work, Work::Dispatch(_)) {
            self.processes.entry(key.0).or_default().dispatches += 1;
        }
        self.numbered += 1;
        let operation = self.pending.entry(key).or_default();
        operation.enqueued = Some((tid, work));
        operation.number = self.numbered;
        self.settle(key, trace)
    }

    /// Work that thread `tid` of process `key.0` enqueued, or whose doorbell it rang, seen from outside;
    /// its caller if that is known. [`Joiner::ended_outside`] is to follow.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn seen_outside(
        &mut self,
        key: (u32, u64),
        tid: u32,
        work: Work,
        caller: Option<Caller>,
        trace: &mut Writer,
    ) -> Result<(), TraceError> {
        let operation = self.pending.entry(key).or_default();
        operation.outside = true;
        operation.link = caller.map(|caller| (tid, caller));
        operation.owned = caller.is_some();
        self.enqueued(key, tid, work, trace)
    }

    /// Thread `tid` enqueued the work of [`Joiner::seen_outside`].
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn owned_outside(
        &mut self,
        key: (u32, u64),
        tid: u32,
        caller: Caller,
        trace: &mut Writer,
    ) -> Result<(), TraceError> {
        let Some(operation) = self.pending.get_mut(&key) else { return Ok(()) };
        operation.link = Some((tid, caller));
        operation.owned = true;
        self.settle(key, trace)
    }

    /// The work of [`Joiner::seen_outside`] ran, or will not be seen to.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn ended_outside(
        &mut self,
        key: (u32, u64),
        complete: Option<shim::Complete>,
        trace: &mut Writer,
    ) -> Result<(), TraceError> {
        let Some(operation) = self.pending.get_mut(&key) else { return Ok(()) };
        operation.completion = complete.map_or(Completion::Never, Completion::Seen);
        self.settle(key, trace)
    }

    /// Writes the operation if nothing is missing; remembers it if it ran and waits.
    fn settle(&mut self, key: (u32, u64), trace: &mut Writer) -> Result<(), TraceError> {
        let Some(operation) = self.pending.get_mut(&key) else { return Ok(()) };
        if operation.completion == Completion::Awaited {
            return Ok(());
        }
        if !operation.is_settled(self.mode, self.processes.get(&key.0), &self.calls) {
            if !std::mem::replace(&mut operation.waits, true) {
                self.waiting.push((key, self.clock.at_last_look()));
            }
            return Ok(());
        }
        self.write(key, trace)
    }

    fn write(&mut self, key: (u32, u64), trace: &mut Writer) -> Result<(), TraceError> {
        let Some(operation) = self.pending.remove(&key) else { return Ok(()) };
        let process = self.processes.entry(key.0).or_default();
        match operation.event(key.0, self.mode, process, &self.calls, &mut self.counts) {
            Some(event) => trace.push(event),
            None => Ok(()),
        }
    }

    /// Settles what waited; call it every 100 ms or so, with the time of CLOCK_BOOTTIME.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn tick(&mut self, now_ns: u64, trace: &mut Writer) -> Result<(), TraceError> {
        self.calls.age(now_ns);
        self.waiting_calls.age();
        let now = self.clock.look(now_ns);
        for (key, since) in std::mem::take(&mut self.waiting) {
            let Some(operation) = self.pending.get_mut(&key) else { continue };
            let overdue = now - since > PATIENCE_NS;
            if overdue || operation.is_settled(self.mode, self.processes.get(&key.0), &self.calls) {
                self.write(key, trace)?;
            } else {
                self.waiting.push((key, since));
            }
        }
        Ok(())
    }

    /// Writes everything that is left: what is not complete now never will be.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written.
    pub fn finish(&mut self, trace: &mut Writer) -> Result<(), TraceError> {
        let mut keys: Vec<_> = self.pending.keys().copied().collect();
        keys.sort_unstable();
        keys.into_iter().try_for_each(|key| self.write(key, trace))
    }
}
