//! Marks and ranges of a trace, put together from the calls of roctx.
//!
//! A range of a thread goes from a push to the pop that ends it. A range of a process goes from a start to the stop
//! with its id, on any threads. Calls stand in a trace in the order in which the rings were read, so they are sorted
//! first. Each call has its number among those of its thread. If a number is missing, a call was lost: the ranges that
//! are open on the thread then never end, since it is not known which pop belongs to which push. The same holds where
//! numbers begin anew, with another thread of the same number, or another program.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, convert::Infallible, mem};

use tracer_common::{activity::roctx, bpf::flag};
use tracer_records::model::{ApiCall, Event, StringId, op_flag};

use crate::trace::Trace;

/// The most calls that are kept, some 200 bytes each: a trace can have any number.
const MAX_CALLS: usize = 1 << 22;

/// The owner of a range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RangeOwner {
    /// A thread's: pushed and popped.
    Thread,
    /// A process's: started and stopped.
    Process,
}

/// The GPU work in a range: kernels and copies that were enqueued while the range was open, by its thread or by any
/// thread of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gpu {
    /// The time of the operations, ns.
    pub ns: u64,
    /// The number of operations.
    pub operations: u64,
    /// The number of further operations, without a completion.
    pub incomplete: u64,
}

/// A mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Process and thread that set it.
    pub thread: (u32, u32),
    /// Its call.
    pub correlation_id: u64,
    /// Its message; none if that is not known.
    pub message: Option<StringId>,
    /// When, ns.
    pub time_ns: u64,
}

/// A range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Its owner.
    pub of: RangeOwner,
    /// Process and thread that began it, or ended it if only that is known.
    pub thread: (u32, u32),
    /// The call that did so.
    pub correlation_id: u64,
    /// Its message; none if that is not known.
    pub message: Option<StringId>,
    /// When it began, ns; none if that was not seen.
    pub begin_ns: Option<u64>,
    /// When it ended, ns; none if that was not seen.
    pub end_ns: Option<u64>,
    /// The GPU work in it, if both ends are known.
    pub gpu: Gpu,
    /// The indices of its ends in the timeline.
    places: [usize; 2],
}

impl Range {
    /// The time for which it was open, if that is known.
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.end_ns?.saturating_sub(self.begin_ns?))
    }

    /// When it was seen first.
    pub fn time_ns(&self) -> u64 {
        self.begin_ns.or(self.end_ns).unwrap_or_default()
    }
}

/// A call of roctx.
#[derive(Clone, Copy)]
struct Call {
    thread: (u32, u32),
    time_ns: u64,
    number: u64,
    correlation_id: u64,
    /// The id of a range of a process; 0 if it is not known.
    id: u64,
    message: StringId,
    op: u16,
    /// Whether its begin was seen.
    has_begin: bool,
    /// Whether its message is known.
    has_message: bool,
}

impl Call {
    fn of(call: &ApiCall) -> Self {
        let record = &call.record;
        let id = match record.op {
            roctx::START => call.ret,
            roctx::STOP => call.args[0],
            _ => 0,
        };
        Self {
            thread: (record.process_or_device, record.thread_id),
            time_ns: if record.begin_ns == 0 { record.end_ns } else { record.begin_ns },
            number: call.extra[0],
            correlation_id: record.correlation_id,
            id,
            message: record.bytes_or_name as StringId,
            op: record.op as u16,
            has_begin: record.begin_ns != 0,
            has_message: call.flags & flag::UNREADABLE == 0,
        }
    }

    fn message(&self) -> Option<StringId> {
        self.has_message.then_some(self.message)
    }

    /// The range that the call begins.
    fn begun(&self, of: RangeOwner, place: usize) -> Range {
        let (message, begin_ns) = (self.message(), Some(self.time_ns));
        Range { message, begin_ns, end_ns: None, ..self.ended(of, place) }
    }

    /// The range that the call ends, if nothing else is known of it.
    fn ended(&self, of: RangeOwner, place: usize) -> Range {
        let Self { thread, correlation_id, time_ns, .. } = *self;
        Range {
            of,
            thread,
            correlation_id,
            message: None,
            begin_ns: None,
            end_ns: Some(time_ns),
            gpu: Gpu::default(),
            places: [place; 2],
        }
    }
}

/// The calls of a trace.
#[derive(Default)]
pub struct Calls {
    calls: Vec<Call>,
    /// Calls beyond [`MAX_CALLS`].
    pub left_out: u64,
}

impl Calls {
    /// Adds a call of roctx.
    pub fn add(&mut self, call: &ApiCall) {
        if self.calls.len() < MAX_CALLS {
            self.calls.push(Call::of(call));
        } else {
            self.left_out += 1;
        }
    }

    /// Whether there are no calls.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The marks and ranges that the calls make.
    pub fn put_together(mut self) -> Ranges {
        self.calls.sort_by_key(|call| (call.thread, call.time_ns, call.number));
        let mut ranges = Ranges::default();
        let mut of_processes = Vec::<Call>::new();
        for calls in self.calls.chunk_by(|a, b| a.thread == b.thread) {
            ranges.of_thread(calls);
            let is_wanted = |call: &&Call| [roctx::START, roctx::STOP].contains(&call.op.into());
            of_processes.extend(calls.iter().filter(is_wanted));
        }
        of_processes.sort_by_key(|call| (call.thread.0, call.time_ns));
        for calls in of_processes.chunk_by(|a, b| a.thread.0 == b.thread.0) {
            ranges.of_process(calls);
        }
        ranges
    }
}

/// Marks and ranges.
#[derive(Default)]
pub struct Ranges {
    /// Marks, by thread and time.
    pub marks: Vec<Mark>,
    /// Ranges, in no particular order.
    pub ranges: Vec<Range>,
    threads: Timeline,
    processes: Timeline,
}

impl Ranges {
    /// Goes through the calls of a thread.
    fn of_thread(&mut self, calls: &[Call]) {
        let (mut open, mut last) = (Vec::<Range>::new(), 0);
        for call in calls {
            if call.number != 0 {
                if call.number != last + 1 {
                    self.ranges.append(&mut open);
                }
                last = call.number;
            }
            match call.op.into() {
                roctx::MARK => self.marks.push(Mark {
                    thread: call.thread,
                    correlation_id: call.correlation_id,
                    message: call.message(),
                    time_ns: call.time_ns,
                }),
                roctx::PUSH => {
                    let place = self.threads.push(call.thread, call.time_ns);
                    open.push(call.begun(RangeOwner::Thread, place));
                }
                roctx::POP => {
                    let place = self.threads.push(call.thread, call.time_ns);
                    self.ranges.push(match open.pop() {
                        Some(range) => range.until(call.time_ns, place),
                        None => call.ended(RangeOwner::Thread, place),
                    });
                }
                _ => {}
            }
        }
        self.ranges.append(&mut open);
    }

    /// Goes through the calls of a process that start and stop ranges.
    fn of_process(&mut self, calls: &[Call]) {
        let mut open = HashMap::<u64, Range>::new();
        for call in calls {
            let place = self.processes.push((call.thread.0, 0), call.time_ns);
            if u32::from(call.op) == roctx::STOP {
                self.ranges.push(match open.remove(&call.id) {
                    Some(range) => range.until(call.time_ns, place),
                    None => call.ended(RangeOwner::Process, place),
                });
            } else if call.has_begin {
                let range = call.begun(RangeOwner::Process, place);
                // A range without an id is never stopped. An open range of the same id belongs to an earlier program.
                let never_ends =
                    if call.id == 0 { Some(range) } else { open.insert(call.id, range) };
                self.ranges.extend(never_ends);
            }
        }
        let mut rest: Vec<Range> = open.into_values().collect();
        rest.sort_by_key(Range::time_ns);
        self.ranges.append(&mut rest);
    }

    /// Adds up the GPU work in each range.
    pub fn measure(&mut self, trace: &Trace) {
        let Ok(_) = trace.for_each_event(|event| {
            self.add(event);
            Ok::<(), Infallible>(())
        });
        self.settle();
    }

    fn add(&mut self, event: &Event) {
        let (process_id, enqueue_ns, flags) = match event {
            Event::Dispatch(e) => (e.process_id, e.enqueue_ns, e.flags.into()),
            Event::Copy(e) => (e.process_id, e.enqueue_ns, e.flags),
            Event::Api(_) | Event::Barrier(_) => return,
        };
        let record = event.record();
        let is_complete = flags & u32::from(op_flag::INCOMPLETE) == 0;
        let ns = record.end_ns.saturating_sub(record.begin_ns);
        let work = Work {
            ns: if is_complete { ns.into() } else { 0 },
            operations: is_complete.into(),
            incomplete: (!is_complete).into(),
        };
        self.threads.add((process_id, record.thread_id), enqueue_ns, work);
        self.processes.add((process_id, 0), enqueue_ns, work);
    }

    fn settle(&mut self) {
        let [threads, processes] = [&mut self.threads, &mut self.processes].map(Timeline::sums);
        for range in &mut self.ranges {
            let [begin, end] = range.places;
            let sums = if range.of == RangeOwner::Thread { &threads } else { &processes };
            range.gpu = sums[end].since(sums[begin]);
        }
    }
}

impl Range {
    fn until(self, end_ns: u64, place: usize) -> Self {
        Self { end_ns: Some(end_ns), places: [self.places[0], place], ..self }
    }
}

/// Work of the GPU.
#[derive(Clone, Copy, Default)]
struct Work {
    ns: u128,
    operations: u64,
    incomplete: u64,
}

impl Work {
    fn plus(self, other: Self) -> Self {
        Self {
            ns: self.ns + other.ns,
            operations: self.operations + other.operations,
            incomplete: self.incomplete + other.incomplete,
        }
    }

    fn since(self, earlier: Self) -> Gpu {
        Gpu {
            ns: u64::try_from(self.ns - earlier.ns).unwrap_or(u64::MAX),
            operations: self.operations - earlier.operations,
            incomplete: self.incomplete - earlier.incomplete,
        }
    }
}

/// The moments at which ranges begin and end, by thread or process, and the work that was enqueued between one moment
/// and the next.
#[derive(Default)]
struct Timeline {
    moments: Vec<((u32, u32), u64)>,
    work: Vec<Work>,
}

impl Timeline {
    /// Adds a moment, which is not among the earlier ones; returns its index.
    fn push(&mut self, whose: (u32, u32), time_ns: u64) -> usize {
        self.moments.push((whose, time_ns));
        self.work.push(Work::default());
        self.moments.len() - 1
    }

    fn add(&mut self, whose: (u32, u32), time_ns: u64, work: Work) {
        let after = self.moments.partition_point(|moment| *moment <= (whose, time_ns));
        let before = after.checked_sub(1);
        if let Some(before) = before.filter(|&at| self.moments[at].0 == whose) {
            self.work[before] = self.work[before].plus(work);
        }
    }

    /// The work that was enqueued before each moment.
    fn sums(&mut self) -> Vec<Work> {
        let mut sum = Work::default();
        let before = |work: &Work| {
            let with_it = sum.plus(*work);
            mem::replace(&mut sum, with_it)
        };
        self.work.iter().map(before).collect()
    }
}
