//! One GPU operation on its way to becoming an event.

use tracer_common::{
    activity::{ActivityRecord, Domain, kind, op},
    shim,
};

use super::{
    calls::{Caller, RecentCalls},
    counts::{Counts, Mode},
    inventory::Inventory,
};
use tracer_records::model::{Barrier, Copy, Dispatch, Event, op_flag};

/// The enqueued work.
pub enum Work {
    /// A kernel.
    Dispatch(shim::Dispatch),
    /// A copy.
    Copy(shim::Copy),
    /// A barrier packet.
    Barrier(shim::Barrier),
}

impl From<shim::Dispatch> for Work {
    fn from(dispatch: shim::Dispatch) -> Self {
        Self::Dispatch(dispatch)
    }
}

impl From<shim::Copy> for Work {
    fn from(copy: shim::Copy) -> Self {
        Self::Copy(copy)
    }
}

impl From<shim::Barrier> for Work {
    fn from(barrier: shim::Barrier) -> Self {
        Self::Barrier(barrier)
    }
}

impl Work {
    /// When it was enqueued.
    pub fn enqueue_ns(&self) -> u64 {
        match self {
            Self::Dispatch(w) => w.enqueue_ns,
            Self::Copy(w) => w.enqueue_ns,
            Self::Barrier(w) => w.enqueue_ns,
        }
    }

    /// Moves the time of enqueueing to `time_ns` if it is later.
    pub fn enqueued_by(&mut self, time_ns: u64) {
        let enqueue_ns = match self {
            Self::Dispatch(w) => &mut w.enqueue_ns,
            Self::Copy(w) => &mut w.enqueue_ns,
            Self::Barrier(w) => &mut w.enqueue_ns,
        };
        *enqueue_ns = time_ns.min(*enqueue_ns);
    }
}

/// The end of an operation, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Completion {
    /// Not known yet.
    #[default]
    Awaited,
    /// The times at which it ran.
    Seen(shim::Complete),
    /// The end will not be seen.
    Never,
}

/// The parts of an operation that are known so far.
#[derive(Default)]
pub struct Operation {
    /// The thread that enqueued it, and the work.
    pub enqueued: Option<(u32, Work)>,
    /// Its end.
    pub completion: Completion,
    /// Whether it was seen from outside: agents are not known, and perhaps no call around it either.
    pub outside: bool,
    /// The call that launched it, and the thread of the call.
    pub link: Option<(u32, Caller)>,
    /// For an operation that was seen from outside: the call that rang its doorbell, found by time.
    pub rung_by: Option<Caller>,
    /// Whether the link is from the thread that surely enqueued it.
    pub owned: bool,
    /// Its number in the trace, ascending on each thread.
    pub number: u64,
    /// Whether it ran and waits for the rest.
    pub waits: bool,
}

impl Operation {
    /// When it was enqueued.
    pub fn enqueue_ns(&self) -> Option<u64> {
        self.enqueued.as_ref().map(|(_, work)| work.enqueue_ns())
    }

    /// Whether every part is known that ever will be.
    pub fn is_settled(&self, mode: Mode, inventory: &Inventory, calls: &RecentCalls) -> bool {
        let (Some((_, work)), Some((tid, link))) = (&self.enqueued, self.link) else {
            return false;
        };
        if !self.owned || self.completion == Completion::Awaited {
            return false;
        }
        if self.outside && link.correlation_id == 0 {
            return self.rung_by.is_some()
                || calls.near(tid, work.enqueue_ns()).is_some()
                || !calls.has_hsa();
        }
        // The call's own record comes when the call returns; it carries the stream, and the call's times.
        let call = match mode {
            Mode::Exact => !link.is_hip() || calls.stream(link.correlation_id).is_some(),
            // Any call that is still to come can be the one: the operation waits until the patience is over.
            Mode::Time | Mode::Check => link.correlation_id == 0,
        };
        call && match work {
            Work::Dispatch(d) => {
                (self.outside || inventory.known_agent(d.agent).is_some())
                    && inventory.has_symbols(d.symbols)
                    && inventory.kernel(d.kernel_object, d.enqueue_ns).is_some()
            }
            Work::Copy(c) => {
                inventory.known_agent(c.dst_agent).is_some()
                    && inventory.known_agent(c.src_agent).is_some()
            }
            Work::Barrier(b) => self.outside || inventory.known_agent(b.agent).is_some(),
        }
    }

    /// The call that launched the operation, with the flags that say how it was found.
    fn caller(
        &self,
        tid: u32,
        time_ns: u64,
        mode: Mode,
        calls: &RecentCalls,
        counts: &mut Counts,
    ) -> (Caller, u16) {
        let by_time = || match self.outside {
            true => self.rung_by.or_else(|| calls.near(tid, time_ns)),
            false => calls.at(tid, time_ns),
        };
        let link = self.link.map(|(_, link)| link);
        let (caller, flags) = match (mode, link) {
            // The probe that saw the operation may have come before the probe of the call.
            (Mode::Exact, Some(link)) if self.outside && link.correlation_id == 0 => {
                (by_time(), op_flag::JOINED_BY_TIME)
            }
            // HIP rings for each packet of its own. If another thread's doorbell found the packet, and its own
            // doorbell never came, it was under way when recording began: the thread that enqueued it is not known.
            (Mode::Exact, Some(link)) if !self.owned && link.is_hip() => (None, 0),
            (Mode::Exact, Some(link)) => (Some(link), 0),
            (Mode::Check, Some(link)) => {
                counts.compared += 1;
                let timed = by_time();
                if timed.unwrap_or_default() != link {
                    counts.differing += 1;
                    tracing::debug!(
                        "thread {tid}, {time_ns} ns, owned {}: probe says {link:?}, time {timed:?}",
                        self.owned
                    );
                }
                (Some(link), 0)
            }
            (_, _) => (by_time(), op_flag::JOINED_BY_TIME),
        };
        let caller = caller.filter(|c| c.correlation_id != 0);
        counts.by_time += u64::from(flags != 0 && caller.is_some());
        counts.without_call += u64::from(caller.is_none());
        match caller {
            Some(caller) => (caller, flags),
            None => (Caller::default(), 0),
        }
    }

    /// The event, with the parts that are known; none if only a completion or a link is known.
    pub fn event(
        self,
        pid: u32,
        mode: Mode,
        inventory: &Inventory,
        calls: &RecentCalls,
        counts: &mut Counts,
    ) -> Option<Event> {
        let Some((tid, work)) = &self.enqueued else {
            counts.orphans += u64::from(self.completion != Completion::Awaited);
            return None;
        };
        let enqueue_ns = work.enqueue_ns();
        let tid = self.link.map_or(*tid, |(tid, _)| tid);
        let (caller, mut flags) = self.caller(tid, enqueue_ns, mode, calls, counts);
        let dispatch = matches!(work, Work::Dispatch(_));
        counts.outside += u64::from(self.outside && dispatch);
        let mut complete = shim::Complete::default();
        match self.completion {
            Completion::Seen(seen) => {
                complete = seen;
                flags |= if self.outside { op_flag::ESTIMATED_TIMES } else { 0 };
                if seen.start_ns < enqueue_ns && !self.outside {
                    flags |= op_flag::STARTS_BEFORE_ENQUEUE;
                }
            }
            Completion::Awaited | Completion::Never => {
                flags |= op_flag::INCOMPLETE;
                counts.untimed += u64::from(self.outside && dispatch);
                counts.incomplete += u64::from(!self.outside);
            }
        }
        let common = Common {
            record: ActivityRecord {
                domain: if caller.is_hip() { Domain::HIP_OPS } else { Domain::HSA_OPS },
                correlation_id: caller.correlation_id,
                begin_ns: complete.start_ns,
                end_ns: complete.end_ns,
                thread_id: tid,
                ..Default::default()
            },
            process_id: pid,
            dispatch_id: self.number,
            enqueue_ns,
            flags,
            stream: calls.stream(caller.correlation_id).unwrap_or(0),
            inventory,
        };
        Some(match work {
            Work::Dispatch(dispatch) => {
                counts.dispatches += 1;
                Event::Dispatch(common.dispatch(dispatch))
            }
            Work::Copy(copy) => {
                counts.copies += 1;
                Event::Copy(common.copy(copy))
            }
            Work::Barrier(barrier) => {
                counts.barriers += 1;
                Event::Barrier(common.barrier(barrier))
            }
        })
    }
}

/// The fields that all operations have.
struct Common<'i> {
    record: ActivityRecord,
    process_id: u32,
    dispatch_id: u64,
    enqueue_ns: u64,
    flags: u16,
    stream: u64,
    inventory: &'i Inventory,
}

impl Common<'_> {
    fn node(&self, agent: u64) -> u32 {
        self.inventory.known_agent(agent).map_or(0, |agent| agent.node_id)
    }

    fn dispatch(&self, dispatch: &shim::Dispatch) -> Dispatch {
        let kernel = self.inventory.kernel(dispatch.kernel_object, dispatch.enqueue_ns);
        Dispatch {
            record: ActivityRecord {
                kind: kind::KERNEL,
                op: op::DISPATCH,
                process_or_device: self.node(dispatch.agent),
                queue_id: dispatch.queue_id,
                bytes_or_name: kernel.map_or(0, |kernel| kernel.name.into()),
                ..self.record
            },
            process_id: self.process_id,
            demangled: kernel.map_or(0, |kernel| kernel.demangled),
            kernel_id: kernel.map_or(0, |kernel| kernel.id),
            dispatch_id: self.dispatch_id,
            enqueue_ns: self.enqueue_ns,
            grid: dispatch.grid,
            workgroup: dispatch.workgroup,
            flags: self.flags,
            group_bytes: dispatch.group_bytes,
            private_bytes: dispatch.private_bytes,
            stream: self.stream,
        }
    }

    fn copy(&self, copy: &shim::Copy) -> Copy {
        let is_gpu = |handle| self.inventory.known_agent(handle).is_some_and(|agent| agent.gpu);
        let (from, to) = (is_gpu(copy.src_agent), is_gpu(copy.dst_agent));
        Copy {
            record: ActivityRecord {
                kind: match (from, to) {
                    (true, true) => kind::COPY_DEVICE_TO_DEVICE,
                    (true, false) => kind::COPY_DEVICE_TO_HOST,
                    (false, true) => kind::COPY_HOST_TO_DEVICE,
                    (false, false) => 0,
                },
                op: op::COPY,
                process_or_device: self.node(if to { copy.dst_agent } else { copy.src_agent }),
                bytes_or_name: copy.size_bytes,
                ..self.record
            },
            process_id: self.process_id,
            src_node: self.node(copy.src_agent),
            dst_node: self.node(copy.dst_agent),
            flags: self.flags.into(),
            dispatch_id: self.dispatch_id,
            enqueue_ns: self.enqueue_ns,
            stream: self.stream,
        }
    }

    fn barrier(&self, barrier: &shim::Barrier) -> Barrier {
        Barrier {
            record: ActivityRecord {
                kind: kind::MARKER,
                op: op::BARRIER,
                process_or_device: self.node(barrier.agent),
                queue_id: barrier.queue_id,
                ..self.record
            },
            process_id: self.process_id,
            flags: self.flags.into(),
            dispatch_id: self.dispatch_id,
            enqueue_ns: self.enqueue_ns,
        }
    }
}
