//! Which event of a trace is which record of roctracer's.

use tracer_common::activity::{ActivityRecord, Domain};
use tracer_records::model::{ApiCall, Event, op_flag};

use crate::export::calls::call_times;
use crate::export::left_out::LeftOut;

/// Where an event goes.
pub enum Place {
    /// To the plugin, among the records of this process.
    Of(u32),
    /// Nowhere; counted here.
    Nowhere(fn(&mut LeftOut) -> &mut u64),
}

/// Where an event goes.
pub fn place(event: &Event) -> Place {
    let record = event.record();
    let (process_id, flags) = match event {
        Event::Api(_) => {
            return match record.domain {
                Domain::HIP_API | Domain::HSA_API | Domain::ROCTX => {
                    Place::Of(record.process_or_device)
                }
                _ => Place::Nowhere(|left_out| &mut left_out.other_calls),
            };
        }
        Event::Dispatch(e) => (e.process_id, u32::from(e.flags)),
        Event::Copy(e) => (e.process_id, e.flags),
        Event::Barrier(e) => (e.process_id, e.flags),
    };
    if flags & u32::from(op_flag::INCOMPLETE) != 0 {
        return Place::Nowhere(|left_out| &mut left_out.incomplete);
    }
    match (record.domain, event) {
        // Of HSA's work roctracer's tool asks for copies alone.
        (Domain::HSA_OPS, Event::Dispatch(_) | Event::Barrier(_)) => {
            Place::Nowhere(|left_out| &mut left_out.hsa_operations)
        }
        _ => Place::Of(process_id),
    }
}

/// The record of a call, with the number that its function has here.
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
    // The thread is no part of it: roctracer has nothing there.
    let record = ActivityRecord { thread_id: 0, ..*event.record() };
    match event {
        Event::Dispatch(_) => ActivityRecord { bytes_or_name: name, ..record },
        Event::Api(_) | Event::Copy(_) | Event::Barrier(_) => record,
    }
}
