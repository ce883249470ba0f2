//! Ranges of programs that make calls in any order.

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

/// Message, begin, end, and GPU time.
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
    // Work of another thread, and of another process with the same thread number.
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
    // The same ids in another process.
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
    assert!(ranges.ranges.iter().all(|range| range.of == RangeOwner::Process));
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
    // A call on the stack of a fibre; a call that was open when recording began.
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

/// A trace that was made up can have any number of calls, at any depth.
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
