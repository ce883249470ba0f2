//! The records of roctracer's for the events of a trace.

use tracer_common::activity::{ActivityRecord, Domain, op};
use tracer_records::model::{ApiCall, Event, op_flag};

use crate::export::calls::call_times;
use crate::export::left_out::LeftOut;

/// The destination of an event.
pub enum Destination {
    /// To the plugin, among the records of this process.
    Of(u32),
    /// Nowhere; counted here.
    Nowhere(fn(&mut LeftOut) -> &mut u64),
}

/// The destination of an event.
pub fn place(event: &Event) -> Destination {
    let record = event.record();
    let (process_id, flags) = match event {
        Event::Api(_) => {
            return match record.domain {
                Domain::HIP_API | Domain::HSA_API | Domain::ROCTX => {
                    Destination::Of(record.process_or_device)
                }
                _ => Destination::Nowhere(|left_out| &mut left_out.other_calls),
            };
        }
        Event::Dispatch(e) => (e.process_id, u32::from(e.flags)),
        Event::Copy(e) => (e.process_id, e.flags),
        Event::Barrier(e) => (e.process_id, e.flags),
    };
    if flags & u32::from(op_flag::INCOMPLETE) != 0 {
        return Destination::Nowhere(|left_out| &mut left_out.incomplete);
    }
    match (record.domain, event) {
        // roctracer's tool asks only for copies of HSA's work.
        (Domain::HSA_OPS, Event::Dispatch(_) | Event::Barrier(_)) => {
            Destination::Nowhere(|left_out| &mut left_out.hsa_operations)
        }
        (Domain::HSA_OPS | Domain::HIP_OPS, _) => Destination::Of(process_id),
        // Such an event was made up: plugins take its record for something else.
        _ => Destination::Nowhere(|left_out| &mut left_out.other_work),
    }
}

/// The record of a call, with the number of its function in the plugin's tables.
pub fn of_call(call: &ApiCall, op: u32) -> ActivityRecord {
    let (begin_ns, end_ns) = call_times(call);
    let ActivityRecord { domain, correlation_id, process_or_device, thread_id, .. } = call.record;
    ActivityRecord {
        domain,
        op,
        correlation_id,
        begin_ns,
        end_ns,
        process_or_device,
        thread_id,
        ..ActivityRecord::default()
    }
}

/// The record of work. `name` is the address of the kernel's name.
pub fn of_work(event: &Event, name: u64) -> ActivityRecord {
    // By a record's operation a plugin takes its name for an address: so the operation is not taken from the trace.
    let (op, bytes_or_name) = match event {
        Event::Dispatch(_) => (op::DISPATCH, name),
        Event::Barrier(_) => (op::BARRIER, event.record().bytes_or_name),
        Event::Api(_) | Event::Copy(_) => (op::COPY, event.record().bytes_or_name),
    };
    // Without the thread: roctracer has nothing there.
    ActivityRecord { op, bytes_or_name, thread_id: 0, ..*event.record() }
}

#[cfg(test)]
mod tests {
    use tracer_records::model::{Barrier, Copy, Dispatch};

    use super::*;

    #[test]
    fn operations_of_made_up_work_are_those_of_its_kind() {
        let made_up = |domain, op| ActivityRecord {
            domain,
            op,
            bytes_or_name: 0xdead,
            ..ActivityRecord::default()
        };
        let events = |record| {
            [
                Event::Copy(Copy { record, process_id: 1, ..Copy::default() }),
                Event::Barrier(Barrier { record, process_id: 1, ..Barrier::default() }),
                Event::Dispatch(Dispatch { record, process_id: 1, ..Dispatch::default() }),
            ]
        };
        for op in [op::DISPATCH, op::COPY, op::BARRIER, 3, u32::MAX] {
            let records = events(made_up(Domain::HIP_OPS, op)).map(|event| of_work(&event, 7));
            let given = records.map(|record| (record.op, record.bytes_or_name));
            assert_eq!(given, [(op::COPY, 0xdead), (op::BARRIER, 0xdead), (op::DISPATCH, 7)]);
        }
        for domain in [Domain::HIP_API, Domain::EXT_API, Domain::ROCTX, Domain(99)] {
            for event in events(made_up(domain, op::DISPATCH)) {
                assert!(matches!(place(&event), Destination::Nowhere(_)), "{domain:?}");
            }
        }
    }
}
