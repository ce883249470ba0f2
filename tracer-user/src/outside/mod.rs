//! GPU work of processes without the shim, as far as it can be seen from outside.
//!
//! A probe at the functions that ring doorbells sends the packets that a queue holds then ([`PacketRecord`]). These
//! tell what was launched, by which call, on which queue; kernels get their names from the runtime's debugger
//! interface ([`code_objects`]). Times exist only for packets that carry a completion signal, in queues that profile:
//! the GPU writes them into the signal, as ticks of its own clock ([`signals`]), which is estimated from them
//! ([`ticks`]). HIP gives its kernels signals only in programs that ask it for times; most packets that are seen have
//! none.

mod code_objects;
mod packet;
mod queue;
mod seen;
mod signals;
mod ticks;

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use tracer_common::{
    bpf::{BatchRecord, PacketRecord, SignalRecord, flag},
    loss::ShimLoss,
    shim::{Complete, Symbol, UNKNOWN_CLOCK_ERROR_NS},
};
use tracer_records::sink::SinkError;

use crate::{
    clock,
    discover::{self, Ended, Runtime, Subject},
    join::{Caller, Joiner, Work},
    losses::{Loss, Losses},
    plan::{LiveProcess, Located, ProcessMemory},
    shim::Frame,
};
use code_objects::CodeObjects;
pub use code_objects::{fuzz_code_object, fuzz_code_object_list};
use packet::Content;
use queue::{Doorbell, Queue, RecordMeaning};
use seen::{QueueKey, SeenPacket};
use signals::{SettledPacket, Signals};

/// The interval in which code objects are looked for without a reason.
const LOOK_NS: u64 = 1_000_000_000;
/// The interval in which they are looked for with a reason: a kernel without a name.
const LOOK_AGAIN_NS: u64 = 20_000_000;
/// The time between two looks is this many times the time for which a look takes the CPU and waits for the process's
/// memory, however much there is to read.
const PAUSE: u64 = 3;
/// The longest time for which a look at code objects, or one at signals, waits for the process's memory.
const LOOK_FOR: Duration = Duration::from_secs(1);
/// Records of a process that has ended do not come later than this.
const QUIET_NS: u64 = 2_000_000_000;
/// The cause of loss of packets for which no record came.
const UNANNOUNCED: &str =
    "GPU packets, from outside: before the first doorbell that was seen, or too many behind one";
/// Operations that are seen from outside have this bit in their numbers: shims number operations below it.
const OWN_NUMBERS: u64 = 1 << 63;

/// One process.
#[derive(Default)]
struct Watched {
    /// The process and its memory; none if the memory cannot be read.
    process: Option<(Arc<Subject>, LiveProcess)>,
    objects: Option<CodeObjects>,
    looked_ns: u64,
    /// Whether it is recorded from its start: then every packet that its queues ever held is to be seen.
    from_start: bool,
    /// Whether a shim knows its times, or is about to: few are seen beside that, for too short a time to estimate them.
    is_beside_shim: bool,
    /// The time that the last look took.
    look_took_ns: u64,
    /// When signals were read last, and the time that this took.
    read_ns: u64,
    read_took_ns: u64,
    /// Kernels that have a name, or will not get one.
    kernels: HashSet<u64>,
    /// Whether a packet's kernel had no name at the last look.
    unnamed: bool,
    /// Kernels whose names were looked for since the last tick.
    looked_for: HashSet<u64>,
    queues: HashMap<QueueKey, Queue>,
    signals: Signals,
    /// When the last packet was seen.
    newest_ns: u64,
}

/// All processes that are seen from outside.
#[derive(Default)]
pub struct Outside {
    targets: BTreeMap<u32, Watched>,
    sequence: u64,
    /// Requests for all records that have not been answered, and when they were made.
    requests: VecDeque<(u64, u64)>,
    /// All records that were made before this time have been taken.
    horizon_ns: u64,
    /// Packets that were consumed before they were seen.
    missed: u64,
    /// Packets of other kinds.
    others: u64,
    /// Packets for which no record came.
    unannounced: u64,
}

impl Outside {
    /// Whether process `pid` is known.
    pub fn knows(&self, pid: u32) -> bool {
        self.targets.contains_key(&pid)
    }

    /// Looks at process `pid` from now on; `from_start` if it is recorded from its start. On an error neither names
    /// nor times will be known.
    ///
    /// # Errors
    ///
    /// When its memory cannot be read.
    pub fn add(
        &mut self,
        pid: u32,
        subject: Option<Arc<Subject>>,
        from_start: bool,
    ) -> anyhow::Result<()> {
        let target = self.targets.entry(pid).or_default();
        target.from_start = from_start;
        let subject = subject.ok_or(Ended { pid })?;
        let process = subject.by_number(|pid| anyhow::Ok(LiveProcess::open(pid)?))?;
        let libraries = subject.by_number(discover::libraries)?;
        if let Some(runtime) = libraries.iter().find(|library| library.runtime == Runtime::Hsa) {
            let list =
                Located::find(&process, &runtime.open_path)?.variable(code_objects::DEBUGGER_LIST);
            target.objects = list.map(|list| CodeObjects::new(pid, list));
        }
        target.process = Some((subject, process));
        Ok(())
    }

    /// Whether process `pid` has a shim, or is about to get one: then no times are estimated.
    pub fn set_beside_shim(&mut self, pid: u32, is_beside_shim: bool) {
        if let Some(target) = self.targets.get_mut(&pid) {
            target.is_beside_shim = is_beside_shim;
        }
    }

    /// Packets from BPF that another packet's doorbell announced too.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn batch(&mut self, batch: &BatchRecord, joiner: &mut Joiner) -> Result<(), SinkError> {
        let BatchRecord { header, time_ns, queue, queue_id, .. } = *batch;
        for (nth, packet) in
            batch.packets.as_flattened().iter().take(batch.count as usize).enumerate()
        {
            let index = batch.index.wrapping_add(nth as u64);
            let record = PacketRecord {
                header,
                time_ns,
                queue,
                queue_id,
                index,
                packet: *packet,
                ..Default::default()
            };
            // A packet that has not been written yet comes with its own doorbell.
            if packet::is_valid(&record) {
                self.announced(&record, Doorbell::Another, joiner)?;
            }
        }
        Ok(())
    }

    /// A packet from BPF, which its own doorbell announced.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn packet(&mut self, record: &PacketRecord, joiner: &mut Joiner) -> Result<(), SinkError> {
        self.announced(record, Doorbell::Own, joiner)
    }

    fn announced(
        &mut self,
        record: &PacketRecord,
        doorbell: Doorbell,
        joiner: &mut Joiner,
    ) -> Result<(), SinkError> {
        let (pid, tid) = (record.header.pid, record.header.tid);
        let target = self.targets.entry(pid).or_default();
        target.newest_ns = target.newest_ns.max(record.time_ns);
        let caller =
            Caller { correlation_id: record.correlation_id, operation: record.header.operation };
        let key = (record.queue, record.queue_id);
        // Packets that a queue held before the recording are not missing.
        if target.from_start || record.header.flags & flag::FIRST == 0 {
            self.unannounced = self.unannounced.saturating_add(record.unannounced);
        }
        let queue = target.queues.entry(key).or_default();
        let sequence = OWN_NUMBERS | (self.sequence + 1);
        match queue.see(record.index, record.time_ns, doorbell, sequence) {
            RecordMeaning::Again => return Ok(()),
            RecordMeaning::Own(sequence) => {
                let rung = (tid, record.time_ns);
                return joiner.owned_outside((pid, sequence), rung, caller);
            }
            RecordMeaning::New => self.sequence += 1,
        }
        let work = match packet::content(record, sequence) {
            Content::Work(work) => work,
            other => {
                self.missed += u64::from(matches!(other, Content::Missed));
                self.others += u64::from(matches!(other, Content::Other));
                return Ok(());
            }
        };
        if let Work::Dispatch(dispatch) = &work {
            target.find_name(pid, dispatch.kernel_object, joiner)?;
        }
        let own = doorbell == Doorbell::Own;
        let seen = SeenPacket { key: (pid, sequence), time_ns: record.time_ns, queue: key };
        joiner.seen_outside(seen.key, tid, work, own.then_some(caller))?;
        match packet::signal(record) {
            // For other packets it is not known what their signals held before.
            Some(signal) if own && target.signals.uses(signal, record.earlier_ticks, seen) => {
                Ok(())
            }
            _ => joiner.ended_outside(seen.key, None),
        }
    }

    /// A signal that is destroyed, from BPF.
    pub fn signal(&mut self, record: &SignalRecord) {
        if let Some(target) = self.targets.get_mut(&record.header.pid) {
            target.signals.destroyed(record.signal, record.ticks, record.time_ns);
        }
    }

    /// Looks at all processes again; called now and then. `request` will be answered when all records made before now
    /// have been taken, as those made before request `answered` have.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn tick(
        &mut self,
        request: u64,
        answered: u64,
        joiner: &mut Joiner,
    ) -> Result<(), SinkError> {
        let now_ns = clock::now_ns();
        self.requests.push_back((request, now_ns));
        while let Some((_, asked_ns)) = self.requests.pop_front_if(|(asked, _)| *asked <= answered)
        {
            self.horizon_ns = asked_ns;
        }
        let took_ns = |target: &Watched| target.look_took_ns + target.read_took_ns;
        let pause_ns = self.targets.values().map(took_ns).sum::<u64>() * PAUSE;
        for (&pid, target) in &mut self.targets {
            let soon =
                target.unnamed || target.objects.as_ref().is_some_and(CodeObjects::is_unfinished);
            let every_ns = if soon { LOOK_AGAIN_NS } else { LOOK_NS }.max(pause_ns);
            target.look(pid, every_ns, joiner)?;
            target.looked_for.clear();
            target.queues.values_mut().for_each(Queue::age);
            target.settle(self.horizon_ns, now_ns, pause_ns, joiner)?;
        }
        Ok(())
    }

    /// Whether no process is looked at.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Writes the remaining operations of process `pid`, which has ended, executes another program or is not looked at
    /// any more: an operation whose end was not seen will not get one. Returns the largest error of its GPU times, ns;
    /// 0 if there are none, [`UNKNOWN_CLOCK_ERROR_NS`] if it is not known.
    ///
    /// # Errors
    ///
    /// When the sink takes no more.
    pub fn end(&mut self, pid: u32, joiner: &mut Joiner) -> Result<u64, SinkError> {
        let Some(mut target) = self.targets.remove(&pid) else { return Ok(0) };
        // Twice: the values that are read the first time count the second time.
        for _ in 0..2 {
            target.settle(u64::MAX, clock::now_ns(), 0, joiner)?;
        }
        for queue in target.queues.values_mut() {
            queue.release(joiner)?;
        }
        for seen in target.signals.rest() {
            joiner.ended_outside(seen.key, None)?;
        }
        Ok(target.queues.values().map(|queue| queue.error_ns).max().unwrap_or(0))
    }

    /// The processes.
    pub fn pids(&self) -> Vec<u32> {
        self.targets.keys().copied().collect()
    }

    /// Whether no packet of process `pid` has come for so long that none will come if the process has ended.
    pub fn is_quiet(&self, pid: u32) -> bool {
        let newest_ns = self.targets.get(&pid).map_or(0, |target| target.newest_ns);
        clock::now_ns().saturating_sub(newest_ns) > QUIET_NS
    }
}

/// Packets that are not in the trace.
impl Losses for Outside {
    fn losses(&self) -> anyhow::Result<Vec<Loss>> {
        let losses = [
            (ShimLoss::PACKET_PASSED.describe(), self.missed),
            (ShimLoss::PACKET_KIND.describe(), self.others),
            (UNANNOUNCED, self.unannounced),
        ];
        Ok(losses.map(Loss::of_unknown).into())
    }
}

impl Watched {
    /// Finds the name of a kernel, if it is not known; the code object may have been loaded just now.
    fn find_name(
        &mut self,
        pid: u32,
        kernel_object: u64,
        joiner: &mut Joiner,
    ) -> Result<(), SinkError> {
        if self.kernels.contains(&kernel_object) {
            return Ok(());
        }
        // At once when the kernel is first launched: the process may end, or unload it, before the next look.
        let every_ns = if self.looked_for.insert(kernel_object) { 0 } else { LOOK_AGAIN_NS };
        self.look(pid, every_ns, joiner)?;
        if self.process.is_none() || self.objects.is_none() {
            // The name will not come: no operation need wait for it.
            self.kernels.insert(kernel_object);
            let symbol = Symbol { kernel_object, ..Symbol::default() };
            return joiner.frame(pid, 0, Frame::Symbol(symbol, String::new()));
        }
        self.unnamed |= !self.kernels.contains(&kernel_object);
        Ok(())
    }

    /// Sends the names of kernels that have been loaded, unless that was done less than `every_ns` ago.
    fn look(&mut self, pid: u32, every_ns: u64, joiner: &mut Joiner) -> Result<(), SinkError> {
        let now_ns = clock::now_ns();
        if now_ns.saturating_sub(self.looked_ns) < every_ns.max(self.look_took_ns * PAUSE) {
            return Ok(());
        }
        // A code object that is new now may have been loaded just after the last look.
        let since_ns = std::mem::replace(&mut self.looked_ns, now_ns);
        self.unnamed = false;
        let (Some((subject, process)), Some(objects)) = (&self.process, &mut self.objects) else {
            return Ok(());
        };
        let (news, took_ns) =
            taking(process, || subject.by_number(|_| Ok::<_, Ended>(objects.news(process))));
        self.look_took_ns = took_ns;
        for kernel in news.unwrap_or_default() {
            self.kernels.insert(kernel.object);
            let symbol = Symbol { kernel_object: kernel.object, since_ns, ..Symbol::default() };
            joiner.frame(pid, 0, Frame::Symbol(symbol, kernel.name))?;
        }
        Ok(())
    }

    /// Writes the packets with signals whose fate is known, now that all records made before `horizon_ns` have come.
    /// Reads the signals unless that was done less than `pause_ns` ago.
    fn settle(
        &mut self,
        horizon_ns: u64,
        now_ns: u64,
        pause_ns: u64,
        joiner: &mut Joiner,
    ) -> Result<(), SinkError> {
        let is_due = now_ns.saturating_sub(self.read_ns) >= pause_ns;
        let process = self.process.as_ref().map(|(_, process)| process).filter(|_| is_due);
        let mut settle =
            |memory: Option<&dyn ProcessMemory>| self.signals.settle(horizon_ns, now_ns, memory);
        let fates = if let Some(process) = process {
            let (fates, took_ns) = taking(process, || settle(Some(process)));
            (self.read_ns, self.read_took_ns) = (now_ns, took_ns);
            fates
        } else {
            settle(None)
        };
        fates.into_iter().try_for_each(|fate| self.decide(fate, joiner))?;
        // All at once: the error is that of the clock by which they were converted.
        for queue in self.queues.values_mut().filter(|queue| queue.ticks.is_ready()) {
            queue.release(joiner)?;
        }
        Ok(())
    }

    /// Notes the fate of a packet, and writes the packet if its times will never be known.
    fn decide(&mut self, fate: SettledPacket, joiner: &mut Joiner) -> Result<(), SinkError> {
        let seen = fate.seen;
        let ran = fate.ran.filter(|_| !self.is_beside_shim);
        let (Some((ticks, read_ns)), Some(queue)) = (ran, self.queues.get_mut(&seen.queue)) else {
            return joiner.ended_outside(seen.key, None);
        };
        queue.ticks.started(ticks[0], seen.time_ns);
        queue.ticks.ended(ticks[1], read_ns);
        queue.held.push((seen, ticks));
        Ok(())
    }
}

/// Looks at a process, waiting for its memory for [`LOOK_FOR`] at most. Returns also the time that this took, ns.
fn taking<T>(process: &LiveProcess, look: impl FnOnce() -> T) -> (T, u64) {
    process.wait_at_most(LOOK_FOR);
    let began = Instant::now();
    let seen = look();
    (seen, began.elapsed().as_nanos() as u64)
}

impl Queue {
    /// Writes the packets that were held back, as far as the clock is known.
    fn release(&mut self, joiner: &mut Joiner) -> Result<(), SinkError> {
        let mut converted = false;
        for (seen, ticks) in std::mem::take(&mut self.held) {
            let complete = self.complete(&seen, ticks);
            converted |= complete.is_some();
            joiner.ended_outside(seen.key, complete)?;
        }
        if converted {
            let error_ns = self.ticks.error_ns().unwrap_or(UNKNOWN_CLOCK_ERROR_NS);
            self.error_ns = self.error_ns.max(error_ns);
        }
        Ok(())
    }

    fn complete(&self, seen: &SeenPacket, [start, end]: [u64; 2]) -> Option<Complete> {
        let (start_ns, end_ns) = (self.ticks.to_ns(start)?, self.ticks.to_ns(end)?);
        Some(Complete { sequence: seen.key.1, start_ns, end_ns })
    }
}
