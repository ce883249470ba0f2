//! Marks and ranges of a trace, put together from the calls of roctx.
//!
//! A range of a thread goes from a push to the pop that ends it. A range of a process goes from a start to the
//! stop of its id, on whatever threads. Calls stand in a trace as the rings were read, so they are sorted first.
//! Each call has its number among those of its thread. Where a number is missing a call was lost: what is open on
//! the thread then never ends, since nobody knows which pop is whose. So it is where numbers begin anew, with
//! another thread of the same number, or another program.

use std::{collections::HashMap, convert::Infallible, mem};

use tracer_common::{activity::roctx, bpf::flag};
use tracer_records::model::{ApiCall, Event, StringId, op_flag};

use crate::trace::Trace;

/// Calls that are kept, which take some 200 bytes each: a trace can have any number.
const MAX_CALLS: usize = 1 << 22;

/// Whose range it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Of {
    /// A thread's: pushed and popped.
    Thread,
    /// A process's: started and stopped.
    Process,
}

/// What the GPU did in a range: kernels and copies that were enqueued while it was open, by its thread or by any
/// thread of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gpu {
    /// How long, ns.
    pub ns: u64,
    /// How many operations that was.
    pub operations: u64,
    /// How many more there were, without a completion.
    pub incomplete: u64,
}

/// A mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Process and thread that set it.
    pub thread: (u32, u32),
    /// Its call.
    pub correlation_id: u64,
    /// What it says; none where that is not known.
    pub message: Option<StringId>,
    /// When, ns.
    pub time_ns: u64,
}

/// A range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Whose it is.
    pub of: Of,
    /// Process and thread that began it, or ended it where only that is known.
    pub thread: (u32, u32),
    /// The call that did so.
    pub correlation_id: u64,
    /// What it says; none where that is not known.
    pub message: Option<StringId>,
    /// When it began, ns; none where that was not seen.
    pub begin_ns: Option<u64>,
    /// When it ended, ns; none where that was not seen.
    pub end_ns: Option<u64>,
    /// Of a range whose both ends are known.
    pub gpu: Gpu,
    /// Where its ends are in the timeline.
    places: [usize; 2],
}

impl Range {
    /// How long it was open, where that is known.
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
    /// Of a range of a process; 0 where it is not known.
    id: u64,
    message: StringId,
    op: u16,
    /// Its begin was seen.
    has_begin: bool,
    /// What it says is known.
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

    /// The range that it begins.
    fn begun(&self, of: Of, place: usize) -> Range {
        let (message, begin_ns) = (self.message(), Some(self.time_ns));
        Range { message, begin_ns, end_ns: None, ..self.ended(of, place) }
    }

    /// The range that it ends, of which nothing else is known.
    fn ended(&self, of: Of, place: usize) -> Range {
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// What they come to.
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
    /// Ranges, in no certain order.
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
                    open.push(call.begun(Of::Thread, place));
                }
                roctx::POP => {
                    let place = self.threads.push(call.thread, call.time_ns);
                    self.ranges.push(match open.pop() {
                        Some(range) => range.until(call.time_ns, place),
                        None => call.ended(Of::Thread, place),
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
                    None => call.ended(Of::Process, place),
                });
            } else if call.has_begin {
                let range = call.begun(Of::Process, place);
                // Without an id it is never stopped. One of the same id is of a program before this one.
                let never_ends =
                    if call.id == 0 { Some(range) } else { open.insert(call.id, range) };
                self.ranges.extend(never_ends);
            }
        }
        let mut rest: Vec<Range> = open.into_values().collect();
        rest.sort_by_key(Range::time_ns);
        self.ranges.append(&mut rest);
    }

    /// Adds up what the GPU did in each range.
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
            let sums = if range.of == Of::Thread { &threads } else { &processes };
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

/// When ranges begin and end, by thread or process, and what was enqueued between one such moment and the next.
#[derive(Default)]
struct Timeline {
    moments: Vec<((u32, u32), u64)>,
    work: Vec<Work>,
}

impl Timeline {
    /// Adds a moment, which is none of those before; its place.
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

    /// What was enqueued before each moment.
    fn sums(&mut self) -> Vec<Work> {
        let mut sum = Work::default();
        let before = |work: &Work| {
            let with_it = sum.plus(*work);
            mem::replace(&mut sum, with_it)
        };
        self.work.iter().map(before).collect()
    }
}

#[cfg(test)]
mod tests {
    use tracer_common::activity::{ActivityRecord, Domain};
    use tracer_records::model::{Copy, Dispatch};

    use super::*;

    /// The message of a call that was lost.
    const LOST: u32 = u32::MAX;

    /// Makes calls, numbered by thread.
    #[derive(Default)]
    struct Program {
        calls: Calls,
        numbers: HashMap<(u32, u32), u64>,
    }

    impl Program {
        fn call(&mut self, thread: (u32, u32), op: u32, time_ns: u64, message: u32) -> &mut Self {
            let number = self.numbers.entry(thread).or_default();
            *number += 1;
            if message == LOST {
                return self;
            }
            let record = ActivityRecord {
                domain: Domain::ROCTX,
                op,
                correlation_id: time_ns,
                begin_ns: time_ns,
                process_or_device: thread.0,
                thread_id: thread.1,
                bytes_or_name: message.into(),
                ..Default::default()
            };
            let (args, ret) = ([message.into(), 0, 0, 0, 0, 0], message.into());
            let extra = [*number, 0, 0];
            self.calls.add(&ApiCall { record, args, ret, extra, ..ApiCall::default() });
            self
        }

        fn put_together(&mut self) -> Ranges {
            mem::take(&mut self.calls).put_together()
        }
    }

    const A: (u32, u32) = (1, 10);
    const B: (u32, u32) = (1, 11);

    /// Message, begin, end, and how much GPU time there was.
    type Shown = (Option<u32>, Option<u64>, Option<u64>, u64);

    fn shown(ranges: &Ranges) -> Vec<Shown> {
        let mut ranges = ranges.ranges.clone();
        ranges.sort_by_key(|range| (range.time_ns(), range.end_ns));
        ranges.iter().map(|r| (r.message, r.begin_ns, r.end_ns, r.gpu.ns)).collect()
    }

    fn work(thread: (u32, u32), enqueue_ns: u64, ns: u64) -> Event {
        let record = ActivityRecord {
            begin_ns: 1000,
            end_ns: 1000 + ns,
            thread_id: thread.1,
            ..ActivityRecord::default()
        };
        Event::Dispatch(Dispatch { record, process_id: thread.0, enqueue_ns, ..Default::default() })
    }

    #[test]
    fn nested_ranges_of_threads_have_what_was_enqueued_in_them() {
        let mut program = Program::default();
        program.call(A, roctx::PUSH, 10, 1).call(A, roctx::PUSH, 20, 2);
        program.call(B, roctx::PUSH, 21, 3).call(A, roctx::MARK, 22, 4);
        program.call(A, roctx::POP, 30, 0).call(B, roctx::POP, 31, 0).call(A, roctx::POP, 40, 0);
        let mut ranges = program.put_together();
        for (enqueue_ns, ns) in [(9, 1), (15, 10), (25, 100), (35, 1000), (41, 10_000)] {
            ranges.add(&work(A, enqueue_ns, ns));
        }
        // Another thread's, and one of a process with the same thread.
        ranges.add(&work(B, 25, 7));
        ranges.add(&work((2, 10), 25, 100_000));
        ranges.settle();
        let expected = [
            (Some(1), Some(10), Some(40), 1110),
            (Some(2), Some(20), Some(30), 100),
            (Some(3), Some(21), Some(31), 7),
        ];
        assert_eq!(shown(&ranges), expected);
        let [mark] = ranges.marks[..] else { panic!("{:?}", ranges.marks) };
        assert_eq!((mark.thread, mark.time_ns, mark.message), (A, 22, Some(4)));
    }

    #[test]
    fn ranges_of_processes_have_what_any_thread_enqueued() {
        let mut program = Program::default();
        program.call(A, roctx::START, 10, 1).call(B, roctx::START, 20, 2);
        program.call(B, roctx::STOP, 30, 1).call(A, roctx::STOP, 40, 2);
        // The same ids of another process.
        program.call((2, 10), roctx::START, 5, 1).call((2, 10), roctx::STOP, 50, 1);
        let mut ranges = program.put_together();
        for (thread, enqueue_ns, ns) in [(A, 15, 1), (B, 25, 10), (A, 35, 100), (B, 45, 1000)] {
            ranges.add(&work(thread, enqueue_ns, ns));
        }
        ranges.settle();
        let expected = [
            (Some(1), Some(5), Some(50), 0),
            (Some(1), Some(10), Some(30), 11),
            (Some(2), Some(20), Some(40), 110),
        ];
        assert_eq!(shown(&ranges), expected);
        assert!(ranges.ranges.iter().all(|range| range.of == Of::Process));
    }

    #[test]
    fn calls_come_in_any_order() {
        let mut program = Program::default();
        program.call(A, roctx::PUSH, 10, 1).call(A, roctx::PUSH, 20, 2);
        program.call(A, roctx::POP, 30, 0).call(A, roctx::POP, 40, 0);
        program.calls.calls.reverse();
        let ranges = program.put_together();
        let expected = [(Some(1), Some(10), Some(40), 0), (Some(2), Some(20), Some(30), 0)];
        assert_eq!(shown(&ranges), expected);
    }

    #[test]
    fn what_was_not_seen_is_not_made_up() {
        let mut program = Program::default();
        // Recording began inside of two ranges, and ended inside of another one.
        program.call(A, roctx::POP, 10, 0).call(A, roctx::POP, 20, 0).call(A, roctx::PUSH, 30, 1);
        program.call(B, roctx::STOP, 15, 7).call(B, roctx::START, 25, 8);
        let ranges = program.put_together();
        let expected = [
            (None, None, Some(10), 0),
            (None, None, Some(15), 0),
            (None, None, Some(20), 0),
            (Some(8), Some(25), None, 0),
            (Some(1), Some(30), None, 0),
        ];
        assert_eq!(shown(&ranges), expected);
        assert!(ranges.ranges.iter().all(|range| range.duration_ns().is_none()));
    }

    #[test]
    fn behind_a_call_that_was_lost_nobody_knows_whose_pop_it_is() {
        let mut program = Program::default();
        program.call(A, roctx::PUSH, 10, 1).call(A, roctx::PUSH, 20, LOST);
        program.call(A, roctx::POP, 30, 0).call(A, roctx::POP, 40, 0);
        // The range of another thread is whole.
        program.call(B, roctx::PUSH, 50, 2).call(B, roctx::POP, 60, 0);
        let ranges = program.put_together();
        let expected = [
            (Some(1), Some(10), None, 0),
            (None, None, Some(30), 0),
            (None, None, Some(40), 0),
            (Some(2), Some(50), Some(60), 0),
        ];
        assert_eq!(shown(&ranges), expected);
    }

    #[test]
    fn another_program_ends_no_range_of_the_one_before() {
        let mut program = Program::default();
        program.call(A, roctx::PUSH, 10, 1).call(A, roctx::START, 20, 5);
        program.numbers.clear();
        program.call(A, roctx::PUSH, 30, 2).call(A, roctx::POP, 40, 0).call(A, roctx::POP, 50, 0);
        program.call(A, roctx::START, 60, 5).call(A, roctx::STOP, 70, 5);
        let ranges = program.put_together();
        let expected = [
            (Some(1), Some(10), None, 0),
            (Some(5), Some(20), None, 0),
            (Some(2), Some(30), Some(40), 0),
            (None, None, Some(50), 0),
            (Some(5), Some(60), Some(70), 0),
        ];
        assert_eq!(shown(&ranges), expected);
    }

    #[test]
    fn a_start_without_its_id_or_begin_has_no_stop() {
        let mut calls = Calls::default();
        let call = |op, begin_ns, end_ns, id| {
            let domain = Domain::ROCTX;
            let record = ActivityRecord { domain, op, begin_ns, end_ns, ..Default::default() };
            let flags = if begin_ns == 0 { flag::UNREADABLE } else { 0 };
            ApiCall { record, ret: id, args: [id, 0, 0, 0, 0, 0], flags, ..ApiCall::default() }
        };
        // On the stack of a fibre; open when recording began.
        calls.add(&call(roctx::START, 10, 0, 0));
        calls.add(&call(roctx::START, 0, 20, 1));
        calls.add(&call(roctx::STOP, 30, 0, 1));
        calls.add(&call(roctx::STOP, 40, 0, 0));
        let expected =
            [(Some(0), Some(10), None, 0), (None, None, Some(30), 0), (None, None, Some(40), 0)];
        assert_eq!(shown(&calls.put_together()), expected);
    }

    #[test]
    fn work_of_any_size_is_added_up() {
        let mut program = Program::default();
        program.call(A, roctx::PUSH, 10, 1).call(A, roctx::POP, 20, 0);
        let mut ranges = program.put_together();
        for _ in 0..3 {
            let mut work = work(A, 15, 0);
            if let Event::Dispatch(dispatch) = &mut work {
                (dispatch.record.begin_ns, dispatch.record.end_ns) = (0, u64::MAX);
            }
            ranges.add(&work);
        }
        let flags = op_flag::INCOMPLETE.into();
        let record = ActivityRecord { thread_id: A.1, ..ActivityRecord::default() };
        let copy = Copy { record, process_id: A.0, enqueue_ns: 12, flags, ..Copy::default() };
        ranges.add(&Event::Copy(copy));
        ranges.settle();
        let gpu = Gpu { ns: u64::MAX, operations: 3, incomplete: 1 };
        assert_eq!(ranges.ranges[0].gpu, gpu);
    }

    /// Whoever made a trace up can have any number and any depth.
    #[test]
    fn no_trace_has_calls_without_end() {
        let mut program = Program::default();
        let deep = 1 << 16;
        for time_ns in 0..deep {
            program.call(A, roctx::PUSH, time_ns + 1, 1);
        }
        for time_ns in 0..deep {
            program.call(A, roctx::POP, deep + time_ns + 1, 0);
        }
        let ranges = program.put_together().ranges;
        assert_eq!(ranges.iter().filter_map(Range::duration_ns).max(), Some(2 * deep - 1));
        let mut calls = Calls::default();
        (0..MAX_CALLS + 10).for_each(|_| calls.add(&ApiCall::default()));
        assert_eq!((calls.calls.len(), calls.left_out), (MAX_CALLS, 10));
    }
}
