//! Events as fixed-size records.
//!
//! The records are made for the file alone: native structs of the model have padding and change with the model, these
//! do not. Little-endian like the rest of the file: `ActivityRecord` is stored as it stands in memory, so roctap
//! builds for little-endian machines only.

use tracer_common::activity::ActivityRecord;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::format::{EventHeader, event_kind};
use tracer_records::model::{ApiCall, Barrier, Copy, Dispatch, Event};

const _: () = assert!(cfg!(target_endian = "little"));

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct WireApi {
    record: ActivityRecord,
    parent_id: u64,
    ret: u64,
    args: [u64; 6],
    extra: [u64; 3],
    flags: u16,
    reserved: [u16; 3],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct WireDispatch {
    record: ActivityRecord,
    dispatch_id: u64,
    enqueue_ns: u64,
    stream: u64,
    process_id: u32,
    demangled: u32,
    kernel_id: u32,
    group_bytes: u32,
    private_bytes: u32,
    grid: [u32; 3],
    workgroup: [u16; 3],
    flags: u16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct WireCopy {
    record: ActivityRecord,
    dispatch_id: u64,
    enqueue_ns: u64,
    stream: u64,
    process_id: u32,
    src_node: u32,
    dst_node: u32,
    flags: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct WireBarrier {
    record: ActivityRecord,
    dispatch_id: u64,
    enqueue_ns: u64,
    process_id: u32,
    flags: u32,
}

const _: () = {
    assert!(size_of::<WireApi>() == 160);
    assert!(size_of::<WireDispatch>() == 128);
    assert!(size_of::<WireCopy>() == 104);
    assert!(size_of::<WireBarrier>() == 88);
};

fn put<T: IntoBytes + Immutable>(out: &mut Vec<u8>, kind: u16, record: &T) {
    let header = EventHeader {
        kind: kind.into(),
        bytes: (size_of::<T>() as u16).into(),
        reserved: 0.into(),
    };
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(record.as_bytes());
}

/// Appends `event` with its header.
pub fn encode(out: &mut Vec<u8>, event: &Event) {
    match event {
        Event::Api(call) => {
            let &ApiCall { record, parent_id, ret, args, extra, flags } = call;
            let reserved = [0; 3];
            let wire = WireApi { record, parent_id, ret, args, extra, flags, reserved };
            put(out, event_kind::API, &wire);
        }
        Event::Dispatch(dispatch) => {
            let &Dispatch {
                record,
                process_id,
                demangled,
                kernel_id,
                dispatch_id,
                enqueue_ns,
                grid,
                workgroup,
                flags,
                group_bytes,
                private_bytes,
                stream,
            } = dispatch;
            let wire = WireDispatch {
                record,
                dispatch_id,
                enqueue_ns,
                stream,
                process_id,
                demangled,
                kernel_id,
                group_bytes,
                private_bytes,
                grid,
                workgroup,
                flags,
            };
            put(out, event_kind::DISPATCH, &wire);
        }
        Event::Copy(copy) => {
            let &Copy {
                record,
                process_id,
                src_node,
                dst_node,
                flags,
                dispatch_id,
                enqueue_ns,
                stream,
            } = copy;
            let wire = WireCopy {
                record,
                dispatch_id,
                enqueue_ns,
                stream,
                process_id,
                src_node,
                dst_node,
                flags,
            };
            put(out, event_kind::COPY, &wire);
        }
        Event::Barrier(barrier) => {
            let &Barrier { record, process_id, flags, dispatch_id, enqueue_ns } = barrier;
            let wire = WireBarrier { record, dispatch_id, enqueue_ns, process_id, flags };
            put(out, event_kind::BARRIER, &wire);
        }
    }
}

fn get<T: FromBytes>(record: &[u8]) -> Option<T> {
    T::read_from_prefix(record).ok().map(|(wire, _)| wire)
}

/// Reads the record of an event of `kind`. Nothing if the kind is not known; an error if the record is shorter than
/// its kind needs.
pub fn decode(kind: u16, record: &[u8]) -> Result<Option<Event>, &'static str> {
    let event = match kind {
        event_kind::API => get(record).map(|wire| {
            let WireApi { record, parent_id, ret, args, extra, flags, reserved: _ } = wire;
            Event::Api(ApiCall { record, parent_id, ret, args, extra, flags })
        }),
        event_kind::DISPATCH => get(record).map(|wire| {
            let WireDispatch {
                record,
                dispatch_id,
                enqueue_ns,
                stream,
                process_id,
                demangled,
                kernel_id,
                group_bytes,
                private_bytes,
                grid,
                workgroup,
                flags,
            } = wire;
            Event::Dispatch(Dispatch {
                record,
                process_id,
                demangled,
                kernel_id,
                dispatch_id,
                enqueue_ns,
                grid,
                workgroup,
                flags,
                group_bytes,
                private_bytes,
                stream,
            })
        }),
        event_kind::COPY => get(record).map(|wire| {
            let WireCopy {
                record,
                dispatch_id,
                enqueue_ns,
                stream,
                process_id,
                src_node,
                dst_node,
                flags,
            } = wire;
            Event::Copy(Copy {
                record,
                process_id,
                src_node,
                dst_node,
                flags,
                dispatch_id,
                enqueue_ns,
                stream,
            })
        }),
        event_kind::BARRIER => get(record).map(|wire| {
            let WireBarrier { record, dispatch_id, enqueue_ns, process_id, flags } = wire;
            Event::Barrier(Barrier { record, process_id, flags, dispatch_id, enqueue_ns })
        }),
        _ => return Ok(None),
    };
    event.map(Some).ok_or("a whole event record")
}
