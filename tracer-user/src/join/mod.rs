//! Joins the streams: API calls and dispatch links from BPF, GPU operations from the shims.
//!
//! A GPU operation is complete when four things are known, which arrive in any order from different rings: that it
//! was enqueued, that it ran, which call launched it (the *link*), and the names and agents that it refers to. If a
//! part is still missing [`counts::PATIENCE_NS`] after the operation's end was read, the part was lost on the way, and
//! is counted as lost. The joiner then writes the operation without it; it looks for a missing call by time, on the
//! same thread.
//!
//! The joiner joins the records of a process, from its shim and from probes, with those of the same process only. It
//! keeps them by process ([`process::ProcessState`]), and within bounds. All processes together have bounds too: if too
//! many records wait, the process that has most gives some up; names have a share for each process ([`crate::budget`]).

mod calls;
mod counts;
mod inventory;
mod marks;
mod operation;
mod pending;
mod process;
#[cfg(test)]
mod tests;
mod threads;
mod waiting;

use std::{
    collections::{BTreeMap, HashSet},
    mem,
    ops::Range,
};

use tracer_common::{
    activity::Domain,
    bpf::{ApiRecord, LinkRecord, MarkRecord, flag},
    calls::Call,
    shim,
    waited::Waited,
};
use tracer_records::{
    api,
    model::{ClockOffsets, Event},
    sink::{RecordSink, SinkError},
};

use crate::{
    budget::Budget,
    losses::{Loss, Losses},
    shim::Frame,
};
pub use calls::Caller;
pub use counts::{Counts, Launches, Mode};
use inventory::Inventory;
pub use operation::{Completion, Work};
use process::{Output, ProcessState, Settings};
use threads::Threads;

/// Most bytes of the records that wait to be joined, and of the calls that are kept for them, of all processes. One
/// process alone takes about two thirds of it, and all of it only if it names very many threads.
const MOST_BYTES: usize = 1 << 30;
/// The joiner checks that bound once in so many records, which take a megabyte at most.
const LOOK_EVERY: u32 = 1 << 10;

/// The bit of a domain.
fn bit(domain: Domain) -> u32 {
    1u32.checked_shl(domain.0).unwrap_or(0)
}

/// Joins records into events and hands these to a sink.
pub struct Joiner {
    sink: Box<dyn RecordSink>,
    settings: Settings,
    counts: Counts,
    processes: BTreeMap<u32, ProcessState>,
    threads: Threads,
    /// The clock by which patience is measured: a long pause between two looks counts little.
    clock: Waited,
    /// The operations whose names the sink has.
    named: HashSet<u32>,
    /// Kernels that were given an id.
    kernels: u32,
    /// Operations that were given a number.
    numbered: u64,
    /// The bytes of names that each living process has sent.
    name_bytes: Budget<u32>,
    /// [`MOST_BYTES`], and how many records come before the next look.
    most_bytes: usize,
    until_look: u32,
}

impl Joiner {
    /// A joiner whose events go to a sink.
    pub fn new(mode: Mode, sink: Box<dyn RecordSink>) -> Self {
        Self {
            sink,
            settings: Settings { mode, gpu_until_ns: u64::MAX },
            counts: Counts::default(),
            processes: BTreeMap::new(),
            threads: Threads::default(),
            clock: Waited::since(0),
            named: HashSet::new(),
            kernels: 0,
            numbered: 0,
            name_bytes: Budget::new(inventory::MOST_BYTES),
            most_bytes: MOST_BYTES,
            until_look: LOOK_EVERY,
        }
    }

    /// The sink, for what needs no joining.
    pub fn sink(&mut self) -> &mut dyn RecordSink {
        &mut *self.sink
    }

    /// The counts of joined records.
    pub fn counts(&self) -> Counts {
        self.processes.values().fold(self.counts, |counts, process| process.add_counts(counts))
    }

    fn process(&mut self, pid: u32) -> &mut ProcessState {
        self.processes.entry(pid).or_insert_with(|| ProcessState::new(pid))
    }

    /// Process `pid`, and the output for its joined records.
    fn joined(&mut self, pid: u32) -> (&mut ProcessState, Output<'_>) {
        let Self { sink, settings, counts, processes, clock, .. } = self;
        let process = processes.entry(pid).or_insert_with(|| ProcessState::new(pid));
        (process, Output { settings, counts, now_ns: clock.at_last_look(), sink: &mut **sink })
    }

    /// All processes, and the output for their joined records.
    fn all(&mut self) -> (impl Iterator<Item = &mut ProcessState>, Output<'_>) {
        let Self { sink, settings, counts, processes, clock, .. } = self;
        let now_ns = clock.at_last_look();
        (processes.values_mut(), Output { settings, counts, now_ns, sink: &mut **sink })
    }

    /// The shim of process `pid` gives its calls these ids.
    pub fn shim_ids(&mut self, pid: u32, ids: Range<u64>) {
        let known = &mut self.process(pid).shim_ids;
        if !known.contains(&ids) {
            known.push(ids);
        }
    }

    /// GPU work of process `pid` is recorded from `time_ns` on; its calls were recorded before that, and what was seen of its
    /// GPU work from outside.
    pub fn gpu_from(&mut self, pid: u32, time_ns: u64) {
        let process = self.process(pid);
        process.gpu_from_ns = time_ns;
        let launches = core::mem::take(&mut process.launches);
        process.early_launches += launches.saturating_sub(core::mem::take(&mut process.dispatches));
    }

    /// GPU work that is enqueued later than `time_ns` is not recorded.
    pub fn gpu_until(&mut self, time_ns: u64) {
        self.settings.gpu_until_ns = time_ns;
    }

    /// How many kernels process `pid` launched while its GPU work was recorded.
    pub fn launches(&self, pid: u32) -> u64 {
        self.processes.get(&pid).map_or(0, |process| process.launches)
    }

    /// Process `pid` executed another program at `time_ns`, whose shim numbers operations anew: writes the remaining
    /// operations of the old program.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn executed(&mut self, pid: u32, time_ns: u64) -> Result<(), SinkError> {
        let (process, mut output) = self.joined(pid);
        process.write_all(
            |operation| operation.enqueue_ns().is_some_and(|ns| ns < time_ns),
            &mut output,
        )
    }

    /// Process `pid` has ended, and all of its records have come: writes the remaining ones, and forgets the process.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn ended(&mut self, pid: u32) -> Result<Launches, SinkError> {
        // All records have come, so calls need not wait for the answer to their request.
        for call in self.process(pid).waiting_calls.settled(u64::MAX) {
            self.call(&call)?;
        }
        let (process, mut output) = self.joined(pid);
        process.write_all(|_| true, &mut output)?;
        self.threads.forget(pid);
        self.name_bytes.give_back(pid);
        let Some(gone) = self.processes.remove(&pid) else { return Ok(Launches::default()) };
        self.counts = gone.add_counts(self.counts);
        let ProcessState { launches, early_launches: early, dispatches, .. } = gone;
        Ok(Launches { launches, early, dispatches })
    }

    /// An API call from BPF.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn api(&mut self, call: &ApiRecord) -> Result<(), SinkError> {
        if call.header.operation >> 16 == Domain::ROCTX.0 {
            return self.roctx(call, None);
        }
        self.keep_within_bounds()?;
        let process = self.process(call.header.pid);
        process.waiting_calls.returned(call);
        process.by_probes |= bit(Domain(call.header.operation >> 16));
        self.call(call)
    }

    /// Tells the sink the name of a thread that was not seen before.
    pub fn thread(&mut self, pid: u32, tid: u32) {
        self.threads.see(&mut *self.sink, pid, tid);
    }

    /// Whether probes saw calls of a process in a domain.
    pub fn saw_by_probes(&self, pid: u32, domain: Domain) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.by_probes & bit(domain) != 0)
    }

    /// A call that a shim recorded, with further flags. It waits until [`Joiner::settle_calls`].
    pub fn shim_call(&mut self, pid: u32, tid: u32, call: &Call, flags: u16) {
        let process = self.process(pid);
        let taken = process.shim_call(tid, call, flags);
        let unplaced = mem::take(&mut process.waiting_calls.unplaced);
        self.counts.unplaced += unplaced;
        self.counts.misattributed += u64::from(!taken);
    }

    /// To be called when the shims' frames have been taken. If calls of a shim have no request yet, this makes one,
    /// which is answered when all BPF records that were made before have been read. `open` returns the open calls of a
    /// thread, as probes saw them.
    pub fn ask_for_calls(
        &mut self,
        mut open: impl FnMut(u32) -> Vec<ApiRecord>,
        request: impl FnOnce() -> u64,
    ) {
        let in_need = |process: &&mut ProcessState| process.waiting_calls.needs_request();
        let mut in_need: Vec<_> = self.processes.values_mut().filter(in_need).collect();
        if in_need.is_empty() {
            return;
        }
        for process in &mut in_need {
            let pid = process.pid;
            process.waiting_calls.open_around(|tid| {
                let mut open = open(tid);
                // The process may have named a thread of another process.
                open.retain(|call| call.header.pid == pid);
                open
            });
        }
        let request = request();
        in_need.into_iter().for_each(|process| process.waiting_calls.requested(request));
    }

    /// Writes the shims' calls whose requests are answered, up to request `answered`: all BPF records that were made
    /// before have been taken.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn settle_calls(&mut self, answered: u64) -> Result<(), SinkError> {
        let mut settled = Vec::new();
        for process in self.processes.values_mut() {
            settled.append(&mut process.waiting_calls.settled(answered));
        }
        for call in settled {
            self.keep_within_bounds()?;
            self.call(&call)?;
        }
        Ok(())
    }

    /// A call of roctx from BPF, with its message.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn mark(&mut self, mark: &MarkRecord) -> Result<(), SinkError> {
        self.roctx(&mark.call, Some(&mark.message))
    }

    fn roctx(
        &mut self,
        call: &ApiRecord,
        message: Option<&marks::Message>,
    ) -> Result<(), SinkError> {
        self.name(call);
        self.counts.calls += 1;
        self.counts.marks += 1;
        let event = marks::event(call, message, self.sink());
        let is_unread = message.is_some() && event.flags & flag::UNREADABLE != 0;
        self.counts.unread += u64::from(is_unread);
        self.sink.push(Event::Api(event))
    }

    /// Tells the sink the names of a call's function and thread, when it has not told them yet.
    fn name(&mut self, call: &ApiRecord) {
        self.thread(call.header.pid, call.header.tid);
        let (domain, id) = (call.header.operation >> 16, call.header.operation as u16);
        if let Some(operation) = api::by_id(Domain(domain), id)
            && self.named.insert(call.header.operation)
        {
            self.sink.operation(domain, id.into(), operation.name);
        }
    }

    fn call(&mut self, call: &ApiRecord) -> Result<(), SinkError> {
        self.name(call);
        let (process, mut output) = self.joined(call.header.pid);
        process.call(call, &mut output)
    }

    /// A dispatch link from BPF.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn link(&mut self, link: &LinkRecord) -> Result<(), SinkError> {
        self.keep_within_bounds()?;
        let caller =
            Caller { correlation_id: link.correlation_id, operation: link.header.operation };
        let owned = link.header.flags & flag::OWN != 0;
        self.linked((link.header.pid, link.header.tid), link.sequence, caller, owned)
    }

    /// A thread of a process has enqueued an operation in the call `caller`; `owned` if it was surely this thread.
    fn linked(
        &mut self,
        (pid, tid): (u32, u32),
        sequence: u64,
        caller: Caller,
        owned: bool,
    ) -> Result<(), SinkError> {
        let (process, mut output) = self.joined(pid);
        let named = process.named(caller);
        output.counts.misattributed += u64::from(named != caller);
        let operation = process.operation(sequence, &mut output)?;
        if owned || !operation.owned {
            operation.owned = owned;
            process.link(sequence, tid, named);
        }
        process.settle(sequence, &mut output)
    }

    /// A frame that thread `tid` of process `pid` wrote.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn frame(&mut self, pid: u32, tid: u32, frame: Frame) -> Result<(), SinkError> {
        self.keep_within_bounds()?;
        match frame {
            Frame::Agent(agent) => {
                let (inventory, names, sink) = self.inventory(pid);
                inventory.agent((pid, names), &agent, sink);
            }
            Frame::Symbol(symbol, name) => {
                let id = self.kernels + 1;
                let (inventory, names, sink) = self.inventory(pid);
                inventory.symbols = inventory.symbols.wrapping_add(1);
                let is_new = inventory.symbol((pid, names), id, &symbol, &name, sink);
                self.kernels += u32::from(is_new);
            }
            Frame::Queue(_) => {}
            Frame::Link(link) => {
                let shim::Link { sequence, correlation_id, operation, owned } = link;
                let caller = Caller { correlation_id, operation };
                self.linked((pid, tid), sequence, caller, owned != 0)?;
            }
            Frame::Call(call) => {
                self.shim_call(pid, tid, &call, 0);
                let waiting = &mut self.process(pid).waiting_calls;
                if waiting.is_full() {
                    let calls = waiting.settled(u64::MAX);
                    self.counts.unplaced += calls.len() as u64;
                    calls.iter().try_for_each(|call| self.call(call))?;
                }
            }
            Frame::Complete(complete) => {
                let (process, mut output) = self.joined(pid);
                process.operation(complete.sequence, &mut output)?.completion =
                    Completion::Seen(complete);
                process.settle(complete.sequence, &mut output)?;
            }
            Frame::Dispatch(dispatch) => {
                self.enqueued((pid, dispatch.sequence), tid, dispatch.into())?;
            }
            Frame::Copy(copy) => self.enqueued((pid, copy.sequence), tid, copy.into())?,
            Frame::Barrier(barrier) => {
                self.enqueued((pid, barrier.sequence), tid, barrier.into())?;
            }
        }
        Ok(())
    }

    /// The agents and kernels of process `pid`, the bytes of names that each process has sent, and the sink.
    fn inventory(&mut self, pid: u32) -> (&mut Inventory, &mut Budget<u32>, &mut dyn RecordSink) {
        let process = self.processes.entry(pid).or_insert_with(|| ProcessState::new(pid));
        (&mut process.inventory, &mut self.name_bytes, &mut *self.sink)
    }

    /// Called before a record is taken. Now and then it checks the bound of all processes together; as long as they
    /// exceed it, the process that has most gives some records up. So processes that fill the memory take it from each
    /// other, and a process that has little keeps it.
    fn keep_within_bounds(&mut self) -> Result<(), SinkError> {
        self.until_look -= 1;
        if self.until_look > 0 {
            return Ok(());
        }
        self.until_look = LOOK_EVERY;
        let mut bytes: usize = self.processes.values().map(ProcessState::bytes).sum();
        while bytes > self.most_bytes {
            let (processes, mut output) = self.all();
            let Some(fullest) = processes.max_by_key(|process| process.bytes()) else { break };
            let before = fullest.bytes();
            let unplaced = fullest.give_way(&mut output)?;
            bytes -= before - fullest.bytes();
            // These calls are kept now, and were subtracted above: the next look counts them.
            unplaced.iter().try_for_each(|call| self.call(call))?;
        }
        Ok(())
    }

    fn enqueued(
        &mut self,
        (pid, sequence): (u32, u64),
        tid: u32,
        work: Work,
    ) -> Result<(), SinkError> {
        self.numbered += 1;
        let number = self.numbered;
        let (process, mut output) = self.joined(pid);
        let in_time = work.enqueue_ns() <= output.settings.gpu_until_ns;
        process.dispatches += u64::from(in_time && matches!(work, Work::Dispatch(_)));
        let operation = process.operation(sequence, &mut output)?;
        operation.enqueued = Some((tid, work));
        operation.number = number;
        process.settle(sequence, &mut output)
    }

    /// Takes work that thread `tid` of process `key.0` enqueued, or whose doorbell it rang, seen from outside, with its
    /// caller if that is known. [`Joiner::ended_outside`] is to follow.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn seen_outside(
        &mut self,
        key: (u32, u64),
        tid: u32,
        work: Work,
        caller: Option<Caller>,
    ) -> Result<(), SinkError> {
        self.keep_within_bounds()?;
        let (process, mut output) = self.joined(key.0);
        let operation = process.operation(key.1, &mut output)?;
        operation.outside = true;
        if let Some(caller) = caller {
            process.enqueued_outside(key.1, tid, work.enqueue_ns(), caller);
        }
        self.enqueued(key, tid, work)
    }

    /// Thread `tid` enqueued the work of [`Joiner::seen_outside`], and rang for it at `rung_ns`. Another thread that
    /// saw the work may have read the clock later.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn owned_outside(
        &mut self,
        (pid, sequence): (u32, u64),
        (tid, rung_ns): (u32, u64),
        caller: Caller,
    ) -> Result<(), SinkError> {
        let (process, mut output) = self.joined(pid);
        let operation = process.pending.get_mut(sequence);
        if let Some((_, work)) = operation.and_then(|operation| operation.enqueued.as_mut()) {
            work.enqueued_by(rung_ns);
            let enqueue_ns = work.enqueue_ns();
            process.enqueued_outside(sequence, tid, enqueue_ns, caller);
        }
        process.settle(sequence, &mut output)
    }

    /// The work of [`Joiner::seen_outside`] ran; `None`: its end will never be seen.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn ended_outside(
        &mut self,
        (pid, sequence): (u32, u64),
        complete: Option<shim::Complete>,
    ) -> Result<(), SinkError> {
        let (process, mut output) = self.joined(pid);
        if let Some(operation) = process.pending.get_mut(sequence) {
            operation.completion = complete.map_or(Completion::Never, Completion::Seen);
        }
        process.settle(sequence, &mut output)
    }

    /// Writes the operations that have waited long enough, and forgets old calls. To be called every 100 ms or so,
    /// with the time of CLOCK_BOOTTIME.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn tick(&mut self, now_ns: u64) -> Result<(), SinkError> {
        self.clock.look(now_ns);
        let (mut processes, mut output) = self.all();
        processes.try_for_each(|process| {
            process.calls.age(now_ns);
            process.waiting_calls.age();
            process.pending.shrink();
            process.tick(&mut output)
        })
    }

    /// Writes everything that is left: operations that are not complete now never will be.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn join_the_rest(&mut self) -> Result<(), SinkError> {
        let (mut processes, mut output) = self.all();
        processes.try_for_each(|process| process.write_all(|_| true, &mut output))
    }

    /// Ends the sink.
    ///
    /// # Errors
    ///
    /// When the sink has not kept everything.
    pub fn finish(self, end_clock: ClockOffsets) -> Result<(), SinkError> {
        self.sink.finish(end_clock)
    }
}

impl Losses for Joiner {
    fn losses(&self) -> anyhow::Result<Vec<Loss>> {
        let joined = self.counts().losses().into_iter();
        Ok(joined.chain(self.sink.losses()).map(Loss::of_unknown).collect())
    }
}
