//! Which events belong to one operation, and the record of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tracer_common::activity::{ActivityRecord, Domain, kind, op};
use tracer_common::shim::Complete;
use tracer_records::commands::rect;

use super::queue::{Calls, Enqueued, Event, Launcher, Pools, Work};

/// How long the thread that has enqueued an operation may take to say so when another one has found its packet, ns; and
/// how long a kernel's name, which is told of kernels that were there before.
const LAUNCHER_NS: u64 = 1_000_000_000;
/// After so long what was told of an operation that nobody has enqueued is forgotten: it was not to be recorded, or its
/// record was written, ns.
const ENQUEUED_NS: u64 = 10_000_000_000;
/// After so many packets that one thread alone has rung for, what it finds in their queue is its own: it rings once for
/// several.
const RINGS: u32 = 4;

/// Operations whose events have not all come.
#[derive(Default)]
pub struct Operations {
    under_way: HashMap<u64, Operation>,
    /// Those of them that are done, and of which something else has not been told.
    done: HashSet<u64>,
    /// When those that nobody has enqueued are looked for, ns.
    next_look_ns: u64,
    /// GPUs by handle: their numbers among the GPUs. CPUs have none.
    agents: HashMap<u64, Option<u32>>,
    /// Names of kernels, by their descriptors. An address may get another name: what was enqueued before keeps its own.
    names: HashMap<u64, Arc<[u8]>>,
    /// Who rings for a queue.
    ringers: HashMap<u64, Ringer>,
}

/// Who has rung for the packets of a queue.
#[derive(Clone, Copy)]
enum Ringer {
    /// One thread, for so many.
    One(u64, u32),
    Several,
}

impl Ringer {
    fn after(self, thread: u64) -> Self {
        match self {
            Self::One(one, rings) if one == thread => Self::One(one, rings.saturating_add(1)),
            _ => Self::Several,
        }
    }
}

/// An operation, as far as it is known. What is told of it comes in any order.
struct Operation {
    /// When it was told of first, ns.
    since_ns: u64,
    /// And the name that the kernel had then.
    enqueued: Option<(Enqueued, Option<Arc<[u8]>>)>,
    /// The calls that it belongs to, and from when on that is believed, ns.
    launcher: Option<(Calls, u64)>,
    /// Begin and end, ns; zeros if they are not known. And when that was told, ns.
    times: Option<(u64, u64, u64)>,
    /// Somebody has waited for it in vain.
    is_given_up: bool,
}

/// A record, and where it goes.
pub struct Recorded {
    /// As of `HIP_OPS`.
    pub record: ActivityRecord,
    /// Of the record of `HSA_OPS`.
    pub hsa_correlation_id: u64,
    /// The kernel's name, with NUL.
    pub name: Option<Arc<[u8]>>,
    pub pools: Pools,
}

impl Operations {
    /// Takes what was told at a time, ns. Returns the record of the operation that is complete by it.
    pub fn take(&mut self, event: Event, now_ns: u64) -> Option<Recorded> {
        let sequence = match event {
            Event::Begins => {
                // What an address was called before this recording it may not be now.
                self.names.clear();
                return None;
            }
            Event::Agent { handle, gpu } => {
                self.agents.insert(handle, gpu);
                return None;
            }
            Event::Symbol(kernel, name) => {
                self.names.insert(kernel, name.into());
                return None;
            }
            Event::Enqueued(enqueued) => {
                let name = match enqueued.work {
                    Work::Kernel(kernel, _) => self.names.get(&kernel).cloned(),
                    _ => None,
                };
                let Enqueued { sequence, launcher, .. } = enqueued;
                self.operation(sequence, now_ns).enqueued = Some((enqueued, name));
                if let Some(launcher) = launcher {
                    self.launched(sequence, launcher, true, now_ns);
                }
                sequence
            }
            Event::Launched { sequence, launcher, is_certain } => {
                self.launched(sequence, launcher, is_certain, now_ns);
                sequence
            }
            Event::Done(Complete { sequence, start_ns, end_ns }) => {
                self.operation(sequence, now_ns).times = Some((start_ns, end_ns, now_ns));
                sequence
            }
            Event::NoTimes(sequence) => {
                self.operation(sequence, now_ns).times = Some((0, 0, now_ns));
                sequence
            }
            Event::Drain(_) => return None,
        };
        let recorded = self.finish(sequence, now_ns);
        if recorded.is_none() && self.under_way.get(&sequence).is_some_and(Operation::is_done) {
            self.done.insert(sequence);
        }
        recorded
    }

    fn operation(&mut self, sequence: u64, now_ns: u64) -> &mut Operation {
        self.under_way.entry(sequence).or_insert(Operation {
            since_ns: now_ns,
            enqueued: None,
            launcher: None,
            times: None,
            is_given_up: false,
        })
    }

    fn launched(&mut self, sequence: u64, launcher: Launcher, is_certain: bool, now_ns: u64) {
        let Launcher { calls, thread } = launcher;
        let operation = self.operation(sequence, now_ns);
        let queue = operation.enqueued.as_ref().map(|(enqueued, _)| enqueued.queue_id);
        if is_certain {
            operation.launcher = Some((calls, 0));
            if let Some(queue) = queue {
                let before = self.ringers.entry(queue).or_insert(Ringer::One(thread, 0));
                *before = before.after(thread);
            }
        } else if operation.launcher.is_none() {
            let alone = queue.is_some_and(|queue| rings_alone(self.ringers.get(&queue), thread));
            let believed_ns = if alone { 0 } else { now_ns + LAUNCHER_NS };
            self.operation(sequence, now_ns).launcher = Some((calls, believed_ns));
        }
    }

    fn finish(&mut self, sequence: u64, now_ns: u64) -> Option<Recorded> {
        let operation = self.under_way.get(&sequence)?;
        let (begin_ns, end_ns, done_ns) = operation.times?;
        let (enqueued, name) = operation.enqueued.as_ref()?;
        let is_late = now_ns >= done_ns + LAUNCHER_NS;
        let calls = match operation.launcher {
            Some((calls, ns)) if ns <= now_ns => calls,
            // Its thread has not come back from ringing.
            None if is_late => Calls { hip: 0, hsa: 0 },
            _ => return None,
        };
        let name = match enqueued.work {
            Work::Kernel(kernel, _) => {
                let name = name.clone().or_else(|| self.names.get(&kernel).cloned());
                if name.is_none() && !is_late {
                    return None;
                }
                name
            }
            _ => None,
        };
        let mut recorded = self.record(enqueued, name);
        let correlation_id = calls.hip;
        recorded.record = ActivityRecord { correlation_id, begin_ns, end_ns, ..recorded.record };
        // Calls of HSA are made inside of HIP's.
        recorded.hsa_correlation_id = if calls.hsa != 0 { calls.hsa } else { calls.hip };
        self.under_way.remove(&sequence);
        self.done.remove(&sequence);
        Some(recorded)
    }

    /// Those that are complete because something has not been told for so long; and forgets what was told of none.
    pub fn finish_late(&mut self, now_ns: u64) -> Vec<Recorded> {
        if now_ns >= self.next_look_ns {
            self.next_look_ns = now_ns + ENQUEUED_NS / 10;
            let is_open = |operation: &Operation| {
                operation.enqueued.is_some() || now_ns < operation.since_ns + ENQUEUED_NS
            };
            self.under_way.retain(|_, operation| is_open(operation));
        }
        let done = Vec::from_iter(self.done.iter().copied());
        done.into_iter().filter_map(|sequence| self.finish(sequence, now_ns)).collect()
    }

    /// Whether any is done, and not all of it is told.
    pub fn any_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Whether anything was told of any.
    pub fn any(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The numbers of those that are under way, and that nobody has waited for in vain.
    pub fn awaited(&self) -> impl Iterator<Item = u64> {
        self.under_way.iter().filter(|(_, o)| o.is_awaited()).map(|(&sequence, _)| sequence)
    }

    /// Whether that one still is.
    pub fn is_awaited(&self, sequence: u64) -> bool {
        self.under_way.get(&sequence).is_some_and(Operation::is_awaited)
    }

    /// It was waited for in vain.
    pub fn give_up(&mut self, sequence: u64) {
        if let Some(operation) = self.under_way.get_mut(&sequence) {
            operation.is_given_up = true;
        }
    }

    /// What is known of an operation when it is enqueued.
    fn record(&self, enqueued: &Enqueued, name: Option<Arc<[u8]>>) -> Recorded {
        let &Enqueued { ref work, agent, queue_id, mut pools, .. } = enqueued;
        let gpu = |agent| self.agents.get(&agent).copied().flatten();
        let mut record = ActivityRecord {
            domain: Domain::HIP_OPS,
            process_or_device: gpu(agent).unwrap_or(0),
            queue_id,
            ..ActivityRecord::default()
        };
        match *work {
            Work::Kernel(_, as_copy) => {
                (record.op, record.kind) = (op::DISPATCH, kind::KERNEL);
                if let Some(kind) = name.as_deref().and_then(hips_own) {
                    pools.hip = as_copy;
                    (record.op, record.kind) = (op::COPY, kind);
                }
            }
            Work::Copy { bytes, from, to } => {
                record.op = op::COPY;
                record.kind = match (gpu(from), gpu(to)) {
                    (Some(_), Some(_)) => kind::COPY_DEVICE_TO_DEVICE,
                    (Some(_), None) => kind::COPY_DEVICE_TO_HOST,
                    (None, _) => kind::COPY_HOST_TO_DEVICE,
                };
                record.process_or_device = gpu(to).or(gpu(from)).unwrap_or(0);
                record.bytes_or_name = bytes;
            }
            Work::Barrier => (record.op, record.kind) = (op::BARRIER, kind::MARKER),
        }
        Recorded { record, hsa_correlation_id: 0, name, pools }
    }
}

impl Operation {
    fn is_done(&self) -> bool {
        self.enqueued.is_some() && self.times.is_some()
    }

    fn is_awaited(&self) -> bool {
        self.enqueued.is_some() && !self.is_given_up
    }
}

fn rings_alone(ringer: Option<&Ringer>, thread: u64) -> bool {
    matches!(ringer, Some(&Ringer::One(one, rings)) if one == thread && rings >= RINGS)
}

/// The command that HIP does by a kernel of its own, by the kernel's name.
fn hips_own(name: &[u8]) -> Option<u32> {
    let own = name.strip_prefix(b"__amd_rocclr_")?;
    let kinds: [(&[u8], u32); 3] = [
        (b"fillBuffer", kind::FILL),
        (b"copyBufferRect", rect::DEVICE_TO_DEVICE),
        (b"copyBuffer", kind::COPY_DEVICE_TO_DEVICE),
    ];
    kinds.iter().find(|(begin, _)| own.starts_with(begin)).map(|&(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GPU 1 and a CPU.
    const GPU: u64 = 0x1000;
    const CPU: u64 = 0x2000;
    const QUEUE: u64 = 7;

    fn operations() -> Operations {
        let mut operations = Operations::default();
        for (handle, gpu) in [(GPU, Some(1)), (CPU, None)] {
            assert!(operations.take(Event::Agent { handle, gpu }, 0).is_none());
        }
        operations
    }

    fn enqueued(sequence: u64, work: Work) -> Event {
        let (agent, queue_id) = match work {
            Work::Copy { .. } => (0, 0),
            _ => (GPU, QUEUE),
        };
        let (launcher, pools) = (None, Pools::default());
        Event::Enqueued(Enqueued { sequence, launcher, work, agent, queue_id, pools })
    }

    fn kernel(sequence: u64) -> Event {
        enqueued(sequence, Work::Kernel(0x500, None))
    }

    fn launcher(sequence: u64, correlation_id: u64, thread: u64, is_certain: bool) -> Event {
        let launcher = Launcher { calls: Calls { hip: correlation_id, hsa: 0 }, thread };
        Event::Launched { sequence, launcher, is_certain }
    }

    fn done(sequence: u64) -> Event {
        Event::Done(Complete { sequence, start_ns: sequence * 10, end_ns: sequence * 10 + 5 })
    }

    fn symbol(name: &[u8]) -> Event {
        Event::Symbol(0x500, name.into())
    }

    #[test]
    fn a_kernel_has_the_name_that_its_address_had_when_it_was_enqueued() {
        let mut operations = operations();
        for event in [symbol(b"one\0"), kernel(3), symbol(b"two\0"), launcher(3, 9, 1, true)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(!operations.any_done());
        let Recorded { record, name, .. } = operations.take(done(3), 0).expect("all is known");
        assert_eq!(name.as_deref(), Some(&b"one\0"[..]));
        assert_eq!((record.domain, record.op, record.kind), (Domain::HIP_OPS, 0, kind::KERNEL));
        assert_eq!((record.correlation_id, record.begin_ns, record.end_ns), (9, 30, 35));
        assert_eq!((record.process_or_device, record.queue_id), (1, QUEUE));
        assert_eq!(operations.awaited().count(), 0);
    }

    #[test]
    fn copies_may_be_done_before_they_are_recorded() {
        for (from, to, kind) in [
            (CPU, GPU, kind::COPY_HOST_TO_DEVICE),
            (GPU, CPU, kind::COPY_DEVICE_TO_HOST),
            (GPU, GPU, kind::COPY_DEVICE_TO_DEVICE),
        ] {
            let mut operations = operations();
            assert!(operations.take(done(1), 0).is_none());
            let copy = enqueued(1, Work::Copy { bytes: 77, from, to });
            assert!(operations.take(copy, 0).is_none());
            let Recorded { record, .. } =
                operations.take(launcher(1, 2, 1, true), 0).expect("all is known");
            assert_eq!((record.op, record.kind, record.bytes_or_name), (op::COPY, kind, 77));
            assert_eq!(record.process_or_device, 1);
        }
    }

    #[test]
    fn kernels_by_which_hip_copies_are_copies() {
        for (name, kind) in [
            (&b"__amd_rocclr_fillBufferAligned\0"[..], kind::FILL),
            (b"__amd_rocclr_copyBuffer\0", kind::COPY_DEVICE_TO_DEVICE),
            (b"__amd_rocclr_copyBufferRectAligned\0", rect::DEVICE_TO_DEVICE),
        ] {
            let mut operations = operations();
            for event in [symbol(name), kernel(1), launcher(1, 2, 1, true)] {
                operations.take(event, 0);
            }
            let Recorded { record, .. } = operations.take(done(1), 0).expect("all is known");
            assert_eq!((record.op, record.kind), (op::COPY, kind));
        }
        assert_eq!(hips_own(b"__amd_rocclr_scheduler\0"), None);
        assert_eq!(hips_own(b"fillBuffer\0"), None);
    }

    /// Another thread has found the packet, whose call it may not be.
    #[test]
    fn who_enqueued_a_packet_is_waited_for() {
        let mut operations = operations();
        operations.take(symbol(b"one\0"), 0);
        for event in [kernel(1), launcher(1, 100, 1, false), done(1)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(operations.any_done());
        let Recorded { record, .. } =
            operations.take(launcher(1, 200, 2, true), 0).expect("all is known");
        assert_eq!(record.correlation_id, 200);
        // Not for ever.
        for event in [kernel(2), launcher(2, 300, 1, false), done(2)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(operations.finish_late(LAUNCHER_NS - 1).is_empty());
        let late = operations.finish_late(LAUNCHER_NS);
        assert_eq!(late.iter().map(|done| done.record.correlation_id).collect::<Vec<_>>(), [300]);
    }

    /// Who has found a packet may say so later than who has enqueued it.
    #[test]
    fn who_is_certain_is_believed() {
        let mut operations = operations();
        for event in [symbol(b"one\0"), kernel(1), launcher(1, 200, 2, true)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(operations.take(launcher(1, 100, 1, false), 0).is_none());
        let Recorded { record, .. } = operations.take(done(1), 0).expect("all is known");
        assert_eq!(record.correlation_id, 200);
        // Nothing is left of what is told behind the record.
        assert!(operations.take(launcher(1, 100, 1, false), 0).is_none());
        assert!(operations.any() && !operations.any_done());
        assert_eq!(operations.awaited().count(), 0);
        assert!(operations.finish_late(ENQUEUED_NS).is_empty() && !operations.any());
    }

    /// Its thread has not come back from ringing.
    #[test]
    fn an_operation_whose_thread_says_nothing_has_no_call() {
        let mut operations = operations();
        for event in [symbol(b"one\0"), kernel(1), done(1)] {
            assert!(operations.take(event, 0).is_none());
        }
        let [Recorded { record, .. }] = &operations.finish_late(LAUNCHER_NS)[..] else {
            panic!("one record");
        };
        assert_eq!((record.correlation_id, record.begin_ns), (0, 10));
    }

    /// A recording begins in a program that launches: names are told when kernels of that name have run.
    #[test]
    fn names_are_waited_for() {
        let mut operations = operations();
        operations.take(symbol(b"of the recording before\0"), 0);
        operations.take(Event::Begins, 0);
        for event in [kernel(1), launcher(1, 2, 1, true), done(1)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(operations.take(symbol(b"one\0"), 0).is_none());
        let [Recorded { name, .. }] = &operations.finish_late(1)[..] else { panic!("one record") };
        assert_eq!(name.as_deref(), Some(&b"one\0"[..]));
        // Not for ever.
        operations.take(Event::Begins, 0);
        for event in [kernel(2), launcher(2, 2, 1, true), done(2)] {
            assert!(operations.take(event, 0).is_none());
        }
        let [Recorded { name, .. }] = &operations.finish_late(LAUNCHER_NS)[..] else {
            panic!("one record");
        };
        assert_eq!(*name, None);
    }

    #[test]
    fn what_was_waited_for_in_vain_is_not_waited_for_again() {
        let mut operations = operations();
        operations.take(kernel(1), 0);
        operations.take(kernel(2), 0);
        operations.give_up(1);
        assert_eq!(operations.awaited().collect::<Vec<_>>(), [2]);
        assert!(!operations.is_awaited(1) && operations.is_awaited(2) && !operations.is_awaited(3));
    }

    /// Who rings once for several packets says so of the last one alone.
    #[test]
    fn a_thread_that_rings_alone_is_believed() {
        let mut operations = operations();
        operations.take(symbol(b"one\0"), 0);
        for sequence in 0..u64::from(RINGS) {
            for event in [kernel(sequence), launcher(sequence, 1, 5, true), done(sequence)] {
                operations.take(event, 0);
            }
        }
        for event in [kernel(50), launcher(50, 2, 5, false)] {
            assert!(operations.take(event, 0).is_none());
        }
        assert!(operations.take(done(50), 0).is_some());
        // Another one does, too.
        for event in [kernel(51), launcher(51, 3, 6, true), done(51), kernel(52)] {
            operations.take(event, 0);
        }
        assert!(operations.take(launcher(52, 4, 5, false), 0).is_none());
        assert!(operations.take(done(52), 0).is_none());
    }

    #[test]
    fn what_has_no_times_has_zeros() {
        let mut operations = operations();
        for event in [enqueued(1, Work::Barrier), launcher(1, 2, 1, true)] {
            assert!(operations.take(event, 0).is_none());
        }
        let Recorded { record, .. } = operations.take(Event::NoTimes(1), 0).expect("known");
        assert_eq!((record.op, record.kind), (op::BARRIER, kind::MARKER));
        assert_eq!((record.begin_ns, record.end_ns), (0, 0));
    }
}
