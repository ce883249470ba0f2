//! The joiner's state of one process. The records of a process are kept here, and reach no other process.

use std::ops::Range;

use tracer_common::{
    activity::{ActivityRecord, Domain},
    bpf::{ApiRecord, flag},
    calls::{Call, FIRST_ID},
};
use tracer_records::{
    api,
    model::{ApiCall, Event},
    sink::{RecordSink, SinkError},
};

use super::{
    calls::{Caller, RecentCalls},
    counts::{Counts, Mode, PATIENCE_NS},
    inventory::Inventory,
    operation::{Completion, Operation},
    pending::Pending,
    waiting::WaitingCalls,
};

/// The settings that are the same for all processes.
pub struct Settings {
    pub mode: Mode,
    /// GPU work that is enqueued later is not recorded.
    pub gpu_until_ns: u64,
}

/// The destination of joined records.
pub struct Output<'a> {
    pub settings: &'a Settings,
    pub counts: &'a mut Counts,
    /// The joiner's time, by which patience is measured.
    pub now_ns: u64,
    pub sink: &'a mut dyn RecordSink,
}

/// A call as the trace has it.
pub fn api_call(call: &ApiRecord) -> ApiCall {
    ApiCall {
        record: ActivityRecord {
            domain: Domain(call.header.operation >> 16),
            op: call.header.operation & 0xffff,
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
    }
}

/// One process.
#[derive(Default)]
pub struct ProcessState {
    pub pid: u32,
    pub inventory: Inventory,
    pub calls: RecentCalls,
    pub waiting_calls: WaitingCalls,
    pub pending: Pending,
    /// The ids that its shims give to calls.
    pub shim_ids: Vec<Range<u64>>,
    /// HIP calls that launched kernels while GPU work was recorded.
    pub launches: u64,
    /// HIP calls that launched kernels before GPU work was recorded.
    pub early_launches: u64,
    /// When the recording of GPU work began; 0 if it began together with that of calls.
    pub gpu_from_ns: u64,
    /// Dispatches that the shim saw.
    pub dispatches: u64,
    /// The domains of calls that probes saw: bits.
    pub by_probes: u32,
}

impl ProcessState {
    /// A process of which nothing is known.
    pub fn new(pid: u32) -> Self {
        Self { pid, ..Self::default() }
    }

    /// Adds this process's counts to `counts`.
    pub fn add_counts(&self, counts: Counts) -> Counts {
        Counts {
            left_out: counts.left_out + self.inventory.left_out,
            forgotten: counts.forgotten + self.calls.forgotten,
            ..counts
        }
    }

    /// At least the bytes of all records that wait to be joined, and of those that are kept for that, with the spare
    /// room of the lists.
    pub fn bytes(&self) -> usize {
        self.pending.bytes()
            + self.waiting_calls.bytes()
            + self.calls.bytes()
            + self.calls.stream_bytes()
    }

    /// Gives up some of the records of which this process has most: the older half of operations or calls, a
    /// generation of streams, or all calls that wait for the call around them, which it returns to be written.
    pub fn give_way(&mut self, output: &mut Output<'_>) -> Result<Vec<ApiRecord>, SinkError> {
        let bytes = [
            self.pending.bytes(),
            self.waiting_calls.bytes(),
            self.calls.bytes(),
            self.calls.stream_bytes(),
        ];
        let most = bytes.iter().max();
        match bytes.iter().position(|bytes| Some(bytes) == most) {
            Some(0) => self.give_up(self.pending.len().div_ceil(2), output)?,
            Some(1) => {
                let unplaced = self.waiting_calls.settled(u64::MAX);
                self.waiting_calls.age();
                output.counts.unplaced += unplaced.len() as u64;
                return Ok(unplaced);
            }
            Some(2) => self.calls.give_up_calls(),
            _ => self.calls.give_up_streams(),
        }
        Ok(Vec::new())
    }

    /// Writes the `count` oldest operations as they are.
    fn give_up(&mut self, count: usize, output: &mut Output<'_>) -> Result<(), SinkError> {
        for _ in 0..count {
            let Some(oldest) = self.pending.oldest() else { break };
            output.counts.given_up += 1;
            self.write(oldest, output)?;
        }
        self.pending.shrink();
        Ok(())
    }

    fn is_own(&self, id: u64) -> bool {
        self.shim_ids.iter().any(|ids| ids.contains(&id))
    }

    /// The call that a link names, or none if it cannot be one of this process. Shims give ids from [`FIRST_ID`] on: of
    /// those, only the ids of the process's own shims are taken.
    pub fn named(&self, caller: Caller) -> Caller {
        let by_shim = caller.correlation_id >= FIRST_ID;
        if by_shim && !self.is_own(caller.correlation_id) { Caller::default() } else { caller }
    }

    /// A call that the shim recorded, with further flags. Returns false and does nothing if its id, or its
    /// parent's, is not one of the process's own: it would be taken for another call.
    pub fn shim_call(&mut self, tid: u32, call: &Call, flags: u16) -> bool {
        if !self.is_own(call.correlation_id) || call.parent_id != 0 && !self.is_own(call.parent_id)
        {
            return false;
        }
        self.waiting_calls.add(self.pid, tid, call, flags, &self.calls);
        true
    }

    /// Writes a call, keeps it for operations that it launched, and settles those whose doorbells it rang.
    pub fn call(&mut self, call: &ApiRecord, output: &mut Output<'_>) -> Result<(), SinkError> {
        let domain = Domain(call.header.operation >> 16);
        let operation_id = call.header.operation as u16;
        output.counts.calls += 1;
        let mut stream = None;
        let captured = call.header.flags & flag::OPEN_AT_START == 0;
        if let Some(operation) = api::by_id(domain, operation_id).filter(|_| captured) {
            stream = api::stream(operation, &call.args, &call.extra, call.header.flags);
            let launch = api::launch(operation, &call.args, &call.extra, call.header.flags);
            if launch.is_some() {
                output.counts.launches += 1;
                if call.begin_ns < self.gpu_from_ns {
                    self.early_launches += 1;
                } else if call.end_ns <= output.settings.gpu_until_ns {
                    // The call had returned by then, or it is open: its `end_ns` is 0.
                    self.launches += 1;
                }
            }
        }
        self.calls.add(call, stream);
        let rung = self.calls.rung_by(call);
        let caller =
            Caller { correlation_id: call.correlation_id, operation: call.header.operation };
        output.sink.push(Event::Api(api_call(call)))?;
        rung.into_iter().try_for_each(|sequence| {
            if let Some(operation) = self.pending.get_mut(sequence) {
                operation.rung_by = Some(caller);
            }
            self.settle(sequence, output)
        })
    }

    /// The operation of this number, a new one if nothing was heard of it. Writes the oldest operation as it is
    /// if there would be too many.
    pub fn operation(
        &mut self,
        sequence: u64,
        output: &mut Output<'_>,
    ) -> Result<&mut Operation, SinkError> {
        if let Some(oldest) = self.pending.in_the_way_of(sequence) {
            output.counts.given_up += 1;
            self.write(oldest, output)?;
        }
        Ok(self.pending.entry(sequence))
    }

    /// Call `caller` of thread `tid` launched the operation.
    pub fn link(&mut self, sequence: u64, tid: u32, caller: Caller) {
        let Some(operation) = self.pending.get_mut(sequence) else { return };
        // Before the old link is released: if both name the same call, that is not forgotten in between.
        self.calls.hold(caller);
        if let Some((_, before)) = operation.link.replace((tid, caller)) {
            self.calls.release(before);
        }
    }

    /// Thread `tid` enqueued the operation, which was seen from outside; inside of call `caller`, if that has
    /// an id.
    pub fn enqueued_outside(&mut self, sequence: u64, tid: u32, enqueue_ns: u64, caller: Caller) {
        self.link(sequence, tid, caller);
        if let Some(operation) = self.pending.get_mut(sequence) {
            operation.owned = true;
            if caller.correlation_id == 0 {
                self.calls.rang(tid, enqueue_ns, sequence);
            }
        }
    }

    /// Writes the operation if it ran and nothing is missing. If it ran and something is, lets it wait.
    pub fn settle(&mut self, sequence: u64, output: &mut Output<'_>) -> Result<(), SinkError> {
        let Some(operation) = self.pending.get(sequence) else { return Ok(()) };
        if operation.completion == Completion::Awaited {
            return Ok(());
        }
        if operation.is_settled(output.settings.mode, &self.inventory, &self.calls) {
            return self.write(sequence, output);
        }
        self.pending.waits(sequence, output.now_ns);
        Ok(())
    }

    /// Writes the operations that have waited too long, or for which nothing is missing now.
    pub fn tick(&mut self, output: &mut Output<'_>) -> Result<(), SinkError> {
        let over = self.pending.waited(|operation, since_ns| {
            output.now_ns - since_ns > PATIENCE_NS
                || operation.is_settled(output.settings.mode, &self.inventory, &self.calls)
        });
        over.into_iter().try_for_each(|sequence| self.write(sequence, output))
    }

    /// Writes the operations that are `wanted`, with what is known of them.
    pub fn write_all(
        &mut self,
        wanted: impl Fn(&Operation) -> bool,
        output: &mut Output<'_>,
    ) -> Result<(), SinkError> {
        let sequences = self.pending.sequences(wanted);
        sequences.into_iter().try_for_each(|sequence| self.write(sequence, output))
    }

    fn write(&mut self, sequence: u64, output: &mut Output<'_>) -> Result<(), SinkError> {
        let Some(operation) = self.pending.remove(sequence) else { return Ok(()) };
        let (link, enqueue_ns) = (operation.link, operation.enqueue_ns());
        // A shim that stops late tells of operations of after the end, whose calls nobody reads any more.
        let is_too_late = enqueue_ns.is_some_and(|at_ns| at_ns > output.settings.gpu_until_ns);
        let event = if is_too_late {
            None
        } else {
            let (mode, counts) = (output.settings.mode, &mut *output.counts);
            operation.event(self.pid, mode, &self.inventory, &self.calls, counts)
        };
        if let Some((tid, caller)) = link {
            self.calls.release(caller);
            self.calls.forget_doorbell(tid, enqueue_ns.unwrap_or(0), sequence);
        }
        event.map_or(Ok(()), |event| output.sink.push(event))
    }
}
